"""The weighted vote of the feature hashes on each bit, for one document and for batches.

A bit of the fingerprint is set if the features whose hash has it weigh more than those whose hash has it not
(Charikar, STOC 2002). All weights are integers, so the outcome is exact in any order and any batch.

Votes are counted in eight lanes of eight bits at a time: of a hash shifted by 0 to 7 bits, the lowest bit of each
byte is kept, and up to 255 such words are added up before a lane could overflow (as in Hacker's Delight, 5-1). No
bit is ever unpacked into a number of its own but those of sums. Weights enter by their binary digits: the features
whose weight has digit b are counted together, and that count is worth 2**b.
"""

from collections.abc import Iterable
from operator import index

import numpy as np

from simsql.fingerprint.hashes import I64, U64

_LOWEST_BITS = np.uint64(0x0101010101010101)
# What a lane can count.
_RUN = 255
# Features counted at once: they and what is made of them stay in the cache, whatever the length of a text.
_AT_ONCE = 1 << 15


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
    ones *= 2
    ones += tie
    bits = (ones > totals[:, None]).reshape(-1, 8, 8).transpose(0, 2, 1)
    return np.packbits(bits, axis=2, bitorder="little").reshape(-1, 8).view("<u8")[:, 0].astype(np.uint64)


def _weigh_ones(hashes: U64, weights: I64, counts: I64) -> I64:
    """Return how much the features that have a bit set weigh together.

    The shape is (documents, 64), the bits in the order of `_count_ones`.
    """
    ones = np.zeros((len(counts), 64), dtype=np.int64)
    ends = np.cumsum(counts)
    document, start = 0, 0
    while start < len(hashes):
        # Whole documents as far as they fit, but at least a part of one.
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
    """Add to ones[d] the weights of the features of document d, of which there are sizes[d], whose hash has a bit."""
    largest = int(weights.max())
    if largest == 1:
        ones += _count_ones(hashes, sizes)
        return
    ends = np.cumsum(sizes)
    for digit in range(largest.bit_length()):
        chosen = np.flatnonzero(weights & (1 << digit))
        of_document = np.diff(np.searchsorted(chosen, ends), prepend=0)
        some = of_document > 0
        if some.all():
            ones += _count_ones(hashes[chosen], of_document) << digit
        elif len(chosen):
            ones[some] += _count_ones(hashes[chosen], of_document[some]) << digit


def _count_ones(hashes: U64, sizes: I64) -> I64:
    """Count, over runs of hashes of these sizes, how many have each bit set: shape (runs, 64).

    Column 8 * b + l is of bit 8 * l + b: bits of the same lane are eight columns apart.
    """
    starts = np.cumsum(sizes) - sizes
    pieces = (sizes + (_RUN - 1)) // _RUN
    first = np.cumsum(pieces) - pieces
    piece_starts = np.repeat(starts - first * _RUN, pieces) + np.arange(pieces.sum()) * _RUN
    lanes = np.empty((8, len(piece_starts)), dtype=np.uint64)
    word = np.empty_like(hashes)
    for bit in range(8):
        np.right_shift(hashes, np.uint64(bit), out=word)
        word &= _LOWEST_BITS
        np.add.reduceat(word, piece_starts, out=lanes[bit])
    counted = np.ascontiguousarray(lanes.T).astype("<u8", copy=False).view(np.uint8)
    if len(piece_starts) == len(sizes):
        return counted.astype(np.int64)
    return np.add.reduceat(counted, first, axis=0, dtype=np.int64)
