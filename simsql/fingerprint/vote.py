"""The weighted vote of the feature hashes on each bit, for one document and for batches.

A bit of the fingerprint is set if the features whose hash has it weigh more than those whose hash has it not
(Charikar, STOC 2002). All weights are integers, so the outcome is exact in any order and any batch.

Votes are counted 64 bits at a time: the hashes are added up as columns of bits, by half and full adders on
whole words (Knuth, The Art of Computer Programming 4A, 7.1.3, "sideways addition"), in groups of 32. Only the
six words of a group's sum are ever unpacked into 64 numbers, not the 32 hashes. Weights enter by their binary
digits: the features whose weight has digit b are counted together, and that count is worth 2**b.
"""

from collections.abc import Iterable
from operator import index

import numpy as np

from simsql.fingerprint.hashes import I64, U64

_GROUP_BITS = 5
_GROUP = 1 << _GROUP_BITS
# Features counted at once: bounds the memory that a text of hundreds of megabytes takes.
_AT_ONCE = 1 << 20


def majority(hashes: Iterable[int] | U64, weights: Iterable[int] | I64 | None = None) -> int:
    """Return the raw vote of feature hashes, in [0, 2**64).

    `hashes` are integers in [0, 2**64); `weights` are integers from 0 on whose sum is below 2**62, one for
    each hash, 1 where not given. A tie gives 0, and so does an empty vote, in all bits.

    Raises TypeError if one is no integer, OverflowError if a hash is not in its range, ValueError if a weight
    is negative or there are not as many weights as hashes.
    """
    votes = np.fromiter(map(index, hashes), dtype=np.uint64)
    if weights is None:
        weigh = np.ones(len(votes), dtype=np.int64)
    else:
        weigh = np.fromiter(map(index, weights), dtype=np.int64)
    if len(weigh) != len(votes):
        raise ValueError(f"{len(votes)} hashes need as many weights, not {len(weigh)}")
    if (weigh < 0).any():
        raise ValueError(f"weights must not be negative, and one is {weigh.min()}")
    votes, weigh = votes[weigh > 0], weigh[weigh > 0]
    if not len(votes):
        return 0
    return int(majorities(votes, weigh, np.array([len(votes)]))[0])


def majorities(hashes: U64, weights: I64, counts: I64, tie: int = 0) -> U64:
    """Return the vote of each document, whose features stand one document after the other.

    Weights are at least 1. `counts` says how many features each document has, at least one, and `tie` is the
    bit where they weigh as much on both sides.
    """
    ones = _weigh_ones(hashes, weights, counts)
    totals = np.add.reduceat(weights, np.cumsum(counts) - counts)
    bits = np.packbits(2 * ones + tie > totals[:, None], axis=1, bitorder="little")
    return bits.view("<u8")[:, 0].astype(np.uint64)


def _weigh_ones(hashes: U64, weights: I64, counts: I64) -> I64:
    """Return how much the features that have a bit set weigh together: shape (documents, 64), bit 0 first."""
    ones = np.zeros((len(counts), 64), dtype=np.int64)
    document = np.repeat(np.arange(len(counts)), counts)
    for start in range(0, len(hashes), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        _add_ones(ones, hashes[part], weights[part], document[part])
    return ones


def _add_ones(ones: I64, hashes: U64, weights: I64, document: I64) -> None:
    """Add to ones[d, b] the weights of the features of document d whose hash has bit b. Documents ascend."""
    digits = range(int(weights.max()).bit_length())
    chosen = [np.flatnonzero(weights & (1 << digit)) for digit in digits]
    sizes = [_run_sizes(document[places]) for places in chosen]
    counted = _count_ones(hashes[np.concatenate(chosen)], np.concatenate(sizes))
    end = 0
    for digit, places, size in zip(digits, chosen, sizes, strict=True):
        start, end = end, end + len(size)
        first = np.cumsum(size) - size
        ones[document[places[first]]] += counted[start:end] << digit


def _run_sizes(values: I64) -> I64:
    """Return the lengths of the runs of equal values."""
    (edges,) = np.nonzero(values[1:] != values[:-1])
    return np.diff(edges, prepend=-1, append=len(values) - 1) if len(values) else edges


def _count_ones(hashes: U64, sizes: I64) -> I64:
    """Count, over runs of hashes of these sizes, how many have each bit set: shape (runs, 64)."""
    groups = (sizes + _GROUP - 1) >> _GROUP_BITS
    group_start = np.cumsum(groups) - groups
    width = int(groups.sum())

    # Each run begins a group; the rest of its last group stays 0 and counts nothing.
    gap = (group_start << _GROUP_BITS) - (np.cumsum(sizes) - sizes)
    place = np.arange(len(hashes))
    place += np.repeat(gap, sizes)
    padded = np.zeros(width * _GROUP, dtype=np.uint64)
    padded[place] = hashes

    # One row for each place in a group, so that rows are added as whole arrays.
    rows = np.ascontiguousarray(padded.reshape(width, _GROUP).T)
    counted = np.zeros((width, 64), dtype=np.uint8)
    for power, plane in enumerate(_add_up([rows])):
        bits = np.unpackbits(plane.astype("<u8", copy=False).view(np.uint8), bitorder="little")
        bits <<= np.uint8(power)
        counted += bits.reshape(width, 64)
    return np.add.reduceat(counted, group_start, axis=0, dtype=np.int64)


def _add_up(planes: list[U64]) -> list[U64]:
    """Add up 32 rows of bit-sliced numbers; planes[p] holds the digits worth 2**p."""
    for power in range(_GROUP_BITS - 1, -1, -1):
        half = 1 << power
        a, b = planes[0][:half], planes[0][half:]
        total, carry = [a ^ b], a & b
        for plane in planes[1:]:
            a, b = plane[:half], plane[half:]
            either = a ^ b
            total.append(either ^ carry)
            carry &= either
            carry |= a & b
        planes = [*total, carry]
    return [plane[0] for plane in planes]
