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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import numpy as np
import psycopg
import typer

from benchmarks.data import Fingerprints, make_fingerprints, make_queries
from benchmarks.environment import describe_machine, describe_server
from benchmarks.figures import markdown_line
from benchmarks.harness import copy_fingerprints
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.server import connect, default_folder, run_server
from simsql.database.index_spec import Storage
from simsql.errors import SimsqlError
from simsql.hamming import Design
from simsql.server.postgres_server import PostgresServer

DESIGNS = (Design(2), Design(4), Design(6, 3))
DISTANCES = (3, 7)
# PostgreSQL's own defaults for memory, and one core for each statement.
_SETTINGS = {
    "work_mem": "4MB",
    "maintenance_work_mem": "64MB",
    "max_parallel_maintenance_workers": "0",
    "max_parallel_workers_per_gather": "0",
}
_TABLE = "article"
_QUERIES, _WARM_UP, _CHECKED = 200, 20, 10
# Shares of the rows that are inserted each in its transaction, and in statements of so many.
_ALONE, _TOGETHER, _STATEMENT = 0.005, 0.02, 1_000
# In so many rounds, each fingerprint changes once.
_ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A table: without an index, with a B-tree on the column, or with an index besides."""

    on_column: bool = True
    storage: Storage | None = None
    design: Design = field(default_factory=Design)
    changes: bool = False

    @property
    def cells(self) -> list[str]:
        """What tells this case from the others."""
        if self.storage:
            return [f"`{self.storage}`", str(self.design.tables)]
        return ["B-tree on the column" if self.on_column else "no index", ""]


CASES = (
    Case(on_column=False),
    Case(changes=True),
    *(Case(True, storage, design, design == Design()) for storage in get_args(Storage) for design in DESIGNS),
)


@dataclass(frozen=True)
class Spent:
    """What a piece of work has taken of the server."""

    seconds: float
    processor: float  # seconds of the session's process
    log: int  # bytes of the write-ahead log
    memory: int  # the most bytes of its own that the process had


@dataclass(frozen=True)
class Searched:
    """Searches at one distance: medians, and the mean of the processor time."""

    milliseconds: float
    processor: float  # milliseconds
    blocks: float


@dataclass
class Costs:
    """The figures of a case: of the whole table; of inserts and updates, of each row."""

    case: Case
    table_bytes: int = 0  # with the primary key
    column_bytes: int = 0
    index_bytes: int = 0
    built: Spent | None = None
    built_online: Spent | None = None
    online_bytes: int = 0
    searched: dict[int, Searched] = field(default_factory=dict)
    session: int = 0
    alone: Spent | None = None
    together: Spent | None = None
    after_checkpoint: Spent | None = None
    changed: list[Spent] = field(default_factory=list)
    upkeep: list[Spent] = field(default_factory=list)
    before_upkeep: dict[int, Searched] = field(default_factory=dict)
    changed_rows: int = 1
    changed_bytes: int = 0
    other_column: Spent | None = None


class Session:
    """A connection, and the process of the server behind it."""

    def __init__(self, cluster: PostgresServer) -> None:
        self.connection = connect(cluster)
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
        _insert(session, costs, make_fingerprints(values.size + _STATEMENT, seed + 1))
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
        for _ in range(0, count, _STATEMENT):
            session.execute(
                f"INSERT INTO {_TABLE} SELECT %s + number, value"
                " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (value, number)",
                first,
                list(itertools.islice(bigints, min(_STATEMENT, count))),
            )
            first += _STATEMENT

    insert_alone(alone // 5)
    costs.alone = session.spend(lambda: insert_alone(alone), alone)
    insert_together(_STATEMENT)
    costs.together = session.spend(lambda: insert_together(together), together)
    session.full_pages(logged=True)
    costs.after_checkpoint = session.spend(lambda: insert_together(together), together)
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


def tables(found: Sequence[Costs], rows: int) -> Iterator[str]:
    """Yield the lines of the tables, for cases in the order of CASES."""
    indexed = [costs for costs in found if costs.case.storage]
    bare, plain = found[0], found[1]
    yield f"\nThe table: {bare.table_bytes / rows:.0f} bytes a row with its primary key;"
    yield f"the B-tree on the column: {plain.column_bytes / rows:.0f}.\n"
    yield from _table(
        ["disk, MB", "bytes a row", "build, processor s", "its memory, MB", "its log, MB"],
        indexed,
        lambda costs: [
            f"{costs.index_bytes / 1e6:.0f}",
            f"{costs.index_bytes / rows:.0f}",
            f"{_of(costs.built).processor:.1f}",
            f"{_of(costs.built).memory / 1e6:.0f}",
            f"{_of(costs.built).log / 1e6:.0f}",
        ],
    )
    base = _of(plain.alone).processor, _of(plain.together).processor
    yield from _table(
        ["alone, us", "x", f"{_STATEMENT:,} a statement, us", "x", "log, bytes", "log after a checkpoint, bytes"],
        found,
        lambda costs: [
            f"{1e6 * _of(costs.alone).processor:.0f}",
            f"{_of(costs.alone).processor / base[0]:.1f}",
            f"{1e6 * _of(costs.together).processor:.1f}",
            f"{_of(costs.together).processor / base[1]:.1f}",
            f"{_of(costs.together).log:,}",
            f"{_of(costs.after_checkpoint).log:,}",
        ],
    )
    yield from _table(
        [*_search_titles(), "memory, MB"],
        indexed,
        lambda costs: [*_searched(costs.searched), f"{costs.session / 1e6:.1f}"],
    )
    changed = [costs for costs in found if costs.case.changes]
    yield from _table(
        [
            "update, us",
            "log, bytes",
            "log after a checkpoint, bytes",
            "clean-up, processor s",
            "its log, MB",
            "other column, us",
            "log, bytes",
        ],
        changed,
        lambda costs: [
            f"{1e6 * costs.changed[0].processor:.1f}",
            f"{costs.changed[0].log:,}",
            f"{costs.changed[1].log:,}",
            f"{costs.upkeep[0].processor:.1f}",
            f"{costs.upkeep[0].log / 1e6:.0f}",
            f"{1e6 * _of(costs.other_column).processor:.1f}",
            f"{_of(costs.other_column).log:,}",
        ],
    )
    yield from _table(
        ["bytes a row", "after all rows have changed", *_search_titles()],
        [costs for costs in changed if costs.case.storage],
        lambda costs: [
            f"{costs.index_bytes / rows:.0f}",
            f"{costs.changed_bytes / costs.changed_rows:.0f}",
            *_searched(costs.before_upkeep),
        ],
    )
    for costs in indexed:
        if costs.built_online:
            online, built = costs.built_online, _of(costs.built)
            ratios = (
                online.processor / built.processor,
                online.log / built.log,
                costs.online_bytes / costs.index_bytes,
            )
            yield (
                f"Online, {' '.join(costs.case.cells)}: {ratios[0]:.1f} times the processor time,"
                f" {ratios[1]:.1f} times the log, {ratios[2]:.2f} times the disk."
            )


def _of(spent: Spent | None) -> Spent:
    assert spent is not None
    return spent


def _search_titles() -> list[str]:
    return [f"{distance}: {what}" for distance in DISTANCES for what in ("ms", "processor ms", "blocks")]


def _searched(searched: dict[int, Searched]) -> list[str]:
    return [
        cell
        for distance in DISTANCES
        if distance in searched
        for cell in (
            f"{searched[distance].milliseconds:.2f}",
            f"{searched[distance].processor:.2f}",
            f"{searched[distance].blocks:,.0f}",
        )
    ]


def _table(titles: Sequence[str], found: Sequence[Costs], cells: Callable[[Costs], list[str]]) -> Iterator[str]:
    yield markdown_line(["storage", "tables or B-trees", *titles])
    yield markdown_line(["---", *["---:"] * (len(titles) + 1)])
    for costs in found:
        yield markdown_line([*costs.case.cells, *cells(costs)])
    yield ""


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
