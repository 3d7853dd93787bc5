"""Rank the documents of a cluster: representative, distances and droppable documents."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsql.dedup.store import StoredDocument


class RankedDocument(NamedTuple):
    """A document of a cluster."""

    document: StoredDocument
    distance: int
    """Distance in bits from the representative's fingerprint."""
    droppable: bool
    """Whether a clean-up could drop it and keep the representative."""


def rank_members(documents: Sequence[StoredDocument], distance: int) -> list[RankedDocument]:
    """Return the documents of a cluster, the representative first, the others by distance from it.

    The representative has the smallest sum of distances to the others. Ties go to the longest text, then to the
    document that was read first. A document of an earlier run whose file is gone only represents a cluster of such
    documents.

    A document is droppable if this run has read it and it is within the distance of the representative. A chain of
    pairs may connect texts that have little in common.
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
    return file != "stdin" and (document.gone or not (is_path(document.place) or is_path(file)))


def is_path(name: str) -> bool:
    """Return whether a file or folder has this name, which may be too long for a path."""
    return os.path.exists(name)  # noqa: PTH110 - Path.exists raises for long names
