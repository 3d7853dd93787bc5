"""The first schema: everything in sql/, in the order in which one file needs another."""

from pathlib import Path

from alembic.operations import Operations

from simsql.database.history import run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

FILES = (
    "schema",
    "fingerprints",
    "layout",
    "scope",
    "checks",
    "search",
    "near",
    "indexes",
    "upkeep",
    "build",
    "verify",
    "joins",
    "claim",
    "clusters",
    "load",
    "backfill",
    "source",
    "uninstall",
    "safety",
)
# The files of sql/ as they were released, from the day on which a later revision changes them.
RELEASED = Path(__file__).with_name("0001")


def upgrade(operations: Operations, sql: Path) -> None:
    """Create the schema simsql with all that it holds."""
    folder = RELEASED if RELEASED.is_dir() else sql
    for name in FILES:
        run_script(operations, (folder / f"{name}.sql").read_text(encoding="utf-8"))
