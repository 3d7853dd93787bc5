"""Pairs are drawn evenly over the distances, and at random among those of a distance."""

from collections import Counter, defaultdict

import corpus
import numpy as np
import pytest

from simsql.evaluate.sampling import draw_pairs


def make_fingerprints(seed, families=60):
    """Fingerprints with pairs at every distance, more of the larger ones."""
    chance = np.random.default_rng(seed)
    centres = chance.integers(1 << 64, size=families, dtype=np.uint64, endpoint=False)
    found = []
    for centre in centres.tolist():
        for flips in range(8):
            value = centre
            for bit in chance.choice(64, size=flips, replace=False).tolist():
                value ^= 1 << bit
            found.append(value)
    return np.unique(np.array(found, dtype=np.uint64))


def test_drawn_pairs_stand_for_all_pairs():
    values = make_fingerprints(1)
    near = corpus.pairs(values.tolist(), 12)
    at = Counter(near.values())
    assert min(at.values()) > 15
    drawn = draw_pairs(values, 12, 100)
    pairs = list(zip(drawn.left.tolist(), drawn.right.tolist(), strict=True))
    assert len(set(pairs)) == 100
    assert [near[pair] for pair in pairs] == drawn.distance.tolist()
    number = Counter(drawn.distance.tolist())
    assert sorted(number.values()) == [8] * 8 + [9] * 4
    weight = defaultdict(float)
    for bits, stands_for in zip(drawn.distance.tolist(), drawn.weight.tolist(), strict=True):
        weight[bits] += stands_for
    assert weight == {bits: pytest.approx(total) for bits, total in at.items()}
    # In random order: a part of them is spread over the distances, too.
    assert len(set(drawn.distance[:40].tolist())) > 8


def test_a_distance_with_few_pairs_leaves_its_share_to_the_others():
    values = np.array([0, 1, 2, 1 << 40, (1 << 40) | 7], dtype=np.uint64)
    near = corpus.pairs(values.tolist(), 4)
    assert Counter(near.values()) == {1: 3, 2: 3, 3: 3, 4: 1}
    assert sorted(draw_pairs(values, 4, 6).distance.tolist()) == [1, 2, 2, 3, 3, 4]
    everything = draw_pairs(values, 4, 100)
    assert {*zip(everything.left.tolist(), everything.right.tolist(), strict=True)} == near.keys()
    assert everything.weight.tolist() == [1.0] * 10


def test_the_order_of_the_fingerprints_and_the_processes_change_nothing():
    values = make_fingerprints(2)
    mixed = np.random.default_rng(3).permutation(values)
    first, again = draw_pairs(values, 8, 30, seed=7), draw_pairs(mixed, 8, 30, seed=7, workers=2)
    other = draw_pairs(values, 8, 30)
    for one, two in zip(first, again, strict=True):
        assert np.array_equal(one, two)
    assert first.left.tolist() != other.left.tolist()


def test_every_pair_has_the_same_chance():
    values = np.arange(16, dtype=np.uint64)
    times = Counter()
    for seed in range(300):
        drawn = draw_pairs(values, 1, 8, seed=seed)
        times.update(zip(drawn.left.tolist(), drawn.right.tolist(), strict=True))
    # 32 pairs, each drawn in a quarter of the runs: 75 times, with a standard deviation of 7.5.
    assert len(times) == 32
    assert 45 < min(times.values()) <= max(times.values()) < 105


def test_nothing_to_draw():
    assert len(draw_pairs(np.array([0, 2**64 - 1], dtype=np.uint64), 12, 20).left) == 0
    assert len(draw_pairs(np.array([0, 1], dtype=np.uint64), 0, 20).left) == 0
