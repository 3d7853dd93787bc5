"""Build indexes while others write, remove superfluous keys, check and mend: calls of the SQL functions.

vacuum and build commit as they go. They take an engine, run with a connection of their own, and make the batches
that `CALL simsql.vacuum` and `CALL simsql.build` make.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.hamming import Design

Report = Callable[[float], None]
"""Tells which share of the work is done, from 0 to 1."""

_READ_COMMITTED = {"isolation_level": "READ COMMITTED"}


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
    with engine.connect().execution_options(**_READ_COMMITTED) as connection:
        while not finished:
            parameters = {"table": table, "column": column, "state": state}
            with connection.begin():
                state, removed, share, finished = connection.execute(statement, parameters).one()
            if report:
                report(share)
    return removed


def build(
    engine: Engine,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    recipe: Recipe | str = DEFAULT_RECIPE,
    scope: Sequence[str] = (),
    report: Report | None = None,
) -> int:
    """Create an index while others read and write; return its id.

    Goes on where a build with these arguments was interrupted. Makes a B-tree on the column, behind those of the
    scope, first if there is none. Arguments and errors are those of `create_index`.
    """
    create_btree(engine, table, column, distance=distance, design=design, scope=scope)
    begin = text(
        "SELECT simsql._begin_build(CAST(:table AS regclass), :column, CAST(:distance AS integer),"
        " CAST(:blocks AS integer), CAST(:lead AS integer), CAST(:inner_blocks AS integer), :recipe,"
        " CAST(:scope AS text[]))"
    )
    batch = text("SELECT ready, share FROM simsql._build_batch(CAST(:table AS regclass), :column)")
    recipe_id = recipe.id if isinstance(recipe, Recipe) else recipe
    parameters = {"table": table, "column": column, "recipe": recipe_id, **_layout(distance, design, scope)}
    with engine.connect().execution_options(**_READ_COMMITTED) as connection:
        with connection.begin():
            index: int = connection.execute(begin, parameters).scalar_one()
        ready = False
        while not ready:
            with connection.begin():
                ready, share = connection.execute(batch, {"table": table, "column": column}).one()
            if report:
                report(share)
    return index


def create_btree(
    engine: Engine,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    scope: Sequence[str] = (),
) -> None:
    """Create the B-tree that an index with these arguments needs, unless there is one, while others write.

    What an interrupted attempt has left is dropped first. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's
    message for arguments that make no index.
    """
    columns = [*scope, column]
    check = text(
        "SELECT simsql._check_new(CAST(:table AS regclass), :column, CAST(:distance AS integer),"
        " CAST(:blocks AS integer), CAST(:lead AS integer), CAST(:inner_blocks AS integer),"
        " CAST(:scope AS text[]), 'build')"
    )
    quoted = text("SELECT CAST(CAST(:table AS regclass) AS text), simsql._name_list(CAST(:columns AS text[]))")
    with engine.connect().execution_options(**_READ_COMMITTED) as connection:
        with connection.begin():
            connection.execute(check, {"table": table, "column": column, **_layout(distance, design, scope)})
            target, key = connection.execute(quoted, {"table": table, "columns": columns}).one()
        while (leftovers := _leftovers(connection, table, columns, target)) is None:
            time.sleep(0.1)
        with connection.begin():
            if any(_btrees(connection, table, columns).values()):
                return
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for leftover in leftovers:
            _run(connection, f"DROP INDEX CONCURRENTLY {leftover}")
        _run(connection, f"CREATE INDEX CONCURRENTLY ON {target} ({key})")


def _leftovers(connection: Connection, table: str, columns: list[str], target: str) -> list[str] | None:
    """Return the invalid B-trees on these columns; None while somebody may be at work on them."""
    with connection.begin():
        if all(_btrees(connection, table, columns).values()):
            return []
        try:
            # Whoever creates or mends one holds this lock, and would wait for who waited for it.
            _run(connection, f"LOCK TABLE ONLY {target} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
        except OperationalError as error:
            if isinstance(error.orig, LockNotAvailable):
                return None
            raise
        return [name for name, valid in _btrees(connection, table, columns).items() if not valid]


def _run(connection: Connection, statement: str) -> None:
    # Without parameters, so that percent signs in names stay what they are.
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def _btrees(connection: Connection, table: str, columns: list[str]) -> dict[str, bool]:
    """B-trees on these columns, as SQL writes their names, and whether they are valid."""
    statement = text(
        "SELECT CAST(b.index AS text) AS name, b.valid"
        " FROM simsql._btrees(CAST(:table AS regclass), CAST(:columns AS text[])) AS b"
    )
    rows = connection.execute(statement, {"table": table, "columns": columns})
    return {row.name: row.valid for row in rows}


def _layout(distance: int, design: Design | None, scope: Sequence[str]) -> dict[str, object]:
    return {
        "distance": distance,
        "blocks": design.blocks if design else None,
        "lead": design.lead if design else None,
        "inner_blocks": design.inner_blocks if design else None,
        "scope": list(scope),
    }
