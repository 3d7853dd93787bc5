"""All pairs within a distance: bring together keys that agree in a prefix, compare them, split crowded runs.

Cut the bits in which keys vary into m blocks. Two keys that differ in at most k bits agree in at least m - k
blocks, so for each choice of m - k lead blocks the keys that agree in this prefix are compared (Manku, Jain, Das
Sarma, WWW 2007). Slots bring them together. Most keys are alone in their slot; only crowded keys are permuted and
sorted. If very many keys share a prefix (at the start all share the empty one), the remaining bits are split in
the same way, as in the paper's nested designs. At each level a cost estimate decides between splitting and
comparing all with all. A pair is reported once, by the first choice of blocks in which it agrees. Apart from the
pairs, memory is a few times that of the keys at any distribution.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.hamming._checks import FINGERPRINT_BITS
from simsql.hamming._slots import fill_slots, slots_for
from simsql.hamming._trees import roots_of, unite
from simsql.hamming.blocks import BitOrder, block_masks

Keys = NDArray[np.uint64]
Pairs = NDArray[np.uint64]
# Yields pairs of the keys of a long run.
_Compare = Callable[[Keys, int], Iterator[Pairs]]

_ALL_BITS = (1 << FINGERPRINT_BITS) - 1

# Nanoseconds, rounded from measurements. Only their ratios matter for the choices below.
_TABLE_KEY_NS = 25.0  # bring one key together with those that agree with it
_TABLE_NS = 100_000.0  # overhead of one permutation, at any number of keys
_NEIGHBOUR_NS = 12.0  # compare two keys of a short run
_TILE_PAIR_NS = 1.0  # compare two keys of a long run
_RUN_NS = 30_000.0  # overhead of one long run

# Up to this number of keys, sorting is faster than rounds of slots.
_FEW = 1 << 12
# Runs up to this size are compared by offsets, all at once; longer ones are faster in tiles.
_SHORT_RUN = 64
# Rows and columns of a tile, whose arrays fit the cache of a core.
_TILE_ROWS, _TILE_COLUMNS = 32, 2048
# Sampled pairs, which show how keys are distributed before they are split.
_SAMPLE = 2048
# Neighbours compared at a time when looking for runs.
_STEP = 1 << 16


class _Runs(NamedTuple):
    """Runs of at least two neighbouring keys: their starts and sizes."""

    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]


def close_pairs(
    values: Keys, distance: int, *, blocks: int | None = None, spanning: bool = False
) -> Iterator[Pairs]:
    """Yield every pair of `values` at most `distance` bits apart once, as uint64 arrays of shape (n, 2).

    `values` are sorted and distinct, and are cut into `blocks`, by default into the cheapest number. The pairs and
    the two values of a pair are in no particular order. If `spanning`, pairs whose values are connected by other
    pairs may be omitted, and pairs may be repeated.
    """
    if values.size > 1 and distance:  # distinct values form no pairs at distance 0
        everything = _Runs(np.zeros(1, dtype=np.intp), np.array([values.size], dtype=np.intp))
        yield from _pairs_in_runs(values, everything, distance, _span if spanning else _compare_all, blocks)


def _pairs_in_runs(
    keys: Keys, runs: _Runs, distance: int, compare: _Compare, blocks: int | None = None
) -> Iterator[Pairs]:
    short = runs.sizes <= _SHORT_RUN
    if short.any():
        yield from _compare_short(keys, _Runs(runs.starts[short], runs.sizes[short]), distance)
    if short.all():
        return
    keys, runs = _only(keys, _Runs(runs.starts[~short], runs.sizes[~short]))
    varying = _varying_bits(keys, runs)
    if blocks is None:
        blocks = _cheapest_blocks(runs, varying, _sample(keys, runs), distance)
    if distance < blocks <= varying.bit_count():
        yield from _split(keys, runs, varying, blocks, distance, compare)
    else:
        for run in np.split(keys, runs.starts[1:]):
            yield from compare(run, distance)


def _split(
    keys: Keys, runs: _Runs, varying: int, blocks: int, distance: int, compare: _Compare
) -> Iterator[Pairs]:
    """Yield the pairs of keys of the same run by each choice of lead blocks.

    The keys are sorted. Only keys of the same run agree outside `varying`.
    """
    masks = block_masks(varying, blocks)
    constant = ~varying & _ALL_BITS
    table = np.empty(slots_for(keys.size), dtype=np.uint32)
    for lead in itertools.combinations(range(blocks), blocks - distance):
        prefix = sum(masks[block] for block in lead)
        order = BitOrder((constant | prefix, varying & ~prefix))
        passed_over = [np.uint64(masks[block]) for block in range(lead[-1]) if block not in lead]
        crowded = keys.size > 2 * runs.sizes.size << prefix.bit_count()
        rounds = None if crowded or order.changes_nothing else table
        for pairs in _pairs_agreeing(keys, order, rounds, distance, compare):
            differing = pairs[:, 0] ^ pairs[:, 1]
            first = np.ones(len(pairs), dtype=bool)
            for mask in passed_over:
                first &= (differing & mask) != 0
            yield pairs[first]


def _pairs_agreeing(
    keys: Keys, order: BitOrder, table: NDArray[np.uint32] | None, distance: int, compare: _Compare
) -> Iterator[Pairs]:
    """Yield the pairs of sorted keys that agree in the bits that `order` puts first.

    With a table of slots they are compared there while that helps; the remaining keys are sorted.
    """
    agreeing, others = order.masks
    if table is not None:
        keys = yield from _compare_in_slots(keys, agreeing, table, distance)
    if keys.size > 1:
        permuted = order.apply(keys)
        if not order.changes_nothing:
            permuted.sort()
        for pairs in _pairs_in_runs(permuted, _find_runs(permuted, others.bit_count()), distance, compare):
            yield order.undo(pairs)


def _compare_in_slots(
    keys: Keys, agreeing: int, table: NDArray[np.uint32], distance: int
) -> Generator[Pairs, None, Keys]:
    """Yield pairs of keys that agree under the mask, and return the keys that remain to be compared.

    In each round, the keys that share a slot are compared with the key that holds it, which is then removed. If
    keys are well distributed, few remain after one round. The rounds end when very few keys remain, or when most
    of them remain because they are crowded.
    """
    while keys.size > _FEW:
        shared, holders = fill_slots(table[: slots_for(keys.size)], keys, agreeing)
        left, right = keys[shared], keys[holders]
        differing = left ^ right
        close = (np.bitwise_count(differing) <= distance) & (differing & np.uint64(agreeing) == 0)
        if close.any():
            yield np.stack((left[close], right[close]), axis=1)
        if 2 * left.size > keys.size:
            return left
        keys = left
    return keys


def _cheapest_blocks(runs: _Runs, varying: int, sample: Keys, distance: int) -> int:
    """Return the number of blocks to split into, or 0 if comparing all with all is cheaper.

    `sample` contains the differing bits of some pairs. A pair that agrees in n blocks is compared once for each
    choice of lead blocks among these n. A sample misses rare agreement, so the number for random keys is the
    minimum.
    """
    members, comparisons = int(runs.sizes.sum()), int((runs.sizes * (runs.sizes - 1) // 2).sum())
    best, cheapest = 0, comparisons * _TILE_PAIR_NS + len(runs.sizes) * _RUN_NS
    bits = varying.bit_count()
    for blocks in range(distance + 1, bits + 1):
        tables, lead = comb(blocks, distance), blocks - distance
        sorting = tables * (members * _TABLE_KEY_NS + _TABLE_NS)
        if sorting >= cheapest:
            break
        agreeing = sum((sample & np.uint64(mask)) == 0 for mask in block_masks(varying, blocks))
        choices = np.array([comb(agree, lead) for agree in range(blocks + 1)], dtype=float)
        compared = max(float(choices[agreeing].mean()), tables / 2 ** (bits * lead / blocks))
        cost = sorting + comparisons * compared * _NEIGHBOUR_NS
        if cost < cheapest:
            best, cheapest = blocks, cost
    return best


def _sample(keys: Keys, runs: _Runs) -> Keys:
    """Return the differing bits of random pairs of keys of the same run, with a fixed seed."""
    random = np.random.default_rng(0)
    weights = runs.sizes.astype(float) ** 2
    run = random.choice(len(weights), size=_SAMPLE, p=weights / weights.sum())
    starts, sizes = runs.starts[run], runs.sizes[run]
    one = random.integers(0, sizes)
    other = (one + random.integers(1, sizes)) % sizes
    differing: Keys = keys[starts + one] ^ keys[starts + other]
    return differing


def _find_runs(keys: Keys, behind: int) -> _Runs:
    """Return the runs of sorted keys that are equal except in their last `behind` bits."""
    last = np.uint64((1 << behind) - 1)
    found = []
    for start in range(0, keys.size - 1, _STEP):
        step = keys[start : start + _STEP + 1]
        found.append(np.flatnonzero((step[1:] ^ step[:-1]) <= last) + start)
    followed = np.concatenate(found)  # positions of keys that agree with their successor
    opens = np.ones(followed.size, dtype=bool)
    np.not_equal(followed[1:], followed[:-1] + 1, out=opens[1:])
    first = np.flatnonzero(opens)
    return _Runs(followed[first], np.diff(first, append=followed.size) + 1)


def consecutive(starts: NDArray[np.intp], counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return start, start + 1, ... for each start, `counts` numbers each, concatenated."""
    before = np.cumsum(counts) - counts
    positions: NDArray[np.intp] = np.arange(counts.sum()) + np.repeat(starts - before, counts)
    return positions


def _only(keys: Keys, runs: _Runs) -> tuple[Keys, _Runs]:
    """Return only the keys of these runs, and the runs at their new positions."""
    starts = np.cumsum(runs.sizes) - runs.sizes
    if runs.sizes.sum() < keys.size:
        keys = keys[consecutive(runs.starts, runs.sizes)]
    return keys, _Runs(starts, runs.sizes)


def _varying_bits(keys: Keys, runs: _Runs) -> int:
    """Return a mask of the bits in which keys of the same run differ; the runs contain all keys."""
    set_in_some = np.bitwise_or.reduceat(keys, runs.starts)
    set_in_all = np.bitwise_and.reduceat(keys, runs.starts)
    return int(np.bitwise_or.reduce(set_in_some ^ set_in_all))


def _compare_short(keys: Keys, runs: _Runs, distance: int) -> Iterator[Pairs]:
    """Compare each key with the next one of its run, then with the second next, and so on, in all runs at once."""
    here = consecutive(runs.starts, runs.sizes - 1)
    end = np.repeat(runs.starts + runs.sizes, runs.sizes - 1)
    for offset in itertools.count(1):
        inside = here + offset < end
        here, end = here[inside], end[inside]
        if not here.size:
            return
        left, right = keys[here], keys[here + offset]
        close = np.bitwise_count(left ^ right) <= distance
        if close.any():
            yield np.stack((left[close], right[close]), axis=1)


def _compare_all(run: Keys, distance: int) -> Iterator[Pairs]:
    """Compare all keys with all keys, one tile at a time."""
    for top in range(0, run.size, _TILE_ROWS):
        rows = run[top : top + _TILE_ROWS]
        for left in range(top, run.size, _TILE_COLUMNS):
            columns = run[left : left + _TILE_COLUMNS]
            close = np.bitwise_count(rows[:, None] ^ columns) <= distance
            row, column = np.divmod(np.flatnonzero(close), columns.size)
            if left == top:
                row, column = row[row < column], column[row < column]
            if row.size:
                yield np.stack((rows[row], columns[column]), axis=1)


def _span(run: Keys, distance: int) -> Iterator[Pairs]:
    """Compare only enough keys to connect those that close pairs connect, one tile at a time.

    Rows that are already connected are compared only with keys outside their tree, and each key is found once. So
    the first rows of nearly equal keys connect almost all of them, and little remains for the other rows.
    """
    trees = np.arange(run.size)
    for top in range(0, run.size, _TILE_ROWS):
        rows = np.arange(top, min(top + _TILE_ROWS, run.size))
        roots = trees[rows]
        apart = top + np.flatnonzero((trees[top:] != roots[0]) | (roots != roots[0]).any())
        joined = False
        for left in range(0, apart.size, _TILE_COLUMNS):
            columns = apart[left : left + _TILE_COLUMNS]
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
