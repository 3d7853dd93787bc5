"""The schemes of the textbook side by side, at distance 3.

Without tables: compare with every row; look up every fingerprint near the query; store every fingerprint near a
stored one. With tables: the four designs of Manku, Jain and Das Sarma (WWW 2007).
"""

from itertools import chain, combinations

import numpy as np

from benchmarks.bars import SCAN
from benchmarks.data import KINDS, Fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, copy_fingerprints
from benchmarks.searches import measure_near, measure_scan, measure_statement
from simsql.hamming import Design

SECTION = "schemes"
_DISTANCE = 3
_DESIGNS = {
    f"{SIMSQL}, 4 tables": Design(4, 1),
    f"{SIMSQL}, 10 tables": Design(5, 2),
    f"{SIMSQL}, 16 tables, nested": Design(4, 1, inner_blocks=4),
    f"{SIMSQL}, 20 tables": Design(6, 3),
}
_STORAGE = "storage for a row, beside the table and its B-trees"
_LOOKUPS = "a look-up of each fingerprint near the query"
_STORED = "all fingerprints near a stored one, stored"
_NESTED_LOOP = {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_seqscan": "on"}


def run(bench: Bench) -> None:
    """Measure the schemes with tables, then those without."""
    for system, design in _DESIGNS.items():
        seconds = bench.use(bench.main, design)
        if seconds:
            bench.add(SECTION, "create_index", system, seconds, "s")
        size = bench.size(*bench.key_tables(bench.main.table))
        bench.add(SECTION, _STORAGE, system, size / bench.main.rows, "bytes")
        measure_near(bench, SECTION, bench.main, _DISTANCE, system=system)
    for kind in KINDS:
        measure_scan(bench, SECTION, bench.main, _DISTANCE, kind, SCAN, processes=1)
    flips = _flips()
    bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", "flip")
    copy_fingerprints(bench.connection, "flip", flips)
    bench.execute("ANALYZE {}", "flip")
    _measure_lookups(bench, flips.size)
    _measure_stored_neighbours(bench)
    bench.execute("DROP TABLE {}", "flip")


def _flips() -> Fingerprints:
    """Return all ways to flip up to three bits."""
    flipped = chain.from_iterable(combinations(range(64), size) for size in range(_DISTANCE + 1))
    return np.array([sum(1 << bit for bit in bits) for bits in flipped], dtype=np.uint64)


def _measure_lookups(bench: Bench, lookups: int) -> None:
    for kind in KINDS:
        measure_statement(
            bench,
            SECTION,
            bench.main,
            _DISTANCE,
            kind,
            _LOOKUPS,
            "SELECT a.fingerprint FROM (SELECT f.fingerprint # query AS neighbour FROM flip AS f) AS n"
            " JOIN article AS a ON a.fingerprint = n.neighbour",
            _NESTED_LOOP,
            note=f"{lookups:,} look-ups in the B-tree",
        )


def _measure_stored_neighbours(bench: Bench) -> None:
    """On a few rows only: each takes 3 MB."""
    values = bench.main.oracle.values[: max(2, min(100, bench.main.rows // 10_000))]
    bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", "few")
    copy_fingerprints(bench.connection, "few", values)
    bench.execute(
        "CREATE TABLE {} AS SELECT a.fingerprint # f.fingerprint AS neighbour, a.fingerprint"
        " FROM {} AS a CROSS JOIN {} AS f",
        "neighbour",
        "few",
        "flip",
    )
    bench.execute("CREATE INDEX ON {} (neighbour) INCLUDE (fingerprint)", "neighbour")
    bench.execute("VACUUM (ANALYZE) {}", "neighbour")
    target = bench.target("few", values)
    size = bench.size("neighbour") / values.size
    note = f"{size / 1e6:.1f} MB a row: {size * bench.main.rows / 1e12:,.2g} TB for {bench.main.rows:,} rows"
    for kind in KINDS:
        statement = "SELECT n.fingerprint FROM neighbour AS n WHERE n.neighbour = query"
        measure_statement(bench, SECTION, target, _DISTANCE, kind, _STORED, statement, {}, note)
    bench.add(SECTION, _STORAGE, _STORED, size, "bytes", rows=values.size)
    bench.execute("DROP TABLE {}, {}", "neighbour", "few")
