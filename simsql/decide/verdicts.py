"""Decide about documents: those with the same words are one node, and nodes are kept or dropped.

Decisions of earlier runs stay, as long as the text that is kept is there. No document that this run has read is
dropped in favour of one that is gone: such a document takes part in nothing new, it is neither kept in favour of
others nor dropped.

Protected documents are never dropped, as long as they are there. Several with the same words are all kept.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simsql.decide.documents import GONE, I64, NONE, PRESENT, Documents, Flags, Nodes, Similarities, States
from simsql.decide.earlier import stored_pairs
from simsql.decide.rules import Rules
from simsql.decide.stars import SimilarPairs, Stars, centrality, choose_stars, join_pairs


class Evidence(NamedTuple):
    """What a run has found out about documents and their nodes."""

    earlier: Stars
    """The decisions of earlier runs that still hold."""
    pairs: SimilarPairs
    """All pairs of similar nodes with a node that may be decided about."""
    states: States
    """Which documents are there."""


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
    present: Flags
    """Whether this run has read the document, or found it again."""
    gone: Flags
    """Whether this run has looked for the document and not found it. Then it is in no cluster."""


def decide(
    documents: Documents,
    nodes: Nodes,
    evidence: Evidence,
    rules: Rules,
    criterion: I64,
    order_by_name: Callable[[I64], I64],
    *,
    new_only: bool = False,
    to_archive: bool = False,
) -> Verdicts:
    """Decide about all documents.

    With `new_only`, the members of clusters are documents whose decision is new or has changed, those that are
    kept in their favour, and those that represent them. With `to_archive`, the earlier decisions are an archive,
    and a kept document that is similar to it is in the cluster of the most similar document there.

    A node is kept rather than others if it has a protected document, then if an earlier run has kept it, then by
    its `criterion`, which is higher for preferred documents, the sum of its similarities, the length of its text
    and its digest. Within a node, the length and the name of the document take the place of the last three:
    `order_by_name` sorts positions of documents. A similarity that the evidence does not tell is NaN.
    """
    itself = np.arange(len(documents.id))
    present, is_gone = evidence.states == PRESENT, evidence.states == GONE
    similarities = np.full((2, len(itself)), np.nan)
    if not nodes.total:
        none = np.zeros(len(itself), dtype=np.int64)
        return Verdicts(itself, itself, similarities[0], similarities[1], none, present, is_gone)
    node = nodes.of_document
    compared = node != NONE
    gone = nodes.gone(evidence.states)
    pairs = evidence.pairs.where(~gone[evidence.pairs.left] & ~gone[evidence.pairs.right])
    protected = nodes.protected(documents, evidence.states)
    # What was kept stays kept, and what is protected is kept like that.
    earlier = evidence.earlier._replace(kept=np.where(protected, np.arange(nodes.total), evidence.earlier.kept))
    is_kept = earlier.kept == np.arange(nodes.total)
    best = _best_documents(documents, nodes, criterion, evidence.states, order_by_name)
    central = centrality(nodes.total, pairs, rules.drop)
    # Equals stay in the order of their digests.
    order = np.lexsort([-documents.characters[best], -central, -criterion[best], ~is_kept, ~protected])
    stars = choose_stars(
        order, pairs, similarity=rules.similarity, drop=rules.drop, earlier=earlier, to_earlier=to_archive
    )
    dropped = compared & ~(documents.protected & (evidence.states != GONE))
    kept = np.where(dropped, best[stars.kept[node]], itself)
    representative = np.where(compared, best[stars.representative[node]], itself)
    if rules.checks_texts:
        known = join_pairs(pairs, stored_pairs(documents, nodes))
        for row, target in enumerate(stars):
            similarities[row, compared] = _look_up(nodes.total, known, target)[node[compared]]
    cluster = np.zeros(len(itself), dtype=np.int64)
    listed = compared & ~is_gone
    if new_only:
        new = np.flatnonzero(listed & (documents.fresh | (documents.id[kept] != documents.kept)))
        listed[:] = False
        listed[np.concatenate([new, kept[new], representative[new]])] = True
    cluster[listed] = _number_clusters(stars.representative[node[listed]], -documents.characters[best])
    return Verdicts(kept, representative, similarities[0], similarities[1], cluster, present, is_gone)


def _best_documents(
    documents: Documents, nodes: Nodes, criterion: I64, state: States, order_by_name: Callable[[I64], I64]
) -> I64:
    """Return the position of the document of each node that is kept rather than the others."""
    node = nodes.of_document
    members = np.flatnonzero(node != NONE)
    is_kept = ~documents.fresh & (documents.kept == documents.id)
    keys = [-documents.characters, -criterion, ~is_kept, ~documents.protected, state]
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
