"""Find out what decisions need: the pairs of similar documents, and which documents are there.

No document that a run has read is dropped in favour of one that it has not read: documents of earlier runs are
looked for, but only where that matters, because it means to read them.
"""

from collections.abc import Callable

import numpy as np

from simsql.decide.documents import I64, NONE, PRESENT, UNKNOWN, Documents, Flags, Nodes, States
from simsql.decide.earlier import decided_by, earlier_stars
from simsql.decide.stars import SimilarPairs, join_pairs
from simsql.decide.verdicts import Evidence
from simsql.dedup.comparing import Comparison

LookFor = Callable[[I64], States]
"""Returns the states of the documents at these positions, which the run has not read."""


def gather_evidence(comparison: Comparison, look_for: LookFor | None = None) -> Evidence:
    """Return the evidence about all documents. `look_for` may be None if the run has read all of them."""
    documents, nodes = comparison.documents, comparison.nodes
    seen = nodes.of_documents(documents.seen)
    presence = _Presence(documents, nodes, look_for)
    if not documents.seen.all():
        presence.ask(seen | nodes.of_documents(decided_by(documents, nodes.documents_of(seen))))
    none = np.zeros(0, dtype=np.int64)
    pairs = SimilarPairs(none, none, np.zeros(0))
    searched = np.zeros(nodes.total, dtype=bool)
    while True:
        gone = nodes.gone(presence.states)
        earlier = earlier_stars(documents, nodes, gone, nodes.protected(documents, presence.states))
        is_kept = earlier.kept == np.arange(nodes.total)
        new = (earlier.kept == NONE) | (is_kept & (earlier.representative == NONE))
        new &= ~gone & ~searched
        found = comparison.find_pairs(None if new.all() else new)
        if searched.any():
            pairs = join_pairs(pairs, found.where(~searched[found.left] & ~searched[found.right]))
        else:
            pairs = found
        if not documents.seen.all():
            searched |= new
            near = np.zeros(nodes.total, dtype=bool)
            near[pairs.right[seen[pairs.left]]] = True
            near[pairs.left[seen[pairs.right]]] = True
            presence.ask(near)
        # Those that were dropped in favour of nodes that are gone need pairs now.
        if (nodes.gone(presence.states) == gone).all():
            return Evidence(earlier, pairs, presence.states)


class _Presence:
    """Which documents are there, as far as somebody has asked."""

    def __init__(self, documents: Documents, nodes: Nodes, look_for: LookFor | None) -> None:
        self.states = np.full(len(documents.id), UNKNOWN, dtype=np.int8)
        self.states[documents.seen] = PRESENT
        self._asked = documents.seen.copy()
        self._was_kept = documents.kept == documents.id
        self._nodes = nodes
        self._look_for = look_for

    def ask(self, chosen: Flags) -> None:
        """Look for documents of these nodes: those that were kept and, if none is there, the others."""
        self._ask(self._nodes.documents_of(chosen) & self._was_kept)
        self._ask(self._nodes.documents_of(chosen & ~self._nodes.of_documents(self.states == PRESENT)))

    def _ask(self, chosen: Flags) -> None:
        asked = np.flatnonzero(chosen & ~self._asked)
        if asked.size:
            assert self._look_for  # noqa: S101 - as gather_evidence says
            self.states[asked] = self._look_for(asked)
            self._asked[asked] = True
