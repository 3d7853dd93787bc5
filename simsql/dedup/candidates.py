"""Compare candidates, and find those of documents that are not compared as texts: by their fingerprints.

Candidates are never stored as a whole: those that have nothing in common grow with the square of the collection.
They are listed in portions, and compared in portions. Only those that are similar stay in memory.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from simsql.arrays.positions import consecutive, gather, portions
from simsql.decide.documents import I64, U64, Flags, Similarities
from simsql.decide.stars import SimilarPairs
from simsql.errors import SimsqlError
from simsql.fingerprint import Tokens, compare_pairs, documents_of, pairs_of
from simsql.hamming import find_matches, find_pairs

# Candidates that are listed at a time, or those of one document.
_LISTED = 1 << 18
# Candidates that are compared together: many, so that documents are seldom read again, but not more than
# `compare_pairs` looks at together.
_TOGETHER = (1 << 23) - _LISTED
# They take 6.4 GB, and a few times that until all is decided.
_PAIRS_AT_MOST = 400_000_000

Candidates = Iterator[tuple[I64, I64]]
"""Pairs of nodes, each once, a bounded number at a time."""


def compare_candidates(
    tokens: Tokens, candidates: Candidates, least: float = 0
) -> Iterator[tuple[I64, I64, Similarities]]:
    """Yield the similarities of pairs. Those that cannot be `least` similar may be left out."""
    for together in gather((pairs_of(*pairs) for pairs in candidates), len, _TOGETHER):
        yield from compare_pairs(tokens, np.concatenate(together), least)


def choose_similar(
    compared: Iterable[tuple[I64, I64, Similarities]],
    similarity: float,
    report: Callable[[int], object] | None = None,
) -> SimilarPairs:
    """Return the pairs that are at least `similarity` alike, in any order.

    `report` gets the number of pairs of each portion. Raises SimsqlError for more than 400 million pairs, which
    only fingerprints and pictures have: those of texts come from buckets.
    """
    found = [(np.zeros(0, dtype=np.uint64), np.zeros(0))]  # 16 bytes for each pair
    size = 0
    for left, right, alike in compared:
        (chosen,) = np.nonzero(alike >= similarity)
        found.append((pairs_of(left[chosen], right[chosen]), alike[chosen]))
        if report:
            report(len(left))
        if (size := size + len(chosen)) > _PAIRS_AT_MOST:
            raise SimsqlError(
                f"there are more than {_PAIRS_AT_MOST:,} pairs of similar documents: group fewer documents at a"
                " time, or choose a lower distance or a higher similarity"
            )
    pairs, similarities = map(np.concatenate, zip(*found, strict=True))
    del found
    return SimilarPairs(*documents_of(pairs), similarities)


class _Group:
    """Some nodes in the order of their fingerprints."""

    def __init__(self, fingerprints: U64, nodes: I64) -> None:
        self.node = nodes[np.argsort(fingerprints[nodes], kind="stable")]
        self.fingerprint = fingerprints[self.node]
        self.values, self.first, self.size = np.unique(self.fingerprint, return_index=True, return_counts=True)


def near_pairs(
    fingerprints: U64, distance: int, new: Flags | None = None, workers: int | None = None
) -> Candidates:
    """Yield the pairs of nodes within the distance. With `new`, at least one of them is new."""
    is_new = np.ones(len(fingerprints), dtype=bool) if new is None else new
    group, old = (_Group(fingerprints, np.flatnonzero(chosen)) for chosen in (is_new, ~is_new))
    for pairs in find_pairs(group.values, distance, workers=workers, batches=True):
        yield from _expand(group, pairs[:, 0], group, pairs[:, 1])
    several = group.values[group.size > 1]
    yield from _expand(group, several, group, several)
    if len(old.values):
        for queries, found, _ in find_matches(group.values, [old.values], distance):
            yield from _expand(group, queries, old, found)


def _expand(one: _Group, left: U64, other: _Group, right: U64) -> Candidates:
    """Yield pairs of nodes, given pairs of values: of two groups, or ordered ones of one."""
    ones, others = np.searchsorted(one.values, left), np.searchsorted(other.values, right)
    for values in portions(one.size[ones] * other.size[others], _LISTED):
        sizes = one.size[ones[values]]
        node = consecutive(one.first[ones[values]], sizes)
        starts, lengths = (np.repeat(column[others[values]], sizes) for column in (other.first, other.size))
        if one is other:  # nodes of one value meet those behind them
            lengths, starts = lengths - np.maximum(0, node + 1 - starts), np.maximum(starts, node + 1)
        for some in portions(lengths, _LISTED):
            a = one.node[np.repeat(node[some], lengths[some])]
            yield a, other.node[consecutive(starts[some], lengths[some])]
