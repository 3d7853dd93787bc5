"""Create, check and drop simhash indexes.

An index that is created concurrently is committed in parts: this needs an engine, opens its own connections, and
makes the same batches as `CALL simsql.build`.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Event
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import LockNotAvailable, ObjectInUse, QueryCanceled
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Text,
    cast,
    func,
    literal,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import OperationalError

from simsql.database.arguments import as_arguments
from simsql.database.binds import READ_COMMITTED, begin, check_engine
from simsql.database.index_spec import OPTIONS, IndexSpec, Storage
from simsql.errors import SimsqlError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.hamming import Design

Report = Callable[[float], None]
"""Receives the completed share of the work, between 0 and 1."""


def create_index(
    engine_or_connection: Engine | Connection,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    recipe: Recipe | str | None = DEFAULT_RECIPE,
    scope: Sequence[str] = (),
    storage: Storage | None = None,
    sources: str | Mapping[str, int] | None = None,
    concurrently: bool = False,
    report: Report | None = None,
) -> int:
    """Create a simhash index on a bigint column; return its id.

    With a connection, it is created in the connection's transaction, which must be READ COMMITTED; with an engine,
    in one of its own. Writers of the table wait until the transaction ends.

    `concurrently` needs an engine and blocks nobody. It commits as it works, and resumes an interrupted build if
    you call it again with the same arguments. If there is no B-tree on the scope columns and the column, it
    creates one first. B-trees are created concurrently, those of a partitioned table on one partition after
    another; this takes two connections at a time, and a third if there is a lock_timeout. `report` is called with
    the completed share of this work.

    `table` is a name as in SQL, with schema and quotes if needed. The other arguments describe the index as the
    fields of `IndexSpec` do. The id of `recipe` is stored with it, so that a search by text computes the same
    fingerprints; None resumes a build whatever its recipe. With `sources`, `backfill` needs no source, and a
    fingerprint whose text alone changes is cleared.

    Raises UsageError for a distance out of range, an unknown storage, and a connection if `concurrently`; and
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such table or column, not bigint, a table that cannot
    be indexed, a type that cannot be in a scope, missing privileges, another isolation level. Raises SimsqlError
    if B-trees that are created concurrently wait for other transactions for longer than lock_timeout.
    """
    spec = IndexSpec(
        column, distance=distance, design=design, recipe=recipe, scope=scope, storage=storage, sources=sources
    )
    if concurrently:
        engine = check_engine(engine_or_connection, "create_index(concurrently=True)")
        create_btree(engine, table, spec)
        return _build_keys(engine, table, spec, report)
    return int(_call(engine_or_connection, "create_index", table, *spec.arguments()))


def alter_index(
    engine_or_connection: Engine | Connection,
    table: str,
    column: str | None = None,
    *,
    recipe: Recipe | str | None = None,
    sources: str | Mapping[str, int] | None = None,
) -> None:
    """Say what the fingerprints of an index are: their recipe and the columns of their texts. None leaves it.

    No fingerprint changes. With a connection, it is said in the connection's transaction, which must be READ
    COMMITTED; with an engine, in one of its own. Empty `sources` stand for unknown ones. If the table has only one
    index, omit the column. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, no such column,
    missing privileges; and ValueError for a weight out of range.
    """
    given = IndexSpec(str(column), recipe=recipe, sources=sources)
    said = {"recipe": given.recipe, "sources": None if sources is None else dict(given.sources)}
    _call(engine_or_connection, "alter_index", table, *as_arguments(column, said))


def drop_index(engine_or_connection: Engine | Connection, table: str, column: str | None = None) -> None:
    """Drop the simhash index of a column, but not the column and its B-tree.

    With a connection, it is dropped in the connection's transaction; with an engine, in one of its own. If the
    table has only one index, omit the column. Raises sqlalchemy.exc.DBAPIError if there is no index.
    """
    _call(engine_or_connection, "drop_index", table, literal(column, Text()))


def set_default_index(
    engine_or_connection: Engine | Connection, table: str, column: str, *, missing: int = 0
) -> None:
    """Let searches that name no column use the index on this column, if the table has several.

    With a connection, it counts from the commit of its transaction on, which must be READ COMMITTED; with an
    engine, at once. If another index was the default until now, then at most `missing` rows, 0 or more, may
    have a fingerprint for that one and none for this one. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's
    message: more such rows, no such index, missing privileges.
    """
    arguments = literal(column, Text()), literal(missing, BigInteger())
    _call(engine_or_connection, "set_default_index", table, *arguments)


def _call(bind: Engine | Connection, function: str, table: str, *arguments: ColumnElement[Any]) -> Any:
    """Call a function of simsql for a table, in a transaction; return its result."""
    call = getattr(func.simsql, function)(cast(table, REGCLASS), *arguments)
    with begin(bind, **READ_COMMITTED) as connection:
        return connection.execute(select(call)).scalar_one()


def change_storage(
    engine: Engine, table: str, storage: Storage, column: str | None = None, *, report: Report | None = None
) -> int:
    """Keep an index in the other storage, with the same design, recipe and scope; return its id.

    Searches go on meanwhile. With "expression", so do writers: B-trees are created concurrently, and the key
    tables are dropped at the end. With "tables", writers wait until the keys are complete, and the index gets a
    new id. If it is interrupted, or gives up waiting for a lock, call it again, and it goes on. If the table has
    only one index, omit the column. `report` is called
    with the completed share of the work. Takes up to two connections at a time.
    Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, an unknown storage, a table that cannot
    have it, missing privileges; SimsqlError if B-trees wait for other transactions for longer than lock_timeout;
    and UsageError for a Connection instead of an Engine.
    """
    engine = check_engine(engine, "change_storage")
    arguments = "CAST(:table AS regclass), CAST(:storage AS text), CAST(:column AS text)"
    check = text(f"SELECT id, storage, column_name FROM simsql._check_storage_change({arguments})")  # noqa: S608
    change = text(f"SELECT simsql._change_storage({arguments}, :keep)")
    parameters = {"table": table, "storage": storage, "column": column}
    with begin(engine, **READ_COMMITTED) as connection:
        # From here on with a column: the default index may change.
        index, old, parameters["column"] = connection.execute(check, parameters).one()
    if storage == "expression" and old != storage:
        _create_btrees(engine, table, index, report)
    # The second waits for transactions that have read the old storage. The work of the first is kept.
    for keep in [True, False]:
        with begin(engine, **READ_COMMITTED) as connection:
            index = connection.execute(change, {**parameters, "keep": keep}).scalar_one()
    if report:
        report(1)
    return int(index)


def _build_keys(engine: Engine, table: str, spec: IndexSpec, report: Report | None) -> int:
    """Register an index whose B-tree exists, or resume its build, until it is ready; return its id."""
    batch = text("SELECT ready, share FROM simsql._build_batch(CAST(:table AS regclass), :column)")
    while (registered := _register(engine, table, spec)) is None:
        time.sleep(0.1)
    index, storage = registered
    if storage == "expression":
        _create_btrees(engine, table, index, report)
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        ready = False
        while not ready:
            with connection.begin():
                ready, share = connection.execute(batch, {"table": table, "column": spec.column}).one()
            if report:
                report(share)
    return index


_HAS_BEGUN = (
    "EXISTS (SELECT FROM simsql.registry AS r"
    " WHERE r.table_id = CAST(:table AS regclass) AND r.column_name = :column AND NOT r.ready)"
)


def is_being_built(engine: Engine, table: str, column: str) -> bool:
    """Return whether there is an unfinished index on a column."""
    with engine.begin() as connection:
        found = connection.execute(text(f"SELECT {_HAS_BEGUN}"), {"table": table, "column": column})
        return bool(found.scalar_one())


def _register(engine: Engine, table: str, spec: IndexSpec) -> tuple[int, str | None] | None:
    """Register an unfinished index; return its id and storage, or None while others create indexes on it."""
    target = text(f"SELECT CAST(CAST(:table AS regclass) AS text) AS name, {_HAS_BEGUN} AS has_begun")
    begin = select(func.simsql._begin_build(cast(table, REGCLASS), *spec.arguments(OPTIONS)))
    storage = text("SELECT r.storage FROM simsql.registry AS r WHERE r.id = :index")
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        with connection.begin():
            found = connection.execute(target, {"table": table, "column": spec.column}).one()
            if not (found.has_begun or _lock_if_free(connection, found.name)):
                return None
        try:
            with connection.begin():
                index: int = connection.execute(begin).scalar_one()
                return index, connection.execute(storage, {"index": index}).scalar()
        except OperationalError as error:
            if isinstance(error.orig, ObjectInUse):
                return None
            raise


def _create_btrees(engine: Engine, table: str, index: int, report: Report | None) -> None:
    """Create the B-trees of the storage `expression` for an index that has or is to get it, while others write."""
    # `i` is the row of the registry with that storage. A finished index that has it needs no more B-trees.
    following = text(
        "SELECT n.statement, CAST(n.target AS text) AS target, simsql._storage_progress(i) AS share"
        " FROM simsql.registry AS r"
        ' CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(r, \'{"storage": "expression"}\') AS i'
        " CROSS JOIN LATERAL simsql._next_statement(i, true) AS n"
        " WHERE r.id OPERATOR(pg_catalog.=) :index AND n.statement IS NOT NULL"
        " AND (NOT r.ready OR r.storage OPERATOR(pg_catalog.=) 'tables')"
    )
    with _only_build(engine, table), engine.connect().execution_options(**READ_COMMITTED) as connection:
        while True:
            with connection.begin():
                row = connection.execute(following, {"index": index}).one_or_none()
                is_free = row is not None and _lock_if_free(connection, row.target)
                limit = _lock_limit(connection)
            if row is None:
                return
            if not is_free:
                time.sleep(0.1)
                continue
            with connection.execution_options(isolation_level="AUTOCOMMIT").begin():
                _run_alone(engine, connection, row.statement, limit)
            connection.execution_options(**READ_COMMITTED)
            if report:
                report(row.share)


@contextmanager
def _only_build(engine: Engine, table: str) -> Iterator[None]:
    """Keep other builds from a table, by a lock of a transaction in a connection of its own.

    A lock of a session would stay behind in a transaction pooler. CREATE INDEX CONCURRENTLY does not wait for this
    transaction, because it has no snapshot between two statements.
    """
    key_of = text(
        "SELECT pg_catalog.hashtextextended('simsql.build', CAST(CAST(CAST(:table AS regclass) AS oid) AS int8))"
    )
    lock = text("SELECT pg_catalog.pg_try_advisory_xact_lock(CAST(:key AS int8))")
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        with connection.begin():
            key = connection.execute(key_of, {"table": table}).scalar_one()
        # Waiting for the lock would keep a snapshot, for which CREATE INDEX CONCURRENTLY of the other build waits.
        while True:
            with connection.begin():
                if connection.execute(lock, {"key": key}).scalar_one():
                    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                    yield
                    return
            time.sleep(0.1)


def create_btree(engine: Engine, table: str, spec: IndexSpec) -> None:
    """Create the B-tree that an index with key tables needs, unless there is one, while others write.

    Drops the remains of an interrupted attempt first, also of one for the storage `expression`. Raises
    sqlalchemy.exc.DBAPIError with PostgreSQL's message if the description is invalid.
    """
    columns = [*spec.scope, spec.column]
    storage = select(func.simsql._storage(cast(table, REGCLASS), cast(spec.storage, Text), "build"))
    # The functions behind `CALL simsql.build` have no defaults.
    options = [name for name in OPTIONS if name not in ("recipe", "sources")]
    builds: ColumnElement[str] = literal_column("caller => 'build'")
    check = select(func.simsql._check_new(cast(table, REGCLASS), *spec.arguments(options), builds))
    quoted = text(
        "SELECT CAST(CAST(c.oid AS regclass) AS text), simsql._name_list(CAST(:columns AS text[])),"
        " c.relkind = 'p' FROM pg_class AS c WHERE c.oid = CAST(:table AS regclass)"
    )
    with engine.connect().execution_options(**READ_COMMITTED) as connection:
        with connection.begin():
            connection.execute(check)
            is_for_keys = connection.execute(storage).scalar_one() == "tables"
            target, key, is_partitioned = connection.execute(quoted, {"table": table, "columns": columns}).one()
        if is_partitioned:
            return
        while (leftovers := _leftovers(connection, table, columns, target)) is None:
            time.sleep(0.1)
        with connection.begin():
            if any(_btrees(connection, table, columns).values()):
                return
            limit = _lock_limit(connection)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for leftover in leftovers:
            _run_alone(engine, connection, f"DROP INDEX CONCURRENTLY {leftover}", limit)
        if is_for_keys:
            _run_alone(engine, connection, f"CREATE INDEX CONCURRENTLY ON {target} ({key})", limit)


def _leftovers(connection: Connection, table: str, columns: list[str], target: str) -> list[str] | None:
    """Return what an interrupted attempt may have left, or None if another session may be building it.

    These are the invalid B-trees on these columns, of those that PostgreSQL has named.
    """
    statement = text(
        "SELECT CAST(b.index AS text) FROM simsql._btrees(CAST(:table AS regclass), CAST(:columns AS text[])) AS b"
        " JOIN pg_class AS c ON c.oid = b.index JOIN pg_index AS i ON i.indexrelid = c.oid"
        r" WHERE NOT b.valid AND NOT i.indisunique AND c.relname ~ '_idx\d*$'"
    )
    with connection.begin():
        if all(_btrees(connection, table, columns).values()):
            return []
        if not _lock_if_free(connection, target):
            return None
        return list(connection.execute(statement, {"table": table, "columns": columns}).scalars())


def _lock_if_free(connection: Connection, target: str) -> bool:
    """Lock a table, unless another session may be building or repairing a B-tree on it."""
    try:
        # Such a session holds this lock, or that of a partition. Waiting for it could deadlock.
        _run(connection, f"LOCK TABLE {target} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")
    except OperationalError as error:
        if isinstance(error.orig, LockNotAvailable):
            return False
        raise
    return True


def _run(connection: Connection, statement: str) -> None:
    # Without parameters, so that percent signs in names are not interpreted.
    connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def _lock_limit(connection: Connection) -> float:
    """Return the lock_timeout of a transaction in seconds."""
    limit = text("SELECT extract(epoch FROM CAST(current_setting('lock_timeout') AS interval))")
    return float(connection.execute(limit).scalar_one())


def _run_alone(engine: Engine, connection: Connection, statement: str, limit: float) -> None:
    """Run a statement outside a transaction; raise SimsqlError if others keep it waiting for these seconds in all.

    CREATE INDEX CONCURRENTLY waits for all older snapshots. There SET LOCAL does nothing, and in a transaction
    pooler SET would stay behind, so another session looks how long it waits. Without a limit, it is 0.
    """
    waits = text(
        "SELECT b.pid, s.usename, CAST(s.xact_start AS timestamptz(0)) AS since"
        " FROM pg_stat_activity AS a CROSS JOIN LATERAL unnest(pg_blocking_pids(a.pid)) AS b (pid)"
        " LEFT JOIN pg_stat_activity AS s ON s.pid = b.pid"
        " WHERE b.pid <> pg_backend_pid() AND a.wait_event_type = 'Lock' AND a.usename = session_user"
        " AND a.datname = current_database() AND a.query <> '' AND starts_with(:statement, a.query)"
    )
    ended = Event()
    blockers: Sequence[Any] = ()

    def watch() -> None:
        nonlocal blockers
        waited = 0.0
        with engine.connect().execution_options(**READ_COMMITTED) as other:
            while not ended.wait(min(1, limit / 5)):
                with other.begin():
                    blockers = other.execute(waits, {"statement": statement}).all()
                    waited += min(1, limit / 5) if blockers else 0
                    if waited >= limit:
                        running.cancel()
                        return

    if not limit:
        _run(connection, statement)
        return
    running: Any = connection.connection.driver_connection
    with ThreadPoolExecutor(1) as thread:
        watching = thread.submit(watch)
        try:
            _run(connection, statement)
        except OperationalError as error:
            ended.set()
            watching.result()
            if not (blockers and isinstance(error.orig, LockNotAvailable | QueryCanceled)):
                raise
            named = sorted(
                f"process {b.pid} ({b.usename}, in a transaction since {b.since})" if b.pid else "prepared ones"
                for b in blockers
            )
            remedies = " ".join(f"SELECT pg_terminate_backend({b.pid});" for b in blockers if b.pid)
            raise SimsqlError(
                f"{' '.join(statement.split()[:3])} gave up after {limit:g} s, the lock_timeout. It waits for"
                " older transactions, even if they only read other tables:"
                f" {', '.join(named)}. Wait for their end, or end them: {remedies or 'see pg_prepared_xacts.'}"
                " Then run the same again, and it goes on"
            ) from error
        finally:
            ended.set()


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

    table: str | None
    """The name of the table when the index was created. None if the fault is in the schema simsql itself."""
    column: str | None
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
    """Return the faults of one index, of all indexes of a table, or of all indexes: see `SearchIndex.verify`."""
    statement = text("SELECT * FROM simsql.verify(CAST(:table AS regclass), CAST(:column AS text))")
    return [Finding(*row) for row in connection.execute(statement, {"table": table, "column": column})]


def maintain(
    engine: Engine, *, time_limit: timedelta | None = None, report: Callable[[str], None] | None = None
) -> None:
    """Verify a sample of each index that the role owns, and vacuum those that need it, the worst first.

    Commits as it works; others can read and write meanwhile. What others have locked is skipped. After the
    `time_limit`, it ends with the batch that it is running. `report` is called with each line about what was done.
    Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: at the end, if it failed for some indexes; and
    if the role owns no index or the server is a standby. Raises UsageError for a connection.
    """
    engine = check_engine(engine, "maintain")

    def tell(diagnostic: psycopg.errors.Diagnostic) -> None:
        if report:
            report((diagnostic.message_primary or "").removeprefix("simsql.maintain: "))

    call = text("CALL simsql.maintain(CAST(:time_limit AS interval))")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        raw = connection.connection.dbapi_connection
        if isinstance(raw, psycopg.Connection):  # other drivers report nothing
            raw.add_notice_handler(tell)
        try:
            connection.execute(call, {"time_limit": time_limit})
        finally:
            if isinstance(raw, psycopg.Connection):
                raw.remove_notice_handler(tell)
