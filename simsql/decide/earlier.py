"""The decisions of earlier runs: which of them still hold."""

import numpy as np

from simsql.decide.documents import I64, NONE, Documents, Flags, Nodes, find_ids
from simsql.decide.stars import SimilarPairs, Stars, join_pairs


def earlier_stars(documents: Documents, nodes: Nodes, gone: Flags, protected: Flags) -> Stars:
    """Return the decisions of earlier runs about nodes that still hold; -1 for the others.

    A decision to drop a node that is `protected` since does not hold.
    """
    node = nodes.of_document
    itself = np.arange(nodes.total)
    old = ~documents.fresh & (node != NONE)
    is_kept = old & (documents.kept == documents.id)
    is_representative = is_kept & (documents.representative == documents.id)

    def decided(chosen: Flags, ids: I64, centres: Flags) -> I64:
        """Return the nodes of the documents with these ids, for nodes of chosen documents."""
        result = np.full(nodes.total, NONE)
        position, exists = find_ids(documents.id, ids)
        holds = np.flatnonzero(chosen & exists & centres[position])[::-1]
        result[node[holds]] = node[position[holds]]  # the last assignment counts: that of the smallest id
        result[node[centres]] = node[centres]
        # A missing document cannot be a centre, so no other one depends on it.
        depends = np.flatnonzero(result != NONE)
        result[depends[gone[result[depends]]]] = NONE
        return result

    kept = decided(old, documents.kept, is_kept)
    kept[protected & (kept != itself)] = NONE
    representative = decided(is_kept, documents.representative, is_representative)
    return Stars(kept, np.where(kept == itself, representative, NONE))


def decided_by(documents: Documents, chosen: Flags) -> Flags:
    """Return which documents are kept in favour of the chosen ones, or represent them."""
    found = np.zeros(len(documents.id), dtype=bool)
    for target in (documents.kept, documents.representative):
        position, exists = find_ids(documents.id, target[chosen & ~documents.fresh])
        found[position[exists]] = True
    return found


def stored_pairs(documents: Documents, nodes: Nodes) -> SimilarPairs:
    """Return the pairs whose similarity an earlier run has stored. Their texts are the same since."""
    found = []
    for ids, similarity in (
        (documents.kept, documents.kept_similarity),
        (documents.representative, documents.representative_similarity),
    ):
        position, exists = find_ids(documents.id, ids)
        stored = exists & ~documents.fresh & ~documents.fresh[position] & ~np.isnan(similarity)
        stored &= (nodes.of_document != NONE) & (nodes.of_document[position] != NONE)
        left, right = nodes.of_document[stored], nodes.of_document[position[stored]]
        found.append(SimilarPairs(left, right, similarity[stored]))
    return join_pairs(*found)
