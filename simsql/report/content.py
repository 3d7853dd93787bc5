"""What a report shows: plain data, no database."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from simsql.documents import SkipCount

Decision = Literal["representative", "kept", "dropped"]


class Closeness(NamedTuple):
    """How close two documents are."""

    distance: int
    """Distance of their fingerprints in bits, 0 to 64."""
    similarity: float | None
    """Similarity of their texts, 0.0 to 1.0; None if the texts were not compared."""


@dataclass(frozen=True, slots=True)
class ReportedMember:
    """A document of a cluster."""

    document: int
    """Number by which `RunReport.read_text` knows the document."""
    id: str
    place: str
    decision: Decision
    kept: int
    """Number of the document that is kept in its favour: its own if it is kept."""
    to_kept: Closeness
    to_representative: Closeness
    listed: str | None = None
    """How a drop list names it; None if no drop list may name it."""
    kind: str | None = None
    """The kind of drop: see `simsql.decide.kinds.Kind`; None if it is kept."""
    similarities: Sequence[float | None] = ()
    """Of a dropped document to those before it that the same one replaces; None where it must not replace them."""


@dataclass(frozen=True)
class RunReport:
    """The results of a run, and how it was made."""

    documents: int
    """Number of documents among which the run searched."""
    options: Mapping[str, str]
    """Facts about the run by name, as the page shows them: date, recipe, distance."""
    clusters: Iterable[Sequence[ReportedMember]]
    """The clusters, the largest first, the representative of each first. Read once."""
    read_text: Callable[[int], str | None]
    """Return the text of a document, or None if it cannot be read any more. Of a picture: its size and a data
    URI of a few kB, such as "4000x3000 data:image/jpeg;base64,..."."""
    drop_similarity: float | None = None
    """Least similarity of a dropped text to the one that is kept, 0.0 to 1.0; None if texts were not compared."""
    command: str = ""
    """The command line of the run, without secrets."""
    skipped: Mapping[str, SkipCount] = field(default_factory=dict)
    """Documents about which nothing was decided or that stay all the same, by what became of them."""
    line_end: str = "\n"
    """What ends a name in a drop list."""
    noun: Literal["document", "picture", "row"] = "document"
    """What a member is called."""

    @property
    def pictures(self) -> bool:
        """Whether members are pictures, and not texts."""
        return self.noun == "picture"
