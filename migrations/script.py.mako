"""${message}."""

from simsql.database.history import refuse_alembic as upgrade

__all__ = ["upgrade"]

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None
