"""Extract the features of texts: in whole arrays if the recipe allows it, otherwise as strings."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.features import Features, distinct, shingle
from simsql.fingerprint.hashes import U64, mix
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Recipe, Step, TokenKind, check_recipe
from simsql.fingerprint.spelled import (
    extract_spelled,
    hash_as_tokens,
    hash_found_tokens,
    iter_found_hashes,
    iter_spelled,
)
from simsql.fingerprint.spelled_words import normalise_by
from simsql.fingerprint.tokens import hash_tokens, iter_token_hashes
from simsql.fingerprint.windows import Window, iter_windows


def extract_features(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text, their hashes as they vote."""
    check_recipe(recipe)
    if recipe.hash != "splitmix":
        return extract_spelled(texts, recipe)
    kind = _in_arrays(recipe)
    tokens, documents = hash_tokens(texts, kind) if kind else hash_found_tokens(texts, recipe)
    marked = _find_stop_words(tokens, recipe) if recipe.stop_words else None
    features = distinct(*shingle(tokens, documents, recipe.shingles, cyclic=recipe.cyclic, marked=marked))
    return features._replace(hashes=mix(features.hashes))


def iter_features(text: str, recipe: Recipe) -> Iterator[U64]:
    """Yield the hashes of all features of a text of any length, with repetitions, in portions."""
    check_recipe(recipe)
    if recipe.hash != "splitmix":
        yield from iter_spelled(text, recipe)
        return
    kind = _in_arrays(recipe)
    pieces = iter_token_hashes(text, kind) if kind else iter_found_hashes(text, recipe)
    for window in iter_windows(pieces, recipe, lambda parts: np.concatenate([np.zeros(0, np.uint64), *parts])):
        yield mix(_shingle_window(window, recipe))


def _in_arrays(recipe: Recipe) -> TokenKind | None:
    """Return the kind of the tokens if whole arrays of them can be hashed, otherwise None."""
    if (
        isinstance(recipe.tokens, str)
        and recipe.tokens != "jieba"
        and recipe.normalise == DEFAULT_RECIPE.normalise
    ):
        return recipe.tokens
    return None


def _shingle_window(window: Window[U64], recipe: Recipe) -> U64:
    """Return the shingles that begin with the tokens of a window."""
    if window.is_all:
        return _shingle(window.tokens, recipe, cyclic=recipe.cyclic)
    found = _shingle_some(np.concatenate([window.tokens, window.following]), recipe)
    # Shingles that begin behind the window come last.
    return found[: len(found) - len(_shingle_some(window.following, recipe))]


def _shingle_some(tokens: U64, recipe: Recipe) -> U64:
    """Return the shingles of some tokens of a longer text, or none if there are too few tokens."""
    return _shingle(tokens, recipe) if len(tokens) >= recipe.shingles[0] else tokens[:0]


def _shingle(tokens: U64, recipe: Recipe, *, cyclic: bool = False) -> U64:
    marked = _find_stop_words(tokens, recipe) if recipe.stop_words else None
    return shingle(tokens, np.array([len(tokens)]), recipe.shingles, cyclic=cyclic, marked=marked)[0]


def _find_stop_words(tokens: U64, recipe: Recipe) -> NDArray[np.bool_]:
    hashes = _hash_stop_words(recipe.stop_words, recipe.normalise)
    place = np.minimum(np.searchsorted(hashes, tokens), len(hashes) - 1)
    found: NDArray[np.bool_] = hashes[place] == tokens
    return found


@lru_cache(maxsize=16)
def _hash_stop_words(words: frozenset[str], steps: tuple[Step, ...]) -> U64:
    return np.sort(hash_as_tokens([normalise_by(word, steps) for word in sorted(words)]))
