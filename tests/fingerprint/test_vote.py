import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import majority, vote

HASHES = st.integers(0, 2**64 - 1)
WEIGHTS = st.one_of(st.integers(1, 5), st.sampled_from([126, 127, 128, 129, 2**14, 2**31]), st.integers(1, 2**40))


def count_by_hand(features):
    """The definition: bit by bit, a set bit where the weights of ones are more than those of zeros."""
    result = 0
    for bit in range(64):
        balance = sum(weight if value >> bit & 1 else -weight for value, weight in features)
        result |= (balance > 0) << bit
    return result


@given(st.lists(st.tuples(HASHES, st.integers(0, 2**40)), max_size=100))
def test_vote_is_the_definition(features):
    hashes, weights = [value for value, _ in features], [weight for _, weight in features]
    assert majority(hashes, weights) == count_by_hand(features)
    assert majority(iter(hashes)) == count_by_hand([(value, 1) for value in hashes])


@given(st.lists(st.lists(st.tuples(HASHES, WEIGHTS), min_size=1, max_size=70), min_size=1, max_size=8))
def test_batches_are_votes_one_by_one(documents):
    flat = [feature for features in documents for feature in features]
    votes = vote.majorities(
        np.array([value for value, _ in flat], dtype=np.uint64),
        np.array([weight for _, weight in flat]),
        np.array([len(features) for features in documents]),
    )
    assert votes.tolist() == [count_by_hand(features) for features in documents]


@pytest.mark.parametrize(
    "weights", [[128, 1], [128, 1, 1], [1, 256, 2], [127, 127, 127], [2**14 + 128, 129, 1, 2**14]]
)
@pytest.mark.parametrize("repeated", [1, 3, 130])
def test_weights_whose_digits_are_zero(weights, repeated):
    hashes = np.random.default_rng(len(weights)).integers(0, 2**64, len(weights) * repeated, dtype=np.uint64)
    features = list(zip(hashes.tolist(), weights * repeated, strict=True))
    assert majority(hashes, weights * repeated) == count_by_hand(features)
    both = vote.majorities(np.tile(hashes, 2), np.array(weights * repeated * 2), np.array([len(features)] * 2))
    assert both.tolist() == [count_by_hand(features)] * 2


def test_slices_of_a_large_batch_add_up(monkeypatch):
    random = np.random.default_rng(1)
    counts = np.array([5, 1, 700, 33, 64, 197])
    hashes = random.integers(0, 2**64, counts.sum(), dtype=np.uint64)
    weights = random.integers(1, 9, counts.sum())
    whole = vote.majorities(hashes, weights, counts)
    monkeypatch.setattr(vote, "_AT_ONCE", 50)
    assert vote.majorities(hashes, weights, counts).tolist() == whole.tolist()


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 255, 256, 257, 8192, 8193])
def test_equal_hashes_are_counted_without_overflow(count):
    assert majority([0xDEADBEEF] * count) == 0xDEADBEEF


def test_ties_and_emptiness_are_zero():
    assert majority([]) == 0
    assert majority([2**64 - 1, 0]) == 0
    assert majority([2**64 - 1, 5], [0, 0]) == 0
    assert majority([2**64 - 1, 0], [2**61, 2**61 - 1]) == 2**64 - 1


def test_published_votes(shared):
    for case in json.loads((shared / "vectors.json").read_text())["vote_ties_to_zero"]:
        expected = case["simhash"]
        assert majority(int(value, 16) for value in case["hashes"]) == (
            int(expected, 16) if isinstance(expected, str) else expected
        )


def test_arrays_are_taken():
    assert majority(np.array([1, 3, 2**63], dtype=np.uint64), np.array([1, 1, 1])) == 1


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="2 hashes need 2 weights, not 1"):
        majority([1, 2], [1])
    with pytest.raises(ValueError, match="must not be negative, but one is -3"):
        majority([1], [-3])
    with pytest.raises(ValueError, match="must be below 2"):
        majority([1, 3], [2**61, 2**61])
    with pytest.raises(TypeError):
        majority([1], [0.5])
    with pytest.raises(OverflowError):
        majority([2**64])
