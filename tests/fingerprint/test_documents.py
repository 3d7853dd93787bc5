import subprocess
import sys
from dataclasses import replace

import numpy as np
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql.fingerprint import (
    DEFAULT_RECIPE,
    Recipe,
    count_documents,
    majority,
    simhash,
    simhash_items_with_tokens,
    simhash_many,
    simhash_parts,
    sketch,
    sketch_many,
)
from simsql.fingerprint.features import shingle, sort_runs
from simsql.fingerprint.hashes import mix
from simsql.fingerprint.tokens import hash_tokens

MULTIPLIER = 0xD1342543DE82EF95
RECIPES = [
    DEFAULT_RECIPE,
    Recipe(shingles=(3,), weight="set"),
    Recipe(shingles=(2, 4), weight="tf"),
    Recipe("characters", (2, 5)),
]
WORDS = st.lists(st.sampled_from(["a", "b", "zwei", "三四五", "ни", "😀", "-", "longer_than_eight"]), max_size=40)
TEXTS = st.lists(st.one_of(st.text(max_size=30), WORDS.map(" ".join)), max_size=8)

GOLDEN = {
    "a": 6626184877350737975,
    "hello world": 4611354221745448388,
    "The quick brown fox jumps over the lazy dog.": 10867794378900501191,
    "Straße, Ёлка και Tiếng Việt": 2882424906628514414,
    "بَلَدٌ جميل": 12450325168589490433,
    "बाल बल": 2589036669253238963,
    "中华人民共和国，かガー": 11732243942334314806,
    "สวัสดีครับ": 2884518198852371566,
    "한국어 문장": 12220248355504257312,
    "😀❤️": 17670329743940784025,
    "word " * 1000: 1982322708796410408,
}


def features_by_hand(text, recipe):
    """The hashes and weights of one text, one feature at a time, with Python's integers."""
    tokens = hash_tokens([text], recipe.tokens)[0].tolist()
    occurrences = {}
    for length in recipe.shingles:
        size = len(tokens) if length == recipe.shingles[0] and len(tokens) < length else length
        for start in range(len(tokens) - size + 1 if tokens else 0):
            value = 0
            for token in tokens[start : start + size]:
                value = (value * MULTIPLIER + token) % 2**64
            occurrences[value] = occurrences.get(value, 0) + 1
    weigh = {"set": lambda n: 1, "log": lambda n: 1 + n.bit_length(), "tf": lambda n: n}[recipe.weight]
    mixed = mix(np.array(list(occurrences), dtype=np.uint64)).tolist()
    return mixed, [weigh(n) for n in occurrences.values()]


def fingerprint_by_hand(text, recipe):
    hashes, weights = features_by_hand(text, recipe)
    return majority(hashes, weights) if hashes else None


@given(TEXTS, st.sampled_from(RECIPES))
def test_batches_are_the_definition_text_by_text(texts, recipe):
    many = simhash_many(texts, recipe)
    assert many.tolist() == [simhash(text, recipe) for text in texts]
    assert many.tolist() == [fingerprint_by_hand(text, recipe) for text in texts]


@given(st.lists(st.tuples(WORDS.map(" ".join), st.integers(1, 10**6)), max_size=5), st.sampled_from(RECIPES))
def test_parts_vote_together_with_their_weights(parts, recipe):
    hashes, votes = [], []
    for text, weight in parts:
        found, weights = features_by_hand(text, recipe)
        hashes += found
        votes += [weight * own for own in weights]
    expected = majority(hashes, votes) if hashes else None
    assert simhash_parts(parts, recipe) == simhash_parts(iter(parts[::-1]), recipe) == expected


@pytest.mark.parametrize("weight", [1, 7, 10**6])
def test_one_part_is_a_text(weight):
    for text in [*GOLDEN, "", "?!"]:
        assert simhash_parts([(text, weight)]) == simhash(text)
        assert simhash_parts([("--", 5), (text, weight)]) == simhash(text)


def test_parts_need_different_features():
    """What a title and a heading share are not two features."""
    recipe = Recipe(shingles=(1,), min_features=3)
    exact = replace(recipe, short="exact")
    for parts in ([("a b", 1), ("b a", 2)], [("a b", 1), ("a", 1), ("b", 1)]):
        assert simhash_parts(parts, recipe) is None
        assert simhash_parts(parts, exact) == simhash_parts(parts[::-1], exact) != simhash_parts(parts)
        for recipe_of_three in (recipe, exact):
            assert simhash_parts([*parts, ("c", 1)], recipe_of_three) == simhash_parts(
                [*parts, ("c", 1)], Recipe(shingles=(1,))
            )


def test_parts_that_cannot_be_are_refused():
    for weight in (0, -1, 10**6 + 1):
        with pytest.raises(ValueError, match="the weight of text 1 must be between 1 and 1000000"):
            simhash_parts([("a", 1), ("b", weight)])
    for part, message in (
        (("b", 1.5), "the weight of text 1 must be an integer, not 1.5"),
        ((None, 1), "text 1 must be a str, not NoneType"),
        ((b"b", 1), "text 1 must be a str, not bytes"),
        ("ab", "part 1 must be a pair of a text and its weight, not 'ab'"),
        (("b",), "part 1 must be a pair of a text and its weight, not"),
        (5, "part 1 must be a pair of a text and its weight, not 5"),
    ):
        with pytest.raises(TypeError, match=message):
            simhash_parts([("a", 1), part])


@pytest.mark.parametrize("text", GOLDEN)
def test_golden_values(text):
    assert simhash(text) == GOLDEN[text]


@pytest.mark.parametrize("text", ["", " ", "\0", "...", "---- ____", "\u200d\u064b", "\ud800", "\n\t"])
def test_texts_without_features_have_no_fingerprint(text):
    assert simhash(text) is None
    many = simhash_many(["a", text, "b"])
    assert many.mask.tolist() == [False, True, False]


def test_result_is_a_masked_array_with_a_full_mask():
    for texts in ([], ["a"], ["", "a"]):
        many = simhash_many(texts)
        assert isinstance(many, np.ma.MaskedArray)
        assert many.dtype == np.uint64
        assert isinstance(many.mask, np.ndarray)
        assert many.shape == many.mask.shape == (len(texts),)


@pytest.mark.parametrize("recipe", RECIPES)
def test_batching_does_not_matter(monkeypatch, recipe):
    texts = [f"text {number} " + "wörd 三四 other " * (number % 40) for number in range(60)] + ["", "x y " * 3000]
    whole = simhash_many(texts, recipe).tolist()
    monkeypatch.setattr("simsql.fingerprint.batches._BATCH_CHARACTERS", 100)
    assert simhash_many((text for text in texts), recipe).tolist() == whole
    monkeypatch.setattr("simsql.fingerprint.batches._BATCH_TEXTS", 1)
    monkeypatch.setattr("simsql.fingerprint.tokens._PIECE", 50)
    assert simhash_many(iter(texts), recipe).tolist() == whole


def test_workers_give_the_same_and_keep_the_order(monkeypatch):
    assert simhash_many([], workers=2).tolist() == []
    monkeypatch.setattr("simsql.fingerprint.documents._LARGE_RESULT_CHARACTERS", 150)
    texts = [f"some text {number} " * (number % 7) for number in range(50)]
    hashes, counts = hash_tokens(texts, "words")
    found = list(simhash_items_with_tokens(((str(number), text) for number, text in enumerate(texts)), workers=2))
    assert len(found) > 10
    assert [item for items, *_ in found for item in items] == [str(number) for number in range(50)]
    assert [value for _, some, *_ in found for value in some.tolist()] == simhash_many(texts).tolist()
    assert np.concatenate([tokens.hashes for _, _, tokens, _ in found]).tolist() == hashes.tolist()
    assert np.concatenate([tokens.counts for _, _, tokens, _ in found]).tolist() == counts.tolist()


@pytest.mark.parametrize("wrong", [None, 3, b"bytes", ["a"]])
def test_what_is_no_text_is_refused_with_its_place(wrong):
    with pytest.raises(TypeError, match=rf"text 2 must be a str, not {type(wrong).__name__}"):
        simhash_many(["a", "b", wrong])
    with pytest.raises(TypeError, match=type(wrong).__name__):
        simhash(wrong)


def _columns(texts):
    strings = pyarrow.array(texts, pyarrow.string())
    yield strings
    yield strings.cast(pyarrow.large_string())
    yield strings.dictionary_encode()
    yield pyarrow.chunked_array([strings[:3], strings[3:3], strings[3:]])
    yield polars.Series(texts)


def test_columns_of_texts(monkeypatch):
    monkeypatch.setattr("simsql.fingerprint.batches._ROWS", 4)
    texts = ["one text", None, "...", "", "w\u00f6rter \u4e09\u56db", *map(str, range(20)), None]
    for many, one in ((simhash_many, simhash), (sketch_many, sketch)):
        expected = [None if text is None else one(text) for text in texts]
        assert all(many(column).tolist() == expected for column in _columns(texts))
        assert many(polars.Series([], dtype=polars.String)).tolist() == []
    assert count_documents(polars.Series(texts)) == count_documents([text or "" for text in texts])


def test_columns_of_other_things_are_refused():
    with pytest.raises(TypeError, match="text 0 must be a str, not int"):
        simhash_many(pyarrow.array([1, 2]))
    with pytest.raises(TypeError, match="or a column of them, not DataFrame"):
        simhash_many(polars.DataFrame({"text": ["a"]}))


def test_a_string_is_not_a_list_of_texts():
    with pytest.raises(TypeError, match="texts must be an iterable of str"):
        simhash_many("abc")


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_must_be_positive(workers):
    with pytest.raises(ValueError, match="workers must be None or at least 1"):
        simhash_many([], workers=workers)


@given(st.lists(st.integers(0, 30), max_size=6), st.sampled_from([(1,), (2,), (1, 2), (2, 3), (4,)]))
def test_shingles_stay_within_documents(documents, lengths):
    tokens = np.arange(1, sum(documents) + 1, dtype=np.uint64)
    hashes, counts = shingle(tokens.copy(), np.array(documents, dtype=np.int64), lengths)
    sizes = [sum(max(count - length + 1, 0) for length in lengths) or min(count, 1) for count in documents]
    assert counts.tolist() == sizes
    assert len(np.unique(hashes)) == len(hashes) == sum(sizes)


def test_long_and_short_runs_are_sorted():
    random = np.random.default_rng(3)
    counts = [0, 1, 100, 5000, 20_000, 3]
    values = random.integers(0, 2**64, sum(counts), dtype=np.uint64)
    values[5000:9000] = 7
    ends = np.cumsum(counts)
    expected = np.concatenate([np.sort(run) for run in np.split(values, ends[:-1])])
    sort_runs(values, ends)
    assert values.tolist() == expected.tolist()


FAILING_WORK = """
from simsql.fingerprint import Recipe, Tokenizer, simhash_many

class OddError(Exception):
    def __init__(self, message, place):
        super().__init__(message)

def tokenise(text):
    if __name__ != "__main__":
        raise OddError("no such word", 3)
    return text.split()

if __name__ == "__main__":
    texts = ("some words " * 500_000 for _ in range(100))
    try:
        simhash_many(texts, Recipe(tokens=Tokenizer("mine", "1", tokenise)), workers=2)
    except RuntimeError as error:
        print(type(error).__name__, error)
"""


def test_an_exception_that_cannot_be_passed_on_is_named(tmp_path):
    """What pickle cannot make again breaks a pool of processes, without a word of what was wrong."""
    script = tmp_path / "work.py"
    script.write_text(FAILING_WORK)
    found = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert found.stdout == "RuntimeError __mp_main__.OddError: no such word\n"
