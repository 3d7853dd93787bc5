"""A long text is taken in pieces, and has the fingerprint that it has as a whole: wherever it is cut."""

import contextlib
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recipe_parts import HASHES, STEPS, TOKENS

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    IdfTable,
    Recipe,
    count_documents,
    simhash,
    simhash_items_with_tokens,
    simhash_many,
    simhash_parts,
)
from simsql.fingerprint.characters import normalise
from simsql.fingerprint.extract import find_tokens, normalise_by
from simsql.fingerprint.recipe import Pattern, Tokenizer
from simsql.fingerprint.tokens import cut_text, hash_tokens

# Separators, letter case, what composes and what does not, marks that are dropped and that are not, scripts
# without spaces, emoji, halves of characters, and a sigma with what it looks past.
ALPHABET = (
    "aZ9 _-.\0\n'\u2019:\u00b7\u00a0\u3000"
    "e\u0301\u0323\u00e9\u1e69\ufb01\u00df\u00bd\u0345\u01c5\uff21"
    "\u03a3\u03c3\u03c2\U0001d6ba\u0391"
    "\u0628\u064e\u0640\u05e9\u05b8\u05c1\u0939\u093f\u0915\u093c\u09c7\u09be"
    "\u0e2a\u0e27\u0e31\u1000\u102d\u4e2d\u6587\u5b57\u304b\u3099\u304c\uff76\uff9e\u30fc\u3001\u3002"
    "\u1100\u1161\u11a8\uac00\ud55c\U0001f600\u2764\ufe0f\U0001f3fd\u200d\u00ad\ud83d\udc00\ue000"
)
CHARACTERS = st.one_of(st.sampled_from(ALPHABET), st.characters(codec=None))
# Runs of one kind: one long word, Han, Thai and kana without a separator, marks alone.
RUNS = st.builds(
    str.__mul__,
    st.sampled_from(
        [
            "x",
            "Ab",
            "9",
            "\u4e2d\u6587",
            "\u0e2a\u0e27",
            "\u0e2a\u0e31",
            "\u304b\u3099",
            "\u0301",
            "\U0001f600",
            "a\u0301",
        ]
    ),
    st.integers(1, 30),
)
TEXTS = st.lists(st.one_of(st.text(CHARACTERS, max_size=12), RUNS), max_size=6).map("".join)


@contextlib.contextmanager
def pieces(characters, tokens=3, features=5):
    """Let every text be long, and everything of which some is taken at a time be of these sizes."""
    sizes = {
        "documents._LONG": 0,
        "tokens._PIECE": characters,
        "extract._PART": characters,
        "extract._TOKENS": tokens,
        "extract._WINDOW": tokens,
        "features._AT_ONCE": features,
        "features._RANGE_BITS": 3,
    }
    with contextlib.ExitStack() as stack:
        for name, size in sizes.items():
            stack.enter_context(mock.patch(f"simsql.fingerprint.{name}", size))
        yield


TABLE = IdfTable(np.arange(0, 2**64, 2**58, dtype=np.uint64), np.arange(1, 65, dtype=np.int32), 7)
RECIPES = st.builds(
    Recipe,
    tokens=st.sampled_from([*TOKENS, Pattern(r"(?s:.+)", characters=True)]),
    shingles=st.sets(st.integers(1, 5), min_size=1, max_size=3).map(sorted).map(tuple),
    weight=st.sampled_from(["set", "log", "tf"]),
    normalise=st.sampled_from([DEFAULT_RECIPE.normalise, *STEPS]),
    hash=st.sampled_from(["splitmix"] * 3 + HASHES),
    cyclic=st.booleans(),
    tie=st.integers(0, 1),
    stop_words=st.sampled_from([frozenset(), frozenset({"a", "\u4e2d\u6587"}), frozenset({"\u00c9", "ab", "xx"})]),
    idf=st.sampled_from([None, None, TABLE]),
).flatmap(
    lambda recipe: st.sampled_from(
        [recipe, replace(recipe, min_features=4), replace(recipe, min_features=4, short="exact")]
    )
)
PIECES = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(1, 9))


@given(TEXTS, RECIPES, PIECES)
def test_a_text_in_pieces_has_the_fingerprint_of_the_whole(text, recipe, sizes):
    whole = simhash(text, recipe)
    with pieces(*sizes):
        assert simhash(text, recipe) == whole


@given(TEXTS, st.sampled_from([Recipe(), Recipe("characters", (1, 4), "tf")]), PIECES)
def test_the_usual_recipes_in_pieces(text, recipe, sizes):
    whole = simhash(text, recipe)
    with pieces(*sizes):
        assert simhash(text, recipe) == whole


@given(TEXTS, st.sampled_from(["words", "characters"]), st.integers(1, 12))
def test_tokens_in_pieces_are_those_of_the_whole_in_the_same_order(text, kind, size):
    hashes, counts = hash_tokens([text], kind)
    spelled = find_tokens([text], Recipe(kind))
    with pieces(size):
        found, count = hash_tokens([text], kind)
        assert find_tokens([text], Recipe(kind)) == spelled
    assert found.tolist() == hashes.tolist()
    assert count.tolist() == counts.tolist()


@given(TEXTS, st.integers(1, 12), st.sampled_from(STEPS))
def test_pieces_have_the_normal_form_of_the_whole(text, size, steps):
    with pieces(size):
        found = list(cut_text(text, lower="lower" in steps))
    assert "".join(found) == text
    assert "".join(normalise_by(piece, steps) for piece in found) == normalise_by(text, steps)
    assert "".join(map(normalise, found)) == normalise(text)


@given(
    st.text(st.characters(codec=None), min_size=1, max_size=3),
    st.sampled_from("\0\t\n\r !&'-./:;<=>@[_`{~\x7f\u3001\u3002"),
    st.text(st.characters(codec=None), max_size=3),
)
def test_where_a_text_may_be_cut(before, separator, after):
    """Half of the characters here are of no script that the other tests know."""
    text = before + separator + after
    for lower in (False, True):
        with pieces(1):
            found = list(cut_text(text, lower=lower))
        assert "".join(map(normalise, found)) == normalise(text)
        if lower:
            assert "".join(map(str.lower, found)) == text.lower()


def test_a_long_text_without_tokens():
    with pieces(1):
        for text in ("\u0301\u0301\u0301", "???", "-\u0301"):
            assert hash_tokens([text], "words")[1].tolist() == [0]
            assert simhash(text) is None


@pytest.mark.parametrize("size", range(1, 9))
def test_a_word_longer_than_a_piece_is_one_token(size):
    for word in ("x" * 100, "\u00e9\u0301x" * 40, "\u0431" * 99, "a" * 50 + "\u0301" * 50):
        for text in (word, f"one {word}", f"{word}\u4e2d\u6587\u5b57{word} {word}", f"\u064e{word}\u2764{word}-"):
            for recipe in (Recipe(), Recipe(hash="fnv1a")):
                whole = simhash(text, recipe)
                with pieces(size):
                    assert simhash(text, recipe) == whole


@given(TEXTS, st.integers(1, 40))
def test_jieba_in_pieces(text, size):
    text += "\u6211\u6765\u5230\u5317\u4eac\u6e05\u534e\u5927\u5b66,abc\uff0c\r\n" * 3
    for recipe in (Recipe("jieba"), Recipe("jieba", (2,), "tf", normalise=(), hash="fnv1a")):
        whole = simhash(text, recipe)
        with pieces(size):
            assert simhash(text, recipe) == whole


@given(
    st.lists(st.tuples(TEXTS, st.integers(1, 1000)), max_size=4),
    RECIPES,
    PIECES,
)
def test_parts_in_pieces(parts, recipe, sizes):
    whole = simhash_parts(parts, recipe)
    with pieces(*sizes):
        assert simhash_parts(parts, recipe) == whole


@given(st.lists(TEXTS, max_size=5), PIECES)
def test_among_other_texts(texts, sizes):
    whole = simhash_many(texts).tolist()
    with pieces(*sizes), mock.patch("simsql.fingerprint.documents._LONG", 20):
        assert simhash_many(texts).tolist() == whole


@given(st.lists(TEXTS, max_size=5), PIECES)
def test_documents_are_counted_in_pieces(texts, sizes):
    whole = count_documents(texts, at_least=1)
    with pieces(*sizes):
        assert count_documents(texts, at_least=1) == whole


@given(st.lists(TEXTS, max_size=5), RECIPES, PIECES)
def test_tokens_beside_fingerprints_in_pieces(texts, recipe, sizes):
    whole = simhash_many(texts, recipe).tolist()
    tokens = [hash_tokens([text], "words")[0].tolist() for text in texts]
    with pieces(*sizes), mock.patch("simsql.fingerprint.documents._LONG", 20):
        found = list(simhash_items_with_tokens(enumerate(texts), recipe))
    assert [item for items, *_ in found for item in items] == list(range(len(texts)))
    assert [value for _, fingerprints, *_ in found for value in fingerprints.tolist()] == whole
    found_tokens = [
        some.tolist() for _, _, (hashes, counts), _ in found for some in np.split(hashes, np.cumsum(counts))[:-1]
    ]
    assert found_tokens == tokens


def test_a_tokenizer_is_given_the_whole_text():
    """Nobody knows where its tokens may be cut."""
    given_texts = []

    def tokenise(text):
        given_texts.append(text)
        return text.split()

    with pieces(3):
        simhash("one two three", Recipe(Tokenizer("mine", "1", tokenise)))
    assert given_texts == ["one two three"]
