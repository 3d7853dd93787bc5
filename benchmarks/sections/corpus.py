"""Fingerprints of texts, whose prefixes are skewed, instead of random ones."""

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

import simsql
from benchmarks.data import Fingerprints, Queries
from benchmarks.figures import SIMSQL
from benchmarks.harness import DEFAULT_RECIPE, Bench, Target
from benchmarks.oracle import Oracle
from benchmarks.peers.faiss import open_faiss
from benchmarks.searches import measure_near, measure_peer
from benchmarks.texts import Corpus

SECTION = "corpus"
_DISTANCES = (3, 7, 10)
# Texts for one row of the run, and at most.
_SHARE, _LARGEST = 5, 1_000_000
_BATCH = 10_000


def run(bench: Bench) -> None:
    """Measure a table of the fingerprints of a corpus with edits, and faiss on the same."""
    corpus = Corpus(min(_LARGEST, max(200, bench.main.rows // _SHARE)), bench.options.seed)
    bench.report.say(f"making {corpus.count:,} texts and their fingerprints")
    values = _fingerprint(bench, corpus)
    _add_skew(bench, values)
    bench.create("document", values)
    target = Target("document", Oracle(values), _queries(corpus, values, bench.options.queries))
    bench.use(target)
    for distance in _DISTANCES:
        measure_near(bench, SECTION, target, distance)
    for peer in islice(open_faiss(bench, values), 1):
        for distance in _DISTANCES:
            peer.set_distance(distance)
            measure_peer(bench, SECTION, target, distance, peer)
    bench.drop(target)
    bench.execute("DROP TABLE {}", "document")


def _fingerprint(bench: Bench, corpus: Corpus) -> Fingerprints:
    """Return the distinct fingerprints of the corpus, and add how fast they were made."""
    size, seconds = 0, 0.0
    parts = []
    for texts in _batches(corpus.texts()):
        size += sum(map(len, texts))
        start = time.perf_counter()
        parts.append(simsql.simhash_many(texts).compressed())
        seconds += time.perf_counter() - start
    what = "fingerprints of texts, megabytes a second"
    bench.add(SECTION, what, SIMSQL, size / seconds / 1e6, "MB/s", rows=corpus.count, note="one process")
    return np.unique(np.concatenate(parts))


def _add_skew(bench: Bench, values: Fingerprints) -> None:
    """Add how many more keys a search for a stored fingerprint meets than if prefixes were uniform."""
    for number, permutation in enumerate(DEFAULT_RECIPE.permutations):
        shift = np.uint64(64 - permutation.prefix_bits)
        sizes = np.bincount((permutation.key(values) >> shift).astype(np.int64)).astype(float)
        expected = values.size / 2.0**permutation.prefix_bits
        met = float((sizes**2).sum() / sizes.sum())
        note = f"largest range {sizes.max():,.0f} keys; a uniform one {expected:,.1f}"
        what = f"keys met in table {number}, times as many as of uniform fingerprints"
        bench.add(SECTION, what, SIMSQL, met / (1 + expected), "x", rows=values.size, note=note)


def _queries(corpus: Corpus, values: Fingerprints, count: int) -> Queries:
    """Return stored fingerprints, those of texts edited once more, and those of other texts."""
    chance = np.random.default_rng(corpus.seed)
    count = min(count, values.size)
    found = [
        chance.choice(values, count, replace=False),
        np.unique(simsql.simhash_many(corpus.edited(count)).compressed()),
        np.unique(simsql.simhash_many(corpus.strangers(count)).compressed()),
    ]
    for queries in found:
        chance.shuffle(queries)
    return Queries(*found)


def _batches(texts: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(texts, _BATCH)):
        yield batch
