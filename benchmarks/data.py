"""Fingerprints and queries, from a seed: the same for every system and in every run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Fingerprints = NDArray[np.uint64]

# Of the fingerprints, one in fifty is a neighbour of another: 1 to 3 bits away.
_PLANTED_EVERY = 50
_LARGEST_FLIP = 3
KINDS = ("stored", "neighbours", "random")


@dataclass(frozen=True)
class Queries:
    """Distinct queries of three kinds, each in random order, as uint64 arrays.

    Those stored, those 1 to 3 bits away from one that is stored, and random ones.
    """

    stored: Fingerprints
    neighbours: Fingerprints
    random: Fingerprints

    def of(self, kind: str) -> Fingerprints:
        """Return the queries of a kind: "stored", "neighbours" or "random"."""
        queries: Fingerprints = getattr(self, kind)
        return queries

    def mixed(self) -> Fingerprints:
        """Return all queries of the three kinds, distinct, in random order."""
        return _shuffled_distinct(np.random.default_rng(0), np.concatenate([self.of(kind) for kind in KINDS]))


def make_fingerprints(rows: int, seed: int) -> Fingerprints:
    """Return `rows` distinct random fingerprints in random order, 2% of them neighbours of others."""
    chance = np.random.default_rng(seed)
    planted = rows // _PLANTED_EVERY
    values = _random(chance, rows - planted)
    if planted:
        values = np.concatenate([values, _near(chance, chance.choice(values, planted))])
    values = _shuffled_distinct(chance, values)
    while values.size < rows:
        values = _shuffled_distinct(chance, np.concatenate([values, _random(chance, rows - values.size)]))
    return values


def make_queries(values: Fingerprints, count: int, seed: int) -> Queries:
    """Return up to `count` distinct queries of each kind; fewer where there are fewer `values`."""
    chance = np.random.default_rng((seed, 1))
    count = min(count, values.size)
    places = chance.choice(values.size, count, replace=False)
    others = chance.choice(values.size, count, replace=False)
    return Queries(
        values[places],
        _shuffled_distinct(chance, _near(chance, values[others])),
        _shuffled_distinct(chance, _random(chance, count)),
    )


def _random(chance: np.random.Generator, count: int) -> Fingerprints:
    return chance.integers(0, 2**64, count, dtype=np.uint64)


def _near(chance: np.random.Generator, values: Fingerprints) -> Fingerprints:
    """Return each value with 1 to 3 of its bits flipped."""
    first = chance.integers(0, 64, values.size)
    second = (first + chance.integers(1, 64, values.size)) % 64
    # One of the 62 that are left: counted past the lower, then past the upper of the two.
    third = chance.integers(0, 62, values.size)
    third += third >= np.minimum(first, second)
    third += third >= np.maximum(first, second)
    flips = chance.integers(1, _LARGEST_FLIP + 1, values.size)
    one = np.uint64(1)
    masks = one << first.astype(np.uint64)
    masks |= np.where(flips >= 2, one << second.astype(np.uint64), np.uint64(0))
    masks |= np.where(flips >= 3, one << third.astype(np.uint64), np.uint64(0))
    flipped: Fingerprints = values ^ masks
    return flipped


def _shuffled_distinct(chance: np.random.Generator, values: Fingerprints) -> Fingerprints:
    values = np.unique(values)
    chance.shuffle(values)
    return values
