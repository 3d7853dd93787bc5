"""64-bit hashes of tokens and features, over whole arrays.

Every value here is defined by arithmetic modulo 2**64 on bytes in a fixed order, so that it is the same on
every platform and in every version; tests hold golden values.

A token is hashed over the bytes of its UTF-8, taken as little-endian 64-bit words w[0], w[1], ... with the
last one padded with zeros:

    hash(token) = mix(len(token) + sum(mix(w[k] + (k + 1) * GOLDEN)))

`mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
OOPSLA 2014; constants: David Stafford's Mix13, as in Vigna's splitmix64.c), which follows Appleby's finaliser
of MurmurHash3; GOLDEN is SplitMix64's odd increment. A sum of mixed words needs no chain from one word to the
next, so tokens of every length are hashed in the same few array operations.

A shingle is hashed from its tokens by Horner's rule with an odd multiplier, and mixed once more before it
votes.
"""

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SHINGLE = np.uint64(0xD1342543DE82EF95)  # Steele and Vigna 2021, table of good 64-bit multipliers

# The mask that keeps the first n bytes of a little-endian word.
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)


def mix(values: U64) -> U64:
    """Return a well mixed 64-bit value for each value: a bijection, the finaliser of SplitMix64."""
    mixed = values >> np.uint64(30)
    mixed ^= values
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def hash_spans(data: bytes | NDArray[np.uint8], starts: I64, lengths: I64) -> U64:
    """Return the hash of each span data[start:start + length], of one byte or more.

    `data` must go on for at least seven bytes after the last span's start, whatever they are: spans are read
    in words of eight.
    """
    if not len(starts):
        return np.zeros(0, dtype=np.uint64)
    words = np.ndarray(len(data) - 7, dtype="<u8", buffer=data, strides=(1,))
    total = _mix_word(words, starts, lengths, 1)
    total += lengths.view(np.uint64)
    (longer,) = np.nonzero(lengths > 8)
    if len(longer):
        begin, left = starts[longer] + 8, lengths[longer] - 8
        second = _mix_word(words, begin, left, 2)
        # Few tokens go on after 16 bytes, and one may go on for a million words.
        (longest,) = np.nonzero(left > 8)
        if len(longest):
            second[longest] += _sum_of_later_words(words, begin[longest], left[longest])
        total[longer] += second
    return mix(total)


class RunningHash:
    """The hash of one span that comes in parts, whatever its length."""

    def __init__(self) -> None:
        self._total = np.zeros(1, dtype=np.uint64)
        self._size = 0
        self._rest = b""

    def add(self, data: bytes) -> None:
        """Go on with these bytes."""
        data = self._rest + data
        whole = len(data) & ~7
        self._rest = data[whole:]
        self._add_words(np.frombuffer(data[:whole], dtype="<u8"))

    def finish(self) -> U64:
        """Return the hash of all that was added, as an array of one."""
        size = self._size + len(self._rest)
        if self._rest:
            self._add_words(np.frombuffer(self._rest.ljust(8, b"\0"), dtype="<u8"))
        return mix(self._total + np.uint64(size))

    def _add_words(self, words: U64) -> None:
        number = np.arange(self._size // 8 + 1, self._size // 8 + 1 + len(words), dtype=np.uint64)
        number *= GOLDEN
        number += words
        self._total += np.add.reduce(mix(number), keepdims=True)
        self._size += 8 * len(words)


def hash_short(words: U64, lengths: I64) -> U64:
    """Return the hashes of tokens of at most eight bytes, given as words that end in zeros."""
    total = mix(words + GOLDEN)
    total += lengths.view(np.uint64)
    return mix(total)


def _mix_word(words: U64, starts: I64, left: I64, number: int) -> U64:
    """Return the mixed words at these places, of which so many bytes at most are left."""
    word = words[starts].astype(np.uint64, copy=False)
    word &= _KEEP.take(np.minimum(left, 8))
    word += np.uint64(number * int(GOLDEN) % 2**64)
    return mix(word)


def _sum_of_later_words(words: U64, starts: I64, lengths: I64) -> U64:
    """Return, for what is left of spans after their first word, the sum of the mixed words after the second."""
    later = (lengths - 1) >> 3
    offsets = np.cumsum(later) - later
    number = np.arange(1, later.sum() + 1) - np.repeat(offsets, later)
    left = np.minimum(np.repeat(lengths, later) - 8 * number, 8)
    word = words[np.repeat(starts, later) + 8 * number] & _KEEP[left]
    number += 2
    word += number.view(np.uint64) * GOLDEN
    return np.add.reduceat(mix(word), offsets)
