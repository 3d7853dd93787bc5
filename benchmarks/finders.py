"""Ways to find the rows whose text is similar to a given one: those of simsql, with a server and in memory."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simsql import Recipe, simhash_many, similarity_many
from simsql.database import SearchIndex

Bools = NDArray[np.bool_]


class Finder(Protocol):
    """A way to find similar texts."""

    @property
    def name(self) -> str:
        """Its name in a table."""

    def finds(self, queries: Sequence[str], rows: Sequence[str], similarity: float, recipe: Recipe) -> Bools:
        """Return, in memory, whether each query finds the row beside it in an index of the default design."""

    def search(self, index: SearchIndex, text: str, similarity: float) -> Collection[int]:
        """Return the ids of the rows of the table that are found."""


@dataclass(frozen=True)
class Near:
    """All rows within a distance, whatever their text."""

    distance: int

    @property
    def name(self) -> str:
        """Its name in a table."""
        return f"near {self.distance}"

    def finds(self, queries: Sequence[str], rows: Sequence[str], similarity: float, recipe: Recipe) -> Bools:
        """Return whether the fingerprints differ in few enough bits, and the texts are similar enough."""
        one, other = (simhash_many(texts, recipe).data for texts in (queries, rows))
        near: Bools = np.bitwise_count(one ^ other) <= self.distance
        return near & (similarity_many(queries, rows).data >= similarity)

    def search(self, index: SearchIndex, text: str, similarity: float) -> Collection[int]:
        """Return the ids of all rows within the distance whose text is similar enough."""
        found = index.near_rows(text=text, distance=self.distance, similarity=similarity, text_column="body")
        return {match.row["id"] for match in found}


FINDERS: tuple[Finder, ...] = (Near(7), Near(10), Near(12))
