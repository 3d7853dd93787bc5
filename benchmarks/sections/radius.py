"""Fewer tables at the price of more probes: 2, 3 and 4 tables at distances 3, 7 and 10."""

from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench
from benchmarks.searches import measure_near
from simsql.hamming import Design

SECTION = "radius"


def run(bench: Bench) -> None:
    """Measure each design on the same table."""
    for tables in (2, 3, 4):
        design = Design(tables, 1)
        bench.use(bench.main, design)
        for distance in (3, 7, 10):
            measure_near(bench, SECTION, bench.main, distance, system=f"{SIMSQL}, {tables} tables")
