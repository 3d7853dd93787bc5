"""Precision, recall and F1 are those of a plain count, and the intervals those of a plain bootstrap."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.evaluate.measures import NO_FINGERPRINT, LabelledPairs, best_rule, evaluate_pairs

CHECK = 0.6
CHECKS = [CHECK, 0.8]
DISTANCES = range(13)

labelled = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 14), st.just(NO_FINGERPRINT)),
        st.sampled_from([0.0, 0.3, 0.59, 0.6, 0.8, 1.0]),
        st.booleans(),
        st.sampled_from([1.0, 1.0, 0.5, 37.25]),
    ),
    min_size=1,
    max_size=30,
).filter(lambda rows: any(row[2] for row in rows))


def pairs_of(rows):
    distance, similarity, alike, weight = zip(*rows, strict=True)
    return LabelledPairs(np.array(distance), np.array(similarity), np.array(alike), np.array(weight))


def count(rows, distance, least):
    """Return precision, recall and F1 by a plain count."""
    found = [row for row in rows if row[0] <= distance and (least is None or row[1] >= least)]
    all_found = sum(row[3] for row in found)
    right = sum(row[3] for row in found if row[2])
    wanted = sum(row[3] for row in rows if row[2])
    precision, recall = right / all_found if found else None, right / wanted if wanted else None
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return precision, recall, f1, len(found)


@given(labelled)
def test_figures_are_those_of_a_plain_count(rows):
    found = evaluate_pairs(pairs_of(rows), DISTANCES, CHECKS)
    assert [(rule.distance, rule.similarity) for rule in found] == [
        (distance, least) for least in (None, *CHECKS) for distance in DISTANCES
    ]
    for rule in found:
        *shares, number = count(rows, rule.distance, rule.similarity)
        assert rule.found == number
        for estimate, share in zip((rule.precision, rule.recall, rule.f1), shares, strict=True):
            assert estimate.value == (share if share is None else pytest.approx(share))
            if share is None:
                assert estimate == (None, None, None)
            else:
                assert 0 <= estimate.low <= estimate.high <= 1


@given(labelled, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_changes_nothing(rows, chance):
    before = evaluate_pairs(pairs_of(rows), DISTANCES, [CHECK])
    chance.shuffle(rows)
    assert evaluate_pairs(pairs_of(rows), DISTANCES, [CHECK]) == before


def make_rows(count, seed):
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        alike = chance.random() < 0.5
        distance = chance.randrange(2, 11) if alike else chance.randrange(6, 13)
        rows.append((distance, chance.choice([0.5, 0.7]), alike, chance.choice([1.0, 5.0])))
    return rows


def test_intervals_are_those_of_a_plain_bootstrap():
    rows = make_rows(120, seed=2)
    chance = random.Random(3)
    samples = [chance.choices(rows, k=len(rows)) for _ in range(1000)]
    found = evaluate_pairs(pairs_of(rows), DISTANCES, [CHECK])
    wide = 0
    for rule in found:
        if not 6 <= rule.distance <= 9:
            continue
        drawn = [count(sample, rule.distance, rule.similarity)[:3] for sample in samples]
        for estimate, values in zip((rule.precision, rule.recall, rule.f1), zip(*drawn, strict=True), strict=True):
            low, high = np.quantile([value for value in values if value is not None], [0.025, 0.975])
            # The ends of two intervals from 1,000 samples each differ by about a tenth of their width.
            assert estimate.low == pytest.approx(low, abs=0.04)
            assert estimate.high == pytest.approx(high, abs=0.04)
            wide += high - low > 0.1
    assert wide > 10


def test_a_pair_counts_by_its_weight():
    rows = [(3, 0.9, True, 1.0), (5, 0.2, False, 2.0), (9, 0.9, True, 3.0)]
    repeated = [(*row[:3], 1.0) for row in rows for _ in range(int(row[3]))]
    by_weight, by_number = (evaluate_pairs(pairs_of(some), DISTANCES, [CHECK]) for some in (rows, repeated))
    for one, other in zip(by_weight, by_number, strict=True):
        for name in ("precision", "recall", "f1"):
            values = getattr(one, name).value, getattr(other, name).value
            assert values[0] == (values[1] if values[1] is None else pytest.approx(values[1]))


def test_every_pair_may_have_a_weight_of_its_own():
    chance = np.random.default_rng(5)
    size = 4_500  # more than are drawn at once
    pairs = LabelledPairs(
        chance.integers(0, 20, size), chance.random(size), chance.random(size) < 0.3, chance.random(size) + 0.1
    )
    (alone, _) = evaluate_pairs(pairs, [10], [CHECK])
    assert alone.precision.low < alone.precision.value < alone.precision.high
    assert alone.precision.value == pytest.approx(0.3, abs=0.03)


def test_the_best_rule_is_the_cheapest_of_the_best():
    def best(*rows):
        rule = best_rule(evaluate_pairs(pairs_of([(*row, 1.0) for row in rows]), DISTANCES, [CHECK]))
        return rule.distance, rule.similarity

    assert best((4, 0.9, True)) == (4, CHECK)
    assert best((4, 0.3, True)) == (4, None)
    assert best((4, 0.9, True), (9, 0.9, True), (9, 0.1, False)) == (9, CHECK)
    assert best((4, 0.9, True), (9, 0.4, True), (12, 0.1, False)) == (9, None)
    assert best_rule(evaluate_pairs(pairs_of([(NO_FINGERPRINT, 0.0, True, 1.0)]), DISTANCES, [CHECK])) is None


def test_recall_needs_a_near_duplicate():
    with pytest.raises(ValueError, match="at least one pair that is a near-duplicate"):
        evaluate_pairs(pairs_of([(3, 0.9, False, 1.0)]), DISTANCES, [CHECK])
