"""Compare keys that agree in their leading bits, or nearly do, in tiles that fit the cache of a core.

The keys are sorted. A run holds keys that agree, and the keys of a run are compared with each other. With a
radius, they are also compared with the keys of all runs whose leading bits are at most that far away. These are
gathered, and runs of the same size share a tile.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.positions import consecutive, gather, portions, roots_of, unite

Keys = NDArray[np.uint64]
Pairs = NDArray[np.uint64]
Positions = NDArray[np.intp]

# Pairs compared at a time, whose arrays fit the cache of a core.
_TILE = 1 << 17
# Elements that NumPy may buffer when it compares tiles. By default it copies repeated rows and columns of up to
# about 8,000 elements to its buffers, which takes longer than the comparison.
_BUFFER = 64
# Keys of one run in a tile, and the keys that a long run is compared with at a time.
TILE_ROWS, TILE_COLUMNS = 64, 2048
# Keys that are compared with all others before those that they connect are left out.
_SPANNING_ROWS = 32
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


def batched(pairs: Iterable[Pairs], size: int) -> Iterator[Pairs]:
    """Yield the pairs in larger arrays, of at least `size` pairs except for the last one."""
    return map(np.concatenate, gather(pairs, len, size))


class Tile:
    """Arrays that fit the cache of a core, in which keys are compared with others."""

    def __init__(self, size: int) -> None:
        self._differing = np.empty(size, dtype=np.uint64)
        self._distances = np.empty(size, dtype=np.uint8)
        self._close = np.empty(size, dtype=np.bool_)

    def compare(self, rows: Keys, columns: Keys, distance: int) -> Positions:
        """Return where rows[i, j] and columns[i, k] are within `distance`, as positions in (i, j, k), flat."""
        count, height = rows.shape
        size = count * height * columns.shape[1]
        differing, distances, close = self._differing[:size], self._distances[:size], self._close[:size]
        usual = np.setbufsize(_BUFFER)
        try:
            np.bitwise_xor(rows[:, :, None], columns[:, None], out=differing.reshape(count, height, -1))
        finally:
            np.setbufsize(usual)
        np.bitwise_count(differing, out=distances)
        np.less_equal(distances, distance, out=close)
        return close.nonzero()[0]


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
    tile = Tile(TILE_ROWS * TILE_COLUMNS)
    for top in range(part * TILE_ROWS, run.size, parts * TILE_ROWS):
        rows = run[top : top + TILE_ROWS]
        for left in range(top, run.size, TILE_COLUMNS):
            columns = run[left : left + TILE_COLUMNS]
            close = tile.compare(rows[None], columns[None], distance)
            row, column = np.divmod(close, columns.size)
            if left == top:
                row, column = row[row < column], column[row < column]
            if row.size:
                yield np.stack((rows[row], columns[column]), axis=1)


def compare_spanning(run: Keys, distance: int) -> Iterator[Pairs]:
    """Compare only enough keys to connect those that close pairs connect, one tile at a time.

    Rows that are already connected are compared only with keys outside their tree, and each key is found once. So
    the first rows of nearly equal keys connect almost all of them, and little remains for the other rows.
    """
    trees = np.arange(run.size)
    for top in range(0, run.size, _SPANNING_ROWS):
        rows = np.arange(top, min(top + _SPANNING_ROWS, run.size))
        roots = trees[rows]
        apart = top + np.flatnonzero((trees[top:] != roots[0]) | (roots != roots[0]).any())
        joined = False
        for left in range(0, apart.size, TILE_COLUMNS):
            columns = apart[left : left + TILE_COLUMNS]
            close = np.bitwise_count(run[rows, None] ^ run[columns]) <= distance
            close &= roots[:, None] != trees[columns]
            if (roots == roots[0]).all():
                column = np.flatnonzero(close.any(axis=0))
                row = close[:, column].argmax(axis=0)
            else:
                row, column = np.divmod(np.flatnonzero(close), columns.size)
            if row.size:
                joined = True
                yield np.stack((run[rows[row]], run[columns[column]]), axis=1)
                unite(trees, rows[row], columns[column])
                roots = roots_of(trees, rows)
        if joined:
            trees = roots_of(trees, np.arange(run.size))


class Balls:
    """Sorted keys, to be compared with those whose prefix differs by one of the `flips`.

    The prefix of a key is its `bits` bits before the last `behind`.
    """

    def __init__(self, keys: Keys, bits: int, behind: int, flips: Keys) -> None:
        self._keys = np.append(keys, ~keys[:1])  # the last one pads tiles
        values = (keys >> np.uint64(behind)).view(np.intp) & ((1 << bits) - 1)
        self._counts = np.bincount(values, minlength=1 << bits)
        self._firsts = np.cumsum(self._counts) - self._counts
        self._flips = flips.view(np.intp)
        self._tile = Tile(_TILE)

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
        gathered = np.add.reduceat(padded, [tile.start for tile in tiles]) if tiles else padded
        for portion in portions(gathered, _GATHERED):
            some = tiles[portion]
            all_tiles = slice(some[0].start, some[-1].stop)
            positions = consecutive(starts[all_tiles].reshape(-1), sizes[all_tiles].reshape(-1))
            np.minimum(positions, self._keys.size - 1, out=positions)
            yield from self._close_in(some, rows, padded, positions, distance)

    def _close_in(
        self, tiles: list[slice], rows: Runs, widths: Positions, positions: Positions, distance: int
    ) -> Iterator[Pairs]:
        """Yield the pairs of rows and of the columns that were gathered for them."""
        columns, end = self._keys.take(positions), 0
        for tile in tiles:
            count, height, width = tile.stop - tile.start, int(rows.sizes[tile.start]), int(widths[tile.start])
            begin, end = end, end + count * width
            left = self._keys.take(rows.starts[tile, None] + np.arange(height))
            right = columns[begin:end].reshape(count, width)
            step = max(1, _TILE // (count * height))
            for start in range(0, width, step):
                shown = right[:, start : start + step]
                close = self._tile.compare(left, shown, distance)
                if close.size:
                    cell, column = np.divmod(close, shown.shape[1])
                    run, row = np.divmod(cell, height)
                    one = rows.starts[tile.start + run] + row
                    other = positions[begin + start + run * width + column]
                    inside = other < self._keys.size - 1  # the last key pads tiles
                    yield np.stack((self._keys[one[inside]], self._keys[other[inside]]), axis=1)


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
