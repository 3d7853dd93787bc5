"""The features of texts by a recipe: in whole arrays where the recipe allows it, else spelled out."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.features import Features, distinct, shingle
from simsql.fingerprint.hashes import U64, mix
from simsql.fingerprint.recipe import DEFAULT, Recipe, Step, check_recipe
from simsql.fingerprint.spelled import extract_spelled, hash_as_tokens, hash_found_tokens
from simsql.fingerprint.spelled_words import normalise_by
from simsql.fingerprint.tokens import hash_tokens


def extract_features(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text, their hashes as they vote."""
    check_recipe(recipe)
    if recipe.hash != "splitmix":
        return extract_spelled(texts, recipe)
    if isinstance(recipe.tokens, str) and recipe.tokens != "jieba" and recipe.normalise == DEFAULT.normalise:
        tokens, documents = hash_tokens(texts, recipe.tokens)
    else:
        tokens, documents = hash_found_tokens(texts, recipe)
    marked = _find_stop_words(tokens, recipe) if recipe.stop_words else None
    features = distinct(*shingle(tokens, documents, recipe.shingles, cyclic=recipe.cyclic, marked=marked))
    return features._replace(hashes=mix(features.hashes))


def _find_stop_words(tokens: U64, recipe: Recipe) -> NDArray[np.bool_]:
    hashes = _hash_stop_words(recipe.stop_words, recipe.normalise)
    place = np.minimum(np.searchsorted(hashes, tokens), len(hashes) - 1)
    found: NDArray[np.bool_] = hashes[place] == tokens
    return found


@lru_cache(maxsize=16)
def _hash_stop_words(words: frozenset[str], steps: tuple[Step, ...]) -> U64:
    return np.sort(hash_as_tokens([normalise_by(word, steps) for word in sorted(words)]))
