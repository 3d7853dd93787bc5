"""64-bit hashes of tokens and features, over whole arrays: simsql's own and published ones.

Each value is defined by arithmetic modulo 2**64 on bytes in a fixed order, so it is the same on every platform and
in every version. Golden values in the tests confirm this.

"splitmix" hashes the UTF-8 bytes of a token, read as little-endian 64-bit words w[0], w[1], ..., the last padded
with zeros:

    hash(token) = mix(len(token) + sum(mix(w[k] + (k + 1) * GOLDEN)))

`mix` is the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
OOPSLA 2014; constants: David Stafford's Mix13, as in Vigna's splitmix64.c), which follows Appleby's finaliser of
MurmurHash3; GOLDEN is the odd increment of SplitMix64. Because the mixed words are added, none depends on the
previous one, and tokens of all lengths are hashed in the same few array operations. A shingle is hashed from its
tokens by Horner's rule with an odd multiplier, and mixed again before it votes.

FNV-1 and FNV-1a (Fowler, Noll, Vo; draft-eastlake-fnv) multiply a state by a prime P and XOR a byte into it, byte
by byte. FNV-1a is P times the FNV-1 that starts from the basis divided by P.

"jenkins" is `hashlittle2` of lookup3.c (Bob Jenkins, 2006) with both seeds 0: the first result is the upper half
of the value, as in simhash-cpp.

FNV and lookup3 hash all strings side by side: their first bytes or blocks, then their second ones, and so on.
"""

from collections.abc import Sequence
from hashlib import md5
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError, missing_package

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
HashKind = Literal["splitmix", "fnv1", "fnv1a", "fnv1utf16", "md5", "md5low", "xxh3", "jenkins"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SHINGLE = np.uint64(0xD1342543DE82EF95)  # Steele and Vigna 2021, table of good 64-bit multipliers

# The mask that keeps the first n bytes of a little-endian word.
_KEEP = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
# The rounds of lookup3 between blocks of 12 bytes and after the last one: which of its three words changes, by
# which, and by how many bits that is turned.
_BETWEEN = ((0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4))
_AFTER = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))
_ALL_BITS = (1 << 64) - 1
# The last strings, one of which may have a million characters, are hashed one by one.
_FEW = 32


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

    `data` must have at least seven more bytes, of any value, after the start of the last span, because spans are
    read in words of eight bytes.
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
        # Few tokens are longer than 16 bytes, but one may have a million words.
        (longest,) = np.nonzero(left > 8)
        if len(longest):
            second[longest] += _sum_of_later_words(words, begin[longest], left[longest])
        total[longer] += second
    return mix(total)


def hash_as_tokens(spellings: Sequence[str]) -> U64:
    """Return the hashes of tokens by `hash_spans`. The empty token, which no text contains, has one too."""
    encoded = [spelling.encode("utf-8", "surrogatepass") for spelling in spellings]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    return hash_spans(b"".join([*encoded, bytes(8)]), np.cumsum(lengths) - lengths, lengths)


def hash_short(words: U64, lengths: I64) -> U64:
    """Return the hashes of tokens of at most eight bytes, given as words padded with zeros."""
    total = mix(words + GOLDEN)
    total += lengths.view(np.uint64)
    return mix(total)


def _mix_word(words: U64, starts: I64, left: I64, number: int) -> U64:
    """Return the mixed words at these places. `left` is the number of bytes left in each span."""
    word = words[starts].astype(np.uint64, copy=False)
    word &= _KEEP.take(np.minimum(left, 8))
    word += np.uint64(number * int(GOLDEN) % 2**64)
    return mix(word)


def _sum_of_later_words(words: U64, starts: I64, lengths: I64) -> U64:
    """Return the sum of the mixed words after the second, for spans given without their first word."""
    later = (lengths - 1) >> 3
    offsets = np.cumsum(later) - later
    number = np.arange(1, later.sum() + 1) - np.repeat(offsets, later)
    left = np.minimum(np.repeat(lengths, later) - 8 * number, 8)
    word = words[np.repeat(starts, later) + 8 * number] & _KEEP[left]
    number += 2
    word += number.view(np.uint64) * GOLDEN
    return np.add.reduceat(mix(word), offsets)


def hash_strings(spellings: Sequence[str], kind: HashKind) -> U64:
    """Return the hash of each string: see `Recipe`.

    Lone surrogates are encoded as if they were characters. Raises ModuleNotFoundError for "xxh3" without the
    package xxhash, and ValueError for "splitmix", which is a hash of tokens.
    """
    if kind == "fnv1utf16":
        return _hash_fnv([spelling.encode("utf-16-le", "surrogatepass") for spelling in spellings], "<u2", _BASIS)
    octets = (spelling.encode("utf-8", "surrogatepass") for spelling in spellings)
    if kind == "fnv1":
        return _hash_fnv(list(octets), "u1", _BASIS)
    if kind == "fnv1a":
        start = _BASIS * pow(_PRIME, -1, 1 << 64) % (1 << 64)
        return _hash_fnv(list(octets), "u1", start) * np.uint64(_PRIME)
    if kind in ("md5", "md5low"):
        digests = b"".join(md5(spelling, usedforsecurity=False).digest() for spelling in octets)
        return np.frombuffer(digests, dtype=">u8")[kind == "md5low" :: 2].astype(np.uint64)
    if kind == "xxh3":
        try:
            from xxhash import xxh3_64_intdigest  # noqa: PLC0415 - of an extra
        except ModuleNotFoundError:
            raise missing_package('a recipe with the hash "xxh3"', "xxhash") from None
        return np.fromiter(map(xxh3_64_intdigest, octets), dtype=np.uint64)
    if kind == "jenkins":
        return _hash_jenkins(list(octets))
    raise UsageError(f"{kind!r} is not a hash of strings")


def _hash_jenkins(encoded: Sequence[bytes]) -> U64:
    """Return both results of lookup3 of each string of bytes."""
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    order = np.argsort(-lengths, kind="stable")
    sizes = np.maximum(-(-lengths[order] // 12), 1)
    padded = b"".join(encoded[place].ljust(12 * size, b"\0") for place, size in zip(order, sizes, strict=True))
    words = np.frombuffer(padded, dtype="<u4").reshape(-1, 3)
    starts = np.cumsum(sizes) - sizes
    state = np.tile(lengths[order].astype(np.uint32) + np.uint32(0xDEADBEEF), (3, 1))
    left, block = len(encoded), 0
    while left:
        state[:, :left] += words[starts[:left] + block].T
        block += 1
        left = int(np.searchsorted(-sizes, -block))  # the strings that have another block
        for changed, by, turn in _BETWEEN if left else ():
            word, other = state[changed, :left], state[by, :left]
            word -= other
            word ^= _turn(other, turn)
            other += state[3 - changed - by, :left]
    filled = np.count_nonzero(lengths)  # an empty string is not mixed
    for changed, by, turn in _AFTER:
        word, other = state[changed, :filled], state[by, :filled]
        word ^= other
        word -= _turn(other, turn)
    values = np.empty(len(encoded), dtype=np.uint64)
    values[order] = state[2].astype(np.uint64) << np.uint64(32) | state[1]
    return values


def _turn(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Return 32-bit words rotated to the left."""
    return words << np.uint32(bits) | words >> np.uint32(32 - bits)


def _hash_fnv(encoded: Sequence[bytes], unit: str, basis: int) -> U64:
    """Return the FNV-1 of each string of units from this basis."""
    units = np.frombuffer(b"".join(encoded), dtype=unit)
    units = units.astype(units.dtype.newbyteorder("="), copy=False)
    sizes = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // units.itemsize
    order = np.argsort(-sizes, kind="stable")
    sizes, starts = sizes[order], (np.cumsum(sizes) - sizes)[order]
    states = np.full(len(encoded), basis, dtype=np.uint64)
    prime = np.uint64(_PRIME)
    place = 0
    while (left := int(np.searchsorted(-sizes, -place))) > _FEW:  # the strings that have another unit
        states[:left] *= prime
        states[:left] ^= units[starts[:left] + place]
        place += 1
    for number in range(left):
        state = int(states[number])
        rest = units[starts[number] + place : starts[number] + sizes[number]]
        for value in rest.data:  # plain integers, without a list of them
            state = (state * _PRIME & _ALL_BITS) ^ value
        states[number] = state
    values = np.empty_like(states)
    values[order] = states
    return values
