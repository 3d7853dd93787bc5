"""Version 0.2.0: triggers that trust no table, and that serve logical replication."""

from simsql.database.history import refuse_alembic as upgrade

__all__ = ["upgrade"]

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
