"""Version 0.2.0, the first: where every upgrade begins."""

from simsql.database.history import refuse_alembic as upgrade

__all__ = ["upgrade"]

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None
