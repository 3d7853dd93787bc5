"""Fingerprints of what has features already: lists of strings with or without weights, rows of sparse matrices."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any, Protocol

import numpy as np

from simsql.fingerprint.documents import Fingerprints
from simsql.fingerprint.features import Features
from simsql.fingerprint.hashes import I64, U64, mix
from simsql.fingerprint.named_hashes import hash_strings
from simsql.fingerprint.outcome import fingerprints_of
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Recipe, check_recipe
from simsql.fingerprint.spelled import hash_as_tokens

# All weights of a document are less together, so that an idf table may multiply them and every sum is exact.
_WEIGHT_BELOW = 2**53
_ROWS_AT_ONCE = 1 << 12


class SparseMatrix(Protocol):
    """A matrix or an array of scipy.sparse."""

    def tocsr(self) -> Any:
        """Return it by rows."""


def simhash_features(
    features: Iterable[str | tuple[str, int]] | Mapping[str, int], recipe: Recipe = DEFAULT_RECIPE
) -> int | None:
    """Return the fingerprint of features, in [0, 2**64), or None if there are none.

    A feature is a str, or a pair of one and its weight: an integer of at least 0, and their sum is below 2**53.
    The order does not count. Without any weights, a feature weighs what `recipe.weight` says for as often as it
    occurs. If a feature has a weight, the weights are as given, a feature without one weighs 1, and equal
    features weigh their sum.

    Of the recipe, what is about finding features does not count: `tokens`, `shingles`, `normalise`, `cyclic`,
    `stop_words`. The hash is that of a feature of a single token, so `simhash_features(["a", "b"])` is
    `simhash("a b", Recipe(shingles=(1,)))`.

    Raises TypeError for a feature that is no str and a weight that is no integer, ValueError for a weight that is
    negative and for weights that are too large.
    """
    if isinstance(features, str):
        raise TypeError("features must be an iterable of str or of pairs, not one str: use simhash")
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
        raise ValueError(f"the weights of all features must come to less than 2**53, not {sum(weights.values())}")
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
        raise TypeError(
            f"a feature must be a str or a pair of a str and its weight, but feature {position} is {feature!r}"
        )
    spelling, weight = feature
    try:
        weight = index(weight)
    except TypeError:
        raise TypeError(
            f"a weight must be an integer, but that of feature {position} is {weight!r}: round it, such as by"
            " round(1000 * weight)"
        ) from None
    if weight < 0:
        raise ValueError(f"a weight must not be negative, but that of feature {position} is {weight}")
    return spelling, weight


def simhash_rows(
    matrix: SparseMatrix, names: Sequence[str] | None = None, recipe: Recipe = DEFAULT_RECIPE, scale: int = 1000
) -> Fingerprints:
    """Return the fingerprints of the rows of a sparse matrix, such as one of TF-IDF; empty rows are masked.

    `matrix` is one of scipy.sparse, of the shape (documents, features); its values, times `scale` and rounded, are
    the weights. `names` are the features, one for each column: by these they are hashed, so that the rows of
    another matrix, with other columns, can be compared. Without names, columns are hashed by their number. A row
    has the fingerprint of `simhash_features` for its names and weights.

    Returns a masked array of uint64 of the shape (documents,), with a full mask. Raises TypeError if `matrix` is
    not sparse or a name no str, ValueError if there are not as many names as columns or two are the same, or if a
    value is negative, no number, or too large.
    """
    if not hasattr(matrix, "tocsr"):
        raise TypeError(
            f"matrix must be one of scipy.sparse, not {type(matrix).__name__}: see scipy.sparse.csr_array"
        )
    check_recipe(recipe)
    rows = matrix.tocsr()
    if len(rows.shape) != 2:
        raise ValueError(f"matrix must have two dimensions, not {len(rows.shape)}")
    if isinstance(names, str | Mapping):
        raise TypeError(
            f"names must be a list with the name of each column, not {type(names).__name__}: such as that of"
            " get_feature_names_out() of a vectorizer"
        )
    if names is not None and len(names) != rows.shape[1]:
        raise ValueError(f"{rows.shape[1]} columns need as many names, not {len(names)}")
    if names is not None and len(set(names)) < len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise ValueError(f"the names of columns must be distinct, but there are two of {twice!r}")
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
        raise ValueError(f"values must be numbers that are not negative, but row {row} has {rows.data[place]}")
    totals = np.zeros(rows.shape[0])
    np.add.at(totals, np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), scaled)
    if (totals >= _WEIGHT_BELOW).any():
        row = int(np.argmax(totals))
        raise ValueError(
            f"the values of a row, times {scale}, must come to less than 2**53, but those of row {row} to"
            f" {totals[row]:g}: give another scale"
        )
    weights: I64 = scaled.astype(np.int64)
    return weights


def _name(columns: I64, names: Sequence[str] | None) -> list[str]:
    if names is None:
        return list(map(str, columns.tolist()))
    chosen = [names[column] for column in columns.tolist()]
    for column, name in zip(columns.tolist(), chosen, strict=True):
        if not isinstance(name, str):
            raise TypeError(f"a name must be str, but that of column {column} is {type(name).__name__}")
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
