"""Blocks of a fingerprint, and the permutations that bring some of them to the front.

A fingerprint of `width` bits is cut into contiguous blocks. One permutation per choice of lead blocks moves
these to the most significant end; the result is the *key*, its lead bits are the *prefix*. Fingerprints that
agree in the lead blocks have keys with the same prefix, so they stand side by side in a sorted list of keys (a
B-tree in PostgreSQL, a sorted array in memory). Manku, Jain, Das Sarma: Detecting near-duplicates for web
crawling (WWW 2007), section 3.

The SQL functions number blocks and permutations exactly as this module does, so both compute the same keys.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import FINGERPRINT_BITS

# Elements permuted at a time: the three arrays of a step fit the cache of a core, which is faster than passes over
# the full array.
_STEP = 1 << 15

Words = TypeVar("Words", int, NDArray[np.uint64])


def block_sizes(blocks: int, width: int = FINGERPRINT_BITS) -> tuple[int, ...]:
    """Return the sizes in bits of the contiguous blocks of a `width`-bit fingerprint, most significant first.

    Sizes differ by one at most, larger blocks first: 64 bits in 6 blocks are 11, 11, 11, 11, 10, 10. `Design`
    checks the arguments.
    """
    size, larger = divmod(width, blocks)
    return (size + 1,) * larger + (size,) * (blocks - larger)


def block_masks(word: int, blocks: int) -> tuple[int, ...]:
    """Return the masks of the blocks of the set bits of `word`, with the sizes and order of `block_sizes`."""
    masks = []
    bits = [1 << bit for bit in reversed(range(word.bit_length())) if word >> bit & 1]
    for size in block_sizes(blocks, len(bits)):
        masks.append(sum(bits[:size]))
        bits = bits[size:]
    return tuple(masks)


@dataclass(frozen=True)
class BitOrder:
    """A reordering of the bits of a word: those of the first mask, then those of the second, and so on.

    The first mask's bits become the most significant; bits of one mask keep their order. Together the masks
    cover every bit of the word once.
    """

    masks: tuple[int, ...]

    @cached_property
    def _moves(self) -> tuple[tuple[int, int], ...]:
        """(mask in the old word, shift to the left, negative to the right), one for each distance moved."""
        moves: dict[int, int] = {}
        target = sum(mask.bit_count() for mask in self.masks)
        for mask in self.masks:
            for bit in reversed(range(mask.bit_length())):
                if mask >> bit & 1:
                    target -= 1
                    moves[target - bit] = moves.get(target - bit, 0) | 1 << bit
        return tuple((mask, shift) for shift, mask in moves.items())

    @cached_property
    def _moves_back(self) -> tuple[tuple[int, int], ...]:
        return tuple((_shifted(mask, shift), -shift) for mask, shift in self._moves)

    def apply(self, words: Words) -> Words:
        """Return the reordered words."""
        if isinstance(words, int):
            return sum(_shifted(words & mask, shift) for mask, shift in self._moves)
        return _move(words, self._moves)

    def undo(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the words in their original order: the inverse of `apply`."""
        return _move(words, self._moves_back)


def _shifted(word: int, shift: int) -> int:
    return word << shift if shift >= 0 else word >> -shift


def _move(words: NDArray[np.uint64], moves: tuple[tuple[int, int], ...]) -> NDArray[np.uint64]:
    moved = np.empty(words.shape, dtype=np.uint64)
    source, target = np.ascontiguousarray(words).reshape(-1), moved.reshape(-1)
    buffer = np.empty(min(_STEP, source.size), dtype=np.uint64)
    for start in range(0, source.size, _STEP):
        step = source[start : start + _STEP]
        out, part = target[start : start + _STEP], buffer[: step.size]
        out[...] = 0
        for mask, shift in moves:
            np.bitwise_and(step, np.uint64(mask), out=part)
            if shift > 0:
                np.left_shift(part, np.uint64(shift), out=part)
            elif shift < 0:
                np.right_shift(part, np.uint64(-shift), out=part)
            np.bitwise_or(out, part, out=out)
    return moved


@dataclass(frozen=True)
class Permutation:
    """The keys of one table: the lead bits of a fingerprint in their order, then its other bits in theirs.

    `permutations` creates them. `number` counts the tables of a design from 0, `lead_mask` has the lead bits at
    their positions in a fingerprint, `width` is the size of a fingerprint in bits.
    """

    number: int
    lead_mask: int
    width: int = FINGERPRINT_BITS

    @property
    def prefix_bits(self) -> int:
        """The number of lead bits, which is the length of a key's prefix."""
        return self.lead_mask.bit_count()

    @property
    def prefix_mask(self) -> int:
        """The lead bits at their positions in a key: its `prefix_bits` most significant bits."""
        return ((1 << self.prefix_bits) - 1) << (self.width - self.prefix_bits)

    @cached_property
    def _order(self) -> BitOrder:
        return BitOrder((self.lead_mask, ~self.lead_mask & (1 << self.width) - 1))

    def key(self, fingerprint: Words) -> Words:
        """Return the key of a fingerprint in [0, 2**width), or of each in an array, without checks."""
        return self._order.apply(fingerprint)


def permutations(
    blocks: int, lead: int, inner_blocks: int = 0, width: int = FINGERPRINT_BITS
) -> tuple[Permutation, ...]:
    """Return all comb(blocks, lead) choices of `lead` out of `blocks` blocks, in lexicographic order.

    With `inner_blocks`, the bits outside the lead are divided again into this number of blocks, and each of these
    in turn joins the lead: comb(blocks, lead) * inner_blocks permutations, by lead blocks and then by inner block.
    These are the nested designs of the paper (section 3.1.1).

    `Design` checks the arguments.
    """
    everything = (1 << width) - 1
    masks = block_masks(everything, blocks)
    leads = [sum(masks[block] for block in choice) for choice in itertools.combinations(range(blocks), lead)]
    if inner_blocks:
        leads = [mask | joins for mask in leads for joins in block_masks(everything & ~mask, inner_blocks)]
    return tuple(Permutation(number, mask, width) for number, mask in enumerate(leads))


def flip_masks(mask: int, radius: int) -> NDArray[np.uint64]:
    """Return all ways to flip up to `radius` of the set bits of `mask`, as a uint64 array.

    The sum(comb(bits, i) for i <= radius) masks are sorted by the number of flips, so the first is 0. XOR of a
    fingerprint with them gives every value that differs from it in at most `radius` of these bits. For the prefix
    of a key pass `Permutation.prefix_mask`, for the lead bits of a fingerprint `lead_mask`.
    """
    bits = [1 << bit for bit in range(mask.bit_length()) if mask >> bit & 1]
    levels = [np.zeros(1, dtype=np.uint64)]
    for flips in range(1, min(radius, len(bits)) + 1):
        fewer = levels[-1]
        # A level is sorted by the highest flipped bit: the first comb(i, flips - 1) masks of the previous level
        # flip only bits below the i-th.
        levels.append(np.concatenate([fewer[: comb(i, flips - 1)] | np.uint64(bit) for i, bit in enumerate(bits)]))
    return np.concatenate(levels)
