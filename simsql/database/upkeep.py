"""Check and mend indexes, and remove superfluous keys: calls of the SQL functions.

vacuum commits as it goes: it takes an engine, runs with a connection of its own, and makes the batches that
`CALL simsql.vacuum` makes.
"""

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from simsql.database.connect import READ_COMMITTED

Report = Callable[[float], None]
"""Tells which share of the work is done, from 0 to 1."""


class Finding(NamedTuple):
    """What simsql.verify has found, or simsql.repair has mended."""

    table: str
    """As it was called when the index was created."""
    column: str
    problem: str
    object: str
    """The table of keys, trigger, function, B-tree, table or column that it is about."""
    keys: int | None
    """How many keys it is about."""
    fault: bool
    """Whether searches may miss rows, fail or be slow because of it. Superfluous keys are no fault."""
    hint: str | None
    """The SQL that mends it."""


def verify(connection: Connection, table: str | None = None, column: str | None = None) -> list[Finding]:
    """Return what is wrong with a table's indexes, or with one of them, or with those of all tables.

    Reads all keys and all fingerprints, with one snapshot, and changes nothing. Raises sqlalchemy.exc.DBAPIError
    with PostgreSQL's message: no index, missing rights, row-level security that hides rows.
    """
    statement = text("SELECT * FROM simsql.verify(CAST(:table AS regclass), CAST(:column AS text))")
    return [Finding(*row) for row in connection.execute(statement, {"table": table, "column": column})]


def repair(connection: Connection, table: str) -> list[Finding]:
    """Mend the indexes of a table, in the connection's transaction; return what was wrong.

    Writers of the table wait until the transaction ends. Superfluous keys are left to vacuum. Raises
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, missing rights, an isolation level other
    than READ COMMITTED, a fault that cannot be mended.
    """
    statement = text("SELECT * FROM simsql.repair(CAST(:table AS regclass))")
    return [Finding(*row) for row in connection.execute(statement, {"table": table})]


def vacuum(engine: Engine, table: str, column: str | None = None, *, report: Report | None = None) -> int:
    """Remove the keys that no row has any more, and all but one of equal keys; return how many.

    Others read and write meanwhile. The column may be left out where the table has one index. Raises
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, one that is not searched, missing rights.
    """
    statement = text(
        "SELECT CAST(s AS text), s.removed, s.share, s.finished FROM simsql._vacuum_batch("
        "CAST(:table AS regclass), CAST(:column AS text), CAST(:state AS simsql._vacuum_state)) AS s"
    )
    state, removed, finished = None, 0, False
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        while not finished:
            parameters = {"table": table, "column": column, "state": state}
            with connection.begin():
                state, removed, share, finished = connection.execute(statement, parameters).one()
            if report:
                report(share)
    return removed
