"""Documents as decisions see them: arrays, in which those with the same words are one node."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Similarities = NDArray[np.float64]

NONE = -1
"""The node of documents that are not compared."""


class Documents(NamedTuple):
    """Documents, one per array position."""

    fingerprint: U64
    words: U64
    """The digests of their words: two numbers per document, in an array of shape (documents, 2)."""
    compared: Flags
    """Whether there is a fingerprint and, if texts are compared, a word. The others are in no cluster."""
    characters: I64
    protected: Flags
    """Whether the document is never dropped, and kept in favour of others."""
    digests: I64
    """A row of `simsql.decide.kinds.digests_of` for each document."""


class Nodes(NamedTuple):
    """Groups of documents with the same words, fingerprint and guard, in the order of their digests."""

    of_document: I64
    """The node of each document; -1 for documents that are not compared."""
    fingerprint: U64
    example: I64
    """The position of the first document of each node."""
    guard: I64
    """The digest of what is protected: only nodes with the same one are dropped in favour of each other."""

    @property
    def total(self) -> int:
        """The number of nodes."""
        return len(self.fingerprint)

    def of_documents(self, chosen: Flags) -> Flags:
        """Return the nodes with a chosen document."""
        found = np.zeros(self.total, dtype=bool)
        found[self.of_document[chosen & (self.of_document != NONE)]] = True
        return found


def group_nodes(documents: Documents, *, by_words: bool, scope: I64 | None = None) -> Nodes:
    """Group documents with the same fingerprint and protected content and, if `by_words`, words in each scope."""
    compared = np.flatnonzero(documents.compared)
    keys: list[NDArray[Any]] = [documents.fingerprint[compared], documents.digests[compared, 2]]
    if scope is not None:
        keys.append(scope[compared])
    if by_words:
        keys += [documents.words[compared, 1], documents.words[compared, 0]]
    order = np.lexsort(keys)
    starts = np.zeros(len(order), dtype=bool)
    starts[:1] = True
    for key in keys:
        starts[1:] |= key[order][1:] != key[order][:-1]
    of_document = np.full(len(documents.fingerprint), NONE)
    of_document[compared[order]] = np.cumsum(starts) - 1
    example = compared[order[starts]]
    return Nodes(of_document, documents.fingerprint[example], example, documents.digests[example, 2])
