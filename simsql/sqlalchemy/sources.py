"""The sources of a fingerprint or sketch column: which texts it is computed from, and where a table has them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

from sqlalchemy import ClauseElement, Column

from simsql.errors import UsageError
from simsql.fingerprint import (
    Recipe,
    simhash_items_with_tokens,
    simhash_many,
    simhash_parts,
    sketch,
    sketch_many,
)


@dataclass(frozen=True)
class Sources:
    """The source attributes of a column with their weights, and the recipe of its fingerprints.

    Sketches have no recipe.
    """

    weights: tuple[tuple[str, int], ...]
    recipe: Recipe | None

    @classmethod
    def of(cls, source: str | Mapping[str, int], recipe: Recipe | None) -> Self:
        """Return the sources from one name, or from names with weights; ValueError for a weight out of range."""
        weights = {source: 1} if isinstance(source, str) else dict(source)
        if not weights:
            raise UsageError("source must name at least one attribute: name one, or omit source")
        simhash_parts([("", weight) for weight in weights.values()])
        return cls(tuple(weights.items()), recipe)

    @property
    def names(self) -> tuple[str, ...]:
        """The source attributes."""
        return tuple(name for name, _ in self.weights)

    def find_other(self, columns: Iterable[Column[Any]]) -> "tuple[Column[Any] | None, Sources | None]":
        """Return the first column of the other kind, sketches or fingerprints, with the same single source."""
        for column in columns:
            other = getattr(column.type, "sources", None)
            if not isinstance(other, Sources) or other.names != self.names or len(self.names) > 1:
                continue
            if (other.recipe is None) != (self.recipe is None):
                return column, other
        return None, None

    def compute(self, texts: Mapping[str, object], where: str) -> int | None:
        """Return the value for these texts; None if one is an SQL expression, which PostgreSQL evaluates.

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
        if self.recipe is None:
            return sketch(parts[0][0]) if parts else None
        return simhash_parts(parts, self.recipe)


def compute_many(
    texts: Iterable[str], sources: Sources, other: Sources | None
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the value of each text, and that for a column of the other kind; None without such a column.

    Each text is split into words once.
    """
    if other is None:
        found = sketch_many(texts) if sources.recipe is None else simhash_many(texts, sources.recipe)
        yield from ((value, None) for value in found.tolist())
        return
    recipe = sources.recipe or other.recipe
    assert recipe is not None  # noqa: S101 - one of the two has one
    for _, fingerprints, _, sketches in simhash_items_with_tokens(((None, text) for text in texts), recipe):
        both = fingerprints.tolist(), sketches.tolist()
        yield from zip(*(both[::-1] if sources.recipe is None else both), strict=True)


def is_sketch(column: Column[Any]) -> bool:
    """Return whether a column is one of sketches with a source."""
    sources = getattr(column.type, "sources", None)
    return isinstance(sources, Sources) and sources.recipe is None


# The keys of source columns by the names of their attributes, for every mapped fingerprint column.
_source_keys: WeakKeyDictionary[Column[Any], Mapping[str, str]] = WeakKeyDictionary()


def name_sources(column: Column[Any], keys: Mapping[str, str]) -> None:
    """Remember the keys of the source columns of a mapped fingerprint column, by the names of the attributes."""
    _source_keys[column] = keys


def source_key(column: Column[Any], name: str) -> str:
    """Return the key of the column of a source of a fingerprint column, by the name of the source."""
    return _source_keys.get(column, {}).get(name, name)
