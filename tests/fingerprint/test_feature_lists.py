from collections import Counter

import by_hand
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import DEFAULT_RECIPE, KNOWN_RECIPES, Recipe, simhash, simhash_features, simhash_rows
from simsql.fingerprint.features import IdfTable
from simsql.fingerprint.vote import _ROWS_AT_ONCE

FEATURES = st.text(st.one_of(st.sampled_from("ab 中\ud800"), st.characters(codec=None)), max_size=4)
RECIPES = st.builds(
    Recipe,
    weight=st.sampled_from(["set", "log", "tf"]),
    hash=st.sampled_from(["splitmix", "fnv1", "fnv1utf16", "md5", "md5low", "xxh3", "jenkins"]),
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


VALUES = st.one_of(st.sampled_from([0.0, 0.0004, 0.0005, 1.0]), st.floats(0, 50), st.integers(0, 9).map(float))


@given(
    st.lists(st.lists(VALUES, min_size=4, max_size=4), max_size=6),
    st.sampled_from([None, ["one", "two", "three", "中"]]),
    st.sampled_from(["csr_array", "csc_matrix", "coo_array", "lil_matrix"]),
    RECIPES,
)
def test_rows_are_features_with_weights(rows, names, kind, recipe):
    dense = np.array(rows).reshape(-1, 4)
    found = simhash_rows(getattr(scipy.sparse, kind)(dense), names, recipe)
    columns = names or ["0", "1", "2", "3"]
    # Half to even, as Python rounds.
    weights = [{name: round(value * 1000) for name, value in zip(columns, row, strict=True)} for row in rows]
    assert found.tolist() == [vote_weights(row, recipe) for row in weights]
    assert found.dtype == np.uint64
    assert found.mask.shape == (len(rows),)


def test_entries_of_one_place_are_summed_and_the_matrix_is_left_alone():
    entries = scipy.sparse.csr_array(([0.25, 2.0, 0.5], [1, 0, 1], [0, 3]), shape=(1, 2))
    assert simhash_rows(entries).tolist() == [simhash_features([("0", 2000), ("1", 750)])]
    assert entries.data.tolist() == [0.25, 2.0, 0.5]
    # Each of the two would be rounded to 0.
    halves = scipy.sparse.csr_array(([0.25, 0.5], [0, 0], [0, 2]), shape=(1, 2))
    assert simhash_rows(halves, scale=1).tolist() == [simhash_features([("0", 1)])]


def test_numbers_of_any_kind_are_weights():
    for kind in (bool, np.int8, np.float32, np.uint64):
        matrix = scipy.sparse.csr_array(np.array([[1, 0, 1], [0, 0, 1]], dtype=kind))
        assert simhash_rows(matrix, ["a", "b", "c"]).tolist() == [
            simhash_features(list("ac")),
            simhash_features(["c"]),
        ]


def test_a_scale_says_what_counts():
    matrix = scipy.sparse.csr_array([[0.4, 0.3]])
    assert simhash_rows(matrix, scale=1).tolist() == [None]
    assert simhash_rows(matrix, scale=10).tolist() == [simhash_features([("0", 4), ("1", 3)])]
    large = scipy.sparse.csr_array([[2.0**52, 2.0**52]])
    with pytest.raises(ValueError, match=r"must add up to less than 2\*\*53, not 9"):
        simhash_rows(large, scale=1)
    large.data[0] -= 1
    assert simhash_rows(large, scale=1).tolist() == [simhash_features([("0", 2**52 - 1), ("1", 2**52)])]


def test_few_texts_and_features_are_told_apart_exactly():
    recipe = Recipe(min_features=100, short="exact")
    found = {simhash(text, recipe) for text in ("one two", "one three")}
    found |= {simhash_features(features, recipe) for features in (["x"], ["y"], ["x", "x"])}
    assert len(found) == 5
    # As stored in databases.
    assert simhash("one two two", recipe) == 14186409347711753705


def test_many_rows_are_the_rows_one_by_one():
    random = np.random.default_rng(3)
    matrix = scipy.sparse.random_array((_ROWS_AT_ONCE * 2 + 5, 50), density=0.02, rng=random, format="csr")
    matrix.data += 1
    found = simhash_rows(matrix)
    some = [*range(_ROWS_AT_ONCE - 3, _ROWS_AT_ONCE + 3), matrix.shape[0] - 1]
    assert [found.tolist()[row] for row in some] == [simhash_rows(matrix[[row]]).tolist()[0] for row in some]
    assert found.mask.tolist() == (np.diff(matrix.indptr) == 0).tolist()


@pytest.mark.parametrize(
    ("matrix", "names", "error", "message"),
    [
        (np.eye(2), None, TypeError, "must be a scipy.sparse matrix, not ndarray"),
        (scipy.sparse.coo_array([1.0, 2.0]), None, ValueError, "must have two dimensions, not 1"),
        (scipy.sparse.eye_array(2), ["a"], ValueError, "2 columns need 2 names, not 1"),
        (scipy.sparse.eye_array(2), {"a": 0, "b": 1}, TypeError, "a list with the name of each column, not dict"),
        (scipy.sparse.eye_array(3), ["a", "b", "a"], ValueError, "must be distinct, but 'a' occurs twice"),
        (scipy.sparse.eye_array(3), ["a", "b", "b"], ValueError, "must be distinct, but 'b' occurs twice"),
        (scipy.sparse.eye_array(2), ["a", 7], TypeError, "the name of column 1 must be a str, not int"),
        (
            scipy.sparse.csr_array([[1.0], [-0.5]]),
            None,
            ValueError,
            "numbers of at least 0, but row 1 contains -0.5",
        ),
        (scipy.sparse.csr_array([[1.0], [np.nan]]), None, ValueError, "must be numbers .* row 1 contains nan"),
        (
            scipy.sparse.csr_array([[0.0], [1e14]]),
            None,
            ValueError,
            r"the values of row 1, .* not 1e\+17: use a smaller scale",
        ),
    ],
)
def test_wrong_matrices_are_named(matrix, names, error, message):
    with pytest.raises(error, match=message):
        simhash_rows(matrix, names)
