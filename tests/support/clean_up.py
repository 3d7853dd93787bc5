"""The statement of the documentation that deletes the rows to drop, and decisions for it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import errors
from sqlalchemy import URL, make_url
from stages import Stages

from simsql.database import open_engine
from simsql.dedup.sinks.table import TableSink
from simsql.dedup.sources.table import TableOptions
from simsql.dedup.table_job import dedup_table

_PAGE = Path(__file__).resolve().parents[2] / "docs/guides/clean-a-table.md"
# The page says of these that the statement is to be repeated.
REPEATED = (errors.DeadlockDetected, errors.SerializationFailure)


def decide(
    url: str | URL, table: str = "saying", text: str = "body", into: str = "decisions", **more: Any
) -> TableSink:
    """Decide about the rows of a table, in the place of earlier decisions."""
    engine = open_engine(make_url(url))
    try:
        return dedup_table(engine, TableOptions(table, {text: None}, into, replace=True, **more), Stages())[1]
    finally:
        engine.dispose()


def documented_delete(
    table: str = "saying", keys: Sequence[str] = ("slug",), text: str = "body", decisions: str = "decisions"
) -> str:
    """Return the statement for a table of decisions; it returns the first key column, and keeps no record."""
    found = re.search(
        r"(WITH kept AS .*?)\n +INSERT INTO deleted .*? TABLE gone RETURNING slug\n", _PAGE.read_text(), re.DOTALL
    )
    assert found, "the page has another statement"
    statement = f"{found[1]}\nSELECT {keys[0]} FROM gone"
    kept, other = (", ".join(prefix + key for key in keys) for prefix in ("kept_", "k."))
    for before, after in {
        "k.slug IN": f"({other}) IN",
        "SELECT kept_slug": f"SELECT {kept}",
        "SELECT k.slug": f"SELECT {other}",
        "ORDER BY k.slug": f"ORDER BY {other}",
        "s.slug = d.slug": " AND ".join(f"s.{key} = d.{key}" for key in keys),
        "kept.slug = d.kept_slug": " AND ".join(f"kept.{key} = d.kept_{key}" for key in keys),
        "RETURNING s.slug, d.text_digest, d.kept_slug": f"RETURNING s.{keys[0]}",
        "saying": table,
        "decisions": decisions,
        ".body": f".{text}",
    }.items():
        assert before in statement, before
        statement = statement.replace(before, after)
    return statement


def clean_up(connection: psycopg.Connection, statement: str, level: str = "READ COMMITTED") -> set[Any]:
    """Run the statement, again after errors that the page names; return the keys of deleted rows."""
    while True:
        connection.execute(f"BEGIN ISOLATION LEVEL {level}")
        try:
            deleted = {key for (key,) in connection.execute(statement)}
            connection.execute("COMMIT")
        except REPEATED:
            connection.execute("ROLLBACK")
        else:
            return deleted
