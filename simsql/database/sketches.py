"""Columns of sketches and of their texts, and the id of the sketches in a column.

The comment of a column names its sketches:

    COMMENT ON COLUMN article.sketch IS 'minhash64-1'

More words around the id do no harm. A column whose comment names none has those of FIRST_ID. PostgreSQL keeps the
comment through renames, dumps and restores, everybody may read it, and SQLAlchemy and Alembic create and compare
it like any comment. So sketches need no entry in the registry. A version of simsql that makes other sketches by
default has to write a comment wherever it creates a column.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, text

from simsql.errors import UsageError
from simsql.fingerprint import SKETCH_ID

FIRST_ID = "minhash64-1"
"""The id of the sketches in a column whose comment names none."""

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


def find_column(connection: Connection, table: str, column: str) -> FoundColumn | None:
    """Return a column of a table, or None if there is none of this name.

    `table` is a name as in SQL, `column` an unquoted name. Raises sqlalchemy.exc.DBAPIError if there is no such
    table.
    """
    found = connection.execute(_COLUMN, {"table": table, "column": column}).one_or_none()
    return None if found is None else FoundColumn(*found)


def existing_column(connection: Connection, table: str, column: str) -> FoundColumn:
    """Return the result of `find_column`; raise UsageError if there is no such column."""
    found = find_column(connection, table, column)
    if found is None:
        raise UsageError(f"{table} has no column {column}")
    return found


def check_compared_columns(
    connection: Connection, table: str, text_columns: Iterable[str], sketch_column: str | None
) -> None:
    """Raise UsageError unless these columns hold texts and their sketches; None is no column."""
    for text_column in text_columns:
        found = existing_column(connection, table, text_column)
        if not found.holds_texts:
            raise UsageError(
                f"column {text_column} of {table} is {found.type}, not text: name the column of the texts"
            )
    if sketch_column is not None:
        check_sketch_column(connection, table, sketch_column)


def check_sketch_column(connection: Connection, table: str, column: str) -> None:
    """Raise UsageError unless a column of bigints is there that has sketches as `simsql.sketch` makes them."""
    found = existing_column(connection, table, column)
    if found.type != "bigint":
        raise UsageError(f"column {column} of {table} is {found.type}, not bigint: it cannot hold sketches")
    if found.indexed:
        raise UsageError(f"column {column} of {table} has a simhash index: it holds fingerprints, not sketches")
    refuse_other_sketches(found.comment, f"column {column} of {table}")


def refuse_other_sketches(comment: str | None, column: str) -> None:
    """Raise UsageError if the comment of a column names sketches that differ from those of `simsql.sketch`."""
    for id_ in _ID.findall(comment or "") or [FIRST_ID]:
        if id_ != SKETCH_ID:
            raise UsageError(
                f"{column} has the sketches {id_}, which cannot be compared with {SKETCH_ID}: use the version of"
                " simsql that made them, or fill the column again and change its comment"
            )
