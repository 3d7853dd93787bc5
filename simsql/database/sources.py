"""The sources of a fingerprint or sketch column of a model: from which texts it is computed, and how."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from simsql.errors import UsageError
from simsql.fingerprint import (
    Recipe,
    simhash,
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

    def compute(self, texts: Mapping[str, object], where: str) -> int | None:
        """Return the value for these texts; `where` begins the message of the TypeError for another type."""
        parts = []
        for name, weight in self.weights:
            text = texts[name]
            if isinstance(text, str):
                parts.append((text, weight))
            elif text is not None:
                raise TypeError(f"{where}: the source {name!r} must be str, not {type(text).__name__}")
        if self.recipe is None:
            return sketch(parts[0][0]) if parts else None
        return simhash_parts(parts, self.recipe)


def compute_many(
    texts: Iterable[str], sources: Sources, other: Sources | None = None
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


def fingerprint_text(
    text: str | Mapping[str, str | None], sources: Sources | None, recipe: Recipe, column: str
) -> int | None:
    """Return the fingerprint of a text, or one for each source by name, to search for it in a column.

    Raises UsageError for a text that does not fit the sources.
    """
    if not isinstance(text, Mapping) and (sources is None or len(sources.weights) == 1):
        return simhash(text, recipe)
    return simhash_parts(text_parts(text, sources, column), recipe)


def text_parts(
    text: str | Mapping[str, str | None], sources: Sources | None, column: str
) -> list[tuple[str, int]]:
    """Return a text, or one for each source by name, as weighted parts of a document.

    Raises UsageError for a text that does not fit the sources.
    """
    weights = dict(sources.weights) if sources is not None else {}
    if not isinstance(text, Mapping):
        if len(weights) > 1:
            raise UsageError(
                f"{column} has several sources, so a single text is not enough: pass a fingerprint or, in Python,"
                f" text={{{', '.join(f'{name!r}: ...' for name in weights)}}}"
            )
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        return [(text, 1)]
    if text.keys() != weights.keys():
        raise UsageError(
            f"text= names {', '.join(map(repr, text)) or 'no source'}, but the sources of {column} are"
            f" {', '.join(map(repr, weights))}: name each of them"
            if weights
            else f"{column} has no source: pass text= as one str"
        )
    return [(part, weights[name]) for name, part in text.items() if part is not None]
