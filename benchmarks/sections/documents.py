"""From text to answer: documents into an index and searches by text, beside packages that do the same."""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
from psycopg.types.numeric import Int8

import simsql
from benchmarks.bars import GAOYA, SIMHASH
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, Target, copy_fingerprints
from benchmarks.oracle import Oracle, WrongResultError, as_bigint
from benchmarks.peers import import_peer
from benchmarks.searches import Calls, near, time_calls
from benchmarks.texts import Corpus

SECTION = "documents"
_DISTANCE = 3
_LARGEST = 20_000
_QUERIES = 1_000


def run(bench: Bench) -> None:
    """Measure as many documents as the slowest of the packages takes in seconds."""
    corpus = Corpus(min(_LARGEST, max(200, bench.main.rows // 5)), bench.options.seed)
    texts = list(corpus.texts())
    queries = list(islice(corpus.edited(corpus.count), min(_QUERIES, bench.options.queries)))
    _measure_simsql(bench, texts, queries)
    gaoya = import_peer(bench, "gaoya", "gaoya")
    if gaoya:
        _measure_gaoya(bench, gaoya, texts, queries)
    simhash = import_peer(bench, "simhash", "simhash")
    if simhash:
        _measure_simhash(bench, simhash, texts, queries)


def _measure_simsql(bench: Bench, texts: Sequence[str], queries: Sequence[str]) -> None:
    """Fingerprint all, and COPY them into an indexed table; then a fingerprint and a search for each query."""
    nothing = np.empty(0, dtype=np.uint64)
    bench.create("document", nothing)
    target = Target("document", Oracle(nothing), bench.main.queries)
    bench.use(target)
    start = time.perf_counter()
    fingerprints = simsql.simhash_many(texts).compressed()
    copy_fingerprints(bench.connection, "document", fingerprints)
    seconds = time.perf_counter() - start
    bench.settle(target)
    cursor = bench.connection.cursor()

    def search(text: str) -> Any:
        arguments = (Int8(as_bigint(simsql.simhash(text) or 0)), _DISTANCE)
        return cursor.execute("SELECT * FROM simsql.near('document', %s, %s)", arguments, prepare=True).fetchall()

    calls = time_calls(bench, search, queries)
    oracle = Oracle(np.unique(fingerprints))
    checked = min(bench.options.sample, len(calls.answers))
    for text in queries[:checked]:
        query = simsql.simhash(text) or 0
        oracle.check_near(SIMSQL, query, _DISTANCE, near(bench, "document", query, _DISTANCE))
    _add(bench, SIMSQL, len(texts), seconds, calls, checked, "logged table")
    bench.drop(target)
    bench.execute("DROP TABLE {}", "document")


def _measure_gaoya(bench: Bench, module: Any, texts: Sequence[str], queries: Sequence[str]) -> None:
    """Words and pairs of words, as simsql's recipe has."""
    index = module.simhash.SimHashStringIndex(num_blocks=6, hamming_distance=_DISTANCE + 1, ngram_range=(1, 2))

    def add() -> None:
        for number, text in enumerate(texts):
            index.insert_document(number, text)

    _measure_package(bench, GAOYA, texts, queries, add, index.query)


def _measure_simhash(bench: Bench, module: Any, texts: Sequence[str], queries: Sequence[str]) -> None:
    index = module.SimhashIndex([], k=_DISTANCE)

    def add() -> None:
        for number, text in enumerate(texts):
            index.add(str(number), module.Simhash(text))

    def search(text: str) -> list[int]:
        return [int(number) for number in index.get_near_dups(module.Simhash(text))]

    _measure_package(bench, SIMHASH, texts, queries, add, search)


def _measure_package(
    bench: Bench,
    system: str,
    texts: Sequence[str],
    queries: Sequence[str],
    add: Callable[[], None],
    search: Callable[[str], list[int]],
) -> None:
    bench.report.say(f"{system}: {len(texts):,} documents")
    start = time.perf_counter()
    add()
    seconds = time.perf_counter() - start
    calls = time_calls(bench, search, queries)
    # Its fingerprints are its own: what can be checked is that it finds what it holds.
    checked = min(bench.options.sample, len(texts))
    for number, text in enumerate(texts[:checked]):
        if number not in search(text):
            raise WrongResultError(f"{system} does not find document {number}, which it holds")
    _add(bench, system, len(texts), seconds, calls, checked, "in memory, fingerprints of its own")


def _add(bench: Bench, system: str, rows: int, seconds: float, calls: Calls[Any], checked: int, note: str) -> None:
    bench.add(SECTION, "documents into an index", system, seconds, "s", rows=rows, note=note)
    bench.add(
        SECTION,
        f"a search by text, distance {_DISTANCE}",
        system,
        calls.median,
        "ms",
        mean=calls.mean,
        calls=len(calls.answers),
        checked=checked,
        rows=rows,
        note=note,
    )
