"""Building an index, what it takes on disk, and ways to load many rows."""

import time

import numpy as np

from benchmarks.data import make_fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import DEFAULT, Bench, Target
from benchmarks.oracle import Oracle
from benchmarks.searches import near

SECTION = "build"
_A_KEY = "a key in a table"
_ADDED_SHARE = 5  # one new row for five
_STATEMENT_ROWS = 1_000


def run(bench: Bench) -> None:
    """Measure a table of its own, as its keys grow."""
    with bench.table("built", bench.main.oracle.values) as target:
        seconds = bench.use(target)
        bench.add(SECTION, "create_index", SIMSQL, seconds, "s", note="with the B-tree on the column")
        start = time.perf_counter()
        bench.execute("CREATE INDEX again ON {} (fingerprint)", target.table)
        bench.add(SECTION, "create_index", "the B-tree on the column alone", time.perf_counter() - start, "s")
        bench.execute("DROP INDEX {}", "again")
        _add_size(bench, target, f"{_A_KEY}, after the build", target.rows)
        _insert_randomly(bench, target)


def _insert_randomly(bench: Bench, target: Target) -> None:
    """Add rows a thousand at a time: their keys go anywhere into the B-trees."""
    count = target.rows // _ADDED_SHARE
    added = make_fingerprints(count, bench.options.seed + 2)
    seconds = 0.0
    for start in range(0, count, _STATEMENT_ROWS):
        bigints = added[start : start + _STATEMENT_ROWS].view(np.int64).tolist()
        began = time.perf_counter()
        bench.connection.execute(
            f"INSERT INTO {target.table} SELECT %s - number, fingerprint"
            " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (fingerprint, number)".encode(),
            (-start, bigints),
        )
        seconds += time.perf_counter() - began
    what = f"{count:,} rows inserted, {_STATEMENT_ROWS:,} a statement"
    bench.add(SECTION, what, SIMSQL, seconds, "s", rows=target.rows + count)
    _add_size(bench, target, f"{_A_KEY}, after 20% random inserts", target.rows + count)
    oracle = Oracle(np.union1d(target.oracle.values, added))
    for query in added[: bench.options.sample].tolist():
        oracle.check_near(f"{SIMSQL}, after inserts", query, 3, near(bench, target.table, query, 3))


def _add_size(bench: Bench, target: Target, what: str, keys: int) -> None:
    size = bench.size(*bench.key_tables(target.table))
    note = f"{size / 1e6:,.0f} MB in {DEFAULT.tables} tables"
    bench.add(SECTION, what, SIMSQL, size / keys / DEFAULT.tables, "bytes", rows=keys, note=note)
