"""The sources of a fingerprint column: which texts it is computed from, and where a table has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

from sqlalchemy import ClauseElement, Column

from simsql.errors import UsageError
from simsql.fingerprint import Recipe, simhash_parts


@dataclass(frozen=True)
class Sources:
    """The source attributes of a fingerprint with their weights, and the recipe."""

    weights: tuple[tuple[str, int], ...]
    recipe: Recipe

    @classmethod
    def of(cls, source: str | Mapping[str, int], recipe: Recipe) -> Self:
        """Return the sources from one name, or from names with weights; ValueError for a weight out of range."""
        weights = {source: 1} if isinstance(source, str) else dict(source)
        if not weights:
            raise UsageError("source must name at least one attribute: name one, or omit source")
        simhash_parts([("", weight) for weight in weights.values()])
        return cls(tuple(weights.items()), recipe)

    def compute(self, texts: Mapping[str, object], where: str) -> int | None:
        """Return the fingerprint of these texts; None if one is an SQL expression, which PostgreSQL evaluates.

        `where` begins the message of the TypeError for a text of another type.
        """
        parts = []
        for name, weight in self.weights:
            text = texts[name]
            if isinstance(text, ClauseElement) or hasattr(text, "__clause_element__"):
                return None
            if isinstance(text, str):
                parts.append((text, weight))
            elif text is not None:
                raise TypeError(f"{where}: the source {name!r} must be str, not {type(text).__name__}")
        return simhash_parts(parts, self.recipe)


# The keys of source columns by the names of their attributes, for every mapped fingerprint column.
_source_keys: WeakKeyDictionary[Column[Any], Mapping[str, str]] = WeakKeyDictionary()


def name_sources(column: Column[Any], keys: Mapping[str, str]) -> None:
    """Remember the keys of the source columns of a mapped fingerprint column, by the names of the attributes."""
    _source_keys[column] = keys


def source_key(column: Column[Any], name: str) -> str:
    """Return the key of the column of a source of a fingerprint column, by the name of the source."""
    return _source_keys.get(column, {}).get(name, name)
