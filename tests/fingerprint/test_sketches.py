"""Sketches: MinHashes in plain Python give the same bits, whatever the batches, pieces and processes."""

from unittest import mock

import numpy as np
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from minima import MULTIPLIERS, plain_bands, plain_sketch

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    Recipe,
    TokenLists,
    estimate_similarity,
    minima_of_tokens,
    simhash_items_with_tokens,
    similarity,
    sketch,
    sketch_distance,
    sketch_id,
    sketch_many,
)

# What the definition gives, computed once: other values mean another id.
VECTORS = {
    "a": 0x8A17C70CD4E11B18,
    "hello world": 0x7F0D253EFFED69C6,
    "The quick brown fox jumps over the lazy dog.": 0x1641773EF4647A21,
    "\u4e2d\u6587 text": 0x53171EF6BA83E22C,
    "a b c d e f g": 1960330052326130206,
}
BITS_64 = 2**64 - 1
WORDS = st.sampled_from(["a", "b", "c", "\u4e2d\u6587\u5b57", "\u0628\u064e", "\U0001f600", "W\u00f6rter", "..."])
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)


def test_vectors():
    assert sketch_id(1) == "minhash64-1"
    assert len(set(MULTIPLIERS)) == 64
    for text, expected in VECTORS.items():
        assert sketch(text) == plain_sketch(text) == expected
    assert sketch_many(VECTORS).tolist() == list(VECTORS.values())


@given(st.lists(TEXTS, max_size=6), st.integers(1, 9), st.integers(1, 20))
def test_sketches_are_the_same_in_batches_and_pieces_of_any_size(texts, at_once, piece):
    expected = [plain_sketch(text) for text in texts]
    assert [sketch(text) for text in texts] == sketch_many(texts).tolist() == expected
    with (
        mock.patch("simsql.fingerprint.sketches._AT_ONCE", at_once),
        mock.patch("simsql.fingerprint.tokens._PIECE", piece),
        mock.patch("simsql.fingerprint.batches._BATCH_CHARACTERS", 30),
    ):
        assert sketch_many(iter(texts)).tolist() == [sketch(text) for text in texts] == expected


@pytest.mark.parametrize("recipe", [DEFAULT_RECIPE, Recipe("characters", (4,)), Recipe(shingles=(1,))])
def test_sketches_beside_fingerprints_of_any_recipe(recipe):
    texts = ["one two", "", "...", "\u4e2d\u6587 one", "long text " * 100]
    with mock.patch("simsql.fingerprint.documents._LONG", 500):
        found = list(simhash_items_with_tokens(enumerate(texts), recipe))
    sketches = [value for *_, minima in found for value in minima.sketches.tolist()]
    assert sketches == sketch_many(texts).filled(0).tolist()
    assert [keys for *_, minima in found for keys in minima.bands.tolist()] == list(map(plain_bands, texts))


def test_processes_do_not_matter():
    texts = [f"text {number} of many" * (number % 5) for number in range(40)]
    with mock.patch("simsql.fingerprint.batches.TASK_CHARACTERS", 100):
        assert sketch_many(texts, workers=2).tolist() == sketch_many(texts).tolist()


def test_texts_without_words_have_no_sketch():
    assert sketch("...") is None
    assert sketch_many(["", "a", "..."]).mask.tolist() == [True, False, True]
    assert sketch_many([]).tolist() == []
    none = TokenLists(np.zeros(0, dtype=np.uint64), np.zeros(2, dtype=np.int64))
    assert minima_of_tokens(none).sketches.tolist() == [0, 0]


@pytest.mark.parametrize(("words", "changed"), [(3000, 100), (3000, 600), (30, 3)])
def test_the_estimate_has_the_mean_and_the_variance_of_its_theory(words, changed):
    chance = np.random.default_rng(words + changed)
    ones, others, exact = [], [], 0.0
    for number in range(200):
        text = [f"w{number}x{place}" for place in range(words)]
        other = list(text)
        for place in chance.choice(words, changed, replace=False):
            other[place] += "y"
        ones.append(" ".join(text))
        others.append(" ".join(other))
        exact += similarity(ones[-1], others[-1]) / 200
    errors = estimate_similarity(sketch_many(ones), sketch_many(others)) - exact
    theory = np.sqrt(1 - exact**2) / 8
    assert abs(errors.mean()) < 4 * theory / np.sqrt(200)
    assert 0.8 < errors.std() / theory < 1.25


def test_estimates_of_ints_and_arrays():
    assert estimate_similarity(0, 0) == 1.0
    assert estimate_similarity(0, 0b111) == 1 - 3 / 32
    assert estimate_similarity(0, BITS_64) == 0.0
    assert estimate_similarity(np.uint64(BITS_64), 1) == 0.0
    assert estimate_similarity(None, 1) is None
    assert estimate_similarity(np.ma.masked, 1) is None
    some = np.ma.MaskedArray(np.array([0, 1, 3], dtype=np.uint64), mask=[False, True, False])
    assert estimate_similarity(some, 1).tolist() == [31 / 32, None, 31 / 32]
    assert estimate_similarity(some, None).tolist() == [None, None, None]
    assert estimate_similarity(some.data[:, None], some.data).shape == (3, 3)


@pytest.mark.parametrize(
    "make",
    [
        list,
        iter,
        lambda values: polars.Series(values, dtype=polars.UInt64),
        lambda values: pyarrow.array(values, pyarrow.uint64()),
        lambda values: pyarrow.chunked_array([values[:1], values[1:]], pyarrow.uint64()),
        lambda values: polars.Series([-1, *values], dtype=polars.Int64)[1:],
        lambda values: pyarrow.array([-1, *values], pyarrow.int64())[1:],
    ],
)
def test_estimates_of_columns_and_lists(make):
    assert estimate_similarity(make([0, None, 3]), 1).tolist() == [31 / 32, None, 31 / 32]
    assert estimate_similarity(make([0, 3]), make([3, 3])).tolist() == [30 / 32, 1.0]
    assert estimate_similarity(None, make([0, 3])).tolist() == [None, None]
    assert estimate_similarity(make([]), make([])).tolist() == []
    with pytest.raises(ValueError, match=r"a and b must have the same shape, not \(3,\) and \(2,\)"):
        estimate_similarity(make([0, 1, 2]), make([0, 1]))


def test_a_column_of_bigints_keeps_its_bits():
    assert estimate_similarity(pyarrow.array([-1]), BITS_64).tolist() == [1.0]
    with pytest.raises(TypeError, match="a column of int64 or uint64, not of string"):
        estimate_similarity(pyarrow.array(["a"]), 1)


@pytest.mark.parametrize(
    ("wrong", "error"), [(-(2**63) - 1, ValueError), (2**64, ValueError), ("a", ValueError), (True, TypeError)]
)
def test_values_that_are_no_sketches(wrong, error):
    with pytest.raises(error, match="a sketch"):
        estimate_similarity(1, wrong)
    with pytest.raises(TypeError, match="int64, not of float64"):
        estimate_similarity(np.array([1.0]), 1)


@pytest.mark.parametrize(("similar", "distance"), [(0, 43), (0.5, 26), (0.6, 22), (0.7, 18), (0.8, 14), (1, 0)])
def test_the_filter_loses_one_pair_in_400(similar, distance):
    assert sketch_distance(similar) == distance


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_a_similarity_is_a_share(wrong):
    with pytest.raises(ValueError, match="similarity must be between 0 and 1"):
        sketch_distance(wrong)


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError, match="text must be a str, not int"):
        sketch(3)
    with pytest.raises(TypeError, match="text 1 must be a str, not NoneType"):
        sketch_many(["a", None])
    with pytest.raises(TypeError, match="single str"):
        sketch_many("a b")
