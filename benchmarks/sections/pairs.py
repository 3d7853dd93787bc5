"""All pairs within 3 of a table: in SQL, and through Python."""

import time

import numpy as np

from benchmarks.data import Fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, Target

SECTION = "pairs"
_DISTANCE = 3
_MILLION = 1_000_000


def run(bench: Bench) -> None:
    """Measure a million rows in SQL, where there are as many, and all through Python."""
    bench.use(bench.main)
    if bench.main.rows > _MILLION:
        with bench.table("million", bench.main.oracle.values[:_MILLION]) as target:
            bench.use(target)
            _measure_sql(bench, target, f"pairs of {_MILLION:,} rows, distance {_DISTANCE}")
    else:
        _measure_sql(bench, bench.main, f"pairs of all rows, distance {_DISTANCE}")


def _measure_sql(bench: Bench, target: Target, what: str) -> None:
    system = f"{SIMSQL}, in SQL"
    start = time.perf_counter()
    bench.connection.execute(
        f"CREATE TABLE found AS SELECT * FROM simsql.pairs('{target.table}', {_DISTANCE})".encode()
    )
    seconds = time.perf_counter() - start
    rows = bench.connection.execute("SELECT a, b FROM found").fetchall()
    pairs: Fingerprints = np.array(rows, dtype=np.int64).reshape(-1, 2).view(np.uint64)
    checked = target.oracle.check_pairs(system, _DISTANCE, pairs, bench.options.sample)
    note = f"{len(pairs):,} pairs, into a table"
    bench.add(SECTION, what, system, seconds, "s", rows=target.rows, checked=checked, note=note)
    bench.execute("DROP TABLE {}", "found")
