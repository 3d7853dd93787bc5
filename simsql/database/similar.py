"""The query of a search for similar texts: what simsql.similar_candidates takes.

It is JSON, so that SQL, psql and other programs can pass it on. It holds the fingerprint of the text, the
likeliest prefixes of similar texts for each permutation of an index, and the planes of the weighted distance.
It names the recipe and the design, and PostgreSQL refuses it for another index.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

from simsql.arrays.checks import share
from simsql.database.bigint import to_bigint
from simsql.database.index_spec import names_of_recipe
from simsql.database.query import Text
from simsql.database.sources import Sources, text_parts
from simsql.errors import UsageError, warn_caller
from simsql.fingerprint import Recipe, flips_of_parts, similarities
from simsql.hamming import Design
from simsql.hamming.directed import DirectedProbes, direct

SIMILARITY = 0.6
# Without a recall, a search looks for this share, but reads no more prefixes than near does at a distance of 10 in
# four tables. A smaller share than the least is worth a warning.
_RECALL = 0.99
_LEAST_RECALL = 0.2
_USUAL_PROBES = 428
_MAX_PROBES = 5_000


class SimilarOptions(TypedDict, total=False):
    """The options of a search for similar texts."""

    similarity: float
    recall: float | None


class RecallWarning(UserWarning):
    """A search for similar texts is expected to find a smaller share of them than asked for."""


@dataclass(frozen=True, eq=False)
class SimilarQuery:
    """A search for the texts that are at least this similar to one."""

    fingerprint: int
    recipe: str
    design: Design
    probes: DirectedProbes

    @property
    def expected_recall(self) -> float:
        """The share of the rows exactly as similar as asked that the search is expected to find."""
        return self.probes.expected_recall

    @cached_property
    def json(self) -> str:
        """The query as PostgreSQL takes it."""
        flips = ("{" + ",".join(map(str, values.tolist())) + "}" for values in self.probes.flips)
        return json.dumps(
            {
                "simsql_query": 1,
                "recipe": self.recipe,
                "recipe_names": names_of_recipe(self.recipe),
                "design": [self.design.blocks, self.design.lead, self.design.inner_blocks],
                "recall": round(self.probes.expected_recall, 4),
                "fingerprint": to_bigint(self.fingerprint),
                "cost": self.probes.cost,
                "screen": self.probes.screen,
                "planes": [to_bigint(plane) for plane in self.probes.planes],
                "flips": list(flips),
            }
        )


def queries_for_text(
    text: Text,
    sources: Sources | None,
    recipe: Recipe,
    designs: Sequence[Design],
    column: str,
    *,
    similarity: float = SIMILARITY,
    recall: float | None = None,
) -> list[SimilarQuery]:
    """Return the query of a text, or of one for each source by name, for each design; none without features.

    `similarity`, `recall`, warnings and errors are those of `SearchIndex.similar`.
    """
    similarity = share("similarity", similarity)
    wanted = _RECALL if recall is None else share("recall", recall)
    if wanted == 1:
        raise UsageError("recall must be below 1: only near finds every fingerprint, within a distance")
    if recipe.of_pictures:
        raise UsageError(f"{column} holds fingerprints of pictures, which have no similar texts: use near")
    fingerprint, probabilities = flips_of_parts(text_parts(text, sources, column), recipe, similarity)
    if fingerprint is None:
        return []
    most = _USUAL_PROBES if recall is None else _MAX_PROBES
    probes = [direct(design, probabilities, wanted, most) for design in designs]
    # That of the index is one of these designs.
    expected = max(each.expected_recall for each in probes)
    if expected < (_LEAST_RECALL if recall is None else recall - 0.005):
        advice = "name a recall to read more" if recall is None else f"{_MAX_PROBES:,} prefixes are not enough"
        warn_caller(
            f"a search for texts of similarity {similarity:g} is expected to find {expected:.2f} of those that are"
            f" exactly as similar, not {wanted:g}: {advice}",
            RecallWarning,
        )
    return [SimilarQuery(fingerprint, recipe.id, *each) for each in zip(designs, probes, strict=True)]


def similar_texts(
    text: str, others: Sequence[str | None], recipe: Recipe, least: float
) -> list[tuple[int, float]]:
    """Return the positions of the texts at least this similar to a text, and the similarities, highest first."""
    values = similarities([text] * len(others), others, recipe).tolist()
    alike = [(place, value) for place, value in enumerate(values) if value is not None and value >= float(least)]
    return sorted(alike, key=lambda each: -each[1])
