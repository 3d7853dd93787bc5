"""One search, at distances 3, 7 and 10 with four tables, beside the scan and the peers."""

import time

import numpy as np

from benchmarks.bars import FAISS, FAISS_BATCH, SCAN
from benchmarks.data import KINDS
from benchmarks.harness import Bench
from benchmarks.peers.faiss import FaissPeer, open_faiss
from benchmarks.searches import measure_near, measure_peer, measure_scan

SECTION = "near"
DISTANCES = (3, 7, 10)
_PARALLEL_SCAN = "scan in SQL, as many processes as it takes"


def run(bench: Bench) -> None:
    """Measure simsql, the scan, then peer by peer: one of them is in memory at a time."""
    target = bench.main
    bench.use(target)
    for distance in DISTANCES:
        measure_near(bench, SECTION, target, distance, through_psycopg=True)
    for distance in DISTANCES:
        for kind in KINDS:
            measure_scan(bench, SECTION, target, distance, kind, SCAN, processes=1)
    measure_scan(bench, SECTION, target, DISTANCES[0], KINDS[0], _PARALLEL_SCAN)
    for peer in open_faiss(bench, target.oracle.values):
        for distance in DISTANCES:
            peer.set_distance(distance)
            measure_peer(bench, SECTION, target, distance, peer)
            if peer.name == FAISS:
                _measure_one_call(bench, peer, distance)


def _measure_one_call(bench: Bench, peer: FaissPeer, distance: int) -> None:
    """All queries in one call: what is left is the search, without the way from Python to it and back."""
    for kind in KINDS:
        queries = bench.main.queries.of(kind)
        rows = np.concatenate(peer.prepare(queries))
        start = time.perf_counter()
        limits, _, places = peer.search(rows)
        milliseconds = (time.perf_counter() - start) * 1000 / queries.size
        checked = min(bench.options.sample, queries.size)
        for number, query in enumerate(queries[:checked].tolist()):
            found = peer.values[places[limits[number] : limits[number + 1]]].tolist()
            bench.main.oracle.check_members(FAISS_BATCH, query, distance, found)
        bench.add(
            SECTION,
            f"distance {distance}, {kind}",
            FAISS_BATCH,
            milliseconds,
            "ms",
            mean=milliseconds,
            calls=queries.size,
            checked=checked,
            note="time of the call for each query",
        )
