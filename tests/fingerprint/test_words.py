"""Wide fingerprints: several words of 64 bits, of which each hashes the same features independently."""

from dataclasses import replace

import numpy as np
import pytest

from simsql import DEFAULT_RECIPE, Recipe, simhash, simhash_many
from simsql.fingerprint import IdfTable, read_recipe, simhash_features, simhash_parts, write_recipe

TEXT = "A fingerprint of 64 bits for every text, and similar texts differ in few of them."


def test_golden_values():
    assert simhash(TEXT, words=4) == (
        483974678595886213,
        17865085614314804955,
        16897241701407739260,
        11114256319760709437,
    )


@pytest.mark.parametrize("hash_", ["splitmix", "md5", "xxh3"])
def test_a_word_is_what_its_recipe_computes(hash_):
    recipe = Recipe(hash=hash_)
    words = simhash(TEXT, recipe, words=4)
    assert words[0] == simhash(TEXT, recipe)
    assert len(set(words)) == 4
    for number, word in enumerate(words):
        of_word = replace(recipe, word=number)
        assert word == simhash(TEXT, of_word) == simhash_many([TEXT], of_word)[0]
        assert word == simhash_parts([(TEXT, 2)], of_word)
        assert Recipe.from_id(of_word.id) == of_word
    assert simhash(TEXT, recipe, words=2) == words[:2]
    assert simhash(" .", recipe, words=2) is None


def test_long_and_short_texts_have_words():
    # More than a million characters are counted in portions.
    tokens = [str(number % 5_000) for number in range(300_000)]
    recipe = Recipe(shingles=(1,), word=1)
    assert simhash(" ".join(tokens), recipe) == simhash_features(tokens, recipe)
    exact = Recipe(min_features=100, short="exact")
    assert len(set(simhash(TEXT, exact, words=4))) == 4
    assert simhash(TEXT, replace(exact, short="none"), words=4) is None


def test_a_file_of_a_recipe_names_the_word(tmp_path):
    path = tmp_path / "recipe.json"
    write_recipe(Recipe(word=3), path)
    assert read_recipe(path) == Recipe(word=3)


def test_words_are_independent():
    """Of unrelated texts, each bit of a word agrees with each bit of another about half of the time."""
    texts = [f"{number} {number * 7919} {number * 104729}" for number in range(2_000)]
    bits = [
        np.unpackbits(simhash_many(texts, Recipe(word=word)).data.view(np.uint8)).reshape(-1, 64)
        for word in (0, 1)
    ]
    agree = np.corrcoef(np.hstack(bits).T)[:64, 64:]
    assert abs(agree).max() < 0.15  # six standard errors


def test_features_have_the_same_weights_in_every_word():
    table = IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 3, DEFAULT_RECIPE.features_id)
    assert Recipe(idf=table, word=1).features_id == DEFAULT_RECIPE.features_id


@pytest.mark.parametrize(("recipe", "words"), [(Recipe(), 0), (Recipe(), 5), (Recipe(), "2"), (Recipe(word=1), 2)])
def test_wrong_words_are_refused(recipe, words):
    with pytest.raises(ValueError, match="words must be between 1 and 4, and the recipe that of word 0"):
        simhash(TEXT, recipe, words=words)


def test_there_are_four_words():
    with pytest.raises(ValueError, match="word must be one of 0, 1, 2, 3, not 4"):
        Recipe(word=4)
