"""What a job asks of the place where its documents and decisions are, in memory or in PostgreSQL."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simsql.decide.documents import I64, Documents, Flags
from simsql.decide.rules import Rules
from simsql.decide.verdicts import Verdicts
from simsql.dedup.candidates import Tokens
from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.columns import Columns, Origin
from simsql.documents import READ_TWICE, Skip, Stages
from simsql.documents.spool import TokenSpool
from simsql.fingerprint import Recipe


@dataclass(frozen=True)
class Loaded:
    """Counts of the documents of a run by outcome."""

    added: int
    changed: int
    """Documents that the store had with another text."""
    unchanged: int


class StoredDocument(NamedTuple):
    """A document of a cluster."""

    cluster: int
    id: int
    name: str
    place: str
    line: int | None
    """The line of a record; None for a whole file."""
    identity: str
    text_digest: str
    characters: int
    fingerprint: int
    """A bigint."""
    seen: bool
    """Whether this run has read it in its input. If so, `name` and `place` are from this run."""
    present: bool
    """Whether this run has read it, in its input or again at its place."""
    shared: bool
    """Whether other documents have this name, too."""
    misleading: bool
    """Whether the place is the name of another document."""
    mistakable: bool
    """Whether the name is the place of another document, which has another name."""
    kept: int
    """The id of the document that is kept in its favour: its own if it is kept."""
    representative: int
    """The id of the document that represents the cluster."""
    kept_similarity: float | None
    representative_similarity: float | None
    """None if no texts were compared."""

    @property
    def label(self) -> str:
        """The name or, if other documents have it, too, the place."""
        return self.place if self.shared else self.name

    @property
    def reference(self) -> Reference:
        """Where to find it."""
        return Reference(self.id, self.name, self.place, self.line, self.identity, self.text_digest)


class Rows(Protocol):
    """The documents that have a fingerprint, one per array position, by ascending id."""

    documents: Documents
    text_start: I64
    text_size: I64
    """Where the text is, as in `Columns`; -1 bytes for documents that this run has not read."""
    here: Flags
    """Whether the tokens of a document were computed in this run."""
    tokens: Tokens
    criterion: I64
    """A number for each document, which is higher for those that the rules prefer."""

    def order_by_name(self, positions: I64) -> I64:
        """Return positions in the order of the names of their documents."""

    def references(self, positions: I64) -> Iterable[Reference]:
        """Return where to find the documents at these positions, in their order."""


class Store(Protocol):
    """Takes documents in, tells what it has, takes the decisions, and lists the clusters."""

    rules: Rules
    """The rules of the decisions of this run."""
    recipe: Recipe
    holds_documents: bool
    """Whether earlier runs have stored documents."""

    def find_known(self, identities: NDArray[np.void], text_digests: NDArray[np.void], /) -> Flags:
        """Return which documents need not be fingerprinted again, given their digests."""

    def take(self, batches: Iterable[Columns], origins: Sequence[Origin], tokens: TokenSpool | None) -> None:
        """Take the documents of a run, in the order of reading.

        `origins` and `tokens`, if tokens are wanted, have what the batches refer to, and grow with them.
        """

    def merge(self, stages: Stages, skip: Callable[[Skip], None]) -> Loaded:
        """Add the documents of the run to those of earlier runs. Skip those that were read twice."""

    def find_unread(self, paths: Sequence[str]) -> Iterable[Reference]:
        """Return documents of earlier runs in these files and folders that this run has not read."""

    def forget(self, documents: Iterable[Reference]) -> None:
        """Remove documents of earlier runs."""

    def read_rows(self) -> Rows:
        """Return the documents to decide about."""

    def save(self, documents: Documents, verdicts: Verdicts) -> None:
        """Take the decisions."""

    def commit(self, stages: Stages) -> None:
        """Make the documents and decisions of the run last, where they do."""

    def count(self) -> int:
        """Return the number of documents."""

    def clusters(self) -> Iterator[list[StoredDocument]]:
        """Yield the documents of each cluster, the largest first."""

    def find_named(self, name: str) -> Sequence[int]:
        """Return the ids of the documents of this name or, if there are none, at this place."""

    def read_labels(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of documents by id or, of documents that share theirs, the places."""


def read_twice(place: str, first: str) -> Skip:
    """Return the skip of a document that was already read at the place `first`."""
    return Skip(place, READ_TWICE, f"the same document was already read at {first}")
