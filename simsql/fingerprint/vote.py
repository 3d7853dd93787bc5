"""The weighted vote of the feature hashes on each bit, for one document and for batches.

A bit of the fingerprint is set if the features whose hash has it weigh more than those whose hash has it not
(Charikar, STOC 2002). All weights are integers, so the outcome is exact in any order and any batch.

Votes are counted 64 bits at a time: the hashes are added up as columns of bits, by half and full adders on
whole words (Knuth, The Art of Computer Programming 4A, 7.1.3, "sideways addition"), in groups of 32. Only the
six words of a group's sum are ever unpacked into 64 numbers, not the 32 hashes. Weights enter by their binary
digits: the features whose weight has digit b are counted together, and that count is worth 2**b.
"""

from collections.abc import Iterable

import numpy as np

from simsql.fingerprint.hashes import I64, U64

_GROUP_BITS = 5
_GROUP = 1 << _GROUP_BITS
# Features counted at once: bounds the memory that a text of hundreds of megabytes takes.
_AT_ONCE = 1 << 20


def majority(hashes: Iterable[int] | U64, weights: Iterable[int] | I64 | None = None) -> int:
    """Return the raw vote of feature hashes, in [0, 2**64).

    `hashes` are unsigned 64-bit; `weights` are integers from 0 whose sum is below 2**62, one for each hash, 1
    where not given. A tie gives 0, and so does an empty vote, in all bits. Raises ValueError if there are not
    as many weights as hashes or one is negative.
    """
    votes = np.fromiter(hashes, dtype=np.uint64)
    weigh = np.ones(len(votes), np.int64) if weights is None else np.fromiter(weights, dtype=np.int64)
    if len(weigh) != len(votes):
        raise ValueError(f"{len(votes)} hashes need as many weights, not {len(weigh)}")
    if (weigh < 0).any():
        raise ValueError(f"weights must not be negative, and one is {weigh.min()}")
    if not len(votes):
        return 0
    return int(majorities(votes, weigh, np.array([len(votes)]))[0])


def majorities(hashes: U64, weights: I64, counts: I64) -> U64:
    """Return the vote of each document, whose features stand one document after the other.

    `counts` says how many features each document has, at least one.
    """
    starts = np.cumsum(counts) - counts
    return decide(weigh_ones(hashes, weights, counts), np.add.reduceat(weights, starts))


def decide(ones: I64, totals: I64) -> U64:
    """Return the fingerprints from the weight of the set bits, shape (documents, 64), and of all features."""
    bits = np.packbits(2 * ones > totals[:, None], axis=1, bitorder="little")
    return bits.view("<u8")[:, 0].astype(np.uint64)


def weigh_ones(hashes: U64, weights: I64, counts: I64) -> I64:
    """Return how much the features that have a bit set weigh together: shape (documents, 64), bit 0 first."""
    ones = np.zeros((len(counts), 64), dtype=np.int64)
    document = np.repeat(np.arange(len(counts)), counts)
    for start in range(0, len(hashes), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        for digit in range(int(weights[part].max()).bit_length()):
            chosen = start + np.flatnonzero(weights[part] & (1 << digit))
            if len(chosen):
                _add_ones(ones, digit, hashes[chosen], document[chosen])
    return ones


def _add_ones(ones: I64, digit: int, hashes: U64, document: I64) -> None:
    """Add 2**digit to ones[d, b] for each hash of document d that has bit b. Documents ascend."""
    first = np.flatnonzero(np.diff(document, prepend=-1))
    size = np.diff(first, append=len(hashes))
    groups = (size + _GROUP - 1) >> _GROUP_BITS
    group_start = np.cumsum(groups) - groups

    # A column of 32 rows for each group; what a document leaves free in its last group stays 0 and counts
    # nothing.
    width = int(groups.sum())
    rank = np.arange(len(hashes)) - np.repeat(first, size)
    place = (rank & (_GROUP - 1)) * width + (rank >> _GROUP_BITS) + np.repeat(group_start, size)
    columns = np.zeros(_GROUP * width, dtype=np.uint64)
    columns[place] = hashes

    counted = np.zeros((width, 64), dtype=np.uint8)
    for power, plane in enumerate(_add_up([columns])):
        bits = np.unpackbits(plane.astype("<u8", copy=False).view(np.uint8), bitorder="little")
        counted += bits.reshape(width, 64) << np.uint8(power)
    ones[document[first]] += np.add.reduceat(counted, group_start, axis=0, dtype=np.int64) << digit


def _add_up(planes: list[U64]) -> list[U64]:
    """Add up 32 rows of bit-sliced numbers; planes[p] holds the digits worth 2**p."""
    for _ in range(_GROUP_BITS):
        (a, b), *higher = [np.split(plane, 2) for plane in planes]
        total, carry = [a ^ b], a & b
        for a, b in higher:
            either = a ^ b
            total.append(either ^ carry)
            carry = (a & b) | (either & carry)
        planes = [*total, carry]
    return planes
