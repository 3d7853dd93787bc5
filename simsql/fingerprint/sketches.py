"""Sketches and bands: minima of hashes of the features that `similarity` compares, with which it is estimated.

A sketch has 64 bits. Bit k is one bit of a hash of the smallest value that hash function k gives to a feature of
the text. Two texts of similarity J have the same smallest value with probability J, and otherwise agree by chance:
in a share of (1 + J) / 2 of the bits. So 1 - d / 32 for d differing bits estimates J without bias, with a standard
error of sqrt(1 - J ** 2) / 8: .10 at J = .6. A sketch filters and ranks, and proves nothing. (P. Li, A. C. König:
b-Bit Minwise Hashing, WWW 2010; A. Broder: On the resemblance and containment of documents, SEQUENCES 1997.)

The hash functions multiply 32 bits of a feature's mixed hash by 64 odd numbers modulo 2**32: the upper halves of
the first 64 results of SplitMix64 from the seed 0, with the lowest bit set. All is arithmetic on integers, and
minima depend on no order: a sketch is the same on every platform and in every version. `sketch_id` names this
definition.

A band is three of the minima, mixed into a key of 32 bits: texts of similarity J have the same key with
probability J ** 3. So at least one of 21 bands brings .994 of the pairs of .6 together, and .9998 of those of .7.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from math import comb
from typing import Any, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import differing_bits
from simsql.arrays.columns import Column
from simsql.arrays.positions import portions
from simsql.errors import UsageError
from simsql.fingerprint.batches import TextColumn, map_batches
from simsql.fingerprint.features import padded_trigrams
from simsql.fingerprint.hashes import GOLDEN, I64, SHINGLE, U64, mix
from simsql.fingerprint.recipe import Revision
from simsql.fingerprint.tokens import hash_tokens
from simsql.fingerprint.utf8 import TokenLists
from simsql.fingerprint.vote import Fingerprints, Outcome, join_outcomes

_BITS = 64
_RANDOM = mix(np.arange(1, _BITS + 1, dtype=np.uint64) * GOLDEN)
_MULTIPLIERS = (_RANDOM >> np.uint64(32)).astype(np.uint32) | np.uint32(1)
# The number of a hash function, in the bits above its values: each function mixes its smallest value differently.
_NUMBERS = np.arange(_BITS, dtype=np.uint64)[:, None] << np.uint64(32)
# Tokens whose sketches are computed at once: their hashes and products fit the cache.
_AT_ONCE = 1 << 16
BANDS = 21
_MINIMA = 3  # of a band
_LARGEST = 2**32 - 1
# The share of the pairs of a similarity that the filter of `sketch_distance` may lose.
_LOST = 1 / 400

U32 = NDArray[np.uint32]
Sketches = NDArray[Any] | Iterable[int | None] | Column


class Minima(NamedTuple):
    """What is known of texts from the minima of their features, one text per position."""

    sketches: U64
    bands: U32
    """The keys, as an array of shape (texts, BANDS). Without words, all are 0, as the sketch is."""

    @classmethod
    def none(cls, texts: int) -> Self:
        """Return those of texts without words."""
        return cls(np.zeros(texts, dtype=np.uint64), np.zeros((texts, BANDS), dtype=np.uint32))


def sketch_id(revision: Revision) -> str:
    """Return the name of the sketches of this revision, for comments of columns."""
    return f"minhash64-{revision}"


def sketch(text: str, *, revision: Revision = 1) -> int | None:
    """Return the sketch of a text, in [0, 2**64), or None if the text has no words.

    `estimate_similarity` of two sketches estimates the `similarity` of the texts. The words are those of the
    default recipe in this revision. For many texts, `sketch_many` is many times faster. Raises TypeError if `text`
    is not a str.
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    values, empty = _sketch([text], revision)
    return None if empty[0] else int(values[0])


def sketch_many(
    texts: Iterable[str] | TextColumn, workers: int | None = None, *, revision: Revision = 1
) -> Fingerprints:
    """Return the sketches of texts, in their order; texts without words are masked.

    Arguments, result and errors are as for `simhash_many`: a masked array of uint64, one-dimensional, with a full
    mask. Sketches depend neither on `workers` nor on the other texts.
    """
    return join_outcomes(map_batches(partial(_sketch, revision=revision), texts, workers))


def minima_of_tokens(tokens: TokenLists, *, features: bool = False) -> Minima:
    """Return the sketches and bands of texts from their tokens: the words of the default recipe, or `features`.

    Beside the result, memory is bounded.
    """
    counts = tokens.counts
    found = Minima.none(len(counts))
    (with_words,) = np.nonzero(counts)
    start = 0
    for some in portions(counts[with_words], _AT_ONCE):
        texts = with_words[some]
        end = start + int(counts[texts].sum())
        here = tokens.hashes[start:end]
        if len(here) > _AT_ONCE:
            smallest = np.full((_BITS, 1), _LARGEST, dtype=np.uint32)
            for hashes in _portions(here, features=features):
                np.minimum(smallest, _minima(hashes, np.array([len(hashes)])), out=smallest)
        else:
            smallest = _minima(*((here, counts[texts]) if features else padded_trigrams(here, counts[texts])))
        # A bit is the lowest of the smallest value, mixed with the number of its function.
        bits = mix(smallest | _NUMBERS).astype(np.uint8) & np.uint8(1)
        octets = np.ascontiguousarray(np.packbits(bits, axis=0, bitorder="little").T)
        found.sketches[texts] = octets.view("<u8")[:, 0]
        found.bands[texts] = _bands(smallest)
        start = end
    return found


def _portions(tokens: U64, *, features: bool) -> Iterator[U64]:
    """Yield the features of one text in portions: its tokens, or their padded trigrams."""
    for at in range(0, len(tokens), _AT_ONCE):
        end = at + _AT_ONCE
        # Trigrams begin with the last two tokens of the portion before.
        some = tokens[at if features else max(0, at - 2) : end]
        if not features:
            trigrams, _ = padded_trigrams(some, np.array([len(some)]))
            some = trigrams[min(at, 2) : None if end >= len(tokens) else -2]
        yield some


def _sketch(texts: list[str], revision: Revision) -> Outcome:
    tokens = hash_tokens(texts, "words", revision)
    return minima_of_tokens(tokens).sketches, tokens.counts == 0


def _minima(hashes: U64, counts: I64) -> U32:
    """Return the smallest value of each hash function, by function and text. Each text has a feature or more."""
    upper = (mix(hashes) >> np.uint64(32)).astype(np.uint32)
    starts = np.cumsum(counts) - counts
    smallest = np.empty((_BITS, len(counts)), dtype=np.uint32)
    values = np.empty_like(upper)
    for function, multiplier in enumerate(_MULTIPLIERS):
        np.multiply(upper, multiplier, out=values)
        np.minimum.reduceat(values, starts, out=smallest[function])
    return smallest


def _bands(smallest: U32) -> U32:
    """Return the keys of the bands of the texts with these smallest values."""
    values = smallest[: _MINIMA * BANDS].reshape(BANDS, _MINIMA, -1)
    keys = np.repeat(np.arange(BANDS, dtype=np.uint64)[:, None], smallest.shape[1], axis=1)
    for place in range(_MINIMA):
        keys *= SHINGLE
        keys += values[:, place]
    return mix(keys).astype(np.uint32).T


@overload
def estimate_similarity(a: int, b: int) -> float: ...
@overload
def estimate_similarity(a: int | None, b: int | None) -> float | None: ...
@overload
def estimate_similarity(a: Sketches, b: Sketches | int | None) -> NDArray[np.float64]: ...
@overload
def estimate_similarity(a: int | None, b: Sketches) -> NDArray[np.float64]: ...
def estimate_similarity(a: int | Sketches | None, b: int | Sketches | None) -> float | NDArray[np.float64] | None:
    """Return the similarity of two texts as estimated from their sketches, from 0.0 to 1.0 in steps of 1/32.

    It is 1 - d / 32 for d differing bits, or 0.0 if that is negative. Its standard error is at most .125, and .10
    if the similarity is .6. The result is None if a sketch is None. If an argument has several sketches, the
    result is an array of float64, broadcast by the rules of NumPy, and masked where an argument is masked, null or
    None. Several sketches are an array of integers, an iterable of ints, or a column of pyarrow or Polars: of
    uint64, or of int64 with the bits of a bigint. Raises ValueError for values that do not have 64 bits and for
    different numbers of sketches, TypeError for anything else.
    """
    bits = differing_bits(a, b, "sketch")
    if bits is None or isinstance(bits, int):
        return None if bits is None else max(0.0, 1 - bits / 32)
    return np.maximum(0.0, 1 - bits / 32)


def sketch_distance(similarity: float) -> int:
    """Return the number of bits in which sketches may differ if texts of this similarity or more are to pass.

    Of pairs of exactly this similarity, 1 in 400 or fewer differ in more bits. It is 22 for the similarity .6.
    Raises ValueError for a similarity outside 0 to 1.
    """
    if not 0 <= similarity <= 1:
        raise UsageError(f"similarity must be between 0 and 1, not {similarity}")
    differs = (1 - similarity) / 2
    within = 0.0
    for distance in range(_BITS):
        within += comb(_BITS, distance) * differs**distance * (1 - differs) ** (_BITS - distance)
        if 1 - within <= _LOST:
            return distance
    return _BITS
