"""Distances, all pairs and clusters of near-duplicates among fingerprints in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import FINGERPRINT_BITS, differing_bits, distinct_fingerprints, whole_number
from simsql.arrays.columns import Column, Fingerprints, OneFingerprint
from simsql.arrays.positions import roots_of, unite
from simsql.errors import UsageError
from simsql.hamming._join import Join
from simsql.hamming._tiles import batched
from simsql.processes import run_tasks, usable_cores

# A pair is sorted as one number of two positions with this many bits each.
_POSITION_BITS = 32
# find_pairs raises an error above this: 100 million pairs take 2.4 GB.
_PAIRS_AT_MOST = 100_000_000
# Pairs processed at a time, so that the overhead of calls is small.
_BATCH = 1 << 20
_WORKERS_AT_MOST = 1024
# Work that pays for another process, which starts in 0.2 s.
_WORKER_SECONDS = 0.6
# Tasks of a pass that is shared between processes, so that all end at the same time: at least this number, and of
# about a second at most, after which a process notices that it is alone.
_PARTS = 64


@overload
def hamming_distance(a: int, b: int) -> int: ...
@overload
def hamming_distance(a: OneFingerprint, b: OneFingerprint) -> int | None: ...
@overload
def hamming_distance(a: NDArray[Any] | Column, b: NDArray[Any] | Column | OneFingerprint) -> NDArray[np.uint8]: ...
@overload
def hamming_distance(a: OneFingerprint, b: NDArray[Any] | Column) -> NDArray[np.uint8]: ...
def hamming_distance(
    a: OneFingerprint | NDArray[Any] | Column, b: OneFingerprint | NDArray[Any] | Column
) -> int | NDArray[np.uint8] | None:
    """Return the number of bits, 0 to 64, in which two fingerprints differ.

    For two fingerprints in any of their forms the result is an int, or None if one of them is None or a masked
    element. If one argument is an array of integers, an iterable of fingerprints or a column of pyarrow or
    Polars, the result is a uint8 array, broadcast by the rules of NumPy, and masked if an argument is masked, null
    or None. Raises ValueError for
    values that do not have 64 bits and for shapes that do not fit, TypeError for others.
    """
    return differing_bits(a, b)


@overload
def find_pairs(
    fingerprints: Fingerprints,
    distance: int = 3,
    *,
    workers: int | None = None,
    batches: Literal[False] = False,
) -> NDArray[np.uint64]: ...
@overload
def find_pairs(
    fingerprints: Fingerprints,
    distance: int = 3,
    *,
    workers: int | None = None,
    batches: Literal[True],
) -> Iterator[NDArray[np.uint64]]: ...
def find_pairs(
    fingerprints: Fingerprints,
    distance: int = 3,
    *,
    workers: int | None = None,
    batches: bool = False,
) -> NDArray[np.uint64] | Iterator[NDArray[np.uint64]]:
    """Return all pairs of distinct fingerprints that differ in at most `distance` bits (0..64).

    `fingerprints` is an array of unsigned integers, any iterable of ints in [0, 2**64), or a column of pyarrow or
    Polars: of uint64, or of int64 with the bits of a bigint. None, masked elements and nulls are skipped, and
    repeated values count once. The result is a uint64 array of shape (n, 2): the smaller fingerprint first, rows
    in lexicographic order. It is exact at every distance, and time grows with the distance: for a million random
    fingerprints from distance 3 to 10 about thirtyfold, until from about distance 20 all are compared with all.
    Memory grows with the fingerprints and the result. `workers` is the number of processes, from 1 to 1024, by
    default as many as pay, and at most one for each processor; each takes about 40 MB and a few times the memory
    of the fingerprints.

    With `batches`, return an iterator over arrays of about a million pairs, in no particular order. Then the
    number of pairs is not limited, and memory grows only with the fingerprints.

    Raises ValueError for values, a distance or workers out of range, and for more than 100 million pairs
    in one array, TypeError for anything but integers.
    """
    values, close = _close_pairs(fingerprints, distance, workers)
    if batches:
        return (np.sort(batch, axis=1) for batch in batched(close, _BATCH))
    codes = []
    found = 0
    for left, right in _positions(values, close):
        codes.append(np.minimum(left, right) << _POSITION_BITS | np.maximum(left, right))
        found += left.size
        if found > _PAIRS_AT_MOST:
            raise UsageError(
                f"there are more than {_PAIRS_AT_MOST:,} pairs within {distance} bits ({found:,} so far): use a"
                " lower distance, find_clusters, or find_pairs with batches=True"
            )
    joined = np.concatenate(codes).view(np.uint64) if codes else np.empty(0, dtype=np.uint64)
    del codes
    joined.sort()
    pairs = np.empty((joined.size, 2), dtype=np.uint64)
    pairs[:, 0] = values[joined >> np.uint64(_POSITION_BITS)]
    pairs[:, 1] = values[joined & np.uint64((1 << _POSITION_BITS) - 1)]
    return pairs


def find_clusters(
    fingerprints: Fingerprints,
    distance: int = 3,
    *,
    workers: int | None = None,
) -> list[NDArray[np.uint64]]:
    """Return the clusters of fingerprints that are connected by chains of pairs within `distance` bits (0..64).

    Arguments and errors as for `find_pairs`. Each cluster is a sorted uint64 array of at least two distinct
    fingerprints, and clusters are in the order of their first members. Pairs are not stored, so memory grows only
    with the number of fingerprints.
    """
    values, close = _close_pairs(fingerprints, distance, workers, spanning=True)
    positions = np.arange(values.size)  # a tree for each value, joined below
    parents = positions.copy()
    for left, right in _positions(values, close):
        unite(parents, left, right)
        if np.count_nonzero(parents == positions) == 1:
            break
    hooked = np.flatnonzero(parents != positions)
    if not hooked.size:
        return []
    members = np.union1d(hooked, roots_of(parents, hooked))
    roots = parents[members]
    by_root = np.argsort(roots, kind="stable")
    starts = np.flatnonzero(np.diff(roots[by_root]) != 0) + 1
    return np.split(values[members[by_root]], starts)


def _positions(
    values: NDArray[np.uint64], pairs: Iterator[NDArray[np.uint64]]
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield pairs in batches, as the positions of the two members in `values`."""
    for batch in batched(pairs, max(_BATCH, values.size)):  # a batch costs clusters a pass over all values
        yield np.searchsorted(values, batch[:, 0]), np.searchsorted(values, batch[:, 1])


def _close_pairs(
    fingerprints: Fingerprints, distance: int, workers: int | None, *, spanning: bool = False
) -> tuple[NDArray[np.uint64], Iterator[NDArray[np.uint64]]]:
    """Return the distinct values, and their pairs, which processes find together where that pays."""
    values = distinct_fingerprints(fingerprints)
    join = Join(values, whole_number("distance", distance, 0, FINGERPRINT_BITS), spanning=spanning)
    if workers is None:
        workers = min(usable_cores(), int(join.seconds / _WORKER_SECONDS))
    else:
        workers = whole_number("workers", workers, 1, _WORKERS_AT_MOST)
    if workers > 1:
        return values, run_tasks(join, join.tasks(max(_PARTS, int(join.seconds))), workers)
    return values, chain.from_iterable(map(join, join.tasks(1)))
