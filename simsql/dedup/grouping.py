"""One cluster as it is reported: its representative, and how far the others are from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsql.dedup.store import StoredDocument


class RankedDocument(NamedTuple):
    """A document of a cluster and the distance in bits of its fingerprint from the representative's."""

    document: StoredDocument
    distance: int


def rank_members(documents: Sequence[StoredDocument]) -> list[RankedDocument]:
    """Return the documents of a cluster, the representative first and the others by distance from it.

    The representative is the document whose fingerprint has the smallest sum of distances to the others; of
    several, the one with the longest text, then the one that was read first.
    """
    fingerprints = np.array([document.fingerprint for document in documents], dtype=np.int64).view(np.uint64)
    # The sum of distances bit by bit: as many of the others differ in a bit as have it the other way.
    bits = np.unpackbits(fingerprints.view(np.uint8).reshape(-1, 8), axis=1)
    ones = bits.sum(axis=0, dtype=np.int64)
    sums = np.where(bits, len(documents) - ones, ones).sum(axis=1)
    best = min(
        range(len(documents)), key=lambda index: (sums[index], -documents[index].characters, documents[index].id)
    )
    distances = np.bitwise_count(fingerprints ^ fingerprints[best]).tolist()
    others = sorted((distances[i], documents[i].id, i) for i in range(len(documents)) if i != best)
    return [
        RankedDocument(documents[best], 0),
        *(RankedDocument(documents[i], distance) for distance, _, i in others),
    ]
