"""One cluster as it is reported: its representative, how far the others are from it, and which could go."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsql.dedup.store import StoredDocument


class RankedDocument(NamedTuple):
    """A document of a cluster."""

    document: StoredDocument
    distance: int
    """In bits, between its fingerprint and the representative's."""
    droppable: bool
    """Whether a clean-up could drop it, and keep the representative."""


def rank_members(documents: Sequence[StoredDocument], distance: int) -> list[RankedDocument]:
    """Return the documents of a cluster, the representative first and the others by distance from it.

    The representative is the document whose fingerprint has the smallest sum of distances to the others; of
    several, the one with the longest text, then the one that was read first. A document of an earlier run whose
    file is gone represents only others of its kind.

    Droppable are those that this run has read within the distance of the representative: through a chain of
    pairs a cluster may join texts that have little in common.
    """
    fingerprints = np.array([document.fingerprint for document in documents], dtype=np.int64).view(np.uint64)
    # The sum of distances bit by bit: as many of the others differ in a bit as have it the other way.
    bits = np.unpackbits(fingerprints.view(np.uint8).reshape(-1, 8), axis=1)
    ones = bits.sum(axis=0, dtype=np.int64)
    sums = np.where(bits, len(documents) - ones, ones).sum(axis=1).tolist()
    gone = [_is_gone(document) for document in documents]
    best = min(range(len(documents)), key=lambda i: (gone[i], sums[i], -documents[i].characters, documents[i].id))
    distances = np.bitwise_count(fingerprints ^ fingerprints[best]).tolist()
    others = sorted((distances[i], documents[i].id, i) for i in range(len(documents)) if i != best)
    return [
        RankedDocument(documents[best], 0, droppable=False),
        *(
            RankedDocument(documents[i], bits_away, documents[i].seen and not gone[best] and bits_away <= distance)
            for bits_away, _, i in others
        ),
    ]


def _is_gone(document: StoredDocument) -> bool:
    if document.seen:
        return False
    file = document.place.rpartition(":")[0] or document.place
    return file != "stdin" and not is_path(document.place) and not is_path(file)


def is_path(name: str) -> bool:
    """Whether there is a file or folder of this name; one that is too long for a path is none."""
    return os.path.exists(name)  # noqa: PTH110 - Path.exists raises for long names
