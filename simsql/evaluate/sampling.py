"""Draw pairs of near fingerprints to label, evenly over the distances.

G. S. Manku, A. Jain, A. Das Sarma: Detecting near-duplicates for web crawling, WWW 2007, judged a fixed number of
random pairs at each distance: most pairs of a collection are far apart, and the close ones would hardly be drawn.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint import GOLDEN, mix
from simsql.hamming import find_pairs, hamming_distance

U64 = NDArray[np.uint64]


class Drawn(NamedTuple):
    """Pairs of different fingerprints in random order; arrays of one length."""

    left: U64
    """The smaller fingerprint of each pair."""
    right: U64
    distance: NDArray[np.int64]
    weight: NDArray[np.float64]
    """The number of pairs at this distance for each that was drawn."""


class _AtDistance(NamedTuple):
    """The pairs at a distance: their number, and those with the smallest random numbers."""

    total: int
    order: U64
    pairs: U64


def draw_pairs(
    fingerprints: U64, distance: int, pairs: int, *, seed: int = 0, workers: int | None = None
) -> Drawn:
    """Draw `pairs` of the pairs of different fingerprints within `distance` bits, or all if there are fewer.

    Each distance gets the same number, except that one with too few pairs leaves the rest to the others. Memory
    grows only with the fingerprints and the pairs that are drawn. The same fingerprints and seed give the same
    pairs, in any order of the fingerprints. There must be as many pairs to draw as distances.
    """
    nothing = _AtDistance(0, np.zeros(0, dtype=np.uint64), np.zeros((0, 2), dtype=np.uint64))
    at = [nothing] * distance
    for near in find_pairs(fingerprints, distance, workers=workers, batches=True):
        distances = hamming_distance(near[:, 0], near[:, 1])
        order = _random_order(near, seed)
        for bits in np.unique(distances).tolist():
            here = distances == bits
            at[bits - 1] = _keep_first(at[bits - 1], order[here], near[here], pairs)
    shares = np.array(_share_out([each.total for each in at], pairs), dtype=np.int64)
    drawn = np.concatenate([nothing.pairs, *(each.pairs[:share] for each, share in zip(at, shares, strict=True))])
    bits = np.repeat(np.arange(1, distance + 1), shares)
    weights = np.array([each.total for each in at]) / np.maximum(shares, 1)
    # In random order, a part of the pairs is spread over the distances, too.
    mixed = np.random.default_rng(seed).permutation(len(drawn))
    return Drawn(drawn[mixed, 0], drawn[mixed, 1], bits[mixed], np.repeat(weights, shares)[mixed])


def _keep_first(kept: _AtDistance, order: U64, pairs: U64, most: int) -> _AtDistance:
    """Return the first `most` pairs of those that were kept and the new ones."""
    order, both = np.concatenate([kept.order, order]), np.concatenate([kept.pairs, pairs])
    first = np.lexsort((both[:, 1], both[:, 0], order))[:most]
    return _AtDistance(kept.total + len(pairs), order[first], both[first])


def _random_order(pairs: U64, seed: int) -> U64:
    """Return a random number for each pair, which depends only on the pair and the seed.

    The pairs with the smallest numbers are a random sample, in whatever order the pairs come.
    """
    start = np.random.default_rng(seed).integers(1 << 64, dtype=np.uint64, endpoint=False)
    return mix(mix(pairs[:, 0] + start + GOLDEN) + pairs[:, 1] + GOLDEN)


def _share_out(available: list[int], wanted: int) -> list[int]:
    """Return how many to take at each place: as evenly as possible, at most what is there, `wanted` in all."""
    shares = [0] * len(available)
    fullest = sorted(range(len(available)), key=lambda place: available[place])
    for number, place in enumerate(fullest):
        shares[place] = min(available[place], wanted // (len(available) - number))
        wanted -= shares[place]
    return shares
