"""The features of texts by a recipe: in whole arrays where the recipe allows it, else spelled out."""

from collections.abc import Sequence

from simsql.fingerprint.features import Features, distinct, shingle
from simsql.fingerprint.hashes import mix
from simsql.fingerprint.recipe import Recipe
from simsql.fingerprint.spelled import extract_spelled, hash_found_tokens
from simsql.fingerprint.tokens import hash_tokens


def extract_features(texts: Sequence[str], recipe: Recipe) -> Features:
    """Return the distinct features of each text, their hashes as they vote."""
    if recipe.hash != "splitmix":
        return extract_spelled(texts, recipe)
    if recipe.tokens == "words" or recipe.tokens == "characters":  # noqa: PLR1714 - so that mypy knows
        tokens, documents = hash_tokens(texts, recipe.tokens)
    else:
        tokens, documents = hash_found_tokens(texts, recipe)
    features = distinct(*shingle(tokens, documents, recipe.shingles))
    return features._replace(hashes=mix(features.hashes))
