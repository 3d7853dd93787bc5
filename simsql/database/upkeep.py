"""Check and repair indexes, and remove superfluous keys, through the SQL functions.

`vacuum` commits as it works: it takes an engine, opens its own connection, and makes the same batches as `CALL
simsql.vacuum`.
"""

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from simsql.database.connect import READ_COMMITTED

Report = Callable[[float], None]
"""Tells which share of the work is done, from 0 to 1."""


class Finding(NamedTuple):
    """A fault that simsql.verify has found or simsql.repair has repaired."""

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
    """Return the faults of one index, of all indexes of a table, or of all indexes.

    Reads all keys and all fingerprints in one snapshot, and changes nothing. Raises sqlalchemy.exc.DBAPIError with
    PostgreSQL's message: no index, missing privileges, row-level security that hides rows.
    """
    statement = text("SELECT * FROM simsql.verify(CAST(:table AS regclass), CAST(:column AS text))")
    return [Finding(*row) for row in connection.execute(statement, {"table": table, "column": column})]


def repair(connection: Connection, table: str) -> list[Finding]:
    """Repair the indexes of a table, in the connection's transaction; return the faults.

    Writers of the table wait until the transaction ends. Leaves superfluous keys to `vacuum`. Raises
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, missing privileges, an isolation level other
    than READ COMMITTED, a fault that cannot be repaired.
    """
    statement = text("SELECT * FROM simsql.repair(CAST(:table AS regclass))")
    return [Finding(*row) for row in connection.execute(statement, {"table": table})]


def vacuum(engine: Engine, table: str, column: str | None = None, *, report: Report | None = None) -> int:
    """Remove keys without a row, and all but one of equal keys; return the number of removed keys.

    Others can read and write meanwhile. If the table has only one index, omit the column. Raises
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, an index that cannot be searched, missing
    privileges.
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
