"""Distances, all pairs and clusters, against loops over Python ints."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hamming_samples import BOUNDARIES, WORD, near, published, random_words
from hypothesis import given
from hypothesis import strategies as st

from simsql.arrays import checks
from simsql.hamming import (
    _join,
    _tiles,
    find_clusters,
    find_pairs,
    hamming_distance,
    pairs,
)
from simsql.hamming.blocks import block_masks


@st.composite
def clustered(draw):
    """Fingerprints around a few centres, with repetitions."""
    centres = draw(st.lists(WORD, min_size=1, max_size=4))
    return draw(st.permutations(centres + draw(st.lists(near(centres), max_size=25))))


def slow_pairs(values, distance):
    distinct = sorted(set(values))
    return [[a, b] for a, b in itertools.combinations(distinct, 2) if (a ^ b).bit_count() <= distance]


def slow_clusters(close):
    """Connected components by merging sets."""
    component = {}
    for a, b in close:
        merged = component.get(a, {a}) | component.get(b, {b})
        component.update(dict.fromkeys(merged, merged))
    return sorted(sorted(members) for members in {id(c): c for c in component.values()}.values())


def as_lists(clusters):
    return [cluster.tolist() for cluster in clusters]


def planted(seed, count, distances, each):
    """Random words, and for each distance `each` neighbours of as many of them."""
    rng = np.random.default_rng(seed)
    words = random_words(seed, count).tolist()
    for distance, start in zip(distances, itertools.count(0, each), strict=False):
        for centre in words[start : start + each]:
            bits = rng.choice(64, distance, replace=False).tolist()
            words.append(centre ^ sum(1 << bit for bit in bits))
    return words


# --- hamming_distance


@given(WORD, WORD)
def test_distance_of_ints(a, b):
    distance = hamming_distance(a, b)
    assert type(distance) is int
    assert distance == (a ^ b).bit_count()


def test_distance_at_the_boundaries():
    assert hamming_distance(0, 2**64 - 1) == 64
    assert hamming_distance(2**63 - 1, 2**63) == 64
    assert hamming_distance(2**63, 2**64 - 1) == 63
    assert hamming_distance(np.uint64(1), 0) == 1


@given(st.lists(WORD, min_size=1, max_size=8), st.lists(WORD, min_size=1, max_size=8))
def test_distance_of_arrays_broadcasts(left, right):
    a, b = np.array(left, dtype=np.uint64), np.array(right, dtype=np.uint64)
    table = hamming_distance(a[:, None], b)
    assert table.dtype == np.uint8
    assert table.tolist() == [[(x ^ y).bit_count() for y in right] for x in left]
    assert hamming_distance(a, right[0]).tolist() == hamming_distance(right[0], a).tolist()


def test_masked_fingerprints_have_masked_distances():
    some = np.ma.array(np.array([1, 2, 3], dtype=np.uint64), mask=[False, True, False])
    distances = hamming_distance(some, 0)
    assert distances.tolist() == [1, None, 2]
    assert hamming_distance(np.arange(3, dtype=np.uint64), some).tolist() == [1, None, 1]


def test_small_unsigned_arrays_count_as_they_are():
    assert hamming_distance(np.array([255, 0], dtype=np.uint8), 2**63).tolist() == [9, 1]


@pytest.mark.parametrize(
    ("a", "b", "error", "says"),
    [
        (-(2**63) - 1, 0, ValueError, "-9223372036854775809 is not a fingerprint"),
        (0, 2**64, ValueError, r"18446744073709551616 is not a fingerprint: it must be in \[0, 2\*\*64\), or a"),
        (1.0, 0, TypeError, "not 1.0"),
        (True, 0, TypeError, "not True"),
        ("1", 0, ValueError, "'1' is not a fingerprint: as a str, it has 16 hexadecimal digits"),
        (b"\0" * 16, 0, ValueError, "must have 64 bits, not 128: keep wider ones in several columns"),
        (np.array([1], dtype=np.uint64), 2**64, ValueError, "18446744073709551616 is not"),
        (np.array([1.0]), 1, TypeError, "not of float64$"),
        (np.array(["1"]), 1, TypeError, "not of <U1$"),
    ],
)
def test_wrong_fingerprints_are_named(a, b, error, says):
    with pytest.raises(error, match=says):
        hamming_distance(a, b)


# --- find_pairs and find_clusters


@given(clustered(), st.integers(0, 64))
def test_pairs_and_clusters_equal_the_oracle(values, distance):
    close = slow_pairs(values, distance)
    found = find_pairs(values, distance)
    assert found.dtype == np.uint64
    assert found.shape == (len(close), 2)
    assert found.tolist() == close
    assert as_lists(find_clusters(values, distance)) == slow_clusters(close)


def test_every_distance():
    values = planted(3, 60, range(0, 40, 2), 2)
    for distance in range(65):
        close = slow_pairs(values, distance)
        assert find_pairs(values, distance).tolist() == close
        assert as_lists(find_clusters(values, distance)) == slow_clusters(close)


def always_split(extra):
    def blocks(runs, varying, sample, distance):
        bits = varying.bit_count()
        return (min(distance + extra, bits) if bits > distance else 0), 0.0

    return blocks


def never_split(runs, varying, sample, distance):
    return 0, 0.0


def balls(*radii):
    """A way of comparing with these radii, for each block one."""

    def passes(keys, varying, differing, distance, limit):
        if varying.bit_count() < len(radii):
            return [], 0.0
        return _join._balls(block_masks(varying, len(radii)), radii), 0.0

    return passes


@pytest.mark.parametrize("distance", [1, 2, 3])
@pytest.mark.parametrize(
    "changed",
    [
        {"_cheapest_blocks": always_split(1), "_SHORT_RUN": 4},
        {"_cheapest_blocks": always_split(2), "_SHORT_RUN": 16},
        {"_cheapest_blocks": never_split, "_SHORT_RUN": 2, "TILE_ROWS": 7, "TILE_COLUMNS": 21},
        {"_cheapest_blocks": always_split(6), "_SHORT_RUN": 10**6, "_TILE": 50, "_STEP": 50, "_TOGETHER": 10},
    ],
    ids=["nested deeply", "nested", "all with all in tiles", "in short runs"],
)
def test_every_way_of_splitting_finds_the_same(monkeypatch, changed, distance):
    values = planted(6, 100, range(8), 10) + list(range(64)) + [2**63 + i for i in range(0, 256, 5)]
    expected = slow_pairs(values, distance)
    for name, value in changed.items():
        for module in (_join, _tiles):
            monkeypatch.setattr(module, name, value, raising=False)
    assert find_pairs(values, distance).tolist() == expected
    assert as_lists(find_clusters(values, distance)) == slow_clusters(expected)


@st.composite
def shared_bits(draw):
    """Fingerprints that agree in some blocks and differ at random, little or a little more in the others."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    count = draw(st.integers(2, 150))
    values = np.zeros(count, dtype=np.uint64)
    for place in range(0, 64, 16):
        kind = draw(st.sampled_from(["equal", "few values", "few bits", "random"]))
        if kind == "equal":
            block = np.full(count, random.integers(0, 2**16))
        elif kind == "few values":
            block = random.choice(random.integers(0, 2**16, 3), count)
        elif kind == "few bits":
            block = 1 << random.integers(0, 16, count) | 1 << random.integers(0, 16, count)
        else:
            block = random.integers(0, 2**16, count)
        values |= block.astype(np.uint64) << np.uint64(place)
    return values.tolist()


@given(shared_bits() | clustered(), st.integers(1, 64), st.integers(4, 8), st.data())
def test_any_radii_find_the_same(values, distance, blocks, data):
    """Each pair once, with one radius for each block, in tiles and tasks of any size."""
    radii = []
    for block in range(blocks):
        rest = distance + 1 - sum(radius + 1 for radius in radii)
        radii.append(rest - 1 if block == blocks - 1 else data.draw(st.integers(-1, min(rest - 1, 64 // blocks))))
    expected = slow_pairs(values, distance)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_join, "_cheapest_balls", balls(*radii))
        for name, smaller in {"_TILE": 64, "_GATHERED": 100, "_PROBES": 500}.items():
            patched.setattr(_tiles, name, data.draw(st.sampled_from([smaller, getattr(_tiles, name)])))
        patched.setattr(_tiles, "TILE_ROWS", data.draw(st.sampled_from([3, 32])))
        join = _join.Join(np.unique(np.array(values, dtype=np.uint64)), distance)
        parts = data.draw(st.integers(1, 3))
        found = [sorted(pair) for task in join.tasks(parts) for some in join(task) for pair in some.tolist()]
        assert sorted(found) == expected
        assert as_lists(find_clusters(values, distance)) == slow_clusters(expected)


def components_of(values, found):
    csgraph, sparse = pytest.importorskip("scipy.sparse.csgraph"), pytest.importorskip("scipy.sparse")
    members = np.searchsorted(values, found)
    graph = sparse.coo_array((np.ones(len(members)), members.T), shape=(values.size, values.size))
    _, component = csgraph.connected_components(graph, directed=False)
    by_component = np.split(values[np.argsort(component, kind="stable")], np.cumsum(np.bincount(component))[:-1])
    return sorted(members.tolist() for members in by_component if len(members) > 1)


@pytest.mark.parametrize("distance", [3, 10, 18])
def test_any_number_of_workers_finds_the_same(distance):
    """Enough for radii at all but the last distance: spread, around centres, and with half of their bits equal."""
    centres = random_words(20, 200)
    near = np.repeat(centres, 20)
    for _ in range(distance // 2):
        near ^= np.uint64(1) << np.random.default_rng(21).integers(0, 64, near.size, dtype=np.uint64)
    equal = random_words(22, 2000) >> np.uint64(32) | np.uint64(0xABCD << 48)
    values = np.unique(np.concatenate([near, centres, equal, random_words(23, 4000)]))
    expected = brute_force(values, distance)
    clusters = components_of(values, expected)
    for workers in (1, 2):
        assert np.array_equal(find_pairs(values, distance, workers=workers), expected)
        batches = list(find_pairs(values, distance, workers=workers, batches=True))
        assert np.array_equal(np.unique(np.concatenate(batches), axis=0), expected)
        assert sum(map(len, batches)) == len(expected)
        assert as_lists(find_clusters(values, distance, workers=workers)) == clusters


def brute_force(values, distance):
    found = []
    for position, value in enumerate(values[:-1]):
        close = values[position + 1 :][np.bitwise_count(values[position + 1 :] ^ value) <= distance]
        found.append(np.stack((np.full(close.size, value), close), axis=1))
    return np.concatenate(found)


def test_the_cost_of_a_radius_is_by_what_is_compared(monkeypatch):
    for name in ("_TABLE_KEY_NS", "_TABLE_NS", "_GATHER_NS", "_PROBE_NS"):
        monkeypatch.setattr(_join, name, 0.0)
    for name in ("_NEIGHBOUR_NS", "_TILE_PAIR_NS"):
        monkeypatch.setattr(_join, name, 1.0)
    # Half of the keys agree in most bits, so that near values are more frequent than random ones.
    keys, mask = random_words(24, 1_000), 0b1011 << 30 | 0xF0
    keys[::2] &= random_words(25, 500) & random_words(26, 500)
    keys = np.unique(keys)
    near = np.bitwise_count((keys[:, None] ^ keys) & np.uint64(mask))
    costs = _join._ball_costs(keys.size, mask, 3, _join._sample(keys, _join._whole(keys.size)))
    # Apart from own pairs, which are compared anyway, and a table of values.
    found = [costs[0], *(cost - costs[0] - 2**7 for cost in costs[1:])]
    assert found == pytest.approx([int((near <= radius).sum()) / 2 for radius in range(4)], rel=0.1)


def test_radii_add_up_at_the_lowest_cost():
    assert _join._cheapest_radii([[1, 2, 4], [1, 8, 9], [1, 2, 9]], 4) == ([1, 0, 1], 5)
    assert _join._cheapest_radii([[1, 2, 4], [100, 200, 300]], 2) == ([2, -1], 4)
    assert _join._cheapest_radii([[1], [1]], 2)[1] == float("inf")


@pytest.mark.parametrize("distance", [1, 2, 3, 5])
def test_ten_thousands_of_which_some_crowd(distance):
    """A third of them shares its first half."""
    spread = np.array(planted(11, 12_000, [1, 2, 3, 4, 5, 6], 500), dtype=np.uint64)
    crowd = np.random.default_rng(12).integers(0, 2**32, 7_000, dtype=np.uint64) | np.uint64(0xABCDEF01 << 32)
    values = np.unique(np.concatenate([spread, crowd, crowd[:300] ^ np.uint64(0b10100)]))
    expected = brute_force(values, distance)
    assert len(expected) > 400 * distance
    assert np.array_equal(find_pairs(np.random.default_rng(13).permutation(values), distance), expected)


def test_clusters_arrive_in_batches(monkeypatch):
    """Chains that only later batches close, and the end of the work when all are one."""
    monkeypatch.setattr(pairs, "_BATCH", 1)
    values = planted(7, 100, [1, 2, 3, 4], 20) + [(1 << i) - 1 for i in range(65)]
    for distance in (1, 3, 64):
        expected = slow_clusters(slow_pairs(values, distance))
        assert as_lists(find_clusters(values, distance)) == expected


def near_equal(seed, count, flips):
    """Distinct fingerprints up to `flips` bits from one centre."""
    rng = np.random.default_rng(seed)
    values = np.full(2 * count, 0x0123456789ABCDEF, dtype=np.uint64)
    for _ in range(flips):
        values ^= np.uint64(1) << rng.integers(0, 64, values.size, dtype=np.uint64)
    return np.unique(values)[:count]


def test_clusters_of_near_equal_fingerprints_take_few_pairs():
    """12 million pairs are close; an outlier keeps the rest from being all that there is."""
    values = np.append(near_equal(14, 5_000, 4), np.uint64(2**64 - 1))
    values.sort()
    every = _join.Join(values, 8)
    assert sum(len(some) for task in every.tasks(1) for some in every(task)) == 5_000 * 4_999 // 2
    few = _join.Join(values, 8, spanning=True)
    spanning = np.concatenate([some for task in few.tasks(1) for some in few(task)])
    assert len(spanning) < 100_000
    assert set(np.bitwise_count(spanning[:, 0] ^ spanning[:, 1]).tolist()) <= set(range(1, 9))
    assert as_lists(find_clusters(values, 8)) == [values[:-1].tolist()]


def test_long_chains_are_one_cluster():
    chain = np.cumsum(np.uint64(1) << np.arange(64, dtype=np.uint64), dtype=np.uint64)
    gray = np.arange(5000, dtype=np.uint64)
    gray ^= gray >> np.uint64(1)
    assert as_lists(find_clusters(chain, 1)) == [chain.tolist()]
    assert as_lists(find_clusters(gray[::-1], 1)) == [sorted(gray.tolist())]


@pytest.mark.parametrize(("distance", "most"), [(1, 30e6), (3, 30e6), (4, 60e6)])
def test_a_crowded_prefix_takes_little_memory(distance, most):
    """30,000 fingerprints that agree in their first 40 bits: all with all at once would take 7 GB."""
    crowded = np.random.default_rng(8).integers(0, 2**24, 30_000, dtype=np.uint64) | np.uint64(1 << 63)
    tracemalloc.start()
    try:
        found = find_pairs(crowded, distance, workers=1)
        find_clusters(crowded, distance, workers=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) > 0
    assert peak < most


def test_crowds_within_a_radius_take_little_memory(monkeypatch):
    """Four million pairs in few tiles: their positions at once would take 300 MB."""
    monkeypatch.setattr(_join, "_cheapest_balls", balls(2, 2, 2))
    join = _join.Join(near_equal(27, 3_000, 4), 8)
    tasks = join.tasks(1)
    tracemalloc.start()
    try:
        assert sum(len(some) for task in tasks for some in join(task)) == 3_000 * 2_999 // 2
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6


def test_a_large_distance_takes_little_memory():
    values = random_words(9, 10_000)
    tracemalloc.start()
    try:
        assert len(find_pairs(values, 12)) < 100
        assert len(find_clusters(values, 64)) == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100e6  # all with all at once would take 800 MB


def test_the_default_distance_is_3():
    assert find_pairs([0, 0b111, 0b1111]).tolist() == [[0, 0b111], [0b111, 0b1111]]
    assert as_lists(find_clusters([0, 0b111, 0xFFFF])) == [[0, 0b111]]


@pytest.mark.parametrize("nothing", [[], [5], [5, 5, 5], np.empty(0, dtype=np.uint64)])
def test_nothing_to_pair(nothing):
    for distance in (0, 3, 64):
        assert find_pairs(nothing, distance).shape == (0, 2)
        assert find_pairs(nothing, distance).dtype == np.uint64
        assert find_clusters(nothing, distance) == []


def test_the_input_stays_as_it_was():
    values = random_words(10, 500)
    before = values.copy()
    find_pairs(values)
    find_clusters(values)
    assert (values == before).all()


@pytest.mark.parametrize("search", [find_pairs, find_clusters])
@pytest.mark.parametrize(
    ("values", "distance", "error", "says"),
    [
        ([1, -(2**63) - 1], 3, ValueError, "-9223372036854775809 is not"),
        ([1, 2**64], 3, ValueError, "18446744073709551616 is not"),
        ([1, "x"], 3, ValueError, "'x' is not"),
        ([1, 2.0], 3, TypeError, r"not 2\.0"),
        ([1, False], 3, TypeError, "not False"),
        (np.array([[1]], dtype=np.uint64), 3, ValueError, "one dimension, not of 2"),
        ([1], 65, ValueError, "distance must be between 0 and 64, not 65"),
        ([1], -1, ValueError, "distance must be between 0 and 64, not -1"),
        ([1], 3.0, TypeError, r"distance must be an int between 0 and 64, not 3\.0"),
    ],
)
def test_wrong_arguments_are_named(search, values, distance, error, says):
    with pytest.raises(error, match=says):
        search(values, distance)


def test_more_than_positions_can_tell_apart(monkeypatch):
    monkeypatch.setattr(checks, "DISTINCT_AT_MOST", 3)
    with pytest.raises(ValueError, match="not 4: use an index"):
        find_pairs([1, 2, 3, 4, 4])


@pytest.mark.parametrize("function", [find_pairs, find_clusters])
@pytest.mark.parametrize("workers", [0, 1025])
def test_numbers_of_workers_that_cannot_be_are_refused(function, workers):
    with pytest.raises(ValueError, match=f"workers must be between 1 and 1024, not {workers}"):
        function([1, 2], 3, workers=workers)


@pytest.mark.parametrize("distance", [0, 1, 3, 30])
def test_pairs_come_one_batch_after_another(monkeypatch, distance):
    monkeypatch.setattr(pairs, "_BATCH", 100)
    values = planted(16, 150, range(1, 5), 30)
    close = slow_pairs(values, distance)
    batches = list(find_pairs(values, distance, batches=True))
    assert sorted(pair for batch in batches for pair in batch.tolist()) == close
    assert all(batch.dtype == np.uint64 and batch.shape[1:] == (2,) for batch in batches)
    assert all(len(batch) >= 100 for batch in batches[:-1])


def test_too_many_pairs_are_an_error_that_says_how_many(monkeypatch):
    monkeypatch.setattr("simsql.hamming.pairs._PAIRS_AT_MOST", 1_000)
    with pytest.raises(
        ValueError, match=r"more than 1,000 pairs within 64 bits \(1\d\d,\d\d\d so far\): use a lower"
    ):
        find_pairs(range(500), 64)
    assert len(find_pairs(range(40), 64)) == 780


# --- published values


def test_published_pairs():
    for row in published("find_all"):
        expected = sorted(sorted(pair) for pair in row["pairs"])
        assert find_pairs(row["fingerprints"], row["distance"]).tolist() == expected


def test_published_clusters():
    for row in published("find_clusters"):
        assert len(find_clusters(row["fingerprints"], row["distance"])) == row["clusters"]


def test_thousands_with_planted_neighbours():
    values = planted(4, 2500, range(11), 40)
    close = slow_pairs(values, 10)
    assert len(close) >= 10 * 40
    for distance in range(11):
        expected = [pair for pair in close if hamming_distance(*pair) <= distance]
        assert find_pairs(values, distance).tolist() == expected
        assert as_lists(find_clusters(values, distance)) == slow_clusters(expected)


@pytest.mark.parametrize("distance", [1, 2, 3, 5])
def test_fingerprints_that_share_most_bits(distance):
    """A dense corner of the cube: the same prefixes over and over, whatever blocks lead."""
    rng = np.random.default_rng(5)
    low = rng.integers(0, 2**11, 300, dtype=np.uint64)
    spread = low & np.uint64(0x3F) | (low >> np.uint64(6)) << np.uint64(40)
    values = [*(spread ^ np.uint64(0xABCDEF0123456789)).tolist(), *BOUNDARIES]
    close = slow_pairs(values, distance)
    assert find_pairs(values, distance).tolist() == close
    assert as_lists(find_clusters(values, distance)) == slow_clusters(close)


def test_clusters_are_the_connected_components_of_scipy():
    """Thousands of clusters of all sizes, and one that is long."""
    gray = np.arange(3000, dtype=np.uint64)
    spread = np.array(planted(17, 12_000, [1, 2, 3], 4_000), dtype=np.uint64)
    values = np.unique(np.concatenate([spread, spread[:2000] ^ np.uint64(0b11), gray ^ gray >> np.uint64(1)]))
    expected = components_of(values, find_pairs(values, 3))
    assert len(expected) > 5_000
    assert as_lists(find_clusters(values, 3)) == expected


def test_any_kind_of_input():
    words = [7, 5, 5, 2**64 - 1, 4]
    expected = [[4, 5], [5, 7]]
    masked = np.ma.array(np.array([*words, 6], dtype=np.uint64), mask=[0] * 5 + [1])
    for given_as in (
        words,
        tuple(words),
        iter(words),
        dict.fromkeys(words),
        np.array(words, dtype=np.uint64),
        [np.uint64(value) for value in words],
        masked,
    ):
        assert find_pairs(given_as, 1).tolist() == expected
    assert find_pairs(np.array([7, 5, 4], dtype=np.uint8), distance=1).tolist() == expected
    assert as_lists(find_clusters(masked, np.int64(1))) == [[4, 5, 7]]
