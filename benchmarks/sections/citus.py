"""One search on a Citus cluster, beside a single server of the same version.

The coordinator and both workers run on this machine: what they gain on machines of their own does not show here.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import psycopg
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8
from sqlalchemy import URL, make_url

from benchmarks.cluster import WORKERS, find_scripts, run_cluster, run_single_server
from benchmarks.data import Fingerprints, make_fingerprints, make_queries
from benchmarks.figures import SIMSQL
from benchmarks.harness import DEFAULT_RECIPE, Bench, Run, Target, copy_fingerprints
from benchmarks.oracle import Found, Oracle, as_bigint
from benchmarks.pgbench import RANDOM_QUERY, find_pgbench, run_pgbench
from benchmarks.searches import time_calls, unsigned
from benchmarks.server import connect, settings
from simsql.database import create_index
from simsql.database.connect import open_engine
from simsql.database.index_spec import Storage
from simsql.database.install import install_schema

SECTION = "citus"
_DISTANCES = (3, 7, 10)
_CLIENTS = 8
_TENANTS = 100
_TABLE = "article"
_LOADED = "loaded"


@dataclass(frozen=True)
class Layout:
    """A table: its storage, its shards (0 on a single server), and whether each search is for one tenant."""

    storage: Storage
    shards: int = 0
    by_tenant: bool = False

    @property
    def system(self) -> str:
        """Return its name in the report."""
        if not self.shards:
            return f"{SIMSQL}, one server, {self.storage}"
        return f"{SIMSQL}, Citus, {self.shards} shards on {WORKERS} workers"

    @property
    def scoped(self) -> str:
        """Return the end of the name of each figure."""
        return f", one of {_TENANTS} tenants" if self.by_tenant else ""

    @property
    def scope(self) -> list[str]:
        """Return the columns of the scope."""
        return ["tenant"] if self.by_tenant else []


SINGLE = (
    Layout("tables"),
    Layout("expression"),
    Layout("tables", by_tenant=True),
    Layout("expression", by_tenant=True),
)
DISTRIBUTED = (
    *(Layout("expression", WORKERS * shards) for shards in (1, 2, 4)),
    Layout("expression", WORKERS * 4, by_tenant=True),
)


def run(run: Run) -> None:
    """Measure the layouts of a single server, then those of the cluster."""
    scripts = find_scripts()
    if scripts is None:
        run.report.skip("citus: SIMSQL_CITUS does not name a folder with start-cluster.sh")
        return
    values = make_fingerprints(run.options.rows, run.options.seed)
    target = Target(_TABLE, Oracle(values), make_queries(values, run.options.queries, run.options.seed))
    with run_cluster(scripts, run.options.folder, settings()) as url:
        with (
            run_single_server(url, run.options.folder, settings()) as server,
            connect(server) as connection,
            open_bench(run, server.url(), connection, target) as bench,
        ):
            measure(bench, SINGLE)
        with (
            psycopg.connect(url, autocommit=True) as connection,
            open_bench(run, make_url(url), connection, target) as bench,
        ):
            measure(bench, DISTRIBUTED)


@contextlib.contextmanager
def open_bench(run: Run, url: URL, connection: psycopg.Connection, target: Target) -> Iterator[Bench]:
    """Install simsql on a server and load the fingerprints into a local table."""
    engine = open_engine(url)
    install_schema(engine)
    bench = Bench(run.options, run.report, engine, connection, target)
    bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", _LOADED)
    copy_fingerprints(connection, _LOADED, target.oracle.values)
    try:
        yield bench
    finally:
        engine.dispose()


def measure(bench: Bench, layouts: Sequence[Layout]) -> None:
    """Add the figures of each layout."""
    for layout in layouts:
        load(bench, layout)
        add_build(bench, layout)
        for distance in _DISTANCES:
            add_searches(bench, layout, distance)
        bench.drop(bench.main)
        bench.execute("DROP TABLE {}", _TABLE)


def load(bench: Bench, layout: Layout) -> None:
    """Create the table, with the B-tree that create_index would otherwise create."""
    bench.report.say(f"loading {bench.main.rows:,} rows: {layout.system}")
    bench.execute("CREATE TABLE {} (id bigint, tenant bigint, fingerprint bigint)", _TABLE)
    if layout.shards:
        bench.connection.execute(
            "SELECT create_distributed_table(%s, %s, shard_count => %s, colocate_with => 'none')",
            (_TABLE, "tenant" if layout.by_tenant else "id", layout.shards),
        )
    # Ids count from 1.
    bench.execute(f"INSERT INTO {{}} SELECT id, (id - 1) % {_TENANTS}, fingerprint FROM {{}}", _TABLE, _LOADED)
    bench.execute(f"CREATE INDEX ON {{}} ({', '.join([*layout.scope, 'fingerprint'])})", _TABLE)


def add_build(bench: Bench, layout: Layout) -> None:
    """Create the index; add its time and size."""
    size = _size(bench, layout)
    start = time.perf_counter()
    with bench.engine.begin() as connection:
        create_index(
            connection,
            _TABLE,
            "fingerprint",
            design=DEFAULT_RECIPE,
            scope=layout.scope,
            storage=None if layout.shards else layout.storage,
        )
    seconds = time.perf_counter() - start
    bench.main.design = DEFAULT_RECIPE
    bench.add(SECTION, f"create_index{layout.scoped}", layout.system, seconds, "s")
    for name in (_TABLE, *bench.key_tables(_TABLE)):
        bench.execute("VACUUM (ANALYZE) {}", name)
    bytes_ = (_size(bench, layout) - size) / bench.main.rows
    bench.add(
        SECTION, f"a fingerprint, beyond the B-tree on the column{layout.scoped}", layout.system, bytes_, "bytes"
    )


def _size(bench: Bench, layout: Layout) -> int:
    if layout.shards:
        return bench.value(f"SELECT citus_total_relation_size('{_TABLE}')")
    return bench.size(_TABLE, *bench.key_tables(_TABLE))


def add_searches(bench: Bench, layout: Layout, distance: int) -> None:
    """Add how long a search takes as one client sees it, and how many a second eight clients get."""
    what = f"distance {distance}{layout.scoped}"
    queries = bench.main.queries.mixed()
    ask = _asker(bench, layout, distance)
    calls = time_calls(bench, ask, queries.view(np.int64).tolist())
    checked = _check(bench, layout, distance, queries[: len(calls.answers)], calls.answers)
    bench.add(
        SECTION,
        what,
        layout.system,
        calls.median,
        "ms",
        mean=calls.mean,
        calls=len(calls.answers),
        checked=checked,
    )
    pgbench = find_pgbench()
    if pgbench is None:
        bench.report.skip("citus: pgbench is not installed")
        return
    scope = ", scope => jsonb_build_object('tenant', :tenant::bigint)" if layout.by_tenant else ""
    script = (
        f"{RANDOM_QUERY}\\set tenant random(0, {_TENANTS - 1})\n"
        f"SELECT * FROM simsql.near('{_TABLE}', :q, {distance}{scope});\n"
    )
    # As many in all as one client would run within the budget.
    transactions = max(1, round(1000 * bench.options.budget / calls.median / _CLIENTS))
    rate = run_pgbench(pgbench, bench.connection, script, clients=_CLIENTS, limit=f"--transactions={transactions}")
    bench.add(SECTION, f"{what}, {_CLIENTS} clients", layout.system, rate, "/s", calls=_CLIENTS * transactions)


def _asker(bench: Bench, layout: Layout, distance: int) -> Callable[[int], Found]:
    """Return a search through psycopg; the tenant of a bigint is its remainder."""
    scope = ", scope => %s" if layout.by_tenant else ""
    statement = f"SELECT fingerprint, distance FROM simsql.near(%s::regclass, %s, %s{scope})".encode()
    cursor = bench.connection.cursor()

    def ask(bigint: int) -> Found:
        scopes = [Jsonb({"tenant": bigint % _TENANTS})] if layout.by_tenant else []
        return cursor.execute(statement, (_TABLE, Int8(bigint), distance, *scopes), prepare=True).fetchall()

    return ask


def _check(bench: Bench, layout: Layout, distance: int, queries: Fingerprints, answers: Sequence[Found]) -> int:
    """Compare some answers, and as many at distance 0, with brute force; return how many."""
    checked = min(bench.options.sample, len(answers))
    exact = _asker(bench, layout, 0)
    for query, answer in zip(queries[:checked].tolist(), answers, strict=False):
        oracle = bench.main.oracle
        if layout.by_tenant:
            oracle = Oracle(oracle.values[as_bigint(query) % _TENANTS :: _TENANTS])
        oracle.check_near(layout.system, query, distance, unsigned(answer))
        oracle.check_near(layout.system, query, 0, unsigned(exact(as_bigint(query))))
    return 2 * checked
