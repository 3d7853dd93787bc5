"""Runs of consecutive positions in arrays."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Positions = NDArray[np.intp]


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
