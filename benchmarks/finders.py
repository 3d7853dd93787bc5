"""Ways to find the rows whose text is similar to a given one: those of simsql, with a server and in memory."""

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.similarities import Floats, similarities
from simsql import Recipe, simhash_many, similarity_many
from simsql.database import SearchIndex
from simsql.database.similar import RecallWarning, SimilarQuery, queries_for_text
from simsql.hamming import Design

DESIGN = Design()

Bools = NDArray[np.bool_]


class Found(NamedTuple):
    """Whether each query finds its row, and the expected share of rows at that similarity, NaN if unknown."""

    mask: Bools
    expected: Floats


class Finder(Protocol):
    """A way to find similar texts."""

    @property
    def name(self) -> str:
        """Its name in a table."""

    def finds(self, queries: Sequence[str], rows: Sequence[str], similarity: float, recipe: Recipe) -> Found:
        """Return, in memory, whether each query finds the row beside it in a large index of DESIGN."""

    def search(self, index: SearchIndex, text: str, similarity: float) -> Collection[int]:
        """Return the ids of the rows of the table that are found."""


@dataclass(frozen=True)
class Near:
    """All rows within a distance whose text is similar enough; `near_rows` compares words in any case."""

    distance: int

    @property
    def name(self) -> str:
        """Its name in a table."""
        return f"near {self.distance}"

    def finds(self, queries: Sequence[str], rows: Sequence[str], similarity: float, recipe: Recipe) -> Found:
        """Return whether the fingerprints differ in few enough bits, and the texts are similar enough."""
        near = np.bitwise_count(_differences(queries, rows, recipe)) <= self.distance
        return Found(near & (similarity_many(queries, rows).data >= similarity), np.full(len(rows), np.nan))

    def search(self, index: SearchIndex, text: str, similarity: float) -> Collection[int]:
        """Return the ids of all rows within the distance whose text is similar enough."""
        found = index.near_rows(text=text, distance=self.distance, similarity=similarity, text_column="body")
        return {match.row["id"] for match in found}


@dataclass(frozen=True)
class Similar:
    """Query-directed probes, then all rows whose text is similar enough."""

    recall: float | None = None

    @property
    def name(self) -> str:
        """Its name in a table."""
        return "similar" if self.recall is None else f"similar, recall {self.recall}"

    def finds(self, queries: Sequence[str], rows: Sequence[str], similarity: float, recipe: Recipe) -> Found:
        """Return whether the row has a prefix that the query probes, and is near enough and similar enough."""
        mask, expected = similarities(queries, rows, recipe) >= similarity, np.zeros(len(queries))
        differences = _differences(queries, rows, recipe).tolist()
        for place, (text, difference) in enumerate(zip(queries, differences, strict=True)):
            with warnings.catch_warnings(action="ignore", category=RecallWarning):
                made = queries_for_text(
                    text, None, recipe, [DESIGN], "body", similarity=similarity, recall=self.recall
                )
            mask[place] &= any(_matches(query, difference) for query in made)
            expected[place] = sum(query.expected_recall for query in made)
        return Found(mask, expected)

    def search(self, index: SearchIndex, text: str, similarity: float) -> Collection[int]:
        """Return the ids of the rows that are similar enough."""
        with warnings.catch_warnings(action="ignore", category=RecallWarning):
            found = index.similar(text, similarity, recall=self.recall, text_column="body")
        return {match.row["id"] for match in found}


FINDERS: tuple[Finder, ...] = (Near(7), Near(10), Near(12), Similar(), Similar(0.99))


def _differences(queries: Sequence[str], rows: Sequence[str], recipe: Recipe) -> NDArray[np.uint64]:
    one, other = (simhash_many(texts, recipe).data for texts in (queries, rows))
    return one ^ other


def _matches(query: SimilarQuery, difference: int) -> bool:
    """Return whether a search finds a fingerprint that differs in these bits: see sql/search.sql."""
    exact = min(DESIGN.blocks - DESIGN.lead, DESIGN.inner_blocks - 1 if DESIGN.inner_blocks else 64)
    costs = [(difference & plane).bit_count() for plane in query.probes.planes]
    screened = (difference & (query.probes.planes[2] | query.probes.planes[3])).bit_count()
    is_match = screened <= max(query.probes.screen, exact) and (
        sum(cost << plane for plane, cost in enumerate(costs)) <= query.probes.cost
        or difference.bit_count() <= exact
    )
    return is_match and any(
        (permutation.key(difference) >> 64 - permutation.prefix_bits) in flips
        for permutation, flips in zip(DESIGN.permutations, query.probes.flips, strict=True)
    )
