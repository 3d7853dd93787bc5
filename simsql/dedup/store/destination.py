"""The database for the documents of a job: temporary, in a folder that is kept, or the user's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simsql.database.chosen import ChosenDatabase
from simsql.decide.rules import Rules
from simsql.dedup.store.table import DECIDED, MEMBERS, STAGED, DocumentStore, Scratch
from simsql.errors import UsageError
from simsql.fingerprint import Recipe

DEFAULT_TABLE = "simsql_documents"
_LONGEST_NAME = 63  # bytes of a name in PostgreSQL


@dataclass(frozen=True)
class Destination(ChosenDatabase):
    """The database for the documents, and their table."""

    table: str | None = None
    """Table name, with an optional schema. The table stays, and later runs add to it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.table and not self.stays:
            raise UsageError("--table needs a database that stays: add --server-dir DIR or --database URL")


@contextmanager
def open_store(
    destination: Destination, recipe: Recipe, rules: Rules, *, redecide: bool, create: bool
) -> Iterator[DocumentStore]:
    """Open the table of documents. It ends with the job unless it stays, however the job ends.

    `recipe` is the recipe of its fingerprints. The other arguments are those of `DocumentStore.opened`, which
    raises the same errors.
    """
    with destination.open(scratch=True) as engine:
        table = destination.table or (DEFAULT_TABLE if destination.server_dir else None)
        if table:
            store = DocumentStore(engine, *_split_name(table), recipe=recipe)
        else:
            kind: Scratch = "TEMPORARY" if destination.database else "UNLOGGED"
            store = DocumentStore(engine, DEFAULT_TABLE, recipe=recipe, scratch=kind)
        with store.opened(rules, redecide=redecide, create=create):
            yield store


def _split_name(table: str) -> tuple[str, str | None]:
    """Split `schema.table`, without SQL's quoting and case folding. A bare name has no schema."""
    schema, _, name = table.rpartition(".")
    if not name or "\0" in table:
        raise UsageError(f"{table!r} is not a table name")
    if (
        schema in ("simsql", "information_schema")
        or table in (STAGED, DECIDED, MEMBERS)
        or (schema or name).startswith("pg_")
    ):
        raise UsageError(f"{table!r} is reserved by simsql or PostgreSQL: choose another name with --table")
    for part in (schema, name):
        if len(part.encode()) > _LONGEST_NAME:
            raise UsageError(f"{part!r} is longer than {_LONGEST_NAME} bytes: PostgreSQL would truncate the name")
    return name, schema or None
