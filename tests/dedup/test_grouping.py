"""Clusters of documents against loops over all pairs."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simsql.dedup.grouping import group_documents

# Fingerprints within a few bits of one another, so that they share values, form pairs and chain.
near = st.lists(st.integers(0, 2**12 - 1) | st.sampled_from([0, 2**64 - 1]), max_size=40)


def slow_groups(fingerprints, distance):
    groups = [{place} for place in range(len(fingerprints))]
    for a, b in itertools.combinations(range(len(fingerprints)), 2):
        if (fingerprints[a] ^ fingerprints[b]).bit_count() <= distance:
            first, second = (next(group for group in groups if place in group) for place in (a, b))
            if first is not second:
                first |= second
                groups.remove(second)
    return [sorted(group) for group in groups if len(group) > 1]


@given(near, st.integers(0, 5), st.integers(1, 50))
def test_groups_are_those_of_all_pairs(fingerprints, distance, step):
    ids = np.arange(7, 7 + step * len(fingerprints), step, dtype=np.int64)
    found = group_documents(ids, np.array(fingerprints, dtype=np.uint64), distance)
    expected = [[int(ids[place]) for place in group] for group in slow_groups(fingerprints, distance)]
    expected.sort(key=lambda group: (-len(group), group[0]))
    numbered = [(number, member) for number, group in enumerate(expected, 1) for member in group]
    assert list(zip(found.cluster.tolist(), found.id.tolist(), strict=True)) == numbered


def test_no_documents():
    found = group_documents(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64), 3)
    assert found.cluster.size == found.id.size == 0
