"""Pairs as independent tasks and in buckets, and the filter by sketches, against loops over Python ints."""

import itertools
import pickle

import numpy as np
import pytest
from hamming_samples import WORD, near, random_words
from hypothesis import given
from hypothesis import strategies as st

from simsql.hamming import _sketches, find_pairs, pair_buckets, pair_tasks, pairs_in_buckets, pairs_of_task

NONE = np.empty((0, 2), dtype=np.uint64)


@st.composite
def sketched(draw):
    """Fingerprints around a few centres and a sketch for each: repeated fingerprints have equal and other ones."""
    words = near(draw(st.lists(WORD, min_size=1, max_size=3)))
    fingerprints = draw(st.lists(words, min_size=1, max_size=15))
    rows = fingerprints + draw(st.lists(st.sampled_from(fingerprints), max_size=10))
    rows = draw(st.permutations(rows))
    return rows, draw(st.lists(words, min_size=len(rows), max_size=len(rows)))


def slow_pairs(fingerprints, distance, sketches=None, apart=64):
    """Sorted pairs of distinct fingerprints, some of whose sketches are near."""
    rows = zip(fingerprints, sketches or [0] * len(fingerprints), strict=True)
    pairs = itertools.combinations([row for row in rows if None not in row], 2)
    return sorted(
        {
            (min(a, b), max(a, b))
            for (a, s), (b, t) in pairs
            if a != b and (a ^ b).bit_count() <= distance and (s ^ t).bit_count() <= apart
        }
    )


def flips(rng, count, bits):
    """Words with up to this number of bits."""
    return np.bitwise_xor.reduce(np.uint64(1) << rng.integers(0, 64, (bits, count), dtype=np.uint64))


def listed(arrays):
    """All pairs of arrays, sorted: one that comes twice is there twice."""
    return sorted(map(tuple, np.concatenate([NONE, *arrays]).tolist()))


@given(sketched(), st.integers(0, 64), st.integers(0, 64), st.integers(1, 3))
def test_tasks_together_find_each_pair_once(rows, distance, apart, parts):
    fingerprints, sketches = rows
    tasks = pickle.loads(pickle.dumps(pair_tasks(fingerprints, distance, parts)))
    found = [list(pairs_of_task(task, fingerprints)) for task in tasks]
    assert listed(itertools.chain(*found)) == slow_pairs(fingerprints, distance)
    found = [list(pairs_of_task(task, fingerprints, sketches=(sketches, apart))) for task in tasks]
    assert listed(itertools.chain(*found)) == slow_pairs(fingerprints, distance, sketches, apart)


@given(sketched(), st.integers(0, 63), st.integers(0, 64), st.integers(1, 4))
def test_buckets_find_each_pair_once(rows, distance, apart, groups):
    """Each group has whole buckets, in any order."""
    fingerprints, sketches = rows
    buckets = pair_buckets(fingerprints, distance)
    assert buckets.shape == (len(fingerprints), max(2, distance + 1))
    each = [
        (bucket, fingerprint, sketch)
        for among, fingerprint, sketch in zip(buckets.tolist(), fingerprints, sketches, strict=True)
        for bucket in among
    ]
    plain, filtered = [], []
    for group in range(groups):
        some = sorted(row for row in each if hash(row[0]) % groups == group)
        if some:
            numbers, words, others = map(list, zip(*some, strict=True))
            plain += pairs_in_buckets(numbers, words, distance)
            filtered += pairs_in_buckets(numbers, words, distance, sketches=(others, apart))
    assert listed(plain) == slow_pairs(fingerprints, distance)
    assert listed(filtered) == slow_pairs(fingerprints, distance, sketches, apart)


@given(sketched(), st.integers(0, 64), st.integers(0, 64), st.booleans())
def test_pairs_have_near_sketches(rows, distance, apart, masked):
    """Also of fingerprints with several sketches, compared a few at a time, and without one."""
    fingerprints, sketches = rows
    expected = slow_pairs(fingerprints, distance, [None, *sketches[1:]], apart)
    if masked:
        sketches = np.ma.array(np.array(sketches, dtype=np.uint64), mask=[True, *[False] * (len(sketches) - 1)])
    else:
        sketches = [None, *sketches[1:]]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_sketches, "_COMPARED", 2)
        assert (
            list(map(tuple, find_pairs(fingerprints, distance, sketches=(sketches, apart)).tolist())) == expected
        )
        batches = find_pairs(fingerprints, distance, sketches=(sketches, apart), batches=True)
        assert listed(batches) == expected


@pytest.mark.parametrize("workers", [1, 2])
def test_thousands_of_sketches(workers):
    """Enough for radii. Some fingerprints have several sketches."""
    rng = np.random.default_rng(30)
    words = np.concatenate([np.repeat(random_words(31, 200), 20), random_words(32, 6_000)])
    sketches = np.concatenate([np.repeat(random_words(33, 200), 20), random_words(34, 6_000)])
    words ^= flips(rng, words.size, 5)
    sketches ^= flips(rng, words.size, 16)
    words[:300] = words[300:600]
    close, expected = set(), set()
    for row in range(words.size):
        near = row + np.flatnonzero(np.bitwise_count(words[row:] ^ words[row]) <= 10)
        near = near[words[near] != words[row]]
        pairs = np.sort(np.stack(np.broadcast_arrays(words[row], words[near]), axis=1), axis=1)
        close.update(map(tuple, pairs.tolist()))
        alike = np.bitwise_count(sketches[near] ^ sketches[row]) <= 22
        expected.update(map(tuple, pairs[alike].tolist()))
    assert len(close) > 1.1 * len(expected) > 1_000
    tasks = pair_tasks(words, 10, 5)
    assert max(task.here.radius for task in tasks) > 0
    assert listed(pairs for task in tasks for pairs in pairs_of_task(task, words)) == sorted(close)
    found = find_pairs(words, 10, sketches=(sketches, 22), workers=workers)
    assert listed([found]) == sorted(expected)


@pytest.mark.parametrize(("a", "b"), [([], []), ([5], [1]), ([5, 5], [1, 2])])
def test_nothing_to_pair(a, b):
    assert pair_tasks(a) == []
    assert listed(pairs_in_buckets(pair_buckets(a)[:, 0], a, sketches=(b, 64))) == []
    assert find_pairs(a, sketches=(b, 64)).shape == (0, 2)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: find_pairs([1, 2], sketches=[1, 2]), TypeError, r"such as \(array, 22\)"),
        (
            lambda: find_pairs([1, 2], sketches=([1], 22)),
            ValueError,
            "a sketch for each of the 2 fingerprints, not 1",
        ),
        (
            lambda: find_pairs([1, 2], sketches=([1, 2], 65)),
            ValueError,
            "distance of sketches must be between 0 and",
        ),
        (lambda: find_pairs([1, 2], sketches=([1, 2**64], 22)), ValueError, "18446744073709551616 is not"),
        (lambda: pair_tasks([1, 2], 65), ValueError, "distance must be between 0 and 64, not 65"),
        (lambda: pair_tasks([1, 2], 3, 0), ValueError, "parts must be between 1 and 1048576, not 0"),
        (lambda: pairs_of_task((3, None, 0, 1, 2), [1, 2]), TypeError, "must be one of pair_tasks"),
        (lambda: pairs_of_task(pair_tasks([1, 2])[0], iter([1, 1, 5, 9])), ValueError, "for 2 distinct.*, not 3"),
        (
            lambda: pairs_of_task(pair_tasks([1, 2])[0], iter([1, 1]), sketches=([1, None], 22)),
            ValueError,
            "for 2 distinct fingerprints, not 1: pass the same as to pair_tasks",
        ),
        (lambda: pair_buckets([1, 2], 64), ValueError, "distance must be between 0 and 63, not 64"),
        (lambda: pair_buckets([1, None, 2]), ValueError, "^1 fingerprints are missing: leave their rows out"),
        (lambda: pairs_in_buckets([1], [1, 2]), ValueError, r"must be 2 integers.*int64 with the shape \(1,\)"),
        (lambda: pairs_in_buckets([0.5], [1]), ValueError, "1 integers.*float64"),
        (
            lambda: pairs_in_buckets(pair_buckets([1, 2], 4)[:, 0], [1, 2 << 58]),
            ValueError,
            "1 of 2 buckets are not",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
