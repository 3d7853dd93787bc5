"""From the features of documents to fingerprints: weights, the vote, and texts with too few features."""

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.features import Features, weigh
from simsql.fingerprint.hashes import I64, U64, mix
from simsql.fingerprint.recipe import Recipe
from simsql.fingerprint.vote import decide, majorities, weigh_ones

# Fingerprints, and a mask of the documents without one.
Outcome = tuple[U64, NDArray[np.bool_]]


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
        values[~empty] = majorities(features.hashes, weights, features.documents[~empty], recipe.tie)
        if short.any():
            exact = mix(np.add.reduceat(_hash_counted(features.hashes, features.occurrences), starts))
            values[short] = exact[short[~empty]]
    return values, (empty if recipe.short == "exact" else empty | short)


class Tally:
    """The fingerprint of one document whose features arrive in portions, equal to that of `fingerprints_of`."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._ones = np.zeros((1, 64), dtype=np.int64)
        self._total = 0
        self._exact = np.zeros(1, dtype=np.uint64)
        self._different = np.zeros(0, dtype=np.uint64)

    def add(self, hashes: U64, occurrences: I64, constant: int = 1) -> None:
        """Let distinct features vote; features of earlier calls vote again."""
        if not len(hashes):
            return
        weights = _weigh(hashes, occurrences, self._recipe) * constant
        self._ones += weigh_ones(hashes, weights, np.array([len(hashes)]))
        self._total += int(weights.sum())
        if self._recipe.short == "exact":
            self._exact += np.add.reduce(_hash_counted(hashes, occurrences), keepdims=True)
        # The recipe does not need to distinguish more of them.
        if len(self._different) < self._recipe.min_features:
            self._different = np.union1d(self._different, hashes[: self._recipe.min_features])

    def outcome(self) -> Outcome:
        """Return the fingerprint of the document and its mask, each in an array."""
        empty = np.array([self._total == 0])
        if empty[0]:
            return np.zeros(1, dtype=np.uint64), empty
        if len(self._different) < self._recipe.min_features:
            return mix(self._exact), np.array([self._recipe.short != "exact"])
        return decide(self._ones, np.array([self._total]), self._recipe.tie), empty


def _weigh(hashes: U64, occurrences: I64, recipe: Recipe) -> I64:
    weights = weigh(occurrences, recipe.weight)
    return weights if recipe.idf is None else weights * recipe.idf.weigh(hashes)


def _hash_counted(hashes: U64, occurrences: I64) -> U64:
    """Return hashes of features with their counts, whose sum identifies all of them in any order."""
    return mix(hashes ^ mix(occurrences.view(np.uint64)))
