"""Version 0.3.0: marks that an index is complete, the sources of fingerprints, and explicit privileges."""

from simsql.database.history import refuse_alembic as upgrade

__all__ = ["upgrade"]

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None
