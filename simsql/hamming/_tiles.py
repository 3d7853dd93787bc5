"""Compare keys that agree in their leading bits, or nearly do, in tiles that fit the cache of a core.

The keys are sorted. A run holds keys that agree, and the keys of a run are compared with each other. With a
radius, they are also compared with the keys of all runs whose leading bits are at most that far away. These are
gathered, and runs of the same size share a tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.hamming.blocks import flip_masks

Keys = NDArray[np.uint64]
Pairs = NDArray[np.uint64]

# Pairs compared at a time, whose arrays fit the cache of a core.
_TILE = 1 << 16
# Keys of one run in a tile, and the keys that a long run is compared with at a time.
TILE_ROWS, TILE_COLUMNS = 32, 2048
# Neighbouring runs looked up at a time, and keys gathered at a time.
_PROBES, _GATHERED = 1 << 15, 1 << 18
# Neighbours compared at a time when looking for runs.
_STEP = 1 << 16


class Runs(NamedTuple):
    """Runs of neighbouring keys: their starts and sizes."""

    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]


def find_runs(keys: Keys, behind: int) -> Runs:
    """Return the runs of at least two sorted keys that are equal except in their last `behind` bits."""
    last = np.uint64((1 << behind) - 1)
    found = []
    for start in range(0, keys.size - 1, _STEP):
        step = keys[start : start + _STEP + 1]
        found.append(np.flatnonzero((step[1:] ^ step[:-1]) <= last) + start)
    followed = np.concatenate(found)  # positions of keys that agree with their successor
    opens = np.ones(followed.size, dtype=bool)
    np.not_equal(followed[1:], followed[:-1] + 1, out=opens[1:])
    first = np.flatnonzero(opens)
    return Runs(followed[first], np.diff(first, append=followed.size) + 1)


def consecutive(starts: NDArray[np.intp], counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return start, start + 1, ... for each start, `counts` numbers each, concatenated."""
    before = np.cumsum(counts) - counts
    positions: NDArray[np.intp] = np.arange(counts.sum())
    positions += np.repeat(starts - before, counts)
    return positions


def compare_short(keys: Keys, runs: Runs, distance: int) -> Iterator[Pairs]:
    """Yield the pairs within `distance` of keys of the same run. Runs of the same size are compared at once."""
    by_size = np.argsort(runs.sizes, kind="stable")
    sizes = runs.sizes[by_size]
    bounds = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), sizes.size]
    for start, end in itertools.pairwise(bounds):
        one, other = np.triu_indices(int(sizes[start]), 1)
        step = max(1, _TILE // one.size)
        for first in range(start, end, step):
            starts = runs.starts[by_size[first : min(first + step, end)]]
            columns = keys[np.arange(sizes[start])[:, None] + starts]
            left, right = columns[one].reshape(-1), columns[other].reshape(-1)
            close = np.flatnonzero(np.bitwise_count(left ^ right) <= distance)
            if close.size:
                yield np.stack((left[close], right[close]), axis=1)


def compare_all(run: Keys, distance: int, part: int = 0, parts: int = 1) -> Iterator[Pairs]:
    """Yield the pairs within `distance` of keys of a run of any size, or those of one of several parts."""
    for top in range(part * TILE_ROWS, run.size, parts * TILE_ROWS):
        rows = run[top : top + TILE_ROWS]
        for left in range(top, run.size, TILE_COLUMNS):
            columns = run[left : left + TILE_COLUMNS]
            close = np.bitwise_count(rows[:, None] ^ columns) <= distance
            row, column = np.divmod(np.flatnonzero(close), columns.size)
            if left == top:
                row, column = row[row < column], column[row < column]
            if row.size:
                yield np.stack((rows[row], columns[column]), axis=1)


class Balls:
    """Sorted keys, to be compared with those whose prefix differs in at most `radius` bits, and in at least one.

    The prefix of a key is its `bits` bits before the last `behind`.
    """

    def __init__(self, keys: Keys, bits: int, behind: int, radius: int) -> None:
        self._keys = np.append(keys, ~keys[:1])  # the last one pads tiles
        values = (keys >> np.uint64(behind)).view(np.intp) & ((1 << bits) - 1)
        self._counts = np.bincount(values, minlength=1 << bits)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._flips = flip_masks((1 << bits) - 1, radius)[1:].view(np.intp)
        self._differing = np.empty(_TILE, dtype=np.uint64)
        self._distances = np.empty(_TILE, dtype=np.uint8)

    @cached_property
    def _rows(self) -> tuple[NDArray[np.intp], Runs]:
        """The prefix of each run, and the run; longer runs in parts that fit a tile."""
        present = np.flatnonzero(self._counts)
        parts = -(-self._counts[present] // TILE_ROWS)
        values = np.repeat(present, parts)
        skipped = TILE_ROWS * consecutive(np.zeros_like(parts), parts)
        sizes = np.minimum(self._counts[values] - skipped, TILE_ROWS)
        return values, Runs(self._firsts[values] + skipped, sizes)

    def compare(self, distance: int, part: int = 0, parts: int = 1) -> Iterator[Pairs]:
        """Yield the pairs within `distance` of the keys in one of several parts, and keys with a larger prefix."""
        values, rows = self._rows
        step = max(1, _PROBES // self._flips.size)
        for start in range(part * step, values.size, parts * step):
            some = slice(start, start + step)
            yield from self._compare(values[some], Runs(rows.starts[some], rows.sizes[some]), distance)

    def _compare(self, values: NDArray[np.intp], rows: Runs, distance: int) -> Iterator[Pairs]:
        near = values[:, None] ^ self._flips
        sizes = np.where(near > values[:, None], self._counts[near], 0)
        widths = sizes.sum(axis=1)
        order = np.lexsort((-widths, rows.sizes))
        order = order[widths[order] > 0]
        rows, widths = Runs(rows.starts[order], rows.sizes[order]), widths[order]
        tiles, padded = _plan_tiles(rows.sizes, widths)
        padding = np.full((order.size, 1), self._keys.size - 1)
        starts = np.hstack((self._firsts[near[order]], padding))
        sizes = np.hstack((sizes[order], (padded - widths)[:, None]))
        for some in _portions(tiles, padded):
            all_tiles = slice(some[0].start, some[-1].stop)
            positions = consecutive(starts[all_tiles].reshape(-1), sizes[all_tiles].reshape(-1))
            np.minimum(positions, self._keys.size - 1, out=positions)
            gathered = self._keys[positions]
            end = 0
            for tile in some:
                height, width, count = int(rows.sizes[tile.start]), int(padded[tile.start]), tile.stop - tile.start
                left = self._keys[rows.starts[tile, None] + np.arange(height)]
                begin, end = end, end + count * width
                right = gathered[begin:end].reshape(count, width)
                yield from self._close(left, right, widths[tile], distance)

    def _close(self, left: Keys, right: Keys, widths: NDArray[np.intp], distance: int) -> Iterator[Pairs]:
        """Compare left[i] with right[i] for each i; right[i] has `widths` keys and padding."""
        count, height = left.shape
        step = max(1, _TILE // (count * height))
        for start in range(0, right.shape[1], step):
            columns = right[:, start : start + step]
            shape = count, height, columns.shape[1]
            size = count * height * columns.shape[1]
            np.bitwise_xor(left[:, :, None], columns[:, None], out=self._differing[:size].reshape(shape))
            np.bitwise_count(self._differing[:size], out=self._distances[:size])
            close = np.flatnonzero(self._distances[:size] <= distance)
            if close.size:
                run, row, column = np.unravel_index(close, shape)
                if count > 1:
                    inside = column < widths[run]
                    run, row, column = run[inside], row[inside], column[inside]
                yield np.stack((left[run, row], columns[run, column]), axis=1)


def _plan_tiles(heights: NDArray[np.intp], widths: NDArray[np.intp]) -> tuple[list[slice], NDArray[np.intp]]:
    """Return tiles of runs with the same height, and the width of each run with its padding.

    The runs are sorted by height, and those of the same height by width, the widest first.
    """
    tiles, padded = [], widths.copy()
    ends = np.searchsorted(heights, heights, side="right").tolist()
    first = 0
    while first < heights.size:
        end = min(first + max(1, int(_TILE // (heights[first] * widths[first]))), ends[first])
        tiles.append(slice(first, end))
        padded[first:end] = widths[first]
        first = end
    return tiles, padded


def _portions(tiles: list[slice], widths: NDArray[np.intp]) -> Iterator[list[slice]]:
    """Yield the tiles in lists with a bounded number of keys to gather, or a single tile."""
    portion: list[slice] = []
    gathered = 0
    for tile in tiles:
        size = int(widths[tile].sum())
        if portion and gathered + size > _GATHERED:
            yield portion
            portion, gathered = [], 0
        portion.append(tile)
        gathered += size
    if portion:
        yield portion
