"""Columns of sketches and of their texts, and the id of the sketches in a column.

The comment of a column names its sketches:

    COMMENT ON COLUMN article.sketch IS 'minhash64-1'

More words around the id do no harm. A column whose comment names none has those of revision 1. PostgreSQL keeps
the comment through renames, dumps and restores, everybody may read it, and SQLAlchemy and Alembic create and
compare it like any comment. So sketches need no entry in the registry. The sketches of a table have the revision
of its fingerprints.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, text

from simsql.errors import UsageError
from simsql.fingerprint import Revision, sketch_id

_ID = re.compile(r"\bminhash\d+-\d+\b", re.ASCII)
_COLUMN = text(
    "SELECT pg_catalog.format_type(a.atttypid, a.atttypmod), pg_catalog.col_description(a.attrelid, a.attnum),"
    " EXISTS (SELECT FROM simsql.registry AS r WHERE r.table_id OPERATOR(pg_catalog.=) a.attrelid"
    " AND r.column_name OPERATOR(pg_catalog.=) a.attname), t.typcategory OPERATOR(pg_catalog.=) 'S'"
    " FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid"
    " WHERE a.attrelid OPERATOR(pg_catalog.=) CAST(:table AS pg_catalog.regclass)"
    " AND CAST(a.attname AS pg_catalog.text) OPERATOR(pg_catalog.=) CAST(:column AS pg_catalog.text)"
    " AND NOT a.attisdropped"
)


class FoundColumn(NamedTuple):
    """A column: its type in SQL, its comment, whether it has a simhash index, and whether it holds texts."""

    type: str
    comment: str | None
    indexed: bool
    holds_texts: bool


def find_column(connection: Connection, table: str, column: str) -> FoundColumn:
    """Return a column, by its unquoted name, of a table, by its name as in SQL; UsageError if it is not there."""
    found = connection.execute(_COLUMN, {"table": table, "column": column}).one_or_none()
    if found is None:
        raise UsageError(f"{table} has no column {column}")
    return FoundColumn(*found)


def check_compared_columns(
    connection: Connection,
    table: str,
    text_columns: Iterable[str],
    sketch_column: str | None,
    revision: Revision = 1,
) -> None:
    """Raise UsageError unless these columns hold texts and their sketches of a revision; None is no column."""
    for text_column in text_columns:
        found = find_column(connection, table, text_column)
        if not found.holds_texts:
            raise UsageError(
                f"column {text_column} of {table} is {found.type}, not text: name the column of the texts"
            )
    if sketch_column is not None:
        comment = check_sketch_column(connection, table, sketch_column)
        refuse_other_sketches(comment, f"column {sketch_column} of {table}", revision)


def check_sketch_column(connection: Connection, table: str, column: str) -> str | None:
    """Return the comment of a column of sketches. Raise UsageError unless a column of bigints is there."""
    found = find_column(connection, table, column)
    if found.type != "bigint":
        raise UsageError(f"column {column} of {table} is {found.type}, not bigint: it cannot hold sketches")
    if found.indexed:
        raise UsageError(f"column {column} of {table} has a simhash index: it holds fingerprints, not sketches")
    return found.comment


def refuse_other_sketches(comment: str | None, column: str, revision: Revision) -> None:
    """Raise UsageError if a column has other sketches than those of this revision, as its comment says."""
    for id_ in _ID.findall(comment or "") or [sketch_id(1)]:
        if id_ != sketch_id(revision):
            raise UsageError(
                f"{column} has the sketches {id_}, which cannot be compared with {sketch_id(revision)}: use"
                " fingerprints of that revision, or fill the column again and change its comment"
            )
