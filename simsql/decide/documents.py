"""Documents as decisions see them: arrays, in which those with the same words are one node."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Similarities = NDArray[np.float64]
States = NDArray[np.int8]

NONE = -1
"""The node of documents that are not compared, and the target of nodes without an earlier decision."""

PRESENT, UNKNOWN, GONE = range(3)
"""The state of a document: it was read or found again, nobody has looked, or it is not there."""


class Documents(NamedTuple):
    """The documents with a fingerprint, one per array position, by ascending id."""

    id: I64
    fingerprint: U64
    sketch: U64
    """Of their words: documents with the same words have the same. 0 for documents without words."""
    words: U64
    """The digests of their words: two numbers per document, in an array of shape (documents, 2)."""
    compared: Flags
    """Whether the words are known, and there are any. The others are in no cluster."""
    characters: I64
    seen: Flags
    """Whether this run has read the document."""
    protected: Flags
    """Whether the document is never dropped, and kept in favour of others."""
    kept: I64
    """The id of the document that an earlier run has kept in its favour: its own if it is kept."""
    representative: I64
    kept_similarity: Similarities
    """What the earlier run has stored; NaN for documents that are kept, or represent a cluster."""
    representative_similarity: Similarities
    fresh: Flags
    """Whether there is no earlier decision about this text."""

    @classmethod
    def without_decisions(
        cls,
        ids: I64,
        fingerprint: U64,
        sketch: U64,
        words: U64,
        compared: Flags,
        characters: I64,
        seen: Flags,
        protected: Flags | None = None,
    ) -> "Documents":
        """Return documents about which no earlier run has decided."""
        unknown, none = np.full(len(ids), np.nan), np.zeros(len(ids), dtype=bool)
        if protected is None:
            protected = none
        read = ids, fingerprint, sketch, words, compared, characters, seen, protected
        return cls(*read, ids, ids, unknown, unknown, ~none)


class Nodes(NamedTuple):
    """Groups of documents with the same words and fingerprint, in the order of their digests."""

    of_document: I64
    """The node of each document; -1 for documents that are not compared."""
    fingerprint: U64
    example: I64
    """The position of one document of each node."""

    @property
    def total(self) -> int:
        """The number of nodes."""
        return len(self.fingerprint)

    def of_documents(self, chosen: Flags) -> Flags:
        """Return the nodes with a chosen document."""
        found = np.zeros(self.total, dtype=bool)
        found[self.of_document[chosen & (self.of_document != NONE)]] = True
        return found

    def documents_of(self, chosen: Flags) -> Flags:
        """Return the documents of chosen nodes."""
        compared = self.of_document != NONE
        found = np.zeros(len(compared), dtype=bool)
        found[compared] = chosen[self.of_document[compared]]
        return found

    def protected(self, documents: Documents, states: States) -> Flags:
        """Return the nodes with a document that is never dropped and not gone."""
        return self.of_documents(documents.protected & (states != GONE))

    def gone(self, states: States) -> Flags:
        """Return the nodes whose documents are all gone."""
        return ~self.of_documents(states != GONE)


def group_nodes(documents: Documents, preferred: Flags, *, by_words: bool, scope: I64 | None = None) -> Nodes:
    """Group documents with the same words and fingerprint, or only the same fingerprint, within each scope.

    The example of a node is one of the `preferred` documents, if it has any.
    """
    compared = np.flatnonzero(documents.compared)
    keys: list[NDArray[Any]] = [documents.fingerprint[compared]]
    if scope is not None:
        keys.append(scope[compared])
    if by_words:
        keys += [documents.words[compared, 1], documents.words[compared, 0]]
    order = np.lexsort([~preferred[compared], *keys])
    starts = np.zeros(len(order), dtype=bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[order][1:] != key[order][:-1]
    of_document = np.full(len(documents.id), NONE)
    of_document[compared[order]] = np.cumsum(starts) - 1
    example = compared[order[starts]]
    return Nodes(of_document, documents.fingerprint[example], example)


def find_ids(ids: I64, wanted: I64) -> tuple[I64, Flags]:
    """Return the positions of ids among ascending ones, and whether they are there."""
    position = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return position, ids[position] == wanted
