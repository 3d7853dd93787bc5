"""${message}."""

from pathlib import Path

from alembic.operations import Operations

from simsql.database.history import run_script

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade(operations: Operations, sql: Path) -> None:
    """Bring the schema from ${down_revision} to ${up_revision}; `sql` is the folder of sql/ as it is now."""
    run_script(operations, "...")
