"""Measure what an index costs: python -m benchmarks.cost --rows 1000000, which prints Markdown.

Without an index, with a B-tree on the column only, and with 2, 4 and 20 tables or B-trees of both storages: bytes,
build, inserts, searches, memory; and what updates of fingerprints cost. Other work on the machine changes little
of the processor time of the server's process, of the bytes of files and of the write-ahead log, and nothing of the
blocks that a search reads. What searches find is compared with brute force.

It needs Linux, whose /proc tells the processor time and the memory of a process.
"""

import itertools
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import numpy as np
import psycopg
import typer

from benchmarks.cost_tables import DISTANCES, STATEMENT, Case, Costs, Searched, Spent, tables
from benchmarks.data import Fingerprints, make_fingerprints, make_queries
from benchmarks.environment import describe_machine, describe_server
from benchmarks.harness import copy_fingerprints
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.server import connect, default_folder, run_server
from simsql.database.index_spec import Storage
from simsql.errors import SimsqlError
from simsql.hamming import Design
from simsql.server.postgres_server import PostgresServer

DESIGNS = (Design(2), Design(4), Design(6, 3))
# PostgreSQL's own defaults for memory, and one core for each statement.
_SETTINGS = {
    "work_mem": "4MB",
    "maintenance_work_mem": "64MB",
    "max_parallel_maintenance_workers": "0",
    "max_parallel_workers_per_gather": "0",
}
_TABLE = "article"
_QUERIES, _WARM_UP, _CHECKED = 200, 20, 10
# Shares of the rows that are inserted each in its transaction, and in statements of many.
_ALONE, _TOGETHER = 0.005, 0.02
# In so many rounds, each fingerprint changes once.
_ROUNDS = 5
CASES = (
    Case(on_column=False),
    Case(changes=True),
    *(Case(True, storage, design, design == Design()) for storage in get_args(Storage) for design in DESIGNS),
)


class Session:
    """A connection, and the process of the server behind it."""

    def __init__(self, cluster: PostgresServer, database: str = "postgres") -> None:
        self.connection = connect(cluster, database)
        self.process = Path("/proc") / str(self.connection.info.backend_pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def execute(self, statement: str, *parameters: object) -> psycopg.Cursor:
        """Run a statement in a transaction of its own."""
        return self.connection.execute(statement.encode(), parameters or None)

    def value(self, statement: str, *parameters: object) -> Any:
        """Return the one value that a statement gives."""
        row = self.execute(statement, *parameters).fetchone()
        assert row is not None
        return row[0]

    def processor(self) -> float:
        """Return the seconds that the process has run."""
        return int((self.process / "schedstat").read_text().split()[0]) / 1e9

    def memory(self) -> int:
        """Return the bytes of memory that belong to the process alone."""
        lines = (self.process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

    def spend(self, work: Callable[[], object], parts: int = 1) -> Spent:
        """Do work, and return what each of its parts has taken."""
        done, peak = threading.Event(), [self.memory()]

        def watch() -> None:
            while not done.wait(0.02):
                peak[0] = max(peak[0], self.memory())

        watcher = threading.Thread(target=watch)
        log, start, processor = self._log(), time.monotonic(), self.processor()
        watcher.start()
        try:
            work()
            seconds, processor = time.monotonic() - start, self.processor() - processor
        finally:
            done.set()
            watcher.join()
        return Spent(seconds / parts, processor / parts, (self._log() - log) // parts, peak[0])

    def _log(self) -> int:
        return int(self.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def full_pages(self, *, logged: bool) -> None:
        """Whether the first change of each page after a checkpoint, which happens now, logs all of it."""
        self.execute(f"ALTER SYSTEM SET full_page_writes = {'on' if logged else 'off'}")
        self.execute("SELECT pg_reload_conf()")
        self.execute("CHECKPOINT")
        # The process that makes checkpoints may hear of the setting later than this session.
        while self.value("SELECT full_page_writes FROM pg_control_checkpoint()") != logged:
            time.sleep(0.05)
            self.execute("CHECKPOINT")


def measure(cluster: PostgresServer, case: Case, values: Fingerprints, seed: int) -> Costs:
    """Create a table, measure, drop it."""
    with Session(cluster) as session:
        session.full_pages(logged=False)
        columns = "id bigint, fingerprint bigint, visits integer NOT NULL DEFAULT 0"
        session.execute(f"CREATE TABLE {_TABLE} ({columns})")
        copy_fingerprints(session.connection, _TABLE, values)
        session.execute(f"ALTER TABLE {_TABLE} ADD PRIMARY KEY (id)")
        session.execute(f"VACUUM (ANALYZE) {_TABLE}")
        costs = Costs(case, table_bytes=_bytes(session))
        if case.on_column:
            session.execute(f"CREATE INDEX ON {_TABLE} (fingerprint)")
            costs.column_bytes = _bytes(session) - costs.table_bytes
        queries = make_queries(values, _QUERIES + _WARM_UP, seed).neighbours
        if case.storage:
            _build(session, costs)
            _search(cluster, costs, queries, Oracle(values))
        _insert(session, costs, make_fingerprints(values.size + STATEMENT, seed + 1))
        _update_alone(session, costs)
        if case.changes:
            _change(session, costs, queries)
        if case.storage:
            session.execute(f"SELECT simsql.drop_index('{_TABLE}')")
        session.execute(f"DROP TABLE {_TABLE}")
    return costs


def _bytes(session: Session) -> int:
    return int(session.value(f"SELECT pg_total_relation_size('{_TABLE}')"))


def _index_bytes(session: Session) -> int:
    return int(session.value("SELECT coalesce(sum(bytes), 0) FROM simsql.indexes"))


def _build(session: Session, costs: Costs) -> None:
    case = costs.case
    options = f"'{_TABLE}', 'fingerprint', blocks => {case.design.blocks}, lead => {case.design.lead}"
    options += f", storage => '{case.storage}'"
    if case.changes and case.storage == "tables":
        costs.built_online = session.spend(lambda: session.execute(f"CALL simsql.build({options})"))
        costs.online_bytes = _index_bytes(session)
        session.execute(f"SELECT simsql.drop_index('{_TABLE}')")
    costs.built = session.spend(lambda: session.execute(f"SELECT simsql.create_index({options})"))
    costs.index_bytes = _index_bytes(session)
    _vacuum(session)


def _vacuum(session: Session) -> None:
    """Do what autovacuum does."""
    tables = session.execute(
        "SELECT oid::regclass::text FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'simsql'::regnamespace AND relname ~ '^keys_'"
    ).fetchall()
    for (table,) in [(_TABLE,), *tables]:
        session.execute(f"VACUUM (ANALYZE) {table}")


def _search(cluster: PostgresServer, costs: Costs, queries: Fingerprints, oracle: Oracle) -> None:
    # A session that has only searched, as those of a pool do.
    with Session(cluster) as session:
        session.value("SELECT 1")
        memory = session.memory()
        for distance in DISTANCES:
            for query in queries[:_CHECKED]:
                statement = f"SELECT * FROM simsql.near('{_TABLE}', %s, {distance})"
                rows = session.execute(statement, int(query.view(np.int64)))
                found = [(fingerprint % 2**64, bits) for fingerprint, bits in rows]
                oracle.check_near(" ".join(costs.case.cells), int(query), distance, found)
            costs.searched[distance] = _time_searches(session, queries, distance)
        costs.session = session.memory() - memory


def _time_searches(session: Session, queries: Fingerprints, distance: int) -> Searched:
    statement = f"SELECT * FROM simsql.near('{_TABLE}', %s, {distance})"
    bigints = queries.view(np.int64).tolist()
    for query in bigints[-_WARM_UP:]:
        session.execute(statement, query)
    plans = [
        session.value(f"EXPLAIN (ANALYZE, BUFFERS, TIMING off, FORMAT json) {statement}", query)[0]
        for query in bigints[:_QUERIES]
    ]

    def search() -> None:
        for query in bigints[:_QUERIES]:
            session.execute(statement, query)

    spent = session.spend(search, _QUERIES)
    return Searched(
        statistics.median(plan["Execution Time"] for plan in plans),
        1000 * spent.processor,
        statistics.median(
            plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] for plan in plans
        ),
    )


def _insert(session: Session, costs: Costs, values: Fingerprints) -> None:
    """Insert rows in three ways; the first of each are a warm-up."""
    session.execute(
        f"CREATE OR REPLACE PROCEDURE insert_rows(fingerprints bigint[], first bigint) LANGUAGE plpgsql AS $$\n"
        f"BEGIN\n"
        f"    FOR number IN 1 .. cardinality(fingerprints) LOOP\n"
        f"        INSERT INTO {_TABLE} VALUES (first + number, fingerprints[number]);\n"
        f"        COMMIT;\n"
        f"    END LOOP;\n"
        f"END $$"
    )
    session.execute("SET synchronous_commit = off")
    bigints, first = iter(values.view(np.int64).tolist()), 1 << 40
    alone, together = (max(10, round(share * values.size)) for share in (_ALONE, _TOGETHER))

    def insert_alone(count: int) -> None:
        nonlocal first
        session.execute("CALL insert_rows(%s::bigint[], %s)", list(itertools.islice(bigints, count)), first)
        first += count

    def insert_together(count: int) -> None:
        nonlocal first
        for _ in range(0, count, STATEMENT):
            session.execute(
                f"INSERT INTO {_TABLE} SELECT %s + number, value"
                " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (value, number)",
                first,
                list(itertools.islice(bigints, min(STATEMENT, count))),
            )
            first += STATEMENT

    insert_alone(alone // 5)
    costs.alone = session.spend(lambda: insert_alone(alone), alone)
    insert_together(STATEMENT)
    costs.together = session.spend(lambda: insert_together(together), together)
    session.full_pages(logged=True)
    costs.after_checkpoint = session.spend(lambda: insert_together(together), together)
    session.full_pages(logged=False)
    session.execute("RESET synchronous_commit")
    _maintain(session, costs.case)


def _update_alone(session: Session, costs: Costs) -> None:
    """Update another column, each row in a transaction of its own; the first rows are a warm-up."""
    session.execute(
        f"CREATE OR REPLACE PROCEDURE update_rows(first bigint, many bigint) LANGUAGE plpgsql AS $$\n"
        f"BEGIN\n"
        f"    FOR number IN first .. first + many - 1 LOOP\n"
        f"        UPDATE {_TABLE} SET visits = visits + 1 WHERE id = number;\n"
        f"        COMMIT;\n"
        f"    END LOOP;\n"
        f"END $$"
    )
    session.execute("SET synchronous_commit = off")
    many = max(10, round(_ALONE * session.value(f"SELECT count(*) FROM {_TABLE}")))
    for number, logged in enumerate((False, False, True)):
        session.full_pages(logged=logged)
        call = partial(session.execute, f"CALL update_rows({1 + number * many}, {many})")
        costs.updated_alone[logged] = session.spend(call, many)
    session.full_pages(logged=False)
    session.execute("RESET synchronous_commit")
    _maintain(session, costs.case)


def _maintain(session: Session, case: Case) -> None:
    if case.storage == "tables":
        session.execute(f"CALL simsql.vacuum('{_TABLE}')")
    _vacuum(session)


def _change(session: Session, costs: Costs, queries: Fingerprints) -> None:
    """Give every fifth row another fingerprint, and clean up, until all have one; then change another column."""
    case = costs.case
    for number in range(_ROUNDS):
        chosen = f"WHERE abs(hashint8(id) % {_ROUNDS}) = {number}"
        rows = session.value(f"SELECT count(*) FROM {_TABLE} {chosen}")
        if number in (1, 2):
            session.full_pages(logged=number == 1)
        update = f"UPDATE {_TABLE} SET fingerprint = hashint8extended(id, {number}) {chosen}"
        costs.changed.append(session.spend(partial(session.execute, update), rows))
        if case.storage and number == 0:
            costs.before_upkeep = {distance: _time_searches(session, queries, distance) for distance in DISTANCES}
        costs.upkeep.append(session.spend(partial(_maintain, session, case)))
    costs.changed_rows = session.value(f"SELECT count(*) FROM {_TABLE}")
    costs.changed_bytes = _index_bytes(session)
    rows = session.value(f"SELECT count(*) FROM {_TABLE} {chosen}")
    update = f"UPDATE {_TABLE} SET visits = visits + 1 {chosen}"
    costs.other_column = session.spend(partial(session.execute, update), rows)


def main(
    rows: Annotated[int, typer.Option(min=1000, help="Fingerprints in the table.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 1,
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, exists=True, help="Where the server's folder is made.")
    ] = None,
) -> None:
    """Measure what an index costs: disk, build, inserts, searches, memory, updates."""
    try:
        with run_server((folder or default_folder()).resolve(), rows, 0, _SETTINGS) as cluster:
            with connect(cluster) as connection:
                for name, value in (describe_machine() | describe_server(connection)).items():
                    print(f"{name}: {value}", flush=True)
            values = make_fingerprints(rows, seed)
            found = []
            for case in CASES:
                print(f"{time.strftime('%H:%M:%S')} {' '.join(case.cells)}", file=sys.stderr, flush=True)
                found.append(measure(cluster, case, values, seed))
    except WrongResultError as error:
        print(f"WRONG RESULT: {error}", file=sys.stderr)
        sys.exit(1)
    except SimsqlError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print("\n".join(tables(found, rows)))


if __name__ == "__main__":
    # As Ctrl-C does: what was started is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    typer.run(main)
