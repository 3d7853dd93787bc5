"""Candidates by bands, and decisions about crowds, compared with plain Python."""

from itertools import combinations
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simsql.decide.stars import SimilarPairs, centrality, choose_stars
from simsql.dedup import bands, crowds
from simsql.dedup.bands import Buckets, Described
from simsql.dedup.crowds import Crowds
from simsql.fingerprint import BANDS

# A few keys in a few bands: many texts share some, and large buckets are crowds.
KEYS = st.lists(st.integers(0, 2), min_size=3, max_size=3)
TEXTS = st.lists(st.tuples(KEYS, st.integers(0, 7), st.booleans(), st.integers(0, 1)), min_size=1, max_size=24)


def describe(texts, *, scoped):
    total = len(texts)
    keys = np.arange(total * BANDS, dtype=np.uint32).reshape(total, BANDS) + 10
    keys[:, :3] = [keys for keys, *_ in texts]
    fingerprints = np.array([bits for _, bits, *_ in texts], dtype=np.uint64)
    scope = np.array([scope for *_, scope in texts]) if scoped else None
    return Described(fingerprints, fingerprints << np.uint64(40), keys.T, scope)


def meeting(texts, size, *, scoped):
    """Return the near pairs that are listed given crowds of more than `size` texts, and the others."""
    members = {}
    for text, (keys, *_) in enumerate(texts):
        for band, key in enumerate(keys):
            members.setdefault((band, key), []).append(text)
    rare, small, large = set(), set(), set()
    for bucket in members.values():
        (rare if len(bucket) <= 2 else small if len(bucket) <= size else large).update(combinations(bucket, 2))
    small = rare | (small - large)

    def near(pair):
        (_, one, _, scope), (_, other, _, other_scope) = (texts[text] for text in pair)
        bits = (one ^ other).bit_count()
        return bits <= 1 and 2 * bits <= 1 and (not scoped or scope == other_scope)

    return set(filter(near, small)), set(filter(near, large - small))


def listed(found):
    return sorted(
        (min(pair), max(pair))
        for left, right, *_ in found
        for pair in zip(left.tolist(), right.tolist(), strict=True)
    )


def open_buckets(texts, size, new=None, *, scoped=False):
    with (
        mock.patch.multiple(bands, LISTED=size, _RARE=2, _TOGETHER=5, _BEYOND=0),
        mock.patch.object(bands, "sketch_distance", return_value=1),
    ):
        buckets = Buckets(describe(texts, scoped=scoped), 0, 0.6, new)
        return buckets, list(buckets.pairs())


@given(TEXTS, st.integers(2, 30), st.booleans(), st.booleans())
def test_candidates_are_those_that_share_a_listed_bucket(texts, size, only_new, scoped):
    is_new = [new or not only_new for _, _, new, _ in texts]
    _, found = open_buckets(texts, size, np.array(is_new) if only_new else None, scoped=scoped)
    expected, _ = meeting(texts, size, scoped=scoped)
    assert listed(found) == sorted((a, b) for a, b in expected if is_new[a] or is_new[b])


def test_fewer_pairs_are_listed_if_there_are_too_many():
    texts = [([0, number // 2, number], 0, True, 0) for number in range(24)]
    _, found = open_buckets(texts, 256)
    assert len(listed(found)) == 24 * 23 // 2
    with mock.patch.multiple(bands, _PAIRS_AT_MOST=150, _PAIRS_OF_TEXT=1):
        buckets, found = open_buckets(texts, 256)
    assert buckets.sizes.listed == 16
    assert len(listed(found)) == 12


def similarity_of(one, other):
    return 0.5 + 5 * (7 * min(one, other) + 3 * max(one, other)) % 11 / 22


def search(texts, size, order, protected, at_most=64, shift=0):
    """Return the similar pairs that are listed, those of crowds, and all pairs of these that were compared.

    Similarities are those of texts whose numbers are larger by `shift`.
    """
    buckets, found = open_buckets(texts, size)
    asked = []

    def compare(left, right):
        pairs = [(min(pair), max(pair)) for pair in zip(left.tolist(), right.tolist(), strict=True)]
        asked.extend(pairs)
        alike = np.array([similarity_of(one + shift, other + shift) for one, other in pairs])
        return SimilarPairs(left, right, alike).at_least(0.6)

    known = compare(*map(np.concatenate, zip(*(found or [(np.zeros(0, np.int64),) * 2]), strict=True)))
    asked.clear()
    with mock.patch.multiple(crowds, _COMPARED_AT_MOST=at_most, _LEAST=2, _MOST=4, _TOGETHER=7):
        return known, list(Crowds(buckets, compare).find_pairs(np.array(order), known, 0.8, protected)), asked


@given(TEXTS, st.integers(2, 6), st.sampled_from([1, 2, 64]), st.randoms(use_true_random=False))
def test_crowds_are_decided_about_as_if_all_pairs_that_matter_were_listed(texts, size, at_most, random):
    small, large = meeting(texts, size, scoped=False)
    total = len(texts)
    order = np.array(random.sample(range(total), total))
    protected = np.array([flag for _, _, flag, _ in texts]) & (np.arange(total) % 2 == 0)
    known, more, asked = search(texts, size, order, protected, at_most)
    # Each pair is compared once, and none that was listed.
    assert len(set(asked)) == len(asked)
    assert set(asked) <= large
    together = SimilarPairs(*map(np.concatenate, zip(known, *more, strict=True)))
    stars = choose_stars(order, together, similarity=0.6, drop=0.8, protected=protected)
    if at_most == 64:  # then nothing was left out that the decision needs
        pairs = sorted(small | large)
        left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        alike = np.array([similarity_of(*pair) for pair in pairs])
        everything = SimilarPairs(left, right, alike).at_least(0.6)
        expected = choose_stars(order, everything, similarity=0.6, drop=0.8, protected=protected)
        itself = np.arange(total)
        assert ((stars.kept == itself) == (expected.kept == itself)).all()


@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from([1, 2, 8]), st.randoms(use_true_random=False))
def test_what_is_compared_in_a_crowd_does_not_depend_on_other_crowds(here, there, at_most, random):
    size = 4
    texts = [([0, random.randrange(2), 7 + number], 0, False, 0) for number in range(here)]
    others = [([5, 5 + random.randrange(2), 50 + number], 0, False, 0) for number in range(there)]
    together = texts + others
    order = random.sample(range(len(together)), len(together))
    protected = np.zeros(len(together), dtype=bool)
    *_, asked = search(together, size, order, protected, at_most)
    *_, one = search(texts, size, [text for text in order if text < here], protected[:here], at_most)
    rest = [text - here for text in order if text >= here]
    *_, other = search(others, size, rest, protected[here:], at_most, here)
    assert sorted(asked) == sorted(one + [(a + here, b + here) for a, b in other])


def test_the_middle_of_a_crowd_is_estimated_from_its_buckets():
    texts = [([0, 0, number], 0, False, 0) for number in range(9)] + [([1, 1, 0], 0, False, 0)]
    buckets, _ = open_buckets(texts, 4)
    found = Crowds(buckets, None)
    assert found.members.tolist() == [True] * 9 + [False]
    assert np.allclose(found.similar, [2 * 9 / BANDS] * 9 + [0])
    none = np.zeros(10, dtype=np.int64)
    empty = SimilarPairs(none[:0], none[:0], np.zeros(0))
    assert centrality(10, empty, 0.7, found.similar)[0] > centrality(10, empty, 0.7, found.similar)[9] == 0
