"""All pairs within a distance: bring together keys that agree in a prefix, or nearly do, and compare them.

Two ways make all pairs meet, and a cost estimate chooses between them and comparing all with all:

- Cut the bits in which keys vary into m blocks. Two keys that differ in at most k bits agree in at least m - k
  blocks, so for each choice of m - k lead blocks the keys that agree in this prefix are compared (Manku, Jain,
  Das Sarma, WWW 2007). If very many keys share a prefix, the remaining bits are split in the same way, as in the
  paper's nested designs. This is the cheapest way at small distances.
- Give each of a few blocks a radius, so that the radii + 1 add up to k + 1. Two keys that differ in at most k bits
  are within the radius in at least one block (general pigeonhole principle, with the radius of Norouzi, Punjani,
  Fleet, CVPR 2012). For each block, each key is compared with the keys whose block is within the radius. A sample
  of pairs shows how many these are; so a block whose values are crowded gets a smaller radius.

A pair is reported once, by the first prefix that finds it. Apart from the pairs, memory is a few times that of the
keys at any distribution.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property
from math import comb, inf
from typing import Any, NamedTuple

import numpy as np

from simsql.arrays.checks import FINGERPRINT_BITS
from simsql.arrays.positions import consecutive
from simsql.hamming._tiles import (
    TILE_ROWS,
    Balls,
    Keys,
    Pairs,
    Runs,
    batched,
    compare_all,
    compare_short,
    compare_spanning,
    find_runs,
)
from simsql.hamming.blocks import BitOrder, block_masks, flip_masks

_ALL_BITS = (1 << FINGERPRINT_BITS) - 1

# Nanoseconds, rounded from measurements. Only their ratios matter for the choices below.
_TABLE_KEY_NS = 25.0  # permute and sort one key, and find its run
_TABLE_NS = 300_000.0  # overhead of one permutation, at any number of keys
_NEIGHBOUR_NS = 2.0  # compare two keys of a short run
_TILE_PAIR_NS = 0.7  # compare two keys in a tile
_GATHER_NS = 4.0  # gather one key for a tile
_PROBE_NS = 6.0  # look up a neighbouring run
_RUN_NS = 30_000.0  # overhead of one long run

# Runs up to this size are compared many at once.
_SHORT_RUN = 64
# Pairs that are reported together, so that the overhead of calls is small.
_TOGETHER = 1 << 16
# Sampled pairs, which show how keys are distributed before they are split.
_SAMPLE = 1 << 14
# Bits of a block with a radius: its runs are numbered by a table with an entry for each value.
_BLOCK_BITS = 18


class Pass(NamedTuple):
    """One way for pairs to meet: keys whose `prefix` bits differ in at most `radius` bits are compared.

    `earlier` contains the mask and radius of each prefix that has found the pairs within its radius before.
    """

    prefix: int
    radius: int
    earlier: tuple[tuple[int, int], ...]


class PairTask(NamedTuple):
    """A part of finding all pairs: a small value that can be pickled.

    It compares the keys that meet in a pass, or all with all if there is none; `part` of `parts`. With a radius,
    part 0 compares keys that agree in the prefix, and the others those that differ within the radius.
    """

    here: Pass | None
    part: int
    parts: int


class Join:
    """All pairs of sorted distinct keys at most `distance` bits apart, each once, as tasks that can run anywhere.

    A task yields uint64 arrays of shape (n, 2), some of them empty, in no particular order. If `spanning`, pairs
    whose keys are connected by other pairs may be omitted, and pairs may be repeated.
    """

    def __init__(self, keys: Keys, distance: int, *, spanning: bool = False) -> None:
        self._keys, self._distance, self._spanning = keys, distance, spanning
        self._prepared: tuple[Pass, _Prepared] | None = None

    @cached_property
    def _plan(self) -> tuple[list[Pass], float]:
        """The passes of the cheapest join, none if all are compared with all, and the estimated seconds."""
        keys, runs = self._keys, _whole(self._keys.size)
        varying, differing = _varying_bits(keys, runs), _sample(keys, runs)
        blocks, cost = _cheapest_blocks(runs, varying, differing, self._distance)
        passes, cost = _cheapest_balls(keys.size, varying, differing, self._distance, cost)
        return passes or (_splitting(varying, blocks, self._distance) if blocks else []), cost / 1e9

    @property
    def _nothing(self) -> bool:
        return self._keys.size < 2 or not self._distance  # distinct keys form no pairs at distance 0

    @property
    def seconds(self) -> float:
        """The estimated time."""
        return 0.0 if self._nothing else self._plan[1]

    def tasks(self, parts: int) -> list[PairTask]:
        """Return the tasks of the join. Those that can be divided are cut into this number of parts."""
        if self._nothing:
            return []
        passes, _ = self._plan
        if not passes:
            parts = 1 if self._spanning else parts
            return [PairTask(None, part, parts) for part in range(parts)]
        return [PairTask(here, part, parts) for here in passes for part in range(parts + 1 if here.radius else 1)]

    def __call__(self, task: PairTask) -> Iterator[Pairs]:
        """Yield the pairs of a task."""
        if task.here is None:
            if self._spanning:
                return compare_spanning(self._keys, self._distance)
            return compare_all(self._keys, self._distance, task.part, task.parts)
        if self._prepared is None or self._prepared[0] != task.here:
            constant = ~_varying_bits(self._keys, _whole(self._keys.size)) & ~task.here.prefix & _ALL_BITS
            self._prepared = task.here, _Prepared(task.here, self._keys, constant, self._spanning)
        prepared = self._prepared[1]
        if task.part == 0:
            return _pairs_agreeing(prepared, self._distance)
        return _reported_first(prepared.balls.compare(self._distance, task.part - 1, task.parts), prepared)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": None}


class _Prepared:
    """The keys of a pass, sorted, with the constant bits and then those of its prefix in front."""

    def __init__(self, here: Pass, keys: Keys, constant: int, spanning: bool) -> None:
        others = ~(constant | here.prefix) & _ALL_BITS
        self.here, self.order, self.spanning = here, BitOrder((constant, here.prefix, others)), spanning
        self.keys = self.order.apply(keys)
        self.keys.sort()
        self.behind = others.bit_count()

    @cached_property
    def balls(self) -> Balls:
        bits = self.here.prefix.bit_count()
        flips = flip_masks((1 << bits) - 1, self.here.radius)[1:]
        return Balls(self.keys, bits, self.behind, flips)


def _pairs_agreeing(prepared: _Prepared, distance: int) -> Iterator[Pairs]:
    runs = find_runs(prepared.keys, prepared.behind)
    return _reported_first(_pairs_in_runs(prepared.keys, runs, distance, prepared.spanning), prepared)


def _reported_first(found: Iterator[Pairs], prepared: _Prepared) -> Iterator[Pairs]:
    """Put the bits of the pairs back, and drop the pairs that an earlier prefix has found."""
    for permuted in batched(found, _TOGETHER):
        pairs = prepared.order.undo(permuted)
        differing = pairs[:, 0] ^ pairs[:, 1]
        first = np.ones(len(pairs), dtype=bool)
        for mask, radius in prepared.here.earlier:
            first &= np.bitwise_count(differing & np.uint64(mask)) > radius
        yield pairs[first]


def _pairs_in_runs(keys: Keys, runs: Runs, distance: int, spanning: bool) -> Iterator[Pairs]:
    """Yield the pairs of sorted keys of the same run; split long runs if that is cheaper than all with all."""
    short = runs.sizes <= _SHORT_RUN
    if short.any():
        yield from compare_short(keys, Runs(runs.starts[short], runs.sizes[short]), distance)
    if short.all():
        return
    keys, runs = _only(keys, Runs(runs.starts[~short], runs.sizes[~short]))
    varying = _varying_bits(keys, runs)
    blocks, _ = _cheapest_blocks(runs, varying, _sample(keys, runs), distance)
    if blocks:
        for here in _splitting(varying, blocks, distance):
            yield from _pairs_agreeing(_Prepared(here, keys, ~varying & _ALL_BITS, spanning), distance)
    else:
        compare = compare_spanning if spanning else compare_all
        for run in np.split(keys, runs.starts[1:]):
            yield from compare(run, distance)


def _splitting(varying: int, blocks: int, distance: int) -> list[Pass]:
    """Return a pass for each choice of lead blocks. The first one is that in which a pair agrees first."""
    masks = block_masks(varying, blocks)
    passes = []
    for lead in itertools.combinations(range(blocks), blocks - distance):
        passed_over = tuple((masks[block], 0) for block in range(lead[-1]) if block not in lead)
        passes.append(Pass(sum(masks[block] for block in lead), 0, passed_over))
    return passes


def _cheapest_blocks(runs: Runs, varying: int, sample: Keys, distance: int) -> tuple[int, float]:
    """Return the number of blocks to split into, 0 if comparing all with all is cheaper, and the cost in ns.

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
    return best, cheapest


def _cheapest_balls(
    keys: int, varying: int, differing: Keys, distance: int, limit: float
) -> tuple[list[Pass], float]:
    """Return passes with radii that cost less than `limit`, or none, and the cost in ns."""
    best: list[Pass] = []
    bits = varying.bit_count()
    for blocks in range(-(-bits // _BLOCK_BITS), min(distance, bits) + 1):
        masks = block_masks(varying, blocks)
        # One more than blocks of random bits need.
        radius = (distance + blocks) // blocks
        if 1 << masks[0].bit_count() > 4 * keys or radius >= masks[-1].bit_count():
            continue
        radii, cost = _cheapest_radii([_ball_costs(keys, mask, radius, differing) for mask in masks], distance)
        if cost < limit:
            best, limit = _balls(masks, radii), cost
    return best, limit


def _balls(masks: Iterable[int], radii: Iterable[int]) -> list[Pass]:
    """Return a pass for each block with a radius, which is -1 for a block that is left out."""
    chosen = [(mask, radius) for mask, radius in zip(masks, radii, strict=True) if radius >= 0]
    return [Pass(mask, radius, tuple(chosen[:place])) for place, (mask, radius) in enumerate(chosen)]


def _cheapest_radii(costs: list[list[float]], distance: int) -> tuple[list[int], float]:
    """Return a radius for each block, or -1 to leave it out, and the cost. Radii + 1 add up to `distance` + 1.

    `costs` contains the cost of each block with each radius from 0. Without such radii the cost is infinite.
    """
    # For each sum so far, the cheapest radii.
    reached: dict[int, tuple[list[int], float]] = {0: ([], 0.0)}
    for block in costs:
        longer: dict[int, tuple[list[int], float]] = {}
        for total, (radii, cost) in reached.items():
            for radius, more in enumerate([0.0, *block], start=-1):
                known = longer.get(total + radius + 1)
                if total + radius <= distance and (known is None or cost + more < known[1]):
                    longer[total + radius + 1] = [*radii, radius], cost + more
        reached = longer
    return reached.get(distance + 1, ([], inf))


def _ball_costs(keys: int, mask: int, radius: int, differing: Keys) -> list[float]:
    """Return the cost of a block with each radius up to this one, in ns, by the differing bits of some pairs."""
    bits = mask.bit_count()
    apart = np.bitwise_count(differing & np.uint64(mask))
    rows = min(keys, 2**bits * max(1.0, keys / 2**bits / TILE_ROWS))
    fixed = keys * _TABLE_KEY_NS + _TABLE_NS
    costs, ways = [], 0
    for some in range(radius + 1):
        ways += comb(bits, some)
        near = keys / 2 * max(float(np.mean(apart <= some)), ways / 2**bits)
        if not some:
            costs.append(fixed + keys * near * _NEIGHBOUR_NS)
        else:
            looking = rows * (near * _GATHER_NS + (ways - 1) * _PROBE_NS) + 2**bits
            costs.append(costs[0] + keys * near * _TILE_PAIR_NS + looking)
    return costs


def _sample(keys: Keys, runs: Runs) -> Keys:
    """Return the differing bits of random pairs of keys of the same run, with a fixed seed."""
    random = np.random.default_rng(0)
    weights = runs.sizes.astype(float) ** 2
    run = random.choice(len(weights), size=_SAMPLE, p=weights / weights.sum())
    starts, sizes = runs.starts[run], runs.sizes[run]
    one = random.integers(0, sizes)
    other = (one + random.integers(1, sizes)) % sizes
    differing: Keys = keys[starts + one] ^ keys[starts + other]
    return differing


def _only(keys: Keys, runs: Runs) -> tuple[Keys, Runs]:
    starts = np.cumsum(runs.sizes) - runs.sizes
    if runs.sizes.sum() < keys.size:
        keys = keys[consecutive(runs.starts, runs.sizes)]
    return keys, Runs(starts, runs.sizes)


def _whole(keys: int) -> Runs:
    return Runs(np.zeros(1, dtype=np.intp), np.array([keys], dtype=np.intp))


def _varying_bits(keys: Keys, runs: Runs) -> int:
    """Return a mask of the bits in which keys of the same run differ; the runs contain all keys."""
    set_in_some = np.bitwise_or.reduceat(keys, runs.starts)
    set_in_all = np.bitwise_and.reduceat(keys, runs.starts)
    return int(np.bitwise_or.reduce(set_in_some ^ set_in_all))
