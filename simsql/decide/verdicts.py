"""Decide about the documents of a table: those with the same words are one node, and nodes are kept or dropped.

Decisions of earlier runs stay, as long as the text that is kept is there. No document that this run has read is
dropped in favour of one that it has not read: documents of earlier runs are looked for. One that is gone takes
part in nothing new: it is neither kept in favour of others nor dropped.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.decide.rules import Rules
from simsql.decide.stars import Decisions, SimilarPairs, centrality, decide

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Similarities = NDArray[np.float64]

States = NDArray[np.int8]

_NONE = -1

PRESENT, UNKNOWN, GONE = range(3)
"""The state of a document: it was read or found again, nobody has looked, or it is not there."""


class Documents(NamedTuple):
    """The documents with a fingerprint, one per array position, by ascending id."""

    id: I64
    fingerprint: U64
    words: U64
    """The digests of their words: two numbers per document, in an array of shape (documents, 2)."""
    compared: Flags
    """Whether the words are known, and there are any. The others are in no cluster."""
    characters: I64
    seen: Flags
    """Whether this run has read the document."""
    kept: I64
    """The id of the document that an earlier run has kept in its favour: its own if it is kept."""
    representative: I64
    kept_similarity: Similarities
    """What the earlier run has stored; NaN for documents that are kept, or represent a cluster."""
    representative_similarity: Similarities
    fresh: Flags
    """Whether there is no earlier decision about this text."""
    undecided: Flags
    """Whether an earlier run has not found it, as in `Verdicts`."""


class Verdicts(NamedTuple):
    """The decisions, one per document. The members of clusters are those with a cluster."""

    kept: I64
    """Position of the document that is kept in its favour: its own if it is kept."""
    representative: I64
    """Position of the document that represents its cluster."""
    kept_similarity: Similarities
    """NaN if no texts were compared."""
    representative_similarity: Similarities
    cluster: I64
    """Number of the cluster, from 1, the largest first; 0 for documents in none."""
    undecided: Flags
    """Whether the document is gone, so that a later run that finds it again decides anew."""
    present: Flags
    """Whether this run has read the document, or found it again."""


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
        found[self.of_document[chosen & (self.of_document != _NONE)]] = True
        return found


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
    of_document = np.full(len(documents.id), _NONE)
    of_document[compared[order]] = np.cumsum(starts) - 1
    example = compared[order[starts]]
    return Nodes(of_document, documents.fingerprint[example], example)


class Helpers(NamedTuple):
    """The answers that need the database or the texts."""

    find_pairs: Callable[[Nodes, Flags | None], SimilarPairs]
    """Return all pairs of similar nodes or, given flags, those with at least one flagged node."""
    compare: Callable[[I64, I64], Similarities]
    """Return the similarities of pairs of nodes."""
    look_for: Callable[[I64], States]
    """Return the states of the documents at these positions, which the run has not read."""
    order_by_name: Callable[[I64], I64]
    """Return these positions of documents in the order of their names."""


def decide_documents(
    documents: Documents, nodes: Nodes, helpers: Helpers, rules: Rules, criterion: I64
) -> Verdicts:
    """Decide about all documents.

    A node is kept rather than others if an earlier run has kept it, then by its `criterion`, which is higher for
    preferred documents, the sum of its similarities, the length of its text and its digest. Within a
    node, the name of the document takes the place of the last three.
    """
    itself = np.arange(len(documents.id))
    if not nodes.total:
        unknown = np.full(len(itself), np.nan)
        none = np.zeros(len(itself), dtype=np.int64)
        return Verdicts(itself, itself, unknown, unknown, none, none.astype(bool), documents.seen)
    node = nodes.of_document
    compared = node != _NONE
    presence = _Presence(documents, nodes, helpers.look_for)
    earlier, pairs = _find_pairs(documents, nodes, presence, helpers)
    gone = presence.gone_nodes()
    pairs = pairs.where(~gone[pairs.left] & ~gone[pairs.right])
    is_kept = earlier.kept == np.arange(nodes.total)

    best = _best_documents(documents, nodes, criterion, presence.state, helpers.order_by_name)
    central = centrality(nodes.total, pairs, rules.drop)
    # Equals stay in the order of their digests.
    order = np.lexsort([-documents.characters[best], -central, -criterion[best], ~is_kept])
    decisions = decide(order, pairs, similarity=rules.similarity, drop=rules.drop, earlier=earlier)
    kept = np.where(compared, best[decisions.kept[node]], itself)
    representative = np.where(compared, best[decisions.representative[node]], itself)
    similarities = np.full((2, len(itself)), np.nan)
    if rules.checks_texts:
        known = _join(pairs, _stored_pairs(documents, nodes))
        for row, target in enumerate(decisions):
            similarities[row, compared] = _look_up(nodes.total, known, target, helpers.compare)[node[compared]]
    cluster = np.zeros(len(itself), dtype=np.int64)
    cluster[compared] = _number_clusters(decisions.representative[node[compared]], -documents.characters[best])
    # If a text that is gone and was kept comes back, it may be similar to one that is kept since.
    undecided = compared & gone[node] & (decisions.kept[node] == node)
    present = presence.state == PRESENT
    return Verdicts(kept, representative, similarities[0], similarities[1], cluster, undecided, present)


def _find_pairs(
    documents: Documents, nodes: Nodes, presence: "_Presence", helpers: Helpers
) -> tuple[Decisions, SimilarPairs]:
    """Return the earlier decisions that still hold, and all pairs with a node that has none.

    Look for every document that could be kept in favour of one that this run has read.
    """
    seen = nodes.of_documents(documents.seen)
    related = seen[nodes.of_document] & (nodes.of_document != _NONE)
    presence.ask(seen | nodes.of_documents(_decided_by(documents, related)))
    none = np.zeros(0, dtype=np.int64)
    pairs = SimilarPairs(none, none, np.zeros(0))
    searched = np.zeros(nodes.total, dtype=bool)
    while True:
        gone = presence.gone_nodes()
        earlier = _earlier_decisions(documents, nodes, gone)
        is_kept = earlier.kept == np.arange(nodes.total)
        new = (earlier.kept == _NONE) | (is_kept & (earlier.representative == _NONE))
        new &= ~gone & ~searched
        found = helpers.find_pairs(nodes, None if new.all() else new)
        pairs = (
            _join(pairs, found.where(~searched[found.left] & ~searched[found.right])) if searched.any() else found
        )
        if documents.seen.all():
            return earlier, pairs
        searched |= new
        near = np.zeros(nodes.total, dtype=bool)
        near[pairs.right[seen[pairs.left]]] = True
        near[pairs.left[seen[pairs.right]]] = True
        presence.ask(near)
        # Those that were dropped in favour of nodes that are gone need pairs now.
        if (presence.gone_nodes() == gone).all():
            return earlier, pairs


class _Presence:
    """Which documents are there. To find out means to read them, so it is only asked where it matters."""

    def __init__(self, documents: Documents, nodes: Nodes, look_for: Callable[[I64], States]) -> None:
        self.state = np.where(documents.undecided, GONE, UNKNOWN).astype(np.int8)
        self.state[documents.seen] = PRESENT
        self._asked = documents.seen.copy()
        self._was_kept = documents.kept == documents.id
        self._nodes = nodes
        self._look_for = look_for

    def ask(self, chosen: Flags) -> None:
        """Look for documents of these nodes: those that were kept and, if none is there, the others."""
        node = self._nodes.of_document
        chosen = chosen[node] & (node != _NONE)
        self._ask(chosen & self._was_kept)
        self._ask(chosen & ~self._nodes.of_documents(self.state == PRESENT)[node])

    def _ask(self, chosen: Flags) -> None:
        asked = np.flatnonzero(chosen & ~self._asked)
        if asked.size:
            self.state[asked] = self._look_for(asked)
            self._asked[asked] = True

    def gone_nodes(self) -> Flags:
        """Return the nodes whose documents are all gone."""
        return ~self._nodes.of_documents(self.state != GONE)


def _decided_by(documents: Documents, chosen: Flags) -> Flags:
    """Return which documents are kept in favour of the chosen ones, or represent them."""
    found = np.zeros(len(documents.id), dtype=bool)
    for target in (documents.kept, documents.representative):
        position, exists = _find(documents.id, target[chosen & ~documents.fresh])
        found[position[exists]] = True
    return found


def _earlier_decisions(documents: Documents, nodes: Nodes, gone: Flags) -> Decisions:
    """Return the decisions of earlier runs about nodes that still hold; -1 for the others."""
    node = nodes.of_document
    itself = np.arange(nodes.total)
    old = ~documents.fresh & (node != _NONE)
    is_kept = old & (documents.kept == documents.id)
    is_representative = is_kept & (documents.representative == documents.id)

    def decided(chosen: Flags, ids: I64, centres: Flags) -> I64:
        """Return the nodes of the documents with these ids, for nodes of chosen documents."""
        result = np.full(nodes.total, _NONE)
        position, exists = _find(documents.id, ids)
        holds = np.flatnonzero(chosen & exists & centres[position])[::-1]
        result[node[holds]] = node[position[holds]]  # the last assignment counts: that of the smallest id
        result[node[centres]] = node[centres]
        # A missing document cannot be a centre, so no other one depends on it.
        depends = np.flatnonzero(result != _NONE)
        result[depends[gone[result[depends]]]] = _NONE
        return result

    kept = decided(old, documents.kept, is_kept)
    representative = decided(is_kept, documents.representative, is_representative)
    return Decisions(kept, np.where(kept == itself, representative, _NONE))


def _best_documents(
    documents: Documents, nodes: Nodes, criterion: I64, state: States, order_by_name: Callable[[I64], I64]
) -> I64:
    """Return the position of the document of each node that is kept rather than the others."""
    node = nodes.of_document
    members = np.flatnonzero(node != _NONE)
    is_kept = ~documents.fresh & (documents.kept == documents.id)
    keys = [-documents.characters, -criterion, ~is_kept, state]
    members = members[np.lexsort([key[members] for key in keys] + [node[members]])]
    first = members[np.searchsorted(node[members], np.arange(nodes.total))]
    ties = node[members] != _NONE
    for key in keys:
        ties &= key[members] == key[first[node[members]]]
    tied = members[ties]
    tied = tied[np.bincount(node[tied])[node[tied]] > 1]
    if tied.size:
        by_name = order_by_name(tied)[::-1]
        first[node[by_name]] = by_name  # the last assignment counts: that of the first name
    return first


def _stored_pairs(documents: Documents, nodes: Nodes) -> SimilarPairs:
    """Return the pairs whose similarity an earlier run has stored. Their texts are the same since."""
    found = []
    for ids, similarity in (
        (documents.kept, documents.kept_similarity),
        (documents.representative, documents.representative_similarity),
    ):
        position, exists = _find(documents.id, ids)
        stored = exists & ~documents.fresh & ~documents.fresh[position] & ~np.isnan(similarity)
        stored &= (nodes.of_document != _NONE) & (nodes.of_document[position] != _NONE)
        left, right = nodes.of_document[stored], nodes.of_document[position[stored]]
        found.append(SimilarPairs(left, right, similarity[stored]))
    return _join(*found)


def _look_up(
    total: int, pairs: SimilarPairs, target: I64, compare: Callable[[I64, I64], Similarities]
) -> Similarities:
    """Return the similarity of each of `total` nodes to its target."""
    left = np.concatenate([pairs.left, pairs.right])
    right = np.concatenate([pairs.right, pairs.left])
    wanted = target[left] == right
    found = np.full(total, np.nan)
    found[target == np.arange(total)] = 1.0
    found[left[wanted]] = np.tile(pairs.similarity, 2)[wanted]
    missing = np.flatnonzero(np.isnan(found))
    if missing.size:
        found[missing] = compare(missing, target[missing])
    return found


def _number_clusters(centre: I64, order: I64) -> I64:
    """Return the cluster of each document, given its representative node: from 1, or 0 if the document is alone.

    The largest clusters come first, those of one size in the order of their representatives, an ascending number
    for each node.
    """
    sizes = np.bincount(centre, minlength=len(order))
    by_size = np.lexsort([order, -sizes])
    number = np.empty(len(order), dtype=np.int64)
    number[by_size] = np.arange(1, len(order) + 1)
    return np.where(sizes[centre] > 1, number[centre], 0)


def _join(*pairs: SimilarPairs) -> SimilarPairs:
    return SimilarPairs(*map(np.concatenate, zip(*pairs, strict=True)))


def _find(ids: I64, wanted: I64) -> tuple[I64, Flags]:
    """Return the positions of ids among ascending ones, and whether they are there."""
    position = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return position, ids[position] == wanted
