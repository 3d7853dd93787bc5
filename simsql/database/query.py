"""What a search looks for: the arguments that searches in Python, in models and on the command line share.

A new one is a field here and a key of `QueryOptions` or `RowOptions`. What does not know it, mypy finds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypedDict

from simsql.arrays.checks import FINGERPRINT_BITS, share, whole_number
from simsql.database.bigint import Scope
from simsql.database.sources import Sources, join_texts
from simsql.errors import UsageError
from simsql.fingerprint import Recipe, Revision, sketch

Text: TypeAlias = str | Mapping[str, str | None]
"""A text, or one for each source of an index, by its name."""


class NotGiven(Enum):
    """The type of NOT_GIVEN, which differs from None, the fingerprint of a text without features."""

    NOT_GIVEN = "not given"


NOT_GIVEN = NotGiven.NOT_GIVEN


class QueryOptions(TypedDict, total=False):
    """The options of every search, beside a fingerprint and a distance: fields of `Query`."""

    text: Text | None
    recipe: Recipe | None
    scope: Scope | None


class RowOptions(QueryOptions, total=False):
    """The options of a search that returns rows: fields of `RowQuery`."""

    similarity: float | None


@dataclass(frozen=True, eq=False)
class Query:
    """What a search looks for.

    Raises UsageError unless there is either a fingerprint or a text, for a distance out of range, and for an
    option that needs a text without one; TypeError for a value of another type.
    """

    fingerprint: Any = NOT_GIVEN
    """A fingerprint in any of its forms, an expression, or None, which matches nothing."""
    distance: int | None = None
    """Between 0 and 64 times the number of words; None stands for that of the index."""
    text: Text | None = None
    """Instead of the fingerprint."""
    recipe: Recipe | None = None
    """How the text becomes a fingerprint, if the id of the recipe of the index is not enough."""
    scope: Scope | None = None
    """A value for each scope column of the index."""
    words: int = 1
    """How many numbers a fingerprint has."""

    def __post_init__(self) -> None:
        if (self.text is None) == isinstance(self.fingerprint, NotGiven):
            both = "" if self.text is None else ", not both"
            raise UsageError(f"pass either a fingerprint or text={both}")
        if self.text is None and self.recipe is not None:
            raise UsageError("recipe= applies only to a text: omit it in a search for a fingerprint")
        if self.distance is not None:
            distance = whole_number("distance", self.distance, 0, FINGERPRINT_BITS * self.words)
            object.__setattr__(self, "distance", distance)


@dataclass(frozen=True, eq=False)
class RowQuery(Query):
    """What a search for rows looks for."""

    similarity: float | None = None
    """How similar the text of a row must be to `text`, from 0 to 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity is None:
            return
        share("similarity", self.similarity)
        if self.text is None:
            raise UsageError("similarity= compares texts, and there is no text: pass text=")

    def compared_text(self, *sources: str) -> str | None:
        """Return the text that those of rows in these sources, joined, are compared with."""
        return join_texts(map(self.text.get, sources)) if isinstance(self.text, Mapping) else self.text

    def sketch(self, source: str, revision: Revision) -> int | None:
        """Return the sketch of the compared text; None for a text without words."""
        text = self.compared_text(source)
        return None if text is None else sketch(text, revision=revision)


def compared_source(
    sources: Sources | None, column: object, advice: str = "filter by the similarity of a sketch column"
) -> Sources:
    """Return the sources of a column, whose text is compared; UsageError unless there is exactly one."""
    if sources is None or len(sources.names) > 1:
        has = "no source" if sources is None else "several sources"
        raise UsageError(
            f"{column} has {has}, so there is no single text whose similarity could be asked for: {advice}"
        )
    return sources
