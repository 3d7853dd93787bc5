"""Measure how much two texts with a given similarity agree in their votes: python -m benchmarks.correlation.

Each bit of a fingerprint is the sign of a sum of votes. The sums of two texts correlate by the cosine between the
weights of their features, which therefore decides how many bits differ (Charikar, STOC 2002). Prints, as Markdown,
the correlation below which 10% and 50% of the pairs lie, for each kind of edit and similarity.
"""

from typing import Annotated

import numpy as np
import typer

from benchmarks.edited import KINDS, LENGTHS, read_sources
from benchmarks.figures import markdown_line
from benchmarks.similarities import correlations
from simsql import Recipe

SIMILARITIES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
RECIPES = ("words12-log-1", "characters3-log-1")
_QUANTILES = (0.1, 0.5)


def main(
    pairs: Annotated[int, typer.Option(help="For each similarity, edit, length and script.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the edits.")] = 1,
) -> None:
    """Print the tables."""
    for name in RECIPES:
        recipe = Recipe.from_id(name)
        sources = read_sources(seed, recipe)
        print(f"\n{name}\n\n{markdown_line(['edit', *map(str, SIMILARITIES)])}\n{'| --- ' * 8}|")
        for kind in KINDS:
            cells = []
            for similarity in SIMILARITIES:
                found = [
                    correlations(some.queries, some.rows, recipe)
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
