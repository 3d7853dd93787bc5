"""Inputs that break other programs: a feature very often, huge weights, nothing, half characters, no spaces."""

import by_hand
import numpy as np
import pytest

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    KNOWN_RECIPES,
    Recipe,
    majority,
    simhash,
    simhash_features,
    simhash_many,
)

RECIPES = {"default": DEFAULT_RECIPE, **KNOWN_RECIPES}
TF = Recipe(shingles=(1,), weight="tf")


def test_one_word_a_hundred_thousand_times():
    one, other = simhash("one", TF), simhash("other", TF)
    assert simhash("one " * 100_000 + "other " * 99_999, TF) == one
    assert simhash("one " * 100_000 + "other " * 100_000, TF) == one & other
    assert simhash("one " * 100_000 + "other " * 100_000, Recipe(shingles=(1,), weight="tf", tie=1)) == one | other
    # As often as that, a feature is still worth its logarithm.
    by_words = {("one",): 100_000, ("two",): 3, ("three",): 1}
    text = "one " * 100_000 + "two " * 3 + "three"
    assert simhash(text, Recipe(shingles=(1,))) == by_hand.vote(by_words, Recipe(shingles=(1,)))


def test_weights_up_to_two_to_the_31st():
    hashes = [by_hand.mix(number) for number in range(101)]
    weights = [2**31 - number for number in range(101)]
    expected = by_hand.majority(list(zip(hashes, weights, strict=True)))
    assert majority(hashes, weights) == expected
    assert majority(hashes * 1000, weights * 1000) == expected


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_has_no_fingerprint(name):
    assert simhash("", RECIPES[name]) is None
    assert simhash_many(["", "a", ""], RECIPES[name]).mask.tolist() == [True, False, True]
    assert simhash_features([], RECIPES[name]) is None


@pytest.mark.parametrize("name", RECIPES)
def test_halves_of_characters_are_taken(name):
    text = "one\ud83d two\ude00 \udfff three \ud83d\ude00 four five six seven"
    assert isinstance(simhash(text, RECIPES[name]), int)
    assert isinstance(simhash_features([text, "\ud800"], RECIPES[name]), int)


def test_a_token_of_a_hundred_megabytes():
    # Computed from the definition in `simsql.fingerprint.hashes`.
    assert simhash("X" * 100_000_000) == 12723084890513519203


@pytest.mark.parametrize("name", KNOWN_RECIPES)
def test_a_long_token_in_other_recipes(name):
    recipe = KNOWN_RECIPES[name]
    found = simhash("x" * 300_000, recipe)
    if name in ("go-simhash", "fnv1a-words", "simhash-py-words"):
        assert found == by_hand.spelling_hash("x" * 300_000, recipe.hash)
    else:
        assert found is not None


def test_jieba_takes_no_time_by_the_square_of_a_run():
    assert simhash("中" * 20_000, KNOWN_RECIPES["java-fnv1"]) is not None


def test_a_million_texts_of_one_token():
    found = simhash_many(["x", "Y"] * 500_000)
    assert found.shape == (1_000_000,)
    assert not found.mask.any()
    assert (found.data[0::2] == simhash("x")).all()
    assert (found.data[1::2] == simhash("y")).all()


@pytest.mark.parametrize("name", KNOWN_RECIPES)
def test_many_texts_of_one_token_in_other_recipes(name):
    found = simhash_many(map(str, range(9_999)), KNOWN_RECIPES[name])
    assert not found.mask.any()
    # 111 and 1111 have the same trigrams.
    assert len(np.unique(found.data)) == (9_991 if name == "pg_trgm" else 9_999)
    assert found[5_432] == simhash("5432", KNOWN_RECIPES[name])
