"""What the features of documents come to: their weights, the vote, and texts that have too few."""

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.features import Features, weigh
from simsql.fingerprint.hashes import I64, U64, mix
from simsql.fingerprint.recipe import Recipe
from simsql.fingerprint.vote import majorities

# Fingerprints, and which documents have none.
Outcome = tuple[U64, NDArray[np.bool_]]


def fingerprints_of(
    features: Features, recipe: Recipe, constants: I64 | None = None, different: I64 | None = None
) -> Outcome:
    """Return the fingerprints of documents with these features, and which documents have none.

    `constants` multiply the weights, one for each feature. `different` says how many different features each
    document has, where some stand there several times.
    """
    weights = weigh(features.occurrences, recipe.weight)
    if recipe.idf is not None:
        weights = weights * recipe.idf.weigh(features.hashes)
    if constants is not None:
        weights = weights * constants
    empty = features.documents == 0
    short = ~empty & ((features.documents if different is None else different) < recipe.min_features)
    values = np.zeros(len(empty), dtype=np.uint64)
    if not empty.all():
        starts = (np.cumsum(features.documents) - features.documents)[~empty]
        values[~empty] = majorities(features.hashes, weights, features.documents[~empty], recipe.tie)
        if short.any():
            values[short] = _hash_exactly(features, starts)[short[~empty]]
    return values, (empty if recipe.short == "exact" else empty | short)


def _hash_exactly(features: Features, starts: I64) -> U64:
    """Return a hash of all features of each document and their occurrences, whatever the order."""
    counted = mix(features.hashes ^ mix(features.occurrences.view(np.uint64)))
    return mix(np.add.reduceat(counted, starts))
