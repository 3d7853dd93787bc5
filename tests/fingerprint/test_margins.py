"""Margins, the odds of flips that follow from them, and the similarity of the texts of a column."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    KNOWN_RECIPES,
    Recipe,
    simhash,
    simhash_features,
    simhash_parts,
    similarity,
)
from simsql.fingerprint.documents import margins_of_parts
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.margins import flips_of_parts, similarities

TITLES = Recipe(tokens="characters", shingles=(3,))
PG_TRGM = KNOWN_RECIPES["pg_trgm"]
RECIPES = [DEFAULT_RECIPE, TITLES, PG_TRGM, Recipe(shingles=(3,), weight="tf"), Recipe(hash="md5"), Recipe(tie=1)]
texts = st.text(st.sampled_from("abc de "), max_size=60)


@given(text=texts, recipe=st.sampled_from(RECIPES))
def test_the_fingerprint_is_that_of_simhash_and_margins_are_those_of_the_votes(text, recipe):
    fingerprint, margins = margins_of_parts([(text, 1)], recipe)
    assert fingerprint == simhash(text, recipe)
    if fingerprint is None:
        return
    features = extract_features([text], recipe)
    counts = features.occurrences.tolist()
    weigh = {"tf": lambda count: count, "set": lambda count: 1, "log": lambda count: 1 + count.bit_length()}
    weights = np.array([weigh[recipe.weight](count) for count in counts])
    signs = np.where(features.hashes[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1), 1, -1)
    votes = weights @ signs
    np.testing.assert_allclose(margins, abs(votes) / np.sqrt((weights**2).sum()))
    assert all(bool(fingerprint >> bit & 1) == (vote > 0) for bit, vote in enumerate(votes.tolist()) if vote)


def test_parts_vote_together():
    parts = [("one two three", 3), ("four five", 1)]
    fingerprint, margins = margins_of_parts(parts, DEFAULT_RECIPE)
    assert fingerprint == simhash_parts(parts)
    assert margins.shape == (64,)


def test_a_feature_that_parts_share_has_the_sum_of_their_weights():
    text = "one two three two"
    _, margins = margins_of_parts([(text, 3), (text, 1)], DEFAULT_RECIPE)
    np.testing.assert_allclose(margins, margins_of_parts([(text, 1)], DEFAULT_RECIPE)[1])


def test_a_long_text_has_the_margins_of_its_features():
    words = random.Random(3).choices([f"w{number}" for number in range(5_000)], k=250_000)
    text = " ".join(words)
    fingerprint, margins = margins_of_parts([(text, 1)], DEFAULT_RECIPE)
    assert fingerprint == simhash(text)
    assert margins.max() < 10


def test_a_fingerprint_without_a_vote_never_flips():
    recipe = Recipe(min_features=100, short="exact")
    fingerprint, probabilities = flips_of_parts([("a few words", 1)], recipe, 0.6)
    assert fingerprint == simhash("a few words", recipe)
    assert probabilities.max() == 0


def test_a_text_without_features_has_no_fingerprint():
    assert flips_of_parts([("...", 1)], DEFAULT_RECIPE, 0.6)[0] is None


def test_bits_flip_as_often_as_expected():
    chance = random.Random(5)
    vocabulary = [f"word{number}" for number in range(3_000)]
    recipe = Recipe(shingles=(3,), weight="set")
    expected, flipped = np.zeros(64), np.zeros(64)
    for _ in range(300):
        # As many trigrams are replaced as features.
        words = chance.choices(vocabulary, k=200)
        start = chance.randrange(150)
        other = words[:start] + chance.choices(vocabulary, k=50) + words[start + 50 :]
        text, edited = " ".join(words), " ".join(other)
        fingerprint, probabilities = flips_of_parts([(text, 1)], recipe, similarity(text, edited))
        differing = fingerprint ^ simhash(edited, recipe)
        order = np.argsort(probabilities)
        expected += probabilities[order]
        flipped += np.array([differing >> bit & 1 for bit in order.tolist()])
    groups = expected.reshape(8, 8).sum(axis=1), flipped.reshape(8, 8).sum(axis=1)
    for likely, seen in zip(*groups, strict=True):
        assert abs(likely - seen) < 4 * np.sqrt(likely + 1)


@given(text=texts, others=st.lists(st.none() | texts, max_size=6))
def test_texts_of_characters_are_compared_by_their_features(text, others):
    def features(text):
        joined = "".join(text.split())
        return {joined[place : place + 3] for place in range(max(len(joined) - 2, min(len(joined), 1)))}

    found = similarities([text] * len(others), others, TITLES).tolist()
    for other, value in zip(others, found, strict=True):
        if other is None:
            assert value is None
        else:
            together = features(text) | features(other)
            assert value == pytest.approx(len(features(text) & features(other)) / max(len(together), 1))


@given(text=texts, other=texts)
def test_trigrams_are_those_of_padded_words(text, other):
    def trigrams(text):
        padded = [f"  {word} " for word in text.split()]
        return {word[place : place + 3] for word in padded for place in range(len(word) - 2)}

    (found,) = similarities([text], [other], PG_TRGM).tolist()
    together = trigrams(text) | trigrams(other)
    assert found == pytest.approx(len(trigrams(text) & trigrams(other)) / max(len(together), 1))
    cut = [feature for word in text.split() for feature in sorted(trigrams(word))]
    spelled = Recipe("trigrams", (1,), "set", hash="md5")
    assert simhash(text, spelled) == simhash_features(cut, spelled)


def test_a_long_text_has_the_trigrams_of_its_words():
    words = random.Random(4).choices([f"w{number}ß" for number in range(5_000)], k=300_000)
    assert simhash(" ".join(words), PG_TRGM) == simhash(" ".join(dict.fromkeys(words)), PG_TRGM)


def test_other_texts_are_compared_as_similarity_does():
    others = ["one two three", "one two four", None]
    assert similarities(["one two three"] * len(others), others, DEFAULT_RECIPE).tolist() == [
        similarity("one two three", other) for other in others
    ]
