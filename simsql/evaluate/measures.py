"""Measure rules on labelled pairs: precision, recall and F1 at every distance, with bootstrap intervals.

A rule finds a pair if its fingerprints are within a distance and, with a check, its texts are at least as similar
as a threshold. B. Efron, R. Tibshirani: An Introduction to the Bootstrap, 1993, percentile intervals.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError

NO_FINGERPRINT = 65
"""The distance of a pair if a text has no fingerprint: no rule finds it."""

_RESAMPLES = 1_000
_QUANTILES = 0.025, 0.975
_SEED = 1  # the same labels give the same intervals
_CELLS = 1 << 22  # numbers that are drawn at once


class LabelledPairs(NamedTuple):
    """Pairs of texts that somebody has judged; arrays of one length."""

    distance: NDArray[np.int64]
    """Bits in which the fingerprints differ, 0 to 64, or NO_FINGERPRINT."""
    similarity: NDArray[np.float64]
    """From 0.0 to 1.0."""
    alike: NDArray[np.bool_]
    """Whether the texts are near-duplicates."""
    weight: NDArray[np.float64]
    """The number of pairs of the collection that each pair stands for, above 0."""


class Estimate(NamedTuple):
    """A figure from 0.0 to 1.0 and its 95% interval; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


class RuleFigures(NamedTuple):
    """What a rule achieves on labelled pairs."""

    distance: int
    similarity: float | None
    """None for a rule without a check."""
    by_features: bool
    """Whether it compares texts by the features of the recipe."""
    found: int
    """The number of labelled pairs that it finds."""
    precision: Estimate
    """The share of near-duplicates among the pairs that it finds; not defined if it finds none."""
    recall: Estimate
    """The share of the near-duplicates that it finds."""
    f1: Estimate
    """The harmonic mean of the two."""


def evaluate_pairs(
    pairs: LabelledPairs, distances: Iterable[int], similarities: Iterable[float]
) -> list[RuleFigures]:
    """Return the figures of the rules for each distance, first all without a check, then all with each similarity.

    The pairs count by their weights. An interval holds the middle 95% of the figures of 1,000 samples of as many
    pairs, drawn with replacement. Nothing depends on the order of the pairs. Raises ValueError if no pair is a
    near-duplicate.
    """
    if not pairs.alike.any():
        raise UsageError("recall needs at least one pair that is a near-duplicate")
    rules = [(distance, least) for least in (None, *similarities) for distance in sorted(distances)]
    # No similarity is below 0.
    found = np.array([(pairs.distance <= bits) & (pairs.similarity >= (least or 0)) for bits, least in rules])
    found = found.reshape(len(rules), -1)
    # Pairs that no rule tells apart are drawn together, so that a resample is a few numbers.
    kinds, counts = np.unique(np.column_stack([found.T, pairs.alike, pairs.weight]), axis=0, return_counts=True)
    found, alike = kinds[:, :-2].T.astype(bool), kinds[:, -2].astype(bool)
    weight = kinds[:, -1] / kinds[:, -1].max(initial=1)  # sums of great weights would overflow
    exact = [values[:, 0] for values in _measure(counts[None, :], found, alike, weight)]
    drawn = [_measure(some, found, alike, weight) for some in _resample(counts)]
    resampled = [np.concatenate(parts, axis=1) for parts in zip(*drawn, strict=True)]
    number = found.astype(np.int64) @ counts
    return [
        RuleFigures(
            *(distance, least, False, int(number[rule])),
            *(_estimate(exact[i][rule], resampled[i][rule]) for i in range(3)),
        )
        for rule, (distance, least) in enumerate(rules)
    ]


def best_rule(figures: Iterable[RuleFigures]) -> RuleFigures | None:
    """Return the rule with the highest F1; of equal ones the lowest distance counts, then the highest similarity.

    The result is None if no rule finds a near-duplicate.
    """
    useful = [rule for rule in figures if rule.f1.value]
    return max(
        useful, key=lambda rule: (rule.f1.value or 0.0, -rule.distance, rule.similarity or 0.0), default=None
    )


def _resample(counts: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the number of pairs of each kind in each of the samples, some samples at a time."""
    chance = np.random.default_rng(_SEED)
    total = int(counts.sum())
    at_once = max(1, _CELLS // len(counts))
    for start in range(0, _RESAMPLES, at_once):
        yield chance.multinomial(total, counts / total, size=min(at_once, _RESAMPLES - start))


def _measure(
    counts: NDArray[np.int64], found: NDArray[np.bool_], alike: NDArray[np.bool_], weight: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Return precision, recall and F1, by rule and sample; NaN where one is not defined."""
    weighted = (counts * weight).T
    all_found = found @ weighted
    right = (found & alike) @ weighted
    wanted = alike @ weighted
    return _divide(right, all_found), _divide(right, wanted), _divide(2 * right, all_found + wanted)


def _divide(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    result = np.full(part.shape, np.nan)
    np.divide(part, whole, out=result, where=whole > 0)
    return result


def _estimate(value: np.float64, resampled: NDArray[np.float64]) -> Estimate:
    if np.isnan(value):
        return Estimate(None, None, None)
    # Samples without what the figure is a share of say nothing about it.
    # Interpolation may round beyond the ends.
    low, high = np.clip(np.quantile(resampled[~np.isnan(resampled)], _QUANTILES), 0, 1)
    return Estimate(float(value), float(low), float(high))
