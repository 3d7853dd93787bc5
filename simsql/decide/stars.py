"""Choose which of similar texts are kept: stars, in which every text was compared with the one that is kept.

Connected components chain strangers, because each text has to resemble only one other. Here a dropped text
resembles the text that is kept in its favour, and the kept texts of a cluster all resemble one another: pages that
only share a template resemble some page in the middle, but not each other. Only texts that are compared with an
archive are listed with the nearest one there, whatever else is.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Nodes = NDArray[np.int64]

_FREE = -1
_UNIT = 1 << 32  # similarities are added as multiples of 1 / _UNIT: sums do not depend on the order of the pairs


class SimilarPairs(NamedTuple):
    """Pairs of different nodes, each pair once, and how similar they are (0.0 to 1.0)."""

    left: Nodes
    right: Nodes
    similarity: NDArray[np.float64]

    def at_least(self, similarity: float) -> "SimilarPairs":
        """Return the pairs that are at least this similar."""
        chosen = self.similarity >= similarity
        return self if chosen.all() else self.where(chosen)

    def droppable(self, drop: float, guard: Nodes | None) -> "SimilarPairs":
        """Return the pairs of which one may be dropped: at least `drop` similar, and with the same guard."""
        pairs = self.at_least(drop)
        return pairs if guard is None else pairs.where(guard[pairs.left] == guard[pairs.right])

    def where(self, chosen: NDArray[np.bool_]) -> "SimilarPairs":
        """Return the pairs at the positions that are chosen."""
        return SimilarPairs(self.left[chosen], self.right[chosen], self.similarity[chosen])


class Stars(NamedTuple):
    """For each node, the node that is kept in its favour and the representative of its cluster."""

    kept: Nodes
    """The node itself if it is kept."""
    representative: Nodes
    """A node that is kept. Nodes with the same representative are a cluster."""


def centrality(
    nodes: int, pairs: SimilarPairs, drop: float, others: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """Return the sum of the similarities of each node to the nodes that are at least `drop` similar to it.

    `others` is the sum of those that are not among the pairs. The unit is 2 ** -32. The sums do not depend on the
    order of the pairs.
    """
    pairs = pairs.at_least(drop)
    sums = np.zeros(nodes, dtype=np.int64) if others is None else np.rint(others * _UNIT).astype(np.int64)
    parts = np.rint(pairs.similarity * _UNIT).astype(np.int64)
    np.add.at(sums, pairs.left, parts)
    np.add.at(sums, pairs.right, parts)
    return sums


def choose_stars(
    order: Nodes,
    pairs: SimilarPairs,
    *,
    similarity: float,
    drop: float,
    guard: Nodes | None = None,
    protected: NDArray[np.bool_] | None = None,
    to_archive: bool = False,
) -> Stars:
    """Choose the nodes that are kept, and those that represent a cluster.

    `order` lists all nodes, 0 to len(order) - 1, the most worth keeping first. In this order, a node is kept
    unless one that is kept is at least `drop` similar. The others are dropped in favour of the most similar node
    that is kept. Then, in the same order, those that are kept join clusters: a node joins one whose kept nodes are
    all at least `similarity` similar to it and, of several, that with the most similar representative. Without
    one, it represents a new cluster. A tie goes to the node that comes first in the order. With `guard`, a number
    for each node, a node is only dropped in favour of one with its own number.

    Nodes that are `protected` are kept, and before all others. With `to_archive`, they are an archive: each of
    them represents itself, and a kept node that is similar to some of them joins the most similar one, whatever
    else is in its cluster.
    """
    nodes = len(order)
    rank = np.empty(nodes, dtype=np.int64)
    rank[order] = np.arange(nodes)
    # Nodes are numbered by rank from here on.
    ranked = SimilarPairs(rank[pairs.left], rank[pairs.right], pairs.similarity)
    itself = np.arange(nodes)
    first = np.zeros(nodes, dtype=bool) if protected is None else protected[order]
    kept = _stars(ranked.droppable(drop, None if guard is None else guard[order]), first)
    is_kept = kept == itself
    # The representative of a dropped node is that of the node that is kept: here, it is its own.
    before = np.where(is_kept & ~(first & to_archive), _FREE, itself)
    among = ranked.at_least(similarity)
    among = among.where(is_kept[among.left] & is_kept[among.right])
    if to_archive:
        _join_nearest(before, among, first, before == _FREE)
    representative = _clusters(among, before)[kept]
    found = np.empty((2, nodes), dtype=np.int64)
    found[0, order], found[1, order] = order[kept], order[representative]
    return Stars(*found)


def _stars(pairs: SimilarPairs, first: NDArray[np.bool_]) -> Nodes:
    """Return the centre of each node: itself, or its most similar neighbour that is a centre.

    Those of `first` are centres. In ascending order, another node is one unless it has a neighbour that is.
    """
    nodes = len(first)
    itself = np.arange(nodes)
    is_centre, covered = first.copy(), first.copy()
    sides = ((pairs.left, pairs.right), (pairs.right, pairs.left))
    for start, end in sides:
        covered[end[is_centre[start]]] = True
    # From each node, the free nodes that it is similar to: pairs in both directions as numbers, which sort fast.
    reached = np.concatenate([(start << 32 | end)[~covered[end]] for start, end in sides])
    reached.sort()
    bounds = np.searchsorted(reached, np.arange(nodes + 1) << 32)
    reached &= (1 << 32) - 1
    for node in np.flatnonzero(~is_centre & (bounds[1:] > bounds[:-1])).tolist():
        # What no centre covers is one.
        if not covered[node]:
            covered[reached[bounds[node] : bounds[node + 1]]] = True
    del reached
    is_centre |= ~covered
    centre = np.where(is_centre, itself, _FREE)
    _join_nearest(centre, pairs, is_centre, ~is_centre)
    return centre


def _join_nearest(
    centre: Nodes, pairs: SimilarPairs, is_centre: NDArray[np.bool_], free: NDArray[np.bool_]
) -> None:
    """Give free nodes that have centres among their neighbours the most similar one; of equals, the first."""
    sides = ((pairs.left, pairs.right), (pairs.right, pairs.left))
    joins = [np.flatnonzero(is_centre[start] & free[end]) for start, end in sides]
    start, end = (
        np.concatenate([side[some] for side, some in zip(direction, joins, strict=True)])
        for direction in zip(*sides, strict=True)
    )
    closeness = pairs.similarity[np.concatenate(joins)]
    # The last assignment counts: that of the most similar centre, and of these the first.
    best = np.lexsort((-start, closeness))
    centre[end[best]] = start[best]


def _clusters(pairs: SimilarPairs, before: Nodes) -> Nodes:
    """Return the representative of each node. All nodes of a cluster are similar to each other.

    In ascending order, a free node joins such a cluster or, of several, that with the most similar representative.
    `before` has the representatives that are known, which are first.
    """
    centre = before.copy()
    sizes = np.bincount(before[before != _FREE], minlength=len(before))
    start, end = np.concatenate([pairs.left, pairs.right]), np.concatenate([pairs.right, pairs.left])
    order = np.lexsort((end, start))
    bounds = np.searchsorted(start[order], np.arange(len(before) + 1))
    neighbours, closeness = end[order], np.tile(pairs.similarity, 2)[order]
    (free,) = np.nonzero(before == _FREE)
    alone = bounds[free] == bounds[free + 1]
    centre[free[alone]] = free[alone]
    for node in free[~alone].tolist():
        near = slice(bounds[node], bounds[node + 1])
        others = neighbours[near]
        # The clusters of whose nodes all are similar have a representative among the neighbours.
        similar = Counter(centre[others].tolist())
        best, closest = node, -1.0
        for other, close in zip(others.tolist(), closeness[near].tolist(), strict=True):
            if close > closest and other in similar and similar[other] == sizes[other]:
                best, closest = other, close
        centre[node] = best
        sizes[best] += 1
    return centre
