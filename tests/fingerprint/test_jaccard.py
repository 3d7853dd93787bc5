"""The similarity of texts, compared with sets of tokens in plain Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import DEFAULT_RECIPE, similarity, similarity_many
from simsql.fingerprint.extract import find_tokens

WORDS = st.sampled_from([f"w{number}" for number in range(30)])


def trigrams(tokens):
    padded = ["", "", *tokens, "", ""] if tokens else []
    return set(zip(padded, padded[1:], padded[2:], strict=False))


def by_sets(a, b):
    if a is None or b is None:
        return None
    ones, others = find_tokens([a, b], DEFAULT_RECIPE)
    first, second = map(trigrams, (ones, others))
    return len(first & second) / len(first | second) if first | second else 0.0


@st.composite
def pairs(draw):
    words = draw(st.lists(WORDS, max_size=45))
    other = list(words)
    for place in draw(st.lists(st.integers(0, 44), max_size=6)):
        other[place : place + 1] = [draw(WORDS)]
    texts = " ".join(words), " ".join(other[: draw(st.integers(0, 50))])
    return draw(st.sampled_from([texts, texts, texts, (None, texts[0]), (texts[1], None)]))


@given(st.lists(pairs(), max_size=8))
def test_similarities_are_those_of_sets(some):
    expected = [by_sets(a, b) for a, b in some]
    assert similarity_many([a for a, _ in some], [b for _, b in some]).tolist() == expected
    assert [similarity(a, b) for a, b in some] == expected


def test_texts_without_words_resemble_nothing():
    assert similarity("", "") == similarity("...", "one two") == 0.0
    assert similarity(None, "") is None


def test_every_word_is_in_three_trigrams():
    assert similarity("a b c d e f g h i j", "A b, c d e f g h i X!") == 9 / 15
    assert similarity("a b c d e f g h i j", "A b, c d X e f g h i j!") == 10 / 15
    assert similarity("a", "A.") == 1
    assert similarity("a", "a b") == 1 / 6


def test_single_texts_and_uneven_sides_are_refused():
    with pytest.raises(TypeError, match="use similarity"):
        similarity_many("a", ["b"])
    with pytest.raises(ValueError, match="shorter"):
        similarity_many(["a"], [])
    with pytest.raises(TypeError, match="not int"):
        similarity("a", 1)
