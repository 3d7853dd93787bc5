"""A revision that no release has: a new column, other functions, and all indexes made anew."""

from pathlib import Path

from alembic.operations import Operations

from simsql.database.history import run_script

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade(operations: Operations, sql: Path) -> None:
    """Run what is new, remake what indexes have baked in, and secure the functions."""
    run_script(operations, (sql / "second.sql").read_text(encoding="utf-8"))
    run_script(operations, "SELECT simsql._create_functions(r) FROM simsql.registry AS r;")
    run_script(operations, (sql / "safety.sql").read_text(encoding="utf-8"))
