"""How likely each bit of a fingerprint is to differ in a similar text, and how similar the texts of a column are.

The votes of a text and of a similar one are sums of the same random signs, weighted in two ways. With many
features each sum is normally distributed, and the two are as correlated as the vectors of weights: their
cosine. So a bit whose votes add up to m times the norm of the weights differs with the probability of the
normal distribution at -r m / sqrt(1 - r**2), for a correlation of r. Bits are independent given r.
"""

from collections.abc import Iterable, Sequence
from math import erfc, sqrt

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.documents import margins_of_parts
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.jaccard import compare_texts, similarity_many
from simsql.fingerprint.recipe import Recipe


def flips_of_parts(
    parts: Iterable[tuple[str, int]], recipe: Recipe, similarity: float
) -> tuple[int | None, NDArray[np.float64]]:
    """Return the fingerprint of weighted texts, and how likely bits differ in texts of this similarity (0 to 1).

    The texts are as for `simhash_parts`; without features, they have no fingerprint. The probabilities have the
    shape (64,), from the least significant bit; they are between 0 and 0.5.
    """
    fingerprint, margins = margins_of_parts(parts, recipe)
    correlation = expected_correlation(similarity, recipe)
    scale = correlation / sqrt(2 * (1 - correlation**2))
    return fingerprint, np.array([erfc(scale * margin) / 2 for margin in margins.tolist()])


def expected_correlation(similarity: float, recipe: Recipe) -> float:
    """Return the correlation that nine in ten pairs of texts of this similarity exceed.

    Two sets of equal size with a Jaccard index of s have the cosine 2 s / (1 + s). If the features are compared,
    few pairs have less. Texts share more words than trigrams, since frequent words are in all their parts: for
    pairs in three scripts with scattered edits, and with parts appended, replaced, removed or moved, the measured
    cosine of words and pairs of words is higher by about s (1 - s) / 5.
    """
    common_words = 0.2 * (1 - similarity) * similarity
    by_trigrams = not compares_features(recipe) and recipe.shingles[0] == 1
    return min(0.999, 2 * similarity / (1 + similarity) + (common_words if by_trigrams else 0))


def compares_features(recipe: Recipe) -> bool:
    """Return whether the similarity of texts in a column of this recipe is that of its features.

    Those of characters suit titles and names, of which a trigram of words says little.
    """
    return recipe.tokens in ("characters", "trigrams")


def similarities(
    a: Sequence[str | None], b: Sequence[str | None], recipe: Recipe
) -> "np.ma.MaskedArray[tuple[int], np.dtype[np.float64]]":
    """Return the similarities of pairs of texts, as a column of this recipe compares them; with a None, masked.

    For characters and trigrams it is the Jaccard index of the sets of features, otherwise that of
    `similarity_many`. That of the recipe "pg_trgm" is the similarity of pg_trgm.
    """
    if not compares_features(recipe):
        return similarity_many(a, b, revision=recipe.revision)
    return compare_texts(a, b, lambda texts: extract_features(texts, recipe)[::2])
