"""Trees of positions in arrays, which join what pairs connect."""

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.intp]


def unite(parents: Positions, left: Positions, right: Positions) -> None:
    """Join the trees of left[i] and right[i] for every i, the larger root below the smaller one.

    In each round, every root hooks onto its smallest neighbour. A root without a smaller neighbour has absorbed
    all its neighbours two rounds later, or has been absorbed, so the number of rounds is at most twice the
    logarithm of the number of roots.
    """
    left, right = roots_of(parents, left), roots_of(parents, right)
    while True:
        apart = left != right
        if not apart.any():
            return
        lower = np.minimum(left[apart], right[apart])
        upper = np.maximum(left[apart], right[apart])
        np.minimum.at(parents, upper, lower)
        # `upper` contains all hooked roots, so each step halves their chains.
        left, right = roots_of(parents, upper), roots_of(parents, lower)


def roots_of(parents: Positions, nodes: Positions) -> Positions:
    """Return the root above each node, and shorten the paths to it (pointer jumping)."""
    while True:
        above = parents[nodes]
        two_above = parents[above]
        if np.array_equal(above, two_above):
            return above
        parents[nodes] = two_above
