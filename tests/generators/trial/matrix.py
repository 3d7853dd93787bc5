"""What searches must find: brute force in numpy, for thousands of queries at once. Shares nothing with simsql.

Fingerprints are arrays of int64, as rows hold them. Results are arrays of int64, one line for each match.
"""

import numpy as np
from numpy.typing import NDArray

Lines = NDArray[np.int64]


def distances(queries: Lines, fingerprints: Lines) -> NDArray[np.uint8]:
    """The distance of each query to each fingerprint."""
    columns = fingerprints.view(np.uint64)
    return np.array(
        [np.bitwise_count(columns ^ query) for query in queries.view(np.uint64)], dtype=np.uint8
    ).reshape(len(queries), len(fingerprints))


def matches(away: NDArray[np.uint8], fingerprints: Lines, within: int) -> Lines:
    """(number of the query, fingerprint, distance) of every match, nearest first."""
    query, place = np.nonzero(away <= within)
    found = np.column_stack([query, fingerprints[place], away[query, place]]).astype(np.int64)
    return found[np.lexsort((found[:, 1], found[:, 2], found[:, 0]))]


def pairs(fingerprints: Lines, within: int) -> Lines:
    """(a, b, distance) with a < b, sorted."""
    distinct = np.unique(fingerprints)
    values = distinct.view(np.uint64)
    found = [np.empty((0, 3), np.int64)]
    for place, value in enumerate(values[:-1]):
        away = np.bitwise_count(values[place + 1 :] ^ value)
        near = np.flatnonzero(away <= within)
        found.append(
            np.column_stack([np.full(len(near), distinct[place]), distinct[place + 1 + near], away[near]])
        )
    return sort(np.concatenate(found))


def clusters(fingerprints: Lines, near: Lines) -> Lines:
    """(smallest member, member), sorted, from the pairs: all that have a neighbour or stand on two rows."""
    distinct, copies = np.unique(fingerprints, return_counts=True)
    a, b = np.searchsorted(distinct, near[:, 0]), np.searchsorted(distinct, near[:, 1])
    smallest = np.arange(len(distinct))
    while True:
        before = smallest.copy()
        np.minimum.at(smallest, a, smallest[b])
        np.minimum.at(smallest, b, smallest[a])
        smallest = smallest[smallest]
        if np.array_equal(before, smallest):
            break
    grouped = copies > 1
    grouped[a] = grouped[b] = True
    return sort(np.column_stack([distinct[smallest[grouped]], distinct[grouped]]))


def sort(lines: Lines) -> Lines:
    """Lines in order, by their first column and then the others."""
    return lines[np.lexsort(lines.T[::-1])]
