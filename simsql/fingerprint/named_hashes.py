"""Published 64-bit hashes of strings, by the names that `Recipe.hash` gives them.

FNV-1 and FNV-1a (Fowler, Noll, Vo; draft-eastlake-fnv) multiply a state by a prime P and XOR a byte into it, one
byte after the other. Here whole arrays of bytes are hashed at once:

    h[i + 1] = P * h[i] ^ b[i] = P * h[i] + ((m[i] ^ b[i]) - m[i]),    m[i] = the low 8 bits of P * h[i]

Once every m is known, this is a polynomial in P. The low 8 bits of a state do not depend on higher bits.
Because P is odd, bit k of the next state is bit k of this state, XORed with a function of b and of the bits below
k: eight prefix XORs find them all. FNV-1a is P times the FNV-1 that starts from the basis divided by P. For UTF-16
code units the same holds with 16 bits.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import md5

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.hashes import I64, U64
from simsql.fingerprint.recipe import HashKind

_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
# Units hashed at once: their arrays fit the cache, and memory does not grow with the length of a string.
_AT_ONCE = 1 << 16


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
        return _hash_xxh3(octets)
    raise ValueError(f"{kind!r} is not a hash of strings")


def _hash_xxh3(octets: Iterator[bytes]) -> U64:
    try:
        from xxhash import xxh3_64_intdigest  # noqa: PLC0415 - of an extra
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'a recipe with the hash "xxh3" needs the package xxhash: pip install "simsql[xxh3]"', name="xxhash"
        ) from None
    return np.fromiter(map(xxh3_64_intdigest, octets), dtype=np.uint64)


def _hash_fnv(encoded: Sequence[bytes], unit: str, basis: int) -> U64:
    """Return the FNV-1 of each string of units from this basis."""
    units = np.frombuffer(b"".join(encoded), dtype=unit)
    units = units.astype(units.dtype.newbyteorder("="), copy=False)
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)) // units.itemsize
    states = np.full(len(encoded), basis, dtype=np.uint64)
    (filled,) = np.nonzero(lengths)
    ends = np.cumsum(lengths[filled])
    for start in range(0, len(units), _AT_ONCE):
        stop = min(start + _AT_ONCE, len(units))
        # The strings with units here; the first may begin before and the last may end after them.
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
        here = filled[first : last + 1]
        states[here] = _append(states[here], units[start:stop], np.minimum(ends[first : last + 1], stop) - start)
    return states


def _append(states: U64, units: NDArray[np.unsignedinteger], ends: I64) -> U64:
    """Return the states of FNV-1 after more units: each string has those up to its end, at least one."""
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    owner = np.repeat(np.arange(len(ends)), lengths)
    prime = units.dtype.type(_PRIME & np.iinfo(units.dtype).max)
    low = states.astype(units.dtype)
    before = np.zeros_like(units)  # the low part of the state before each unit, one more bit in each round
    for _ in range(8 * units.itemsize):
        change = before * prime
        change ^= before
        change ^= units
        np.bitwise_xor.accumulate(change[:-1], out=before[1:])
        before[0] = 0
        before ^= (low ^ before[starts])[owner]
    before *= prime
    added = (before ^ units).astype(np.int64) - before
    powers = _powers()
    added_after = added.view(np.uint64) * powers[(ends - 1)[owner] - np.arange(len(units))]
    return states * powers[lengths] + np.add.reduceat(added_after, starts)


@cache
def _powers() -> U64:
    """Return the powers of the prime, starting with 1."""
    factors = np.full(_AT_ONCE + 1, _PRIME, dtype=np.uint64)
    factors[0] = 1
    return np.multiply.accumulate(factors)
