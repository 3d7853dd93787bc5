"""Texts that are compared by the features of the recipe: what is found is what plain sets say."""

import json
import random
from itertools import combinations, pairwise
from unittest import mock

import numpy as np
import pytest
from program import run

from simsql.fingerprint import DEFAULT_RECIPE, KNOWN_RECIPES, Recipe, simhash_items_with_tokens
from simsql.fingerprint.extract import extract_features

WORDS = "red green blue steel glass oak desk lamp chair large small round kitchen".split()  # noqa: SIM905


def index_of(one, other):
    return len(one & other) / len(one | other)


def words_and_pairs(text):
    words = text.lower().split()
    return set(words) | set(pairwise(words))


def trigrams_of_words(text):
    return {f"  {word} "[at : at + 3] for word in text.lower().split() for at in range(len(word) + 1)}


@pytest.mark.parametrize(
    ("recipe", "features_of"), [("words12-log-1", words_and_pairs), ("pg_trgm", trigrams_of_words)]
)
def test_similarities_are_those_of_the_features(tmp_path, home, recipe, features_of):
    chance = random.Random(5)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(3, 6))) for _ in range(300)]
    path = tmp_path / "titles.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    found = run("dedup", path, "--by-features", "--recipe", recipe, home=home).done()
    # Fingerprints do not matter.
    far = run("dedup", path, "--by-features", "--recipe", recipe, "--distance", 0, home=home).done()
    assert far.clusters == found.clusters
    together, drops = {}, 0
    for cluster in found.clusters:
        for member in cluster["members"]:
            together[int(member["id"])] = cluster["cluster"]
            own, kept = (features_of(texts[int(member[name])]) for name in ("id", "kept"))
            if member["droppable"]:
                assert member["kept_similarity"] == pytest.approx(index_of(own, kept), abs=1e-4)
                assert index_of(own, kept) >= 0.6
                drops += 1
    assert drops > 5
    for one, other in combinations(range(len(texts)), 2):
        if index_of(*(features_of(texts[place]) for place in (one, other))) >= 0.9:
            assert together[one] == together[other]


@pytest.mark.parametrize("recipe", [DEFAULT_RECIPE, KNOWN_RECIPES["pg_trgm"], Recipe("characters", (4,))])
def test_features_of_long_texts_are_the_same(recipe):
    texts = ["one two", "", "...", "\u4e2d\u6587 one", "a long text of many words " * 100]
    features = extract_features(texts, recipe)
    whole = list(simhash_items_with_tokens(enumerate(texts), recipe, features=True))
    with (
        mock.patch("simsql.fingerprint.documents._LONG", 500),
        mock.patch("simsql.fingerprint.batches.TASK_CHARACTERS", 100),
        mock.patch("simsql.fingerprint.sketches._AT_ONCE", 16),
    ):
        parts = list(simhash_items_with_tokens(enumerate(texts), recipe, features=True))
    for found in (whole, parts):
        values = np.concatenate([tokens.hashes for _, _, tokens, _ in found])
        counts = np.concatenate([tokens.counts for _, _, tokens, _ in found])
        assert counts.tolist() == features.documents.tolist()
        ends = np.cumsum(counts)[:-1]
        for own, expected in zip(np.split(values, ends), np.split(features.hashes, ends), strict=True):
            assert set(own.tolist()) == set(expected.tolist())
    for column in ("sketches", "bands"):
        one, other = (
            np.concatenate([getattr(minima, column) for *_, minima in found]) for found in (whole, parts)
        )
        assert one.tolist() == other.tolist()


def test_pictures_have_no_features(tmp_path, home):
    found = run("dedup", tmp_path, "--by-features", "--recipe", "phash", home=home)
    found.failed(2, "pictures have no features to compare: leave out --by-features")
