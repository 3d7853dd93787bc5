"""Group documents into clusters by their fingerprints."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.hamming import find_clusters


class Members(NamedTuple):
    """The documents of all clusters, one per array position: cluster by cluster, the largest first."""

    cluster: NDArray[np.int64]
    """Numbers of the clusters, from 1."""
    id: NDArray[np.int64]
    """Ids of the documents, ascending in each cluster."""


def group_documents(ids: NDArray[np.int64], fingerprints: NDArray[np.uint64], distance: int) -> Members:
    """Return the clusters of documents that chains of pairs within `distance` bits (0 to 64) connect.

    `ids` and `fingerprints` have a position for each document, and the ids are ascending. Documents that share a
    fingerprint are a pair. Clusters of one size are in the order of their first members.
    """
    values, position = np.unique(fingerprints, return_inverse=True)
    groups = np.arange(values.size)
    for cluster in find_clusters(values, distance):
        positions = np.searchsorted(values, cluster)
        groups[positions] = positions[0]
    group = groups[position]
    sizes = np.bincount(group, minlength=values.size)
    first = np.zeros(values.size, dtype=np.int64)
    first[group[::-1]] = ids[::-1]  # the last assignment counts: that of the smallest id
    shared = np.flatnonzero(sizes[group] > 1)
    group = group[shared]
    order = np.lexsort((ids[shared], first[group], -sizes[group]))
    group = group[order]
    starts = np.ones(group.size, dtype=np.int64)
    starts[1:] = group[1:] != group[:-1]
    return Members(np.cumsum(starts), ids[shared][order])
