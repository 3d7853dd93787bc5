from collections import Counter

import by_hand
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import DEFAULT_RECIPE, KNOWN_RECIPES, Recipe, simhash, simhash_features
from simsql.fingerprint.features import IdfTable

FEATURES = st.text(st.one_of(st.sampled_from("ab 中\ud800"), st.characters(codec=None)), max_size=4)
RECIPES = st.builds(
    Recipe,
    weight=st.sampled_from(["set", "log", "tf"]),
    hash=st.sampled_from(["splitmix", "fnv1", "fnv1utf16", "md5", "md5low", "xxh3"]),
    tie=st.integers(0, 1),
    min_features=st.integers(1, 3),
)


def vote_weights(weights, recipe):
    """Of features with these weights, as given."""
    weights = {feature: weight for feature, weight in weights.items() if weight}
    if len(weights) < recipe.min_features:
        return None
    hashes = {feature: by_hand.feature_hash((feature,), recipe) for feature in weights}
    return by_hand.majority([(hashes[feature], weight) for feature, weight in weights.items()], recipe.tie)


@given(st.lists(FEATURES, max_size=20), RECIPES)
def test_features_weigh_by_how_often_they_occur(features, recipe):
    counted = Counter((feature,) for feature in features)
    assert simhash_features(iter(features), recipe) == by_hand.vote(counted, recipe)


@given(st.lists(st.tuples(FEATURES, st.integers(0, 2**40)), min_size=1, max_size=20), st.lists(FEATURES), RECIPES)
def test_given_weights_are_taken_as_they_are(pairs, features, recipe):
    weights = Counter(features)
    for feature, weight in pairs:
        weights[feature] += weight
    assert simhash_features([*features, *pairs], recipe) == vote_weights(weights, recipe)
    assert simhash_features(weights, recipe) == vote_weights(weights, recipe)


def test_features_are_hashed_like_single_words():
    assert simhash_features(["one", "two"]) == simhash("one two", Recipe(shingles=(1,)))
    assert simhash_features(["One Two"]) != simhash_features(["one two"])
    assert simhash_features([]) is None
    assert simhash_features([""]) is not None
    assert simhash_features([("a", 0)]) is None


def test_numpy_numbers_are_weights():
    assert simhash_features([("a", np.int32(3)), ("b", np.uint8(1))]) == simhash_features(["a"])


def test_many_equal_features_and_large_weights_are_exact():
    one, other = simhash_features(["a"]), simhash_features(["b"])
    common = one & other
    tf = Recipe(weight="tf")
    assert simhash_features(["a"] * 100_000 + ["b"] * 99_999, tf) == one
    assert simhash_features(["a"] * 100_000 + ["b"] * 100_000, tf) == common
    assert simhash_features([("a", 2**31)] * 100_000 + [("b", 2**31)] * 99_999 + [("b", 2**31 - 1)]) == one
    assert simhash_features([("a", 2**31)] * 100_000 + [("b", 2**31)] * 100_000) == common
    for name in ("pypi-simhash", "java-fnv1"):
        recipe = KNOWN_RECIPES[name]
        assert simhash_features(["a"] * 10_001 + ["b"] * 10_000, recipe) == simhash_features(["a"], recipe)


def test_an_idf_table_multiplies():
    a, b = (by_hand.feature_hash((feature,), DEFAULT_RECIPE) for feature in "ab")
    order = np.argsort(np.array([a, b], dtype=np.uint64))
    table = IdfTable(np.sort(np.array([a, b], dtype=np.uint64)), np.array([1, 50], dtype=np.int32)[order], 7)
    recipe = Recipe(idf=table)
    assert simhash_features([("a", 49), ("b", 1)], recipe) == simhash_features(["b"])
    assert simhash_features([("a", 51), ("b", 1)], recipe) == simhash_features(["a"])
    assert simhash_features([("a", 2**53 - 2), ("b", 1)], recipe) == simhash_features(["a"])


def test_pairs_may_be_lists_as_in_json():
    assert simhash_features([["a", 3], ["b", 1], "c"]) == simhash_features([("a", 3), ("b", 1), "c"])


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ("one two", TypeError, "not a single str: use simhash"),
        (
            ["a", b"b"],
            TypeError,
            "feature 1 must be a str or a pair of a str and its weight, not b'b'",
        ),
        ([("a", 1, 2)], TypeError, "feature 0 must be a str or a pair"),
        ([(1, "a")], TypeError, "feature 0 must be a str or a pair"),
        (
            [("a", 0.5)],
            TypeError,
            r"feature 0 must be an integer, not 0.5: round it, for example with round\(1000 \* weight\)",
        ),
        ({"a": "1"}, TypeError, "the weight of feature 0 must be an integer"),
        ([("a", 1), ("b", -1)], ValueError, "the weight of feature 1 must not be negative, but is -1"),
        ([("a", 2**52), ("b", 2**52)], ValueError, r"less than 2\*\*53, not 9007199254740992"),
    ],
)
def test_wrong_features_are_named(features, error, message):
    with pytest.raises(error, match=message):
        simhash_features(features)


def test_few_texts_and_features_are_told_apart_exactly():
    recipe = Recipe(min_features=100, short="exact")
    found = {simhash(text, recipe) for text in ("one two", "one three")}
    found |= {simhash_features(features, recipe) for features in (["x"], ["y"], ["x", "x"])}
    assert len(found) == 5
    # As stored in databases.
    assert simhash("one two two", recipe) == 14186409347711753705
