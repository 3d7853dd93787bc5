"""The sources of a fingerprint or sketch column of a model: from which texts it is computed, and how."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from simsql.errors import UsageError
from simsql.fingerprint import (
    Recipe,
    Revision,
    simhash,
    simhash_items_with_sketches,
    simhash_many,
    simhash_parts,
    sketch,
    sketch_many,
)

Extract: TypeAlias = Callable[[Any], str | None]
"""A function of the application that returns the text of the value of a source, such as HTML or JSON."""

TextColumns: TypeAlias = Mapping[str, Extract | None]
"""The columns whose texts are compared, joined in this order, with what makes texts of their values."""


def extract_name(extract: Extract) -> str:
    """Return the name by which an index knows a function; UsageError unless other processes can import it."""
    module, name = getattr(extract, "__module__", None), getattr(extract, "__qualname__", "")
    if not callable(extract) or module in (None, "__main__") or not name.isidentifier():
        raise UsageError(
            f"extract must be a function of a module that every process can import, not {extract!r}: define it"
            " with def at the top of a module"
        )
    return f"{module}.{name}"


def add_extract(recipe_id: str, extract: Extract | None) -> str:
    """Return what an index calls the recipe of texts that a function makes of the sources."""
    return recipe_id if extract is None else f"{recipe_id} of {extract_name(extract)}"


def text_of(value: Any, extract: Extract | None) -> Any:
    """Return the text of the value of a source, or None; TypeError if the function returns anything else."""
    if extract is None or value is None:
        return value
    text = extract(value)
    if not isinstance(text, str | None):
        raise TypeError(f"{extract_name(extract)} must return a str or None, not {type(text).__name__}")
    return text


def join_texts(texts: Iterable[str | None]) -> str | None:
    """Return texts as one, each on lines of its own, without empty ones; None if all are null."""
    present = [text for text in texts if text is not None]
    return "\n".join(filter(None, present)) if present else None


@dataclass(frozen=True)
class Sources:
    """The source attributes of a column with their weights, and the recipe of its fingerprints.

    Sketches have no recipe, only a revision. `extract` returns the text of the value of a source.
    """

    weights: tuple[tuple[str, int], ...]
    recipe: Recipe | None
    extract: Extract | None = None
    revision: Revision = 1

    @classmethod
    def of(
        cls,
        source: str | Mapping[str, int],
        recipe: Recipe | None,
        extract: Extract | None = None,
        revision: Revision = 1,
    ) -> Self:
        """Return the sources from one name, or from names with weights; ValueError for a weight out of range."""
        weights = {source: 1} if isinstance(source, str) else dict(source)
        if not weights:
            raise UsageError("source must name at least one attribute: name one, or omit source")
        simhash_parts([("", weight) for weight in weights.values()])
        if extract is not None:
            extract_name(extract)
        return cls(tuple(weights.items()), recipe, extract, recipe.revision if recipe else revision)

    @property
    def recipe_id(self) -> str | None:
        """What an index calls the recipe: its id and, if there is one, the function that makes the texts."""
        return None if self.recipe is None else add_extract(self.recipe.id, self.extract)

    @property
    def names(self) -> tuple[str, ...]:
        """The source attributes."""
        return tuple(name for name, _ in self.weights)

    def compute(self, texts: Mapping[str, object], where: str) -> int | None:
        """Return the value for these texts; `where` begins the message of the TypeError for another type."""
        parts = []
        for name, weight in self.weights:
            text = text_of(texts[name], self.extract)
            if isinstance(text, str):
                parts.append((text, weight))
            elif text is not None:
                raise TypeError(f"{where}: the source {name!r} must be str, not {type(text).__name__}")
        if self.recipe is None:
            return sketch(parts[0][0], revision=self.revision) if parts else None
        return simhash_parts(parts, self.recipe)


def compute_many(
    values: Iterable[str], sources: Sources, other: Sources | None = None
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the value of each text, and that for a column of the other kind: each text is split once."""
    texts = (text_of(value, sources.extract) or "" for value in values)
    if other is None:
        revision = sources.revision
        found = simhash_many(texts, sources.recipe) if sources.recipe else sketch_many(texts, revision=revision)
        yield from ((value, None) for value in found.tolist())
        return
    recipe = sources.recipe or other.recipe
    assert recipe is not None  # noqa: S101 - one of the two has one
    for _, fingerprints, sketches in simhash_items_with_sketches(((None, text) for text in texts), recipe):
        both = fingerprints.tolist(), sketches.tolist()
        yield from zip(*(both[::-1] if sources.recipe is None else both), strict=True)


def fingerprint_text(
    text: str | Mapping[str, str | None], sources: Sources | None, recipe: Recipe, column: str
) -> int | None:
    """Return the fingerprint of a text, or one for each source by name, to search for it in a column."""
    if not isinstance(text, Mapping) and (sources is None or len(sources.weights) == 1):
        return simhash(text, recipe)
    return simhash_parts(text_parts(text, sources, column), recipe)


def text_parts(
    text: str | Mapping[str, str | None], sources: Sources | None, column: str
) -> list[tuple[str, int]]:
    """Return a text, or one for each source by name, as weighted parts; UsageError if it does not fit them."""
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
