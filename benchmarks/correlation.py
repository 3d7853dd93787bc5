"""Measure how much two texts with a given similarity agree in their votes: python -m benchmarks.correlation.

Each bit of a fingerprint is the sign of a sum of votes. The sums of two texts correlate by the cosine between the
weights of their features, which therefore decides how many bits differ (Charikar, STOC 2002). Prints, as Markdown,
the correlation below which 10% and 50% of the pairs lie, for each kind of edit and similarity.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.edited import KINDS, LENGTHS, read_sources
from benchmarks.figures import markdown_line
from simsql import Recipe
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.features import Features
from simsql.fingerprint.hashes import mix
from simsql.fingerprint.vote import _weigh

SIMILARITIES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RECIPES = ("words12-log-1", "characters3-log-1")
_QUANTILES = (0.1, 0.5)

Floats = NDArray[np.float64]


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


def main(
    pairs: Annotated[int, typer.Option(help="For each similarity, edit, length and script.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the edits.")] = 1,
) -> None:
    """Print the tables."""
    sources = read_sources(seed)
    for name in RECIPES:
        print(f"\n{name}\n\n{markdown_line(['edit', *map(str, SIMILARITIES)])}\n{'| --- ' * 8}|")
        for kind in KINDS:
            cells = []
            for similarity in SIMILARITIES:
                found = [
                    correlations(some.queries, some.rows, Recipe.from_id(name))
                    for source in sources.values()
                    for some in (source.pairs(kind, *length, similarity, pairs) for length in LENGTHS)
                    if some.rows
                ]
                cells.append(
                    " / ".join(f"{value:.3f}" for value in np.quantile(np.concatenate(found), _QUANTILES))
                )
            print(markdown_line([kind, *cells]), flush=True)


if __name__ == "__main__":
    typer.run(main)
