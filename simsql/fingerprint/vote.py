"""From features to fingerprints: weights, the vote on each bit, texts with too few features, lists of features.

A bit of the fingerprint is set if the features with this bit in their hash outweigh those without it (Charikar,
STOC 2002). All weights are integers, so the result is exact in any order and any batch.

Votes are counted in eight lanes of eight bits at a time: a hash is shifted by 0 to 7 bits, the lowest bit of each
byte is kept and multiplied by the weight, and the words are added as long as no lane can overflow (as in Warren,
Hacker's Delight, 5-1). Only sums are unpacked, never single bits. Weights of 128 and more are split into digits to
the base of 128.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import index
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError
from simsql.fingerprint.features import Features, iter_counts
from simsql.fingerprint.hashes import GOLDEN, I64, U64, hash_as_tokens, hash_strings, mix
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Recipe, check_recipe

_LOWEST_BITS = np.uint64(0x0101010101010101)
_LANE_AT_MOST = 255
_DIGIT_BITS = 7
# Features counted at once: they and the intermediate arrays fit the cache, at any length of a text.
_AT_ONCE = 1 << 15
# The weights of a document add up to less, so that an idf table can multiply them and every sum is exact.
_WEIGHT_BELOW = 2**53
_SUM_BELOW = 2**62

# Fingerprints, and a mask of the documents without one.
Outcome = tuple[U64, NDArray[np.bool_]]
Fingerprints: TypeAlias = "np.ma.MaskedArray[tuple[int], np.dtype[np.uint64]]"


def majority(hashes: Iterable[int] | U64, weights: Iterable[int] | I64 | None = None) -> int:
    """Return the raw vote of feature hashes, in [0, 2**64).

    `hashes` are integers in [0, 2**64). `weights` are integers of at least 0, one for each hash, whose sum is
    below 2**62; by default all are 1. A bit with a tie is 0, and so are all bits of an empty vote.

    Raises TypeError for values that are not integers, OverflowError if a hash is out of range, ValueError if a
    weight is negative, their sum is too large, or the number of weights is not that of hashes.
    """
    votes = np.fromiter(map(index, hashes), dtype=np.uint64)
    if weights is None:
        given = np.ones(len(votes), dtype=np.int64)
    else:
        given = np.fromiter(map(index, weights), dtype=np.int64)
    if len(given) != len(votes):
        raise UsageError(f"{len(votes)} hashes need {len(votes)} weights, not {len(given)}")
    if (given < 0).any():
        raise UsageError(f"weights must not be negative, but one is {given.min()}")
    if sum(given.tolist()) >= _SUM_BELOW:
        raise UsageError("the sum of the weights must be below 2**62: divide them by a common factor")
    votes, given = votes[given > 0], given[given > 0]
    if not len(votes):
        return 0
    return int(majorities(votes, given, np.array([len(votes)]))[0])


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


def fingerprints_of(
    features: Features, recipe: Recipe, constants: I64 | None = None, different: I64 | None = None
) -> Outcome:
    """Return the fingerprints of documents with these features, and a mask of the documents without one.

    `constants` multiply the weights, one for each feature. `different` is the number of distinct features of each
    document, if `features` contains some of them several times.
    """
    weights = _weigh(features.hashes, features.occurrences, recipe)
    if constants is not None:
        weights = weights * constants
    empty = features.documents == 0
    short = ~empty & ((features.documents if different is None else different) < recipe.min_features)
    values = np.zeros(len(empty), dtype=np.uint64)
    if not empty.all():
        starts = (np.cumsum(features.documents) - features.documents)[~empty]
        votes = _hash_for_word(features.hashes, recipe)
        values[~empty] = majorities(votes, weights, features.documents[~empty], recipe.tie)
        if short.any():
            exact = mix(np.add.reduceat(_hash_counted(votes, features.occurrences), starts))
            values[short] = exact[short[~empty]]
    return values, (empty if recipe.short == "exact" else empty | short)


def join_outcomes(outcomes: Iterable[tuple[NDArray[Any], ...]]) -> Fingerprints:
    """Return the outcomes of several batches in one masked array."""
    nothing: Outcome = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=bool)
    values, masks = zip(nothing, *outcomes, strict=True)
    return np.ma.MaskedArray(np.concatenate(values), mask=np.concatenate(masks))


class Tally:
    """The fingerprint of one document whose features arrive in portions, equal to that of `fingerprints_of`."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._ones = np.zeros((1, 64), dtype=np.int64)
        self._total = 0
        self._exact = np.zeros(1, dtype=np.uint64)
        self._different = np.zeros(0, dtype=np.uint64)

    def add(self, hashes: U64, occurrences: I64, constant: int = 1) -> I64:
        """Let distinct features vote, and return their weights; features of earlier calls vote again."""
        if not len(hashes):
            return occurrences
        weights = _weigh(hashes, occurrences, self._recipe) * constant
        votes = _hash_for_word(hashes, self._recipe)
        self._ones += weigh_ones(votes, weights, np.array([len(hashes)]))
        self._total += int(weights.sum())
        if self._recipe.short == "exact":
            self._exact += np.add.reduce(_hash_counted(votes, occurrences), keepdims=True)
        # The recipe does not need to distinguish more of them.
        if len(self._different) < self._recipe.min_features:
            self._different = np.union1d(self._different, hashes[: self._recipe.min_features])
        return weights

    def add_all(self, portions: Iterable[U64], constant: int = 1) -> Self:
        """Let the features of a text vote, which come in portions and with repetitions."""
        for hashes, occurrences in iter_counts(portions):
            self.add(hashes, occurrences, constant)
        return self

    def outcome(self) -> Outcome:
        """Return the fingerprint of the document and its mask, each in an array."""
        empty = np.array([self._total == 0])
        if empty[0]:
            return np.zeros(1, dtype=np.uint64), empty
        if self._is_short():
            return mix(self._exact), np.array([self._recipe.short != "exact"])
        return decide(self._ones, np.array([self._total]), self._recipe.tie), empty

    def margins(self, norm: float) -> NDArray[np.float64]:
        """Return by how much each bit won the vote, divided by the norm of the weights of all features.

        The shape is (64,), from the least significant bit. They are huge for a fingerprint without a vote, which
        only the same text has.
        """
        if not self._total or self._is_short():
            return np.full(64, 1e9)
        ones = self._ones.reshape(8, 8).T.reshape(64)  # in the order of the bits: see _sum_digits
        return np.abs(2 * ones - self._total) / norm

    def _is_short(self) -> bool:
        return len(self._different) < self._recipe.min_features


def _weigh(hashes: U64, occurrences: I64, recipe: Recipe) -> I64:
    weights = np.ones_like(occurrences) if recipe.weight == "set" else occurrences
    if recipe.weight == "log":
        # The exponent of frexp is the number of binary digits, exactly for all below 2**53.
        weights = np.frexp(occurrences.astype(np.float64))[1].astype(np.int64) + 1
    return weights if recipe.idf is None else weights * recipe.idf.weigh(hashes)


def _hash_for_word(hashes: U64, recipe: Recipe) -> U64:
    """Return the hashes with which features vote. Each word of a wide fingerprint has its own."""
    return mix(hashes + np.uint64(recipe.word * int(GOLDEN) % 2**64)) if recipe.word else hashes


def _hash_counted(hashes: U64, occurrences: I64) -> U64:
    """Return hashes of features with their counts, whose sum identifies all of them in any order."""
    return mix(hashes ^ mix(occurrences.view(np.uint64)))


def simhash_features(
    features: Iterable[str | tuple[str, int]] | Mapping[str, int], recipe: Recipe = DEFAULT_RECIPE
) -> int | None:
    """Return the fingerprint of features, in [0, 2**64), or None if there are none.

    A feature is a str, or a pair of a str and its weight. Weights are integers of at least 0 whose sum is below
    2**53. The order does not matter. If no feature has a weight, features are weighted by the number of their
    occurrences, as `recipe.weight` defines. Otherwise the weights are used as given, a feature without a weight
    has the weight 1, and the weights of equal features are added.

    The fields of the recipe that find features are ignored: `tokens`, `shingles`, `normalise`, `cyclic` and
    `stop_words`. A feature is hashed like a single token, so `simhash_features(["a", "b"])` equals
    `simhash("a b", Recipe(shingles=(1,)))`.

    Raises TypeError if a feature is not a str or a weight not an integer, ValueError if a weight is negative or
    the sum is too large.
    """
    if isinstance(features, str):
        raise TypeError("features must be an iterable of str or of pairs, not a single str: use simhash")
    check_recipe(recipe)
    weights: dict[str, int] = {}
    weighted = isinstance(features, Mapping)
    for position, feature in enumerate(features.items() if isinstance(features, Mapping) else features):
        if isinstance(feature, str):
            weights[feature] = weights.get(feature, 0) + 1
        else:
            spelling, weight = _check(feature, position)
            weights[spelling] = weights.get(spelling, 0) + weight
            weighted = True
    if sum(weights.values()) >= _WEIGHT_BELOW:
        raise UsageError(f"the sum of all weights must be less than 2**53, not {sum(weights.values())}")
    weights = {spelling: weight for spelling, weight in weights.items() if weight}
    own = recipe.hash == "splitmix"
    found = Features(
        mix(hash_as_tokens([*weights])) if own else hash_strings([*weights], recipe.hash),
        np.fromiter(weights.values(), dtype=np.int64, count=len(weights)),
        np.array([len(weights)]),
    )
    values, empty = fingerprints_of(found, replace(recipe, weight="tf") if weighted else recipe)
    return None if empty[0] else int(values[0])


def _check(feature: object, position: int) -> tuple[str, int]:
    # JSON has lists where Python has tuples.
    if not isinstance(feature, tuple | list) or len(feature) != 2 or not isinstance(feature[0], str):
        raise TypeError(f"feature {position} must be a str or a pair of a str and its weight, not {feature!r}")
    spelling, weight = feature
    try:
        weight = index(weight)
    except TypeError:
        raise TypeError(
            f"the weight of feature {position} must be an integer, not {weight!r}: round it, for example with"
            " round(1000 * weight)"
        ) from None
    if weight < 0:
        raise UsageError(f"the weight of feature {position} must not be negative, but is {weight}")
    return spelling, weight
