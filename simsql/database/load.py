"""Bulk loading with COPY."""

from collections.abc import Iterable, Sequence
from typing import Any

from psycopg import sql
from sqlalchemy import Connection


def copy_rows(
    connection: Connection, table: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """COPY rows into a table within the connection's transaction; return how many.

    `table` is the unquoted name in its parts: ("article",) or ("app", "article"). Triggers fire, so an indexed
    table stays searchable. Raises psycopg.Error with PostgreSQL's message; then no row has been added.
    """
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(*table), sql.SQL(", ").join(sql.Identifier(column) for column in columns)
    )
    # Begun as execute() would: a cursor of psycopg alone is not seen, and commit() would commit nothing.
    if not connection.in_transaction():
        connection.begin()
    cursor = connection.connection.cursor()
    with cursor.copy(statement) as copy:
        for row in rows:
            copy.write_row(row)
    count: int = cursor.rowcount
    return count
