"""What clients see: pgbench asks, claims and inserts in statements and transactions of their own.

It leaves the table without an index and with rows of its own.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench
from benchmarks.oracle import Oracle
from benchmarks.pgbench import RANDOM_QUERY, find_pgbench, run_pgbench
from benchmarks.searches import near

SECTION = "clients"
_CLIENTS = 4
_ROUNDS = 3
_DISTANCE = 3
# Searches of one statement, without the way to the client and back.
_LOOP = 100
_NEAR, _INSERT, _CLAIM, _SELECT, _IN_LOOP = "near", "insert", "claim", "SELECT 1", "near in a loop"
_BOTH = "claim and insert"


def run(bench: Bench) -> None:
    """Measure each kind of transaction in turns, and what they cost in comparison."""
    pgbench = find_pgbench()
    if pgbench is None:
        bench.report.skip("clients: pgbench is not installed")
        return
    target = bench.main
    bench.use(target)
    scripts = _scripts(bench, target.table)
    seconds: dict[str, list[float]] = {name: [] for name in scripts}
    for _ in range(_ROUNDS):
        for name, script in scripts.items():
            seconds[name].append(1 / _rate(bench, pgbench, name, script))
    note = f"{_CLIENTS} clients, synchronous_commit = off"
    medians = {name: float(np.median(found)) for name, found in seconds.items()}
    for name, found in medians.items():
        bench.add(SECTION, name, SIMSQL, 1 / found, "/s", calls=_ROUNDS * _transactions(bench), note=note)
    _compare(bench, medians)
    _check_found(bench)
    bench.drop(target)


def _scripts(bench: Bench, table: str) -> Mapping[str, str]:
    """Return the transactions by name, each a script of pgbench."""
    index = bench.value(f"SELECT id FROM simsql.registry WHERE table_id = '{table}'::regclass")
    bench.connection.execute("DROP SEQUENCE IF EXISTS client_ids")
    bench.connection.execute("CREATE SEQUENCE client_ids INCREMENT -1 CACHE 1000")
    bench.connection.execute(
        "CREATE OR REPLACE FUNCTION nothing(bigint, integer) RETURNS SETOF simsql.match LANGUAGE plpgsql STABLE"
        " AS 'BEGIN END'"
    )
    near = f"SELECT * FROM simsql.near('{table}', :q, {_DISTANCE});\n"
    claim = f"SELECT * FROM simsql.claim('{table}', :q, {_DISTANCE});\n"
    insert = f"INSERT INTO {table} (id, fingerprint) VALUES (nextval('client_ids'), :q);\n"
    return {
        _SELECT: "SELECT 1;\n",
        "a function that does nothing": f"{RANDOM_QUERY}SELECT * FROM nothing(:q, {_DISTANCE});\n",
        f"search_{index}": f"{RANDOM_QUERY}SELECT * FROM simsql.search_{index}(:q, {_DISTANCE});\n",
        _IN_LOOP: f"{RANDOM_QUERY}SELECT count(n.fingerprint) FROM generate_series(1, {_LOOP}) AS g"
        f" LEFT JOIN LATERAL simsql.near('{table}', hashint8extended(g, :q), {_DISTANCE}) AS n ON true;\n",
        _NEAR: RANDOM_QUERY + near,
        _INSERT: RANDOM_QUERY + insert,
        _CLAIM: RANDOM_QUERY + claim,
        _BOTH: f"{RANDOM_QUERY}BEGIN;\n{claim}{insert}COMMIT;\n",
        f"{_BOTH} in one statement": f"{RANDOM_QUERY}INSERT INTO {table} (id, fingerprint)"
        " SELECT nextval('client_ids'), :q"
        f" WHERE NOT EXISTS (SELECT FROM simsql.claim('{table}', :q, {_DISTANCE}));\n",
    }


def _transactions(bench: Bench) -> int:
    """Return how many transactions all clients run in one round."""
    return _CLIENTS * max(10, bench.options.queries // _CLIENTS)


def _rate(bench: Bench, pgbench: Path, name: str, script: str) -> float:
    """Run a script with pgbench and return its rate a second; of the loop, that of the searches in it."""
    searches = _LOOP if name == _IN_LOOP else 1
    transactions = max(1, _transactions(bench) // _CLIENTS // searches)
    limit = f"--transactions={transactions}"
    return searches * run_pgbench(pgbench, bench.connection, script, clients=_CLIENTS, limit=limit)


def _compare(bench: Bench, seconds: Mapping[str, float]) -> None:
    for what, time, than in (
        (f"{_NEAR}: times as long as in a loop, and SELECT 1", _NEAR, seconds[_IN_LOOP] + seconds[_SELECT]),
        (f"{_CLAIM}: times as long as near", _CLAIM, seconds[_NEAR]),
        (f"{_BOTH}: times as long as the slower of near and insert", _BOTH, max(seconds[_NEAR], seconds[_INSERT])),
    ):
        bench.add(SECTION, what, SIMSQL, seconds[time] / than, "x")


def _check_found(bench: Bench) -> None:
    """Compare what is found near the rows of the clients with brute force over old and new ones."""
    rows = bench.execute("SELECT fingerprint FROM {} WHERE id < 0 ORDER BY id", bench.main.table)
    added = np.array([fingerprint for (fingerprint,) in rows], dtype=np.int64).view(np.uint64)
    oracle = Oracle(np.union1d(bench.main.oracle.values, added))
    for query in added[:: max(1, added.size // bench.options.sample)].tolist():
        found = near(bench, bench.main.table, query, _DISTANCE)
        oracle.check_near(f"{SIMSQL}, rows of clients", query, _DISTANCE, found)
