"""Document frequencies: equal to a count by sets, however much goes to disk, and the table of them."""

import math
from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simsql import DEFAULT_RECIPE, Recipe
from simsql.fingerprint import IdfTable, count_documents, documents, features
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.features import count_features

WORDS = st.text("abc ", max_size=12)


@pytest.fixture
def few_at_once(monkeypatch):
    """Runs of a few features, and ranges that are smaller than a run."""
    monkeypatch.setattr(features, "_AT_ONCE", 16)
    monkeypatch.setattr(features, "_RANGE_BITS", 4)


def expected(texts, recipe, at_least):
    """The table as its definition has it: a set of features for each text, and one logarithm for each feature."""
    found = Counter(h for text in texts for h in set(extract_features([text], recipe).hashes.tolist()))
    total = len(texts) + 1
    weights = {
        feature: max(1, round(4 * math.log2(total / (count + 1))))
        for feature, count in sorted(found.items())
        if count >= at_least
    }
    return IdfTable(
        np.array(list(weights), dtype=np.uint64),
        np.array(list(weights.values()), dtype=np.int32),
        max(1, round(4 * math.log2(total))),
    )


@pytest.mark.usefixtures("few_at_once")
@given(st.lists(WORDS, max_size=40), st.integers(1, 4), st.sampled_from([DEFAULT_RECIPE, Recipe(shingles=(1,))]))
def test_it_counts_documents(texts, at_least, recipe):
    table = count_documents(iter(texts), recipe, at_least=at_least)
    assert table == expected(texts, recipe, at_least)
    assert count_documents(texts[::-1], recipe, at_least=at_least) == table


@pytest.mark.usefixtures("few_at_once")
@given(st.lists(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1, *range(5, 90)]), max_size=40), max_size=20))
def test_runs_on_disk_are_merged(batches):
    found = count_features(np.array(batch, dtype=np.uint64) for batch in batches)
    assert dict(zip(found.hashes.tolist(), found.counts.tolist(), strict=True)) == Counter(
        chain.from_iterable(batches)
    )
    assert found.hashes.tolist() == sorted(found.hashes.tolist())


def test_processes_and_tables_of_the_recipe_change_nothing(monkeypatch):
    monkeypatch.setattr(documents, "_LARGE_RESULT_CHARACTERS", 100)
    texts = [f"the number {number} and the number {number // 3}" for number in range(60)]
    table = count_documents(texts, at_least=3)
    assert table == expected(texts, DEFAULT_RECIPE, 3)
    assert len(table) > 40
    assert count_documents(texts, Recipe(idf=table), workers=2, at_least=3) == table


def test_a_frequent_feature_weighs_less():
    table = count_documents(["the fox", "the dog", "the cat", "the cow"], Recipe(shingles=(1,)), at_least=1)
    the, fox = extract_features(["the", "fox"], Recipe(shingles=(1,))).hashes
    assert table.weigh(np.array([the, fox, 12345], dtype=np.uint64)).tolist() == [1, 5, 9]
    assert (len(table), table.other) == (5, 9)


def test_a_table_is_for_the_features_that_were_counted(tmp_path):
    table = count_documents(["the fox", "the dog"], Recipe(shingles=(1,), min_features=3, tie=1))
    table.write(tmp_path / "table.npz")
    for found in (table, IdfTable.read(tmp_path / "table.npz")):
        assert found.features == "words1-set-1"
        # What features weigh, and what becomes of few of them, may be another.
        assert Recipe(shingles=(1,), weight="tf", class_weights=(("title", 2),), idf=found).idf is found
        for fields in ({}, {"shingles": (1, 2)}, {"shingles": (1,), "hash": "md5"}, {"tokens": "characters"}):
            with pytest.raises(
                ValueError, match="the idf table was counted with the features of words1-set-1, but this recipe"
            ):
                Recipe(**fields, idf=found)


def test_no_documents():
    table = count_documents([])
    assert (len(table), table.other) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("a text",), {}, TypeError, "not a single str"),
        (([b"a text"],), {}, TypeError, "text 0 must be a str, not bytes"),
        (([],), {"workers": 0}, ValueError, "workers must be None or at least 1, not 0"),
        (([],), {"at_least": 0}, ValueError, "at_least must be at least 1, not 0"),
    ],
)
def test_wrong_arguments(arguments, options, error, message):
    with pytest.raises(error, match=message):
        count_documents(*arguments, **options)
