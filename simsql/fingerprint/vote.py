"""The weighted vote of feature hashes on each bit, for one document and for batches.

A bit of the fingerprint is set if the features with this bit in their hash outweigh those without it (Charikar,
STOC 2002). All weights are integers, so the result is exact in any order and any batch.

Votes are counted in eight lanes of eight bits at a time: a hash is shifted by 0 to 7 bits, the lowest bit of each
byte is kept and multiplied by the weight, and the words are added as long as no lane can overflow (as in Warren,
Hacker's Delight, 5-1). Only sums are unpacked, never single bits. Weights of 128 and more are split into digits to
the base of 128.
"""

from collections.abc import Iterable
from operator import index

import numpy as np

from simsql.fingerprint.hashes import I64, U64

_LOWEST_BITS = np.uint64(0x0101010101010101)
_LANE_AT_MOST = 255
_DIGIT_BITS = 7
# Features counted at once: they and the intermediate arrays fit the cache, at any length of a text.
_AT_ONCE = 1 << 15


def majority(hashes: Iterable[int] | U64, weights: Iterable[int] | I64 | None = None) -> int:
    """Return the raw vote of feature hashes, in [0, 2**64).

    `hashes` are integers in [0, 2**64). `weights` are integers of at least 0, one for each hash, whose sum is
    below 2**62; by default all are 1. A bit with a tie is 0, and so are all bits of an empty vote.

    Raises TypeError for values that are not integers, OverflowError if a hash is out of range, ValueError if a
    weight is negative or the number of weights is not that of hashes.
    """
    votes = np.fromiter(map(index, hashes), dtype=np.uint64)
    if weights is None:
        weigh = np.ones(len(votes), dtype=np.int64)
    else:
        weigh = np.fromiter(map(index, weights), dtype=np.int64)
    if len(weigh) != len(votes):
        raise ValueError(f"{len(votes)} hashes need {len(votes)} weights, not {len(weigh)}")
    if (weigh < 0).any():
        raise ValueError(f"weights must not be negative, but one is {weigh.min()}")
    votes, weigh = votes[weigh > 0], weigh[weigh > 0]
    if not len(votes):
        return 0
    return int(majorities(votes, weigh, np.array([len(votes)]))[0])


def majorities(hashes: U64, weights: I64, counts: I64, tie: int = 0) -> U64:
    """Return the vote of each document; the features are ordered by document.

    Weights are at least 1. `counts` is the number of features of each document, at least one, and `tie` is the
    value of a bit if both sides weigh the same.
    """
    totals = np.add.reduceat(weights, np.cumsum(counts) - counts)
    return decide(weigh_ones(hashes, weights, counts), totals, tie)


def decide(ones: I64, totals: I64, tie: int) -> U64:
    """Return the vote of each document, from the weight of the features with each bit and the total weight."""
    bits = (2 * ones + tie > totals[:, None]).reshape(-1, 8, 8).transpose(0, 2, 1)
    return np.packbits(bits, axis=2, bitorder="little").reshape(-1, 8).view("<u8")[:, 0].astype(np.uint64)


def weigh_ones(hashes: U64, weights: I64, counts: I64) -> I64:
    """Return the total weight of the features with each bit.

    The shape is (documents, 64), the bits in the order of `_sum_digits`.
    """
    ones = np.zeros((len(counts), 64), dtype=np.int64)
    ends = np.cumsum(counts)
    document, start = 0, 0
    while start < len(hashes):
        # As many whole documents as fit, or a part of one.
        end = min(start + _AT_ONCE, len(hashes))
        last = int(np.searchsorted(ends, end, side="right"))
        if last > document:
            end = int(ends[last - 1])
        else:
            last += 1
        sizes = counts[document:last].copy()
        sizes[0] = min(ends[document], end) - start
        _add_ones(ones[document:last], hashes[start:end], weights[start:end], sizes)
        document, start = (last if end == ends[last - 1] else document), end
    return ones


def _add_ones(ones: I64, hashes: U64, weights: I64, sizes: I64) -> None:
    """Add to ones[d] the weights of the sizes[d] features of document d, for each bit that their hash has."""
    ones += _sum_digits(hashes, weights & (1 << _DIGIT_BITS) - 1, sizes)
    shift = 0
    while weights.max(initial=0) >> _DIGIT_BITS:
        shift += _DIGIT_BITS
        weights = weights >> _DIGIT_BITS
        chosen = np.flatnonzero(weights)
        sizes = np.diff(np.searchsorted(chosen, np.cumsum(sizes)), prepend=0)
        hashes, weights = hashes[chosen], weights[chosen]
        some = sizes > 0
        ones[some] += _sum_digits(hashes, weights & (1 << _DIGIT_BITS) - 1, sizes[some]) << shift


def _sum_digits(hashes: U64, weights: I64, sizes: I64) -> I64:
    """Add up the weights below 128 of the hashes with each bit, over runs of these sizes.

    The shape is (runs, 64). Column 8 * b + l is for bit 8 * l + b: the bits of a lane are eight columns apart.
    """
    ends = np.cumsum(sizes)
    starts = ends - sizes
    heaviest = int(weights.max())
    # Each run is cut into pieces where its cumulated weight passes a multiple of the capacity of a lane, minus the
    # weight that one feature can add.
    full = _LANE_AT_MOST + 1 - heaviest
    before = np.cumsum(weights) - weights
    pieces = (before[ends - 1] - before[starts]) // full + 1
    first = np.cumsum(pieces) - pieces
    cuts = np.repeat(before[starts] - first * full, pieces) + np.arange(pieces.sum()) * full
    piece_starts = np.maximum(np.searchsorted(before, cuts), np.repeat(starts, pieces))

    lanes = np.empty((8, len(piece_starts)), dtype=np.uint64)
    factors = None if heaviest == 1 == weights.min() else weights.view(np.uint64)
    word = np.empty_like(hashes)
    for bit in range(8):
        np.right_shift(hashes, np.uint64(bit), out=word)
        word &= _LOWEST_BITS
        if factors is not None:
            word *= factors
        np.add.reduceat(word, piece_starts, out=lanes[bit])
    sums = np.ascontiguousarray(lanes.T).astype("<u8", copy=False).view(np.uint8)
    if len(sums) == len(sizes):
        return sums.astype(np.int64)
    return np.add.reduceat(sums, first, axis=0, dtype=np.int64)
