"""Find similar documents: pairs with near fingerprints, then with near sketches, whose texts are then compared.

Candidates are never stored as a whole: those that have nothing in common grow with the square of the collection.
They are listed in portions, filtered by their sketches at once, and compared in portions. Only those that are
similar stay in memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from simsql.arrays.positions import consecutive, portions
from simsql.decide.documents import I64, U64, Flags, Similarities
from simsql.decide.stars import SimilarPairs
from simsql.documents import Report
from simsql.errors import SimsqlError
from simsql.fingerprint import compare_pairs, documents_of, pairs_of, sketch_distance
from simsql.hamming import find_matches, find_pairs

# Candidates that are compared together, eight bytes each: many, so that documents of crowds are seldom read again,
# and so that the processes which list them do not wait.
_TOGETHER = 1 << 26
# 100 million pairs take 2.4 GB, and a few times that until all is decided.
_PAIRS_AT_MOST = 100_000_000
# Candidates that are listed at a time, or those of one document.
_LISTED = 1 << 18


class Tokens(NamedTuple):
    """The hashes of the tokens of documents, or of nodes."""

    counts: I64
    """The number of tokens of each."""
    read: Callable[[I64], U64]
    """Returns the tokens of those at these positions, none of them twice, one after the other."""
    pictures: bool = False
    """Whether they are of pictures."""


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
    filtered = (sketches, sketch_distance(similarity)) if tokens else None
    candidates = _candidates(fingerprints, new, distance, workers, filtered)
    found = [(np.zeros(0, dtype=np.uint64), np.zeros(0))]  # 16 bytes for each pair
    compared = size = 0
    for left, right, alike in _compare(candidates, fingerprints, tokens):
        (chosen,) = np.nonzero(alike >= similarity)
        found.append((pairs_of(left[chosen], right[chosen]), alike[chosen]))
        compared += len(left)
        size += len(chosen)
        if size > _PAIRS_AT_MOST:
            raise SimsqlError(
                f"there are more than {_PAIRS_AT_MOST:,} pairs of similar documents: group fewer documents at a"
                " time, or choose a lower distance or a higher similarity"
            )
        if report:
            report(compared)
    pairs, similarities = map(np.concatenate, zip(*found, strict=True))
    del found
    return SimilarPairs(*documents_of(pairs), similarities)


def find_candidates(
    fingerprints: U64, sketches: U64, distance: int, similarity: float, workers: int | None = None
) -> Flags:
    """Return which documents have to be compared with others, as `find_similar` does, and maybe a few more."""
    values, position, sizes = np.unique(fingerprints, return_inverse=True, return_counts=True)
    chosen: Flags = sizes > 1
    filtered = (sketches, sketch_distance(similarity))
    for pairs in find_pairs(fingerprints, distance, sketches=filtered, workers=workers, batches=True):
        chosen[np.searchsorted(values, pairs.reshape(-1))] = True
    return chosen[position]


def _compare(
    candidates: Iterator[tuple[I64, I64]], fingerprints: U64, tokens: Tokens | None
) -> Iterator[tuple[I64, I64, Similarities]]:
    """Yield the similarities of pairs."""
    if tokens is None:
        for left, right in candidates:
            yield left, right, 1 - np.bitwise_count(fingerprints[left] ^ fingerprints[right]) / 64
        return
    for pairs in _together(candidates):
        yield from compare_pairs(tokens.counts, tokens.read, pairs, pictures=tokens.pictures)


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


class _Group:
    """Some nodes in the order of their fingerprints."""

    def __init__(self, fingerprints: U64, nodes: I64) -> None:
        self.node = nodes[np.argsort(fingerprints[nodes], kind="stable")]
        self.fingerprint = fingerprints[self.node]
        self.values, self.first, self.size = np.unique(self.fingerprint, return_index=True, return_counts=True)


def _candidates(
    fingerprints: U64,
    new: Flags | None,
    distance: int,
    workers: int | None,
    sketches: tuple[U64, int] | None = None,
) -> Iterator[tuple[I64, I64]]:
    """Yield the pairs of nodes within the distance, each once, a bounded number at a time.

    With `new`, at least one of them is new. `sketches` are those of the nodes, and the largest number of bits in
    which those of a pair may differ.
    """
    is_new = np.ones(len(fingerprints), dtype=bool) if new is None else new
    group, old = (_Group(fingerprints, np.flatnonzero(chosen)) for chosen in (is_new, ~is_new))
    own = sketches and (sketches[0][group.node], sketches[1])
    for pairs in find_pairs(group.fingerprint, distance, sketches=own, workers=workers, batches=True):
        yield from _expand(group, pairs[:, 0], group, pairs[:, 1], sketches)
    several = group.values[group.size > 1]
    yield from _expand(group, several, group, several, sketches)
    if len(old.values):
        for queries, found, _ in find_matches(group.values, [old.values], distance):
            yield from _expand(group, queries, old, found, sketches)


def _expand(
    one: _Group, left: U64, other: _Group, right: U64, sketches: tuple[U64, int] | None
) -> Iterator[tuple[I64, I64]]:
    """Yield pairs of nodes with near sketches, given pairs of values: of two groups, or ordered ones of one."""
    ones, others = np.searchsorted(one.values, left), np.searchsorted(other.values, right)
    for values in portions(one.size[ones] * other.size[others], _LISTED):
        sizes = one.size[ones[values]]
        node = consecutive(one.first[ones[values]], sizes)
        starts, lengths = (np.repeat(column[others[values]], sizes) for column in (other.first, other.size))
        if one is other:  # nodes of one value meet those behind them
            lengths, starts = lengths - np.maximum(0, node + 1 - starts), np.maximum(starts, node + 1)
        for some in portions(lengths, _LISTED):
            a = one.node[np.repeat(node[some], lengths[some])]
            b = other.node[consecutive(starts[some], lengths[some])]
            if sketches is not None:
                near = np.bitwise_count(sketches[0][a] ^ sketches[0][b]) <= sketches[1]
                a, b = a[near], b[near]
            yield a, b
