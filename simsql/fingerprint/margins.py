"""How likely each bit of a fingerprint is to differ in a similar text.

The votes of a text and of a similar one are sums of the same random signs, weighted in two ways. With many
features each sum is normally distributed, and the two are as correlated as the vectors of weights: their
cosine. So a bit whose votes add up to m times the norm of the weights differs with the probability of the
normal distribution at -r m / sqrt(1 - r**2), for a correlation of r. Bits are independent given r.
"""

from collections.abc import Iterable
from math import erfc, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.documents import margins_of_parts
from simsql.fingerprint.recipe import Recipe


class Flips(NamedTuple):
    """The fingerprint of a text, and how likely its bits differ in a similar text."""

    fingerprint: int | None
    """None for a text without features."""
    probabilities: NDArray[np.float64]
    """The shape is (64,), from the least significant bit; the values are between 0 and 0.5."""


def flips_of_parts(parts: Iterable[tuple[str, int]], recipe: Recipe, similarity: float) -> Flips:
    """Return the flips of weighted texts, as `simhash_parts` takes them, in texts of a similarity from 0 to 1."""
    fingerprint, margins = margins_of_parts(parts, recipe)
    correlation = expected_correlation(similarity)
    scale = correlation / sqrt(2 * (1 - correlation**2))
    return Flips(fingerprint, np.array([erfc(scale * margin) / 2 for margin in margins.tolist()]))


def expected_correlation(similarity: float) -> float:
    """Return the correlation that nine in ten pairs of texts of this similarity exceed."""
    return min(0.999, 2 * similarity / (1 + similarity) + 0.2 * (1 - similarity) * similarity)
