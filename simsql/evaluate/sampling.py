"""Draw pairs of documents to label: of every kind, evenly over the similarities, and of those that are apart.

Most pairs of a collection have nothing in common, and would be all that is drawn at random. So pairs are drawn
from groups, and each stands for as many of its group as there are for each that was drawn.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.decide.documents import I64, NONE, U64
from simsql.decide.kinds import Kind, kinds_of
from simsql.dedup.comparing import Comparison
from simsql.fingerprint import documents_of, pairs_of

APART = "apart"
"""The kind of pairs that were not found similar."""

_ALL = 1 << 20  # pairs that are listed to draw from them, instead of drawn until there are enough


class Drawn(NamedTuple):
    """Pairs of documents in random order; arrays of one length."""

    left: I64
    """Positions in the corpus."""
    right: I64
    kind: NDArray[np.object_]
    weight: NDArray[np.float64]
    """The number of pairs of its group for each that was drawn."""


def draw_pairs(comparison: Comparison, pairs: int, seed: int = 0) -> Drawn:
    """Draw `pairs` of the pairs of documents, or all if there are fewer, once the similar ones have been found.

    A group is a kind, but of similar ones a tenth of the similarity; all other pairs are the last. Each gets the
    same number, except that one with too few pairs leaves the rest to the others. Of documents with the same
    words, the first one is in pairs with others. The same documents and seed give the same pairs.
    """
    nodes, digests, chance = comparison.nodes, comparison.documents.digests, np.random.default_rng(seed)
    first = nodes.example[np.maximum(nodes.of_document, 0)]
    of_copies = kinds_of(digests, first, np.ones(len(first), dtype=bool))
    of_copies[nodes.of_document == NONE] = None
    groups: list[tuple[str, I64, I64]] = []
    for kind in (Kind.IDENTICAL, Kind.SAME_WORDS):
        (copies,) = np.nonzero(of_copies == kind)
        groups.append((kind, first[copies], copies))

    of_nodes = pairs_of(*comparison.pairs[:2])
    order = np.argsort(of_nodes)
    left, right = (nodes.example[side[order]] for side in comparison.pairs[:2])
    tenth = np.minimum(10 * comparison.pairs.similarity[order], 9).astype(np.int64)
    numbers = digests[left, 1] == digests[right, 1]
    groups.append((Kind.NUMBERS, left[numbers], right[numbers]))
    for value in range(10):
        here = ~numbers & (tenth == value)
        groups.append((Kind.SIMILAR, left[here], right[here]))
    apart = _draw_apart(nodes.total, of_nodes[order], pairs, chance)
    left, right = documents_of(apart)
    groups.append((APART, nodes.example[left], nodes.example[right]))

    sizes = [len(side) for _, side, _ in groups]
    shares = _share_out(sizes, pairs)
    sizes[-1] = nodes.total * (nodes.total - 1) // 2 - len(order)
    parts = []
    for (name, left, right), size, share in zip(groups, sizes, shares, strict=True):
        some = chance.permutation(len(left))[:share]
        weight = np.full(share, size / max(share, 1))
        parts.append((left[some], right[some], np.full(share, str(name), dtype=object), weight))
    mixed = chance.permutation(sum(shares))  # a part of the pairs is spread over the groups, too
    return Drawn(*(np.concatenate(column)[mixed] for column in zip(*parts, strict=True)))


def _draw_apart(nodes: int, similar: U64, wanted: int, chance: np.random.Generator) -> U64:
    """Return `wanted` random pairs of nodes or more that are not among the similar ones, or all."""
    if nodes * (nodes - 1) // 2 <= max(_ALL, 4 * wanted):
        left, right = np.triu_indices(nodes, 1)
    else:
        left, right = chance.integers(nodes, size=(2, 2 * wanted))
    return np.setdiff1d(pairs_of(left, right)[left != right], similar)


def _share_out(available: list[int], wanted: int) -> list[int]:
    """Return how many to take at each place: as evenly as possible, at most what is there, `wanted` in all."""
    shares = [0] * len(available)
    fullest = sorted(range(len(available)), key=lambda place: available[place])
    for number, place in enumerate(fullest):
        shares[place] = min(available[place], wanted // (len(available) - number))
        wanted -= shares[place]
    return shares
