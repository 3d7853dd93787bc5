"""What a sample of fingerprints predicts, against brute force over all of them."""

from functools import cache

import numpy as np
import pytest
from skew import mean_candidates, skewed

from simsql import Design, plan
from simsql.hamming import PrefixSample
from simsql.hamming.planner import default_design

FINGERPRINTS = np.array(skewed(3_000), dtype=np.int64).view(np.uint64)
DESIGNS = [(4, 1, 0), (3, 1, 0), (2, 1, 0), (5, 2, 0), (4, 1, 4)]


@cache
def measured(design, distance):
    return mean_candidates(FINGERPRINTS.view(np.int64), design, distance)


@pytest.mark.parametrize("design", DESIGNS, ids=str)
@pytest.mark.parametrize("size", [1_500, 3_000])
def test_a_sample_predicts_the_candidates_of_a_search(design, size):
    sample = PrefixSample(FINGERPRINTS[:size])
    for distance in (3, 7, 10):
        candidates = measured(design, distance)
        # Where they are few, they hardly matter.
        predicted = Design(*design).candidates(distance, len(FINGERPRINTS), sample)
        assert candidates / 1.5 - 1 < predicted < candidates * 1.5 + 1


def test_a_sample_of_random_fingerprints_predicts_what_is_computed_without_one():
    sample = PrefixSample(np.random.default_rng(5).integers(0, 2**64, 5_000, dtype=np.uint64))
    for design in (Design(4), Design(3), Design(5, 2)):
        for distance in (3, 7, 10, 20, 64):
            expected = design.candidates(distance, 10**6)
            assert design.candidates(distance, 10**6, sample) == pytest.approx(expected, rel=0.3)
            costs = design.search_us(distance, 10**6)
            assert design.search_us(distance, 10**6, sample=sample) == pytest.approx(costs, rel=0.3)
        assert design.scan_rows(7, sample=sample) == pytest.approx(design.scan_rows(7), rel=0.1)


def test_fingerprints_that_share_a_prefix_are_always_candidates():
    sample = PrefixSample(np.arange(2_000, dtype=np.uint64))
    assert Design(4).candidates(2, 1_000, sample) == 3_000
    assert Design(4).scan_rows(2, sample=sample) == float("inf")


def test_a_plan_with_a_sample_compares_what_searches_read():
    sample = PrefixSample(FINGERPRINTS)
    for rows, distance in ((10_000, 3), (10**7, 3), (10**8, 7)):
        made = plan(rows, distance, sample=sample)
        for choice in made.choices:
            design = choice.design
            assert choice.candidates == design.candidates(distance, rows, sample)
            assert choice.search_us == design.search_us(distance, rows, sample=sample)
            assert choice.scans == (rows < design.scan_rows(distance, sample=sample))
        assert made.default.design == default_design(rows, distance)
        assert {made.reading, made.writing, made.default} <= set(made.choices)
        for few in (design for design in map(Design, range(2, 9))):
            search_us = few.search_us(distance, rows, sample=sample)
            assert any(c.tables <= few.tables and c.search_us * 0.9 <= search_us for c in made.choices)


@pytest.mark.parametrize("values", [[], [7, 7, 7]])
def test_a_sample_needs_two_fingerprints(values):
    with pytest.raises(ValueError, match="at least two different fingerprints"):
        PrefixSample(np.array(values, dtype=np.uint64))


def test_a_sample_takes_integers_and_omits_what_is_masked():
    with pytest.raises(TypeError, match="uint64"):
        PrefixSample(np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="not 1"):
        PrefixSample(np.ma.MaskedArray(np.array([1, 2], dtype=np.uint64), mask=[True, False]))
