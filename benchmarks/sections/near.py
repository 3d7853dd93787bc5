"""One search, at distances 3, 7 and 10 with four tables, beside the scan and the peers."""

import time
from itertools import pairwise

import numpy as np

from benchmarks.bars import FAISS, FAISS_BATCH, SCAN
from benchmarks.data import KINDS, Fingerprints
from benchmarks.harness import Bench
from benchmarks.oracle import WrongResultError
from benchmarks.peers.faiss import FaissPeer, open_faiss
from benchmarks.peers.python import open_gaoya, open_simhash
from benchmarks.searches import measure_near, measure_peer, measure_scan, time_calls

SECTION = "near"
DISTANCES = (3, 7, 10)
_FIRST_LOOK = 10
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
    _measure_gaoya(bench)
    _measure_simhash(bench)


def _measure_one_call(bench: Bench, peer: FaissPeer, distance: int) -> None:
    """Many queries in one call: what is left is the search, without the way from Python to it and back."""
    for kind in KINDS:
        queries = bench.main.queries.of(kind)
        look, _ = _search_at_once(peer, queries[:_FIRST_LOOK])
        queries = queries[: max(_FIRST_LOOK, int(bench.options.budget * 1000 / look))]
        milliseconds, found = _search_at_once(peer, queries)
        checked = min(bench.options.sample, queries.size)
        for query, values in zip(queries[:checked].tolist(), found, strict=False):
            bench.main.oracle.check_members(FAISS_BATCH, query, distance, values.tolist())
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


def _search_at_once(peer: FaissPeer, queries: Fingerprints) -> tuple[float, list[Fingerprints]]:
    """Return the milliseconds of one call for each query, and what each query has found."""
    rows = np.concatenate(peer.prepare(queries))
    start = time.perf_counter()
    limits, _, places = peer.search(rows)
    milliseconds = (time.perf_counter() - start) * 1000 / queries.size
    return milliseconds, [peer.values[places[first:last]] for first, last in pairwise(limits)]


def _measure_simhash(bench: Bench) -> None:
    peer = open_simhash(bench, bench.main.oracle.values, DISTANCES[0])
    if peer:
        part = bench.target("none", bench.main.oracle.values[: peer.rows])
        measure_peer(bench, SECTION, part, DISTANCES[0], peer)


def _measure_gaoya(bench: Bench) -> None:
    """Its fingerprints are not ours: what can be checked is that it finds the documents that it holds."""
    values = bench.main.oracle.values
    peer = open_gaoya(bench, values, DISTANCES[0])
    if peer is None:
        return
    queries = bench.target("none", values[: peer.rows]).queries
    number_of = {value: number for number, value in enumerate(values[: peer.rows].tolist())}
    for kind in ("stored", "random"):
        calls = time_calls(bench, peer.search, peer.prepare(queries.of(kind)))
        checked = len(calls.answers) if kind == "stored" else 0
        for query, answer in zip(queries.of(kind)[:checked].tolist(), calls.answers, strict=False):
            if number_of[query] not in answer:
                raise WrongResultError(f"{peer.name} does not find document {number_of[query]}, which it holds")
        bench.add(
            SECTION,
            f"distance {DISTANCES[0]}, {kind}",
            peer.name,
            calls.median,
            "ms",
            mean=calls.mean,
            calls=len(calls.answers),
            checked=checked,
            rows=peer.rows,
            note=peer.note,
        )
