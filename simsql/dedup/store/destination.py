"""The database for the documents of a job: temporary, in a folder that is kept, or the user's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from simsql.database import open_engine
from simsql.decide.rules import Rules
from simsql.dedup.store.table import DECIDED, MEMBERS, STAGED, DocumentStore
from simsql.errors import UsageError
from simsql.fingerprint import Recipe
from simsql.server import scratch_database, start_embedded

DEFAULT_TABLE = "simsql_documents"
_LONGEST_NAME = 63  # bytes of a name in PostgreSQL


@dataclass(frozen=True)
class Destination:
    """The place for the documents: at most one of `database` and `server_dir`."""

    database: str | None = None
    """URL of a PostgreSQL database."""
    server_dir: Path | None = None
    """Folder of an embedded server whose data stays."""
    table: str | None = None
    """Table name, with an optional schema. The table stays, and later runs add to it."""

    def __post_init__(self) -> None:
        if self.database and self.server_dir:
            raise UsageError("--database and --server-dir exclude each other: leave one out")
        if self.table and not (self.database or self.server_dir):
            raise UsageError("--table needs a database that stays: add --server-dir DIR or --database URL")


@contextmanager
def open_store(
    destination: Destination, recipe: Recipe, rules: Rules, *, redecide: bool, create: bool
) -> Iterator[DocumentStore]:
    """Open the table of documents. It ends with the job unless it stays, however the job ends.

    `recipe` is the recipe of its fingerprints. The other arguments are those of `DocumentStore.opened`, which
    raises the same errors.
    """
    with _locate(destination, recipe) as store, store.opened(rules, redecide=redecide, create=create):
        yield store


@contextmanager
def _locate(destination: Destination, recipe: Recipe) -> Iterator[DocumentStore]:
    if destination.database:
        engine = open_engine(destination.database, prepare=False)  # there may be a pooler
        with _disposing(engine):
            if destination.table:
                yield DocumentStore(engine, *_split_name(destination.table), recipe=recipe)
            else:
                yield DocumentStore(engine, DEFAULT_TABLE, recipe=recipe, scratch="TEMPORARY")
    elif destination.server_dir:
        with start_embedded(destination.server_dir) as server, _disposing(open_engine(server.url())) as engine:
            yield DocumentStore(engine, *_split_name(destination.table or DEFAULT_TABLE), recipe=recipe)
    else:
        with (
            start_embedded() as server,
            scratch_database(server) as url,
            _disposing(open_engine(url)) as engine,
        ):
            yield DocumentStore(engine, DEFAULT_TABLE, recipe=recipe, scratch="UNLOGGED")


@contextmanager
def _disposing(engine: Engine) -> Iterator[Engine]:
    try:
        yield engine
    finally:
        engine.dispose()


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
