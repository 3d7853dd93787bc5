"""Decide about documents: those with the same words are one node, and nodes are kept or dropped.

Protected documents are never dropped. Several with the same words are all kept.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simsql.decide.documents import I64, NONE, Documents, Flags, Nodes, Similarities
from simsql.decide.kinds import kinds_of
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs, centrality, choose_stars


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
    kind: NDArray[np.object_]
    """The kind of drop; None for documents that are kept."""


class Crowds(Protocol):
    """Nodes that have too many neighbours to list."""

    @property
    def similar(self) -> Similarities:
        """An estimate of the sum of the similarities of each node to those that are not in the listed pairs."""

    def find_pairs(
        self, order: I64, pairs: SimilarPairs, drop: float, protected: Flags, guard: I64
    ) -> Iterator[SimilarPairs]:
        """Yield the other pairs that matter, given the `order` and the limits of `choose_stars`."""


def decide(
    documents: Documents,
    nodes: Nodes,
    pairs: SimilarPairs,
    crowds: Crowds | None,
    rules: Rules,
    criterion: I64,
    order_by_name: Callable[[I64], I64],
) -> Verdicts:
    """Decide about all documents, given the similar pairs of nodes.

    If the protected documents are an archive, `pairs` need not have the pairs inside it. A kept document that is
    similar to the archive is in the cluster of the most similar document there. The members of clusters are the
    other documents, those that are kept in their favour, and those that represent them.

    A node is kept rather than others if it has a protected document, then by its `criterion`, which is higher for
    preferred documents, the sum of its similarities, the length of its text and its digest. Within a node, the
    length and the name of the document take the place of the last three: `order_by_name` sorts positions of
    documents. A similarity that the pairs do not tell is NaN.
    """
    itself = np.arange(len(documents.characters))
    similarities = np.full((2, len(itself)), np.nan)
    cluster = np.zeros(len(itself), dtype=np.int64)
    if not nodes.total:
        return Verdicts(itself, itself, similarities[0], similarities[1], cluster, np.full(len(itself), None))
    node = nodes.of_document
    compared = node != NONE
    protected = nodes.of_documents(documents.protected)
    best = _best_documents(documents, nodes, criterion, order_by_name)
    droppable = pairs.droppable(rules.drop, nodes.guard)
    central = centrality(nodes.total, droppable, rules.drop, crowds.similar if crowds else None)
    # Equals stay in the order of their digests.
    order = np.lexsort([-documents.characters[best], -central, -criterion[best], ~protected])
    if crowds:
        found = [pairs, *crowds.find_pairs(order, pairs, rules.drop, protected, nodes.guard)]
        pairs = SimilarPairs(*map(np.concatenate, zip(*found, strict=True)))
    stars = choose_stars(
        order,
        pairs,
        similarity=rules.similarity,
        drop=rules.drop,
        guard=nodes.guard,
        protected=protected,
        to_archive=rules.to_archive,
    )
    kept = np.where(compared & ~documents.protected, best[stars.kept[node]], itself)
    representative = np.where(compared, best[stars.representative[node]], itself)
    if rules.checks_texts:
        for row, target in enumerate(stars):
            similarities[row, compared] = _look_up(nodes.total, pairs, target)[node[compared]]
    listed = compared.copy()
    if rules.to_archive:
        new = np.flatnonzero(listed & ~documents.protected)
        listed[:] = False
        listed[np.concatenate([new, kept[new], representative[new]])] = True
    cluster[listed] = _number_clusters(stars.representative[node[listed]], -documents.characters[best])
    kind = kinds_of(documents.digests, kept, (node == node[kept]) & rules.checks_texts)
    return Verdicts(kept, representative, similarities[0], similarities[1], cluster, kind)


def _best_documents(
    documents: Documents, nodes: Nodes, criterion: I64, order_by_name: Callable[[I64], I64]
) -> I64:
    """Return the position of the document of each node that is kept rather than the others."""
    node = nodes.of_document
    members = np.flatnonzero(node != NONE)
    keys = [-documents.characters, -criterion, ~documents.protected]
    members = members[np.lexsort([key[members] for key in keys] + [node[members]])]
    first = members[np.searchsorted(node[members], np.arange(nodes.total))]
    ties = node[members] != NONE
    for key in keys:
        ties &= key[members] == key[first[node[members]]]
    tied = members[ties]
    tied = tied[np.bincount(node[tied])[node[tied]] > 1]
    if tied.size:
        by_name = order_by_name(tied)[::-1]
        first[node[by_name]] = by_name  # the last assignment counts: that of the first name
    return first


def _look_up(total: int, pairs: SimilarPairs, target: I64) -> Similarities:
    """Return the similarity of each of `total` nodes to its target; NaN if no pair tells it."""
    left = np.concatenate([pairs.left, pairs.right])
    wanted = target[left] == np.concatenate([pairs.right, pairs.left])
    found = np.full(total, np.nan)
    found[target == np.arange(total)] = 1.0
    found[left[wanted]] = np.tile(pairs.similarity, 2)[wanted]
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
