"""Positions in arrays, portions of work, and trees (union-find) that join what pairs connect."""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.intp]
Item = TypeVar("Item")


def consecutive(starts: Positions, counts: Positions) -> Positions:
    """Return start, start + 1, ... for each start, `counts` numbers each, concatenated."""
    some = counts > 0
    starts, counts = starts[some], counts[some]
    ends = np.cumsum(counts)
    positions: Positions = np.ones(ends[-1] if ends.size else 0, dtype=np.intp)
    # Each position is one more than the one before, except at the starts.
    positions[:1] = starts[:1]
    positions[ends[:-1]] = starts[1:] - starts[:-1] - counts[:-1] + 1
    return np.cumsum(positions, out=positions)


def portions(sizes: Positions, at_most: int) -> Iterator[slice]:
    """Cut an array of sizes into slices whose sum is at most `at_most`, or of one element."""
    upto = np.cumsum(sizes)
    begin = done = 0
    while begin < sizes.size:
        end = max(begin + 1, int(np.searchsorted(upto, done + at_most, side="right")))
        yield slice(begin, end)
        begin, done = end, int(upto[end - 1])


def gather(
    items: Iterable[Item], size: Callable[[Item], int], enough: int, most: float = inf
) -> Iterator[list[Item]]:
    """Yield items in lists of at most `most`, each of which ends as soon as the sizes add up to `enough`."""
    together: list[Item] = []
    total = 0
    for item in items:
        together.append(item)
        total += size(item)
        del item  # a long one is not kept while the next one is read
        if total >= enough or len(together) >= most:
            yield together
            together, total = [], 0
    if together:
        yield together


def first_of_equals(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the sorted values that differ from the value before. np.unique takes 25 times as long."""
    first = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=first[1:])
    return first


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
