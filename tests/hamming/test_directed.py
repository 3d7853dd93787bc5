"""Query-directed probes: the likeliest prefixes, checked against all prefixes and against simulated flips."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simsql.hamming import Design
from simsql.hamming.directed import direct

DESIGNS = [Design(4, 1), Design(3, 1), Design(5, 2), Design(6, 3), Design(4, 1, 4), Design(2, 1)]
designs = pytest.mark.parametrize("design", DESIGNS, ids=str)
probabilities = st.lists(st.floats(0, 0.5), min_size=64, max_size=64).map(np.array)


def random_probabilities(seed):
    return np.random.default_rng(seed).random(64) ** 3 / 2


def prefixes(design, differing):
    """The prefix of each table of fingerprints that differ in these bits."""
    return [table.key(differing) >> np.uint64(64 - table.prefix_bits) for table in design.permutations]


def simulated(p, seed, count=20_000):
    flipped = np.random.default_rng(seed).random((count, 64)) < p
    return (flipped * (np.uint64(1) << np.arange(64, dtype=np.uint64))).sum(axis=1, dtype=np.uint64)


def costs_of(found, differing):
    return sum(
        np.bitwise_count(differing & np.uint64(plane)).astype(int) << n for n, plane in enumerate(found.planes)
    )


def check_expected_recall(design, p, found, seed):
    differing = simulated(p, seed)
    probed = np.any(
        [np.isin(prefix, flips) for prefix, flips in zip(prefixes(design, differing), found.flips, strict=True)],
        axis=0,
    )
    screened = np.bitwise_count(differing & np.uint64(found.planes[2] | found.planes[3])) <= found.screen
    matches = probed & screened & (costs_of(found, differing) <= found.cost)
    deviation = np.sqrt(matches.mean() * (1 - matches.mean()) * (1 / 2048 + 1 / 20_000))
    assert abs(matches.mean() - found.expected_recall) < 3.5 * deviation + 0.002


@designs
def test_expected_recall_is_that_of_simulated_flips(design):
    for seed in range(4):
        p = random_probabilities(seed)
        found = direct(design, p, 0.99, 1_000)
        check_expected_recall(design, p, found, seed)
        assert found.expected_recall > 0.985 or sum(map(len, found.flips)) > 900


@pytest.mark.parametrize("design", [*DESIGNS, Design(5, 4), Design(8, 7)], ids=str)
@pytest.mark.parametrize("most", [1, 4, 400])
def test_no_recall_is_expected_from_prefixes_that_are_not_probed(design, most):
    # Of even odds, of few probes, and of bits of a long prefix that are never flipped.
    even = np.where(np.arange(64) % 3, 0.02, 0.5)
    for seed, p in enumerate([np.full(64, 0.5), even, np.full(64, 0.01)]):
        check_expected_recall(design, p, direct(design, p, 0.9, most), seed)


def test_little_is_returned_if_nothing_is_expected():
    found = direct(Design(2, 1), np.full(64, 0.4), 0.99, 4)
    assert found.expected_recall == 0
    assert found.cost < 20


@pytest.mark.parametrize("most", [1, 50, 400])
def test_the_probes_are_the_likeliest_prefixes(most):
    design = Design(4, 1)
    p = np.clip(random_probabilities(5), 1e-3, 0.5)
    found = direct(design, p, 0.999999, most)
    every = []
    for table, flips in zip(design.permutations, found.flips, strict=True):
        bits = [bit for bit in reversed(range(64)) if table.lead_mask >> bit & 1]
        chosen = np.arange(1 << 16)[:, None] >> np.arange(15, -1, -1) & 1
        likelihood = np.where(chosen, p[bits], 1 - p[bits]).prod(axis=1)
        every += [(value, prefix in set(flips.tolist())) for prefix, value in enumerate(likelihood.tolist())]
    every.sort(reverse=True)
    count = sum(map(len, found.flips))
    assert count <= most + 4
    # Costs are rounded to 1/64, so the last ones may be in another order.
    least = every[max(count - 4, 0)][0]
    assert all(probed for value, probed in every if value > least * 1.2)
    assert all(value > least / 1.5 for value, probed in every[4:] if probed) or count <= 8


@given(probabilities, st.sampled_from(DESIGNS), st.floats(0, 0.999), st.integers(1, 500))
@settings(deadline=None)
def test_every_table_is_probed_without_a_flip_and_no_prefix_twice(p, design, recall, most):
    found = direct(design, p, recall, most)
    assert len(found.flips) == len(design.permutations)
    for flips, bits in zip(found.flips, design.prefix_bits, strict=True):
        assert flips[0] == 0
        assert len(np.unique(flips)) == len(flips)
        assert int(flips.max()) < 1 << bits
    assert sum(map(len, found.flips)) <= most + len(design.permutations)
    assert 0 <= found.expected_recall <= 1


def test_a_bit_that_never_flips_costs_the_most_and_is_not_probed():
    p = np.full(64, 0.2)
    p[60:] = 0
    found = direct(Design(4, 1), p, 0.9, 400)
    assert found.planes[3] >> 60 == 15
    assert not np.any(found.flips[0] >> np.uint64(12))


def test_certain_fingerprints_are_probed_without_flips():
    found = direct(Design(4, 1), np.zeros(64), 0.99, 400)
    assert [flips.tolist() for flips in found.flips] == [[0]] * 4
    assert found.expected_recall == 1
