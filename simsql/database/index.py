"""Create, build, check, repair, vacuum and drop simhash indexes.

Building and vacuuming commit as they work. These functions take an engine, open their own connection, and make the
same batches as `CALL simsql.build` and `CALL simsql.vacuum`.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from psycopg.errors import LockNotAvailable
from sqlalchemy import ColumnElement, Connection, Engine, cast, func, literal_column, select, text
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import OperationalError

from simsql.database.connect import READ_COMMITTED, check_engine
from simsql.database.index_spec import IndexSpec
from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.hamming import Design

Report = Callable[[float], None]
"""Receives the completed share of the work, between 0 and 1."""

# Arguments of the functions behind `CALL simsql.build`, which have no defaults.
_OPTIONS = ("distance", "blocks", "lead", "inner_blocks", "recipe", "scope")
_BUILDS: ColumnElement[str] = literal_column("caller => 'build'")


def create_index(
    connection: Connection,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    recipe: Recipe | str = DEFAULT_RECIPE,
    scope: Sequence[str] = (),
) -> int:
    """Create a simhash index on a bigint column, in the connection's transaction; return its id.

    `table` is a name as in SQL, with schema and quotes if needed. Writers of the table wait until the transaction
    ends. `distance` (0 to 64) is the default of searches. `design` is chosen by the number of rows if omitted. The
    id of `recipe` is stored with the index, so that a search by text computes the same fingerprints; if yours do
    not come from texts, pass a name of your own, such as "phash64". `scope` lists the unquoted names of up to four
    columns that confine every search; rows with a null in one of them are not indexed.

    Raises ValueError for a distance out of range, and sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such
    table or column, not bigint, a table that cannot be indexed, a type that cannot be in a scope, missing
    privileges, an isolation level other than READ COMMITTED.
    """
    return create_described(
        connection, table, IndexSpec.of(column, distance=distance, design=design, recipe=recipe, scope=scope)
    )


def build_index(
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

    It commits as it works, and resumes an interrupted build with the same arguments. If there is no B-tree on the
    scope columns and the column, it creates one first. `report` is called with the completed share of the keys.
    Takes the arguments and raises the errors of `create_index`, and UsageError for a Connection instead of an
    Engine.
    """
    spec = IndexSpec.of(column, distance=distance, design=design, recipe=recipe, scope=scope)
    engine = check_engine(engine, "build_index")
    create_btree(engine, table, spec)
    return build_keys(engine, table, spec, report=report)


def create_described(connection: Connection, table: str, spec: IndexSpec) -> int:
    """Create the index that a spec describes, like `create_index`; return its id."""
    call = func.simsql.create_index(cast(table, REGCLASS), *spec.arguments())
    index: int = connection.execute(select(call)).scalar_one()
    return index


def drop_index(connection: Connection, table: str, column: str | None = None) -> None:
    """Drop the simhash index of a column, but not the column and its B-tree.

    If the table has only one index, omit the column. Raises sqlalchemy.exc.DBAPIError if there is no index.
    """
    connection.execute(
        text("SELECT simsql.drop_index(CAST(:table AS regclass), CAST(:column AS text))"),
        {"table": table, "column": column},
    )


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


class Finding(NamedTuple):
    """A fault that simsql.verify has found or simsql.repair has repaired."""

    table: str
    """The name of the table when the index was created."""
    column: str
    problem: str
    object: str
    """The key table, trigger, function, B-tree, table or column with the fault."""
    keys: int | None
    """The number of keys concerned."""
    fault: bool
    """Whether searches may miss rows, fail or be slow because of it. Superfluous keys are not faults."""
    hint: str | None
    """The SQL that repairs it."""


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
