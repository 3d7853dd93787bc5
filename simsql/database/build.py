"""Build an index while others write: its B-tree, then its keys in committed batches.

These functions commit as they work. They take an engine, open their own connection, and make the same batches as
`CALL simsql.build`.
"""

import time

from psycopg.errors import LockNotAvailable
from sqlalchemy import ColumnElement, Connection, Engine, cast, func, literal_column, select, text
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import OperationalError

from simsql.database.connect import READ_COMMITTED
from simsql.database.index_spec import IndexSpec
from simsql.database.upkeep import Report

# Arguments of the functions behind `CALL simsql.build`, which have no defaults.
_OPTIONS = ("distance", "blocks", "lead", "inner_blocks", "recipe", "scope")
_BUILDS: ColumnElement[str] = literal_column("caller => 'build'")


def build_keys(engine: Engine, table: str, spec: IndexSpec, *, report: Report | None = None) -> int:
    """Register an index that has its B-tree, or resume its build, until it is ready; return its id."""
    begin = select(func.simsql._begin_build(cast(table, REGCLASS), *spec.arguments(_OPTIONS)))
    batch = text("SELECT ready, share FROM simsql._build_batch(CAST(:table AS regclass), :column)")
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        with connection.begin():
            index: int = connection.execute(begin).scalar_one()
        ready = False
        while not ready:
            with connection.begin():
                ready, share = connection.execute(batch, {"table": table, "column": spec.column}).one()
            if report:
                report(share)
    return index


def create_btree(engine: Engine, table: str, spec: IndexSpec) -> None:
    """Create the B-tree that an index needs, unless there is one, while others write.

    Drops the remains of an interrupted attempt first. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message
    if the description is invalid.
    """
    columns = [*spec.scope, spec.column]
    options = [name for name in _OPTIONS if name != "recipe"]
    check = select(func.simsql._check_new(cast(table, REGCLASS), *spec.arguments(options), _BUILDS))
    quoted = text("SELECT CAST(CAST(:table AS regclass) AS text), simsql._name_list(CAST(:columns AS text[]))")
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        with connection.begin():
            connection.execute(check)
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
    """Return the invalid B-trees on these columns, or None if another session may be building them."""
    with connection.begin():
        if all(_btrees(connection, table, columns).values()):
            return []
        try:
            # A session that builds or repairs one holds this lock. Waiting for it could deadlock.
            _run(connection, f"LOCK TABLE ONLY {target} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
        except OperationalError as error:
            if isinstance(error.orig, LockNotAvailable):
                return None
            raise
        return [name for name, valid in _btrees(connection, table, columns).items() if not valid]


def _run(connection: Connection, statement: str) -> None:
    # Without parameters, so that percent signs in names are not interpreted.
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def _btrees(connection: Connection, table: str, columns: list[str]) -> dict[str, bool]:
    """Return the B-trees on these columns: their names as in SQL, and whether they are valid."""
    statement = text(
        "SELECT CAST(b.index AS text) AS name, b.valid"
        " FROM simsql._btrees(CAST(:table AS regclass), CAST(:columns AS text[])) AS b"
    )
    rows = connection.execute(statement, {"table": table, "columns": columns})
    return {row.name: row.valid for row in rows}
