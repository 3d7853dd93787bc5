"""Where a job keeps its documents: in memory, in a folder that stays, or in the user's database."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simsql.database.database_choice import DatabaseChoice
from simsql.decide.rules import Rules
from simsql.dedup.store.memory import MemoryStore
from simsql.dedup.store.store import Store
from simsql.documents import Stages
from simsql.errors import UsageError
from simsql.fingerprint import Recipe


@dataclass(frozen=True)
class Destination(DatabaseChoice):
    """The database for the documents, and their table. Without these, they are in memory."""

    table: str | None = None
    """Table name, with an optional schema; None for the default with `server_dir`. Later runs add to the table."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table and not self.stays:
            raise UsageError("--table needs a database that stays: add --server-dir DIR or --database URL")
        if self.database and not self.table:
            raise UsageError("--database needs --table NAME; without both, everything stays in memory")


@contextmanager
def open_store(
    destination: Destination, recipe: Recipe, rules: Rules, stages: Stages, *, redecide: bool, create: bool
) -> Iterator[Store]:
    """Open the place for documents and decisions. What does not stay ends with the job, however the job ends.

    `recipe` is the recipe of the fingerprints. The last arguments are those of `DocumentTable.opened`, which
    raises the same errors.
    """
    if not destination.stays:
        yield MemoryStore(recipe, rules)
        return
    # Without a database, nothing of PostgreSQL is imported.
    from simsql.dedup.store.table_store import open_table  # noqa: PLC0415

    with open_table(destination, recipe, rules, stages, redecide=redecide, create=create) as store:
        yield store
