"""All pairs as independent tasks, for an engine that runs them in many processes or on many machines.

Two ways, both exact, and each pair comes from one task alone:

- `pair_tasks`: every task gets all fingerprints, 8 bytes each, and yields its share of the pairs.
- `pair_buckets`: every fingerprint goes to distance + 1 buckets, and the pairs of a bucket come from
  its fingerprints alone. This moves each fingerprint distance + 1 times and reads nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import (
    FINGERPRINT_BITS,
    distinct_fingerprints,
    fingerprint_column,
    whole_number,
)
from simsql.arrays.columns import Column, Fingerprints
from simsql.errors import UsageError
from simsql.hamming._join import Join, PairTask, Pass
from simsql.hamming._sketches import filter_of
from simsql.hamming.blocks import BitOrder, block_masks
from simsql.hamming.pairs import Sketches

# A bucket is the number of its block, and the value of the block in this number of bits.
_VALUE_BITS = 32
_ALL_BITS = (1 << FINGERPRINT_BITS) - 1


def pair_tasks(fingerprints: Fingerprints, distance: int = 3, parts: int = 1) -> list[PairTask]:
    """Return the tasks that together find all pairs of distinct fingerprints within `distance` bits (0..64).

    The cheapest way for these fingerprints takes one pass over them, or a few. Each pass that can be divided is
    cut into `parts` tasks (1..2**20) and one for pairs that agree in its prefix; any other is one task.
    Tasks are small values to be pickled; pass each to `pairs_of_task`, with the same fingerprints. Arguments and
    errors as for `find_pairs`.
    """
    distance = whole_number("distance", distance, 0, FINGERPRINT_BITS)
    parts = whole_number("parts", parts, 1, 1 << 20)
    return Join(distinct_fingerprints(fingerprints), distance).tasks(parts)


def pairs_of_task(
    task: PairTask, fingerprints: Fingerprints, *, sketches: Sketches = None
) -> Iterator[NDArray[np.uint64]]:
    """Yield the pairs of one task as uint64 arrays of shape (n, 2), the smaller fingerprint first.

    The fingerprints are those of all tasks, in any order. Each pair comes from one task alone, once. `sketches` as
    for `find_pairs`. Memory is a few times that of the fingerprints, whatever the number of pairs. Raises
    UsageError if there are more or fewer distinct fingerprints than the task was made for.
    """
    if not isinstance(task, PairTask):
        raise TypeError(f"task must be one of pair_tasks, not {task!r}")
    if not isinstance(fingerprints, np.ndarray | Column):
        fingerprints = list(fingerprints)  # read twice below
    passing = None if sketches is None else filter_of(fingerprints, sketches)
    keys = distinct_fingerprints(fingerprints) if passing is None else passing.fingerprints
    found = keys.size
    if passing is not None and found != task.keys:  # some may have no sketch
        found = distinct_fingerprints(fingerprints).size
    if found != task.keys:
        raise UsageError(
            f"the task is for {task.keys} distinct fingerprints, not {found}: pass the same as to pair_tasks"
        )
    return _pairs_of(Join(keys, task.distance, sketches=passing), task)


def pair_buckets(fingerprints: Fingerprints, distance: int = 3) -> NDArray[np.int64]:
    """Return the buckets of each fingerprint: an int64 array of shape (n, distance + 1), or (n, 2) at distance 0.

    Two fingerprints within `distance` bits (0..63) share at least one bucket. Group by the bucket, and pass each
    group, or any number of whole groups together, to `pairs_in_buckets`. A bucket is a number from 0 to
    2**38 - 1: a block of bits, and their value. Blocks have 64 / (distance + 1) bits, so buckets grow with the
    distance: above 3 to 5, use `pair_tasks`. Raises UsageError for a missing fingerprint; other errors as for
    `find_pairs`.
    """
    passes = _bucket_passes(distance)
    values = _complete(fingerprints)
    buckets = np.empty((values.size, len(passes)), dtype=np.int64)
    for block, here in enumerate(passes):
        buckets[:, block] = _buckets_of(values, block, here.prefix)
    return buckets


def pairs_in_buckets(
    buckets: Fingerprints, fingerprints: Fingerprints, distance: int = 3, *, sketches: Sketches = None
) -> Iterator[NDArray[np.uint64]]:
    """Yield the pairs of the fingerprints in whole buckets, as `pairs_of_task` does.

    Row i is a fingerprint and one of its `pair_buckets` for the same `distance`. Rows come in any order, and
    all rows of a bucket in one call. Each pair comes from one bucket alone. `sketches` has a sketch for each row.
    Raises UsageError for a bucket that its fingerprint does not have.
    """
    passes = _bucket_passes(distance)
    values, numbers = _complete(fingerprints), np.asarray(buckets)
    if numbers.shape != values.shape or numbers.dtype.kind not in "iu":
        raise UsageError(
            f"buckets must be {values.size} integers, one for each fingerprint, not an array of {numbers.dtype}"
            f" with the shape {numbers.shape}"
        )
    blocks = numbers.astype(np.int64, copy=False) >> _VALUE_BITS
    in_block = [np.flatnonzero(blocks == block) for block in range(len(passes))]
    known = sum(
        np.count_nonzero(numbers[rows] == _buckets_of(values[rows], block, passes[block].prefix))
        for block, rows in enumerate(in_block)
    )
    if known < values.size:
        raise UsageError(
            f"{values.size - known} of {values.size} buckets are not those of their fingerprints at distance"
            f" {distance}: take them from pair_buckets with the same distance"
        )
    passing = None if sketches is None else filter_of(values, sketches)
    return itertools.chain.from_iterable(
        _pairs_of(Join(keys, distance, sketches=passing), PairTask(distance, here, 0, 1, keys.size))
        for here, rows in zip(passes, in_block, strict=True)
        for keys in [distinct_fingerprints(values[rows])]
    )


def _pairs_of(join: Join, task: PairTask) -> Iterator[NDArray[np.uint64]]:
    return (np.sort(pairs, axis=1) for pairs in join(task) if len(pairs))


def _complete(fingerprints: Fingerprints) -> NDArray[np.uint64]:
    values, present = fingerprint_column(fingerprints)
    if present is not None:
        raise UsageError(f"{np.count_nonzero(~present)} fingerprints are missing: leave their rows out")
    return values


def _bucket_passes(distance: int) -> list[Pass]:
    """Return a pass for each block. A pair within the distance agrees in one; it comes from the first."""
    distance = whole_number("distance", distance, 0, FINGERPRINT_BITS - 1)
    masks = block_masks(_ALL_BITS, max(2, distance + 1))
    return [Pass(mask, 0, tuple((earlier, 0) for earlier in masks[:block])) for block, mask in enumerate(masks)]


def _buckets_of(values: NDArray[np.uint64], block: int, mask: int) -> NDArray[np.int64]:
    bits = mask.bit_count()
    numbers = BitOrder((mask, ~mask & _ALL_BITS)).apply(values) >> np.uint64(FINGERPRINT_BITS - bits)
    numbers |= np.uint64(block << _VALUE_BITS)
    return numbers.view(np.int64)
