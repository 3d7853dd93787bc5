"""Find similar documents: pairs with near fingerprints, then with near sketches, whose texts are then compared.

Candidates are never stored as a whole: those that have nothing in common grow with the square of the collection.
They are listed in portions, filtered by their sketches at once, and compared in portions. Only those that are
similar stay in memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from simsql.decide.documents import I64, U64, Flags, Similarities
from simsql.decide.stars import SimilarPairs
from simsql.documents import Report
from simsql.errors import SimsqlError
from simsql.fingerprint import compare_pairs, documents_of, pairs_of, sketch_distance
from simsql.hamming import find_matches, find_pairs
from simsql.runs import consecutive, portions

# Candidates that are compared together, eight bytes each: many, so that documents of crowds are seldom read again.
_TOGETHER = 1 << 23
# 100 million pairs take 2.4 GB, and a few times that until all is decided.
_PAIRS_AT_MOST = 100_000_000
# Candidates that are listed at a time, or those of one document.
_LISTED = 1 << 18
# Values are found by their products with this odd number, 2**64 divided by the golden ratio, which spread evenly.
_ODD = np.uint64(0x9E3779B97F4A7C15)
# Places at which a value is looked for one after the other, before a binary search. Most are at the first.
_STEPS = 6


class Tokens(NamedTuple):
    """The hashes of the tokens of documents, or of nodes."""

    counts: I64
    """The number of tokens of each."""
    read: Callable[[I64], U64]
    """Returns the tokens of those at these positions, none of them twice, one after the other."""


def find_similar(
    fingerprints: U64,
    sketches: U64,
    tokens: Tokens | None,
    distance: int,
    similarity: float,
    *,
    new: Flags | None = None,
    workers: int | None = None,
    report: Report | None = None,
) -> SimilarPairs:
    """Return all pairs of nodes within `distance` bits that are at least `similarity` alike, in any order.

    `fingerprints` and `sketches` have those of each node. With `tokens`, at least one for each node, the
    similarity is that of the texts, and nodes can share a fingerprint; pairs whose sketches differ in more than
    `sketch_distance(similarity)` bits are not compared. Without, it is the share of bits that agree. With `new`,
    only pairs with at least one new node are found, and the search takes time for the new nodes. `workers` is the
    number of processes of a search in all nodes, by default as many as pay. `report` gets the number of pairs that
    have been compared. Raises SimsqlError if more than 100 million pairs are similar.
    """
    found = _Found(report, similarity)
    if tokens is None:
        for left, right in _Nodes(fingerprints, new).candidates(distance, workers):
            found.add(left, right, 1 - np.bitwise_count(fingerprints[left] ^ fingerprints[right]) / 64)
    else:
        nodes = _Nodes(fingerprints, new, _Sketches(sketches, sketch_distance(similarity)))
        for pairs in _together(nodes.candidates(distance, workers)):
            for compared in compare_pairs(tokens.counts, tokens.read, pairs):
                found.add(*compared)
    return found.all_pairs()


def _together(candidates: Iterator[tuple[I64, I64]]) -> Iterator[U64]:
    """Yield pairs as numbers, many at once. The array is used again."""
    together = np.empty(_TOGETHER, dtype=np.uint64)
    size = 0
    for left, right in candidates:
        pairs = pairs_of(left, right)
        while size + len(pairs) >= _TOGETHER:
            together[size:], pairs = pairs[: _TOGETHER - size], pairs[_TOGETHER - size :]
            yield together
            size = 0
        together[size : size + len(pairs)] = pairs
        size += len(pairs)
    yield together[:size]


class _Found:
    """Similar pairs, 16 bytes each."""

    def __init__(self, report: Report | None, similarity: float) -> None:
        self._report = report
        self._similarity = similarity
        self._compared = self._size = 0
        self._pairs, self._similarities = [np.zeros(0, dtype=np.uint64)], [np.zeros(0)]

    def add(self, left: I64, right: I64, similarity: Similarities) -> None:
        """Add pairs that have been compared, if they are similar."""
        (chosen,) = np.nonzero(similarity >= self._similarity)
        self._pairs.append(pairs_of(left[chosen], right[chosen]))
        self._similarities.append(similarity[chosen])
        self._compared += len(left)
        self._size += len(chosen)
        if self._size > _PAIRS_AT_MOST:
            raise SimsqlError(
                f"there are more than {_PAIRS_AT_MOST:,} pairs of similar documents: group fewer documents at a"
                " time, or choose a lower distance or a higher similarity"
            )
        if self._report:
            self._report(self._compared)

    def all_pairs(self) -> SimilarPairs:
        """Return all pairs and forget them."""
        similarities, self._similarities = np.concatenate(self._similarities), []
        pairs, self._pairs = np.concatenate(self._pairs), []
        return SimilarPairs(*documents_of(pairs), similarities)


class _Sketches(NamedTuple):
    """The sketch of each node, and the largest number of bits in which those of a candidate differ."""

    values: U64
    distance: int

    def pass_pairs(self, left: I64, right: I64) -> Flags:
        """Return which of these pairs of positions are candidates."""
        near: Flags = np.bitwise_count(self.values[left] ^ self.values[right]) <= self.distance
        return near


class _Nodes:
    """Nodes in the order of their fingerprints as hashes, the new ones of each first; without `new`, all are."""

    def __init__(self, fingerprints: U64, new: Flags | None, sketches: _Sketches | None = None) -> None:
        is_new = np.ones(len(fingerprints), dtype=bool) if new is None else new
        self._all_new = bool(is_new.all())
        hashes = fingerprints * _ODD
        self._order = np.lexsort((~is_new, hashes))
        self._hashes, self._firsts, self._sizes = np.unique(
            hashes[self._order], return_index=True, return_counts=True
        )
        self._values = fingerprints[self._order[self._firsts]]
        before = np.concatenate([[0], np.cumsum(is_new[self._order])])
        self._new = before[self._firsts + self._sizes] - before[self._firsts]
        self._sketches = sketches
        self._first_sketches = sketches and sketches._replace(values=sketches.values[self._order[self._firsts]])
        self._shared = self._sizes > 1
        # Where the hashes that begin with each number begin: about one of each.
        bits = len(self._hashes).bit_length()
        self._shift = np.uint64(64 - bits)
        numbers = np.arange(1 << bits, dtype=np.uint64) << self._shift
        self._begin = np.searchsorted(self._hashes, numbers).astype(np.int32)

    def candidates(self, distance: int, workers: int | None) -> Iterator[tuple[I64, I64]]:
        """Yield the pairs of nodes within the distance, each once, a bounded number at a time.

        With sketches, only the pairs that they let pass.
        """
        for left, right in self._near(distance, workers):
            if self._sketches is None or self._first_sketches is None:
                yield from self._expand(left, right)
                continue
            chosen = self._first_sketches.pass_pairs(left, right) | self._shared[left] | self._shared[right]
            for one, other in self._expand(left[chosen], right[chosen]):
                passed = self._sketches.pass_pairs(one, other)
                yield one[passed], other[passed]

    def _near(self, distance: int, workers: int | None) -> Iterator[tuple[I64, I64]]:
        """Yield the positions of values that are within the distance: a value of new nodes, and any value.

        Two values of new nodes come in both orders or, if all nodes are new, with the smaller position first.
        """
        if self._all_new:
            for pairs in find_pairs(self._values, distance, workers=workers, batches=True):
                for start in range(0, len(pairs), _LISTED):
                    one, other = (self._find(pairs[start : start + _LISTED, side]) for side in (0, 1))
                    yield np.minimum(one, other), np.maximum(one, other)
            (shared,) = np.nonzero(self._shared)
            yield shared, shared
            return
        for queries, found, _ in find_matches(self._values[self._new > 0], [self._values], distance):
            yield self._find(queries), self._find(found)

    def _find(self, values: U64) -> I64:
        """Return the positions of values, several times as fast as by a binary search."""
        hashes = values * _ODD
        position = self._begin[(hashes >> self._shift).view(np.int64)].astype(np.int64)
        missed = np.arange(len(values))
        for _ in range(_STEPS):
            missed = missed[self._hashes[position[missed]] != hashes[missed]]
            position[missed] += 1
        position[missed] = np.searchsorted(self._hashes, hashes[missed])
        return position

    def _expand(self, left: I64, right: I64) -> Iterator[tuple[I64, I64]]:
        """Yield the pairs of new nodes of one value and nodes of another one, or of the same."""
        for values in portions(self._new[left] * self._sizes[right], _LISTED):
            ones, others = left[values], right[values]
            sizes = self._new[ones]
            node = consecutive(self._firsts[ones], sizes)
            # New nodes of a smaller value have met these already; those of this value meet the ones after them.
            starts = np.repeat(self._firsts[others] + np.where(ones > others, self._new[others], 0), sizes)
            starts = np.where(np.repeat(ones == others, sizes), node + 1, starts)
            lengths = np.repeat((self._firsts + self._sizes)[others], sizes) - starts
            for some in portions(lengths, _LISTED):
                one = np.repeat(node[some], lengths[some])
                yield self._order[one], self._order[consecutive(starts[some], lengths[some])]
