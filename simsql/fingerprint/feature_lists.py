"""Fingerprints of existing features: lists of strings with or without weights, rows of sparse matrices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any, Protocol

import numpy as np

from simsql.fingerprint.documents import Fingerprints
from simsql.fingerprint.extract import hash_as_tokens
from simsql.fingerprint.features import Features
from simsql.fingerprint.hashes import I64, U64, hash_strings, mix
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Recipe, check_recipe
from simsql.fingerprint.vote import fingerprints_of

# The weights of a document add up to less, so that an idf table can multiply them and every sum is exact.
_WEIGHT_BELOW = 2**53
_ROWS_AT_ONCE = 1 << 12


class SparseMatrix(Protocol):
    """A scipy.sparse matrix or array."""

    def tocsr(self) -> Any:
        """Return the matrix in row format."""


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
        raise ValueError(f"the sum of all weights must be less than 2**53, not {sum(weights.values())}")
    weights = {spelling: weight for spelling, weight in weights.items() if weight}
    found = Features(
        _hash_features(list(weights), recipe),
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
        raise ValueError(f"the weight of feature {position} must not be negative, but is {weight}")
    return spelling, weight


def simhash_rows(
    matrix: SparseMatrix, names: Sequence[str] | None = None, recipe: Recipe = DEFAULT_RECIPE, scale: int = 1000
) -> Fingerprints:
    """Return the fingerprints of the rows of a sparse matrix, such as a TF-IDF matrix; empty rows are masked.

    `matrix` is a scipy.sparse matrix of the shape (documents, features). The weights are its values, multiplied by
    `scale` and rounded. `names` are the features, one for each column. Columns are hashed by their names, so that
    their rows can be compared with those of another matrix with other columns; without names, by their numbers. A
    row has the fingerprint that `simhash_features` returns for its names and weights.

    Returns a masked array of uint64 of the shape (documents,), with a full mask. Raises TypeError if `matrix` is
    not sparse or a name not a str, ValueError if the number of names is not that of columns or two names are
    equal, or if a value is negative, not a number, or too large.
    """
    if not hasattr(matrix, "tocsr"):
        raise TypeError(
            f"matrix must be a scipy.sparse matrix, not {type(matrix).__name__}: see scipy.sparse.csr_array"
        )
    check_recipe(recipe)
    rows = matrix.tocsr()
    if len(rows.shape) != 2:
        raise ValueError(f"matrix must have two dimensions, not {len(rows.shape)}")
    if isinstance(names, str | Mapping):
        raise TypeError(
            f"names must be a list with the name of each column, not {type(names).__name__}: use, for example,"
            " get_feature_names_out() of a vectorizer"
        )
    if names is not None and len(names) != rows.shape[1]:
        raise ValueError(f"{rows.shape[1]} columns need {rows.shape[1]} names, not {len(names)}")
    if names is not None and len(set(names)) < len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise ValueError(f"column names must be distinct, but {twice!r} occurs twice")
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    weights, ends = _round(rows, scale), rows.indptr[1:].astype(np.int64)
    kept = weights > 0
    documents = np.diff(np.concatenate([[0], np.cumsum(kept)])[ends], prepend=0)
    columns, column = np.unique(rows.indices[kept], return_inverse=True)
    hashes = _hash_features(_name(columns, names), recipe)[column]
    return _fingerprint_rows(Features(hashes, weights[kept], documents), replace(recipe, weight="tf"))


def _round(rows: Any, scale: int) -> I64:
    """Return the weights of all values."""
    scaled = np.rint(rows.data.astype(np.float64) * scale)
    wrong = ~(scaled >= 0)
    if wrong.any():
        place = int(np.argmax(wrong))
        row = int(np.searchsorted(rows.indptr, place, side="right")) - 1
        raise ValueError(f"values must be numbers of at least 0, but row {row} contains {rows.data[place]}")
    totals = np.zeros(rows.shape[0])
    np.add.at(totals, np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), scaled)
    if (totals >= _WEIGHT_BELOW).any():
        row = int(np.argmax(totals))
        raise ValueError(
            f"the values of row {row}, multiplied by {scale}, must add up to less than 2**53, not {totals[row]:g}:"
            " use a smaller scale"
        )
    weights: I64 = scaled.astype(np.int64)
    return weights


def _name(columns: I64, names: Sequence[str] | None) -> list[str]:
    if names is None:
        return list(map(str, columns.tolist()))
    chosen = [names[column] for column in columns.tolist()]
    for column, name in zip(columns.tolist(), chosen, strict=True):
        if not isinstance(name, str):
            raise TypeError(f"the name of column {column} must be a str, not {type(name).__name__}")
    return chosen


def _fingerprint_rows(features: Features, recipe: Recipe) -> Fingerprints:
    ends = np.cumsum(features.documents)
    values, empty = np.zeros(len(ends), dtype=np.uint64), np.ones(len(ends), dtype=bool)
    for row in range(0, len(ends), _ROWS_AT_ONCE):
        here = slice(row, row + _ROWS_AT_ONCE)
        documents = features.documents[here]
        part = slice(ends[here][0] - documents[0], ends[here][-1])
        some = Features(features.hashes[part], features.occurrences[part], documents)
        values[here], empty[here] = fingerprints_of(some, recipe)
    return np.ma.MaskedArray(values, mask=empty)


def _hash_features(spellings: list[str], recipe: Recipe) -> U64:
    if recipe.hash == "splitmix":
        return mix(hash_as_tokens(spellings))
    return hash_strings(spellings, recipe.hash)
