"""How similar pairs of texts are, and how much their votes agree: many pairs at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simsql import Recipe, similarity_many
from simsql.fingerprint import compares_features
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.features import Features
from simsql.fingerprint.hashes import mix
from simsql.fingerprint.vote import _weigh

Floats = NDArray[np.float64]


def similarities(queries: Sequence[str], rows: Sequence[str], recipe: Recipe) -> Floats:
    """Return the similarity of each query to the row beside it, as `similar` compares texts of the recipe."""
    if not compares_features(recipe):
        return similarity_many(queries, rows).data
    return jaccard(extract_features(queries, recipe), extract_features(rows, recipe))


def correlations(one: Sequence[str], other: Sequence[str], recipe: Recipe) -> Floats:
    """Return the cosine between the weights of the features of each text of `one` and of `other`."""
    return cosines(extract_features(one, recipe), extract_features(other, recipe), recipe)


def cosines(one: Features, other: Features, recipe: Recipe) -> Floats:
    """Return the cosine between the weights of features, document by document; 0 where one has none."""
    sides = [
        (_of_pairs(side), _weigh(side.hashes, side.occurrences, recipe), _numbers(side)) for side in (one, other)
    ]
    (keys, weights, numbers), (other_keys, other_weights, _) = sides
    _, left, right = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    count = len(one.documents)
    both = np.bincount(numbers[left], weights[left] * other_weights[right], count)
    norms = [np.bincount(numbers, weights.astype(float) ** 2, count) for _, weights, numbers in sides]
    return both / np.sqrt(np.maximum(norms[0] * norms[1], 1))


def jaccard(one: Features, other: Features) -> Floats:
    """Return the Jaccard index of the features of each document; 0 where both have none."""
    keys, numbers = _of_pairs(one), _numbers(one)
    _, left, _ = np.intersect1d(keys, _of_pairs(other), assume_unique=True, return_indices=True)
    common = np.bincount(numbers[left], minlength=len(one.documents))
    return common / np.maximum(one.documents + other.documents - common, 1)


def _numbers(features: Features) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(features.documents)), features.documents)


def _of_pairs(features: Features) -> NDArray[np.uint64]:
    """Return a key for each feature of each document; equal ones of other documents have other keys."""
    return mix(features.hashes ^ mix(_numbers(features).astype(np.uint64)))
