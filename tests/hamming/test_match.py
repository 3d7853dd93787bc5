"""Many searches at once, against loops over Python ints."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hamming_samples import BOUNDARIES, WORD, near, random_words
from hypothesis import given
from hypothesis import strategies as st

from simsql.hamming import Design, find_matches, match


@st.composite
def sides(draw):
    """Queries and batches of stored fingerprints around the same few centres, with repetitions."""
    words = near(draw(st.lists(WORD, min_size=1, max_size=4))) | WORD
    return draw(st.lists(words, max_size=15)), draw(st.lists(st.lists(words, max_size=15), max_size=4))


def slow_matches(queries, batches, distance):
    stored = set(itertools.chain.from_iterable(batches))
    pairs = ((query, word, (query ^ word).bit_count()) for query in set(queries) for word in stored)
    return sorted(pair for pair in pairs if pair[2] <= distance)


def fast_matches(queries, stored, distance):
    """The same by numpy, for thousands: all with all."""
    stored, found = np.unique(stored), []
    for query in np.unique(queries):
        distances = np.bitwise_count(stored ^ query)
        near = distances <= distance
        pairs = zip(stored[near].tolist(), distances[near].tolist(), strict=True)
        found += [(int(query), *pair) for pair in pairs]
    return sorted(found)


def listed(matches):
    """All matches as sorted tuples: one that comes twice is there twice."""
    found = []
    for some in matches:
        assert some.queries.dtype == some.fingerprints.dtype == np.uint64
        assert some.distances.dtype == np.uint8
        assert len(some.queries) == len(some.fingerprints) == len(some.distances) > 0
        found += zip(*(column.tolist() for column in some), strict=True)
    return sorted(found)


def with_neighbours(seed, words, flips):
    """Each of the words with `flips` of its bits flipped."""
    rng = np.random.default_rng(seed)
    changed = [sum(1 << bit for bit in rng.choice(64, flips, replace=False).tolist()) for _ in words]
    return words ^ np.array(changed, dtype=np.uint64)


def force_tables(monkeypatch, blocks, lead):
    """Let searches use this design, whatever it costs."""
    monkeypatch.setattr(match, "_TILE_PAIR_NS", 1e12)
    monkeypatch.setattr(match, "_choices", lambda bits: [(blocks, lead)] if blocks <= bits else [])


# --- exactness


@given(sides(), st.integers(0, 64))
def test_matches_equal_the_oracle(given_sides, distance):
    queries, batches = given_sides
    assert listed(find_matches(queries, batches, distance)) == slow_matches(queries, batches, distance)


SMALL = {
    "slots": {},
    "filter full": {"_BITS_PER_ENTRY": 1},
    "slots shared": {"_ODD": np.uint64(1)},
    "in portions": {"_CANDIDATES": 3},
}


@pytest.mark.parametrize("changed", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize(("blocks", "lead"), [(2, 1), (3, 1), (5, 2), (4, 2)])
def test_every_way_of_looking_up_finds_the_same(monkeypatch, blocks, lead, changed):
    """Queries that crowd and queries that do not, with nothing flipped, with one bit and with two."""
    force_tables(monkeypatch, blocks, lead)
    monkeypatch.setattr(match, "_STEP", 50)
    monkeypatch.setattr(match, "_SLICE", 64)
    for name, value in changed.items():
        monkeypatch.setattr(match, name, value)
    crowd = [*range(40), *(2**63 + i for i in range(0, 256, 9))]
    spread = random_words(1, 40)
    queries = [*spread[:30].tolist(), *crowd, *BOUNDARIES]
    neighbours = [with_neighbours(flips, spread, flips).tolist() for flips in range(5)]
    batches = [spread.tolist(), crowd[::3], *neighbours, BOUNDARIES, crowd]
    for distance in (0, 1, 3, 4):
        assert max(Design(blocks, lead).radii(distance)) <= 2
        expected = slow_matches(queries, batches, distance)
        assert listed(find_matches(queries, batches, distance)) == expected


@pytest.mark.parametrize("kept", [0, 10**9])
@pytest.mark.parametrize("distance", [0, 1, 3, 5])
def test_thousands(monkeypatch, kept, distance):
    """As many as real tables take, some crowded; in slices, with tables that are kept and tables that are not."""
    monkeypatch.setattr(match, "_ENTRIES_KEPT", kept)
    monkeypatch.setattr(match, "_SLICE", 9_000)
    monkeypatch.setattr(match, "_SLICE_PER_QUERY", 1)
    compared = []
    monkeypatch.setattr(match, "_compare_all", lambda *_: compared.append(1))
    queries = random_words(3, 5_000)
    queries[:200] = queries[0] ^ (random_words(4, 200) & np.uint64(0xF0F0))
    near = [with_neighbours(flips, queries[flips::200], flips) for flips in range(12)]
    stored = np.random.default_rng(5).permutation(np.concatenate([random_words(6, 15_000), *near, queries[:300]]))
    batches = np.split(stored, [10, 10, 12_000, 12_001])
    expected = fast_matches(queries, stored, distance)
    assert listed(find_matches(queries, batches, distance)) == expected
    assert len(expected) > 200
    assert not compared


def test_bits_that_vary_only_later(monkeypatch):
    """The first slice decides how to search, not what is found: these differ in bits that it does not show."""
    monkeypatch.setattr(match, "_SLICE", 3_000)
    monkeypatch.setattr(match, "_SLICE_PER_QUERY", 1)
    monkeypatch.setattr(match, "_TILE_PAIR_NS", 1e12)
    queries = np.arange(0, 2**16, 65, dtype=np.uint64)
    stored = [queries + np.uint64(2**16 - 2), *(queries[::9] | np.uint64(bits << 61) for bits in range(8))]
    for distance in (1, 3, 5):
        expected = fast_matches(queries, np.concatenate(stored), distance)
        assert any(word >= 2**61 for _, word, _ in expected)
        assert listed(find_matches(queries, [*stored[:1] * 3, *stored[1:]], distance)) == expected


# --- once each


def test_a_pair_comes_once(monkeypatch):
    monkeypatch.setattr(match, "_SLICE", 8)
    queries, stored = [7, 7, 5, 5, 1 << 40], [5, 5, 4, 1 << 41, 5, 4]
    expected = slow_matches(queries, [stored], 2)
    assert len(expected) == 6
    for batches in ([stored] * 5, [[word] for word in stored * 7], [stored * 9], [[], stored, [], [4] * 20]):
        assert listed(find_matches(queries, batches, 2)) == expected


# --- memory


def peak_of(find):
    tracemalloc.start()
    try:
        found = find()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def count(matches):
    return sum(len(some.queries) for some in matches)


@pytest.mark.parametrize("distance", [3, 64])
def test_near_equal_sets_take_little_memory(distance):
    """3,000 and 3,000 that agree in their first 50 bits: at distance 64, 9 million pairs, 150 MB."""
    queries, stored = (random_words(seed, 3_000) & np.uint64(2**14 - 1) | np.uint64(1 << 63) for seed in (7, 8))
    found, peak = peak_of(lambda: count(find_matches(queries, [stored], distance)))
    assert found == len(np.unique(queries)) * len(np.unique(stored)) if distance == 64 else found > 50_000
    assert peak < 10e6


def test_a_crowded_prefix_takes_little_memory(monkeypatch):
    """All queries but one and all stored fingerprints have the same prefix in one of two tables."""
    force_tables(monkeypatch, 2, 1)
    queries, stored = (random_words(seed, 3_000) & np.uint64(2**32 - 1) for seed in (9, 10))
    queries[0], stored[0] = 2**64 - 1, queries[1] ^ np.uint64(1)
    found, peak = peak_of(lambda: count(find_matches(queries, [stored], 1)))
    assert found == len(fast_matches(queries, stored, 1))
    assert found > 0
    assert peak < 100e6  # all 9 million candidates at once take 300 MB


def test_what_is_stored_is_read_batch_by_batch(monkeypatch):
    monkeypatch.setattr(match, "_SLICE", 10_000)
    rng = np.random.default_rng(11)

    def stream():
        for _ in range(100):
            yield rng.integers(0, 2**64, 10_000, dtype=np.uint64)

    found, peak = peak_of(lambda: count(find_matches(random_words(12, 100), stream(), 3)))
    assert found == 0
    assert peak < 3e6  # all batches at once take 8 MB


def test_a_batch_may_reuse_its_memory():
    buffer = np.zeros(2, dtype=np.uint64)

    def stream():
        for start in range(0, 10, 2):
            buffer[:] = start, start + 1
            yield buffer

    assert listed(find_matches(range(10), stream(), 0)) == [(word, word, 0) for word in range(10)]


# --- arguments


def test_any_kind_of_input():
    words = [7, 5, 5, 2**64 - 1]
    expected = [(5, 5, 0), (5, 7, 1), (2**64 - 1, 2**64 - 1, 0)]
    masked = np.ma.array(np.array([5, 2**64 - 1, 6], dtype=np.uint64), mask=[0, 0, 1])
    for queries in ([5, 2**64 - 1], iter([5, 2**64 - 1, 5]), masked):
        for batches in (
            [words],
            (tuple(words),),
            iter([words[:2], words[2:]]),
            [np.array(words, dtype=np.uint64)],
        ):
            given_queries = [5, 2**64 - 1] if queries is not masked else masked
            assert listed(find_matches(given_queries, batches, distance=1)) == expected
    stored = np.ma.array(np.array([*words, 4], dtype=np.uint64), mask=[0] * 4 + [1])
    assert listed(find_matches([5, 2**64 - 1], [stored], np.int64(1))) == expected
    small = np.array([[7, 5], [4, 4]], dtype=np.uint8)
    assert listed(find_matches(small[0], small, 1)) == [(5, 4, 1), (5, 5, 0), (5, 7, 1), (7, 5, 1), (7, 7, 0)]


def test_the_default_distance_is_3():
    assert listed(find_matches([0], [[0b111, 0b1111]])) == [(0, 0b111, 3)]


@pytest.mark.parametrize("batches", [[], [[]], [[], np.empty(0, dtype=np.uint64)]])
def test_nothing_stored(batches):
    assert list(find_matches([1, 2], batches)) == []


def test_without_queries_nothing_is_read():
    batches = iter([[1], [2]])
    assert list(find_matches([], batches, 64)) == []
    assert list(batches) == [[1], [2]]


@pytest.mark.parametrize(
    ("queries", "stored", "distance", "error", "says"),
    [
        ([1, -(2**63) - 1], [], 3, ValueError, "-9223372036854775809 is not a fingerprint"),
        ([1.5], [], 3, TypeError, r"not 1\.5"),
        ([1], [], 65, ValueError, "distance must be between 0 and 64, not 65"),
        ([1], [], True, TypeError, "distance must be an int between 0 and 64, not True"),
        ([1], np.array([1], dtype=np.uint64), 3, TypeError, r"not a single array: pass \[array\]"),
    ],
)
def test_wrong_arguments_are_named_at_once(queries, stored, distance, error, says):
    with pytest.raises(error, match=says):
        find_matches(queries, stored, distance)


@pytest.mark.parametrize(
    ("batch", "error", "says"),
    [
        ([2**64], ValueError, "18446744073709551616 is not a fingerprint"),
        (np.array([-1.0]), TypeError, "not of float64"),
        (np.array([[1]], dtype=np.uint64), ValueError, "one dimension, not of 2"),
    ],
)
def test_wrong_batches_are_named_when_they_come(batch, error, says):
    matches = find_matches([1], iter([[1], batch]))
    with pytest.raises(error, match=says):
        list(matches)


def test_every_distance():
    spread = random_words(2, 12)
    stored = [with_neighbours(flips, spread, flips) for flips in range(0, 65, 3)]
    lists = [batch.tolist() for batch in stored]
    every = slow_matches(spread.tolist(), lists, 64)
    for distance in range(65):
        expected = [match for match in every if match[2] <= distance]
        assert listed(find_matches(spread, stored, distance)) == expected


def test_the_input_stays_as_it_was():
    queries, stored = random_words(13, 500), random_words(14, 500)
    before = queries.copy(), stored.copy()
    list(find_matches(queries, [stored], 20))
    assert (queries == before[0]).all()
    assert (stored == before[1]).all()
