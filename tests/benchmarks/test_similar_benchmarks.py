"""The measurements of similar searches make the pairs that they say, and count right."""

import random

import numpy as np
import pytest

from benchmarks.edited import KINDS, WIDTH, Source
from benchmarks.finders import DESIGN, Near, Similar
from benchmarks.short_records import CLASSES, EDITS, Records
from benchmarks.similar_recall import Share
from benchmarks.similar_titles import make_queries
from benchmarks.similarities import correlations, jaccard
from simsql import DEFAULT_RECIPE, Recipe, simhash, similarity
from simsql.database import SearchIndex, create_index, load_rows
from simsql.fingerprint.extract import extract_features

TEXTS = [
    " ".join(f"word{number}," for number in random.Random(seed).choices(range(900), k=90)) for seed in range(40)
]


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_have_the_similarity_and_the_length(kind):
    pairs = Source(TEXTS, 1).pairs(kind, 40, 79, 0.6, 20)
    assert len(pairs.rows) == 20
    for query, row in zip(pairs.queries, pairs.rows, strict=True):
        assert 0.6 <= similarity(query, row) < 0.6 + WIDTH
        assert 40 <= len(row.split()) <= 79


def test_words_of_chinese_texts_are_characters():
    pairs = Source(["".join(map(chr, range(0x4E00, 0x4E00 + 300))) + "。"] * 2, 1).pairs("removed", 20, 39, 0.7, 5)
    assert all(20 <= len(row.rstrip("。")) <= 39 for row in pairs.rows)


def test_a_finder_says_in_memory_what_is_near_and_similar():
    query, row, other = "one two three four five six", "one two three four five six!", "seven eight nine"
    assert Near(0).finds([query, query], [row, other], 0.6, DEFAULT_RECIPE).mask.tolist() == [True, False]
    distance = (simhash(query) ^ simhash("one two three four five nine")).bit_count()
    rows = ["one two three four five nine"]
    assert not Near(distance - 1).finds([query], rows, 0, DEFAULT_RECIPE).mask[0]
    assert Near(distance).finds([query], rows, 0, DEFAULT_RECIPE).mask[0]
    assert not Near(distance).finds([query], rows, 0.9, DEFAULT_RECIPE).mask[0]


def test_correlations_are_the_cosine_of_the_weights():
    recipe = Recipe(shingles=(1,))
    # Weights: b occurs twice and weighs 3.
    found = correlations(["a b b", "", "a"], ["b c", "a", "a"], recipe)
    assert found == pytest.approx([6 / np.sqrt((4 + 9) * 8), 0, 1])
    sides = (extract_features(texts, recipe) for texts in (["a b b", "", "a"], ["b c", "a", "a"]))
    assert jaccard(*sides) == pytest.approx([1 / 3, 0, 1])


def test_the_interval_of_a_share_is_that_of_wilson():
    assert str(Share(9, 10)) == "0.900 (0.596-0.982)"
    assert Share(0, 10).interval()[0] == 0
    assert str(Share(0, 0)) == "-"


def test_records_have_their_lengths_and_edits_change_little():
    try:
        records = Records(1)
    except SystemExit as error:
        pytest.skip(str(error))
    rows = records.make(600)
    sizes = [len(row.split()) for row in rows]
    assert len(set(rows)) == 600
    for shortest, longest in CLASSES:
        assert sum(shortest <= size <= longest for size in sizes) == 100
    queries = list(make_queries(records, rows, 10, 1))
    assert len(queries) == 60
    for query in queries:
        before, after = rows[query.place].split(), query.text.split()
        if query.edit == "a suffix":
            assert after[: len(before)] == before
        else:
            assert sum(one != other for one, other in zip(before, after, strict=True)) <= 2
    assert {query.edit for query in queries} == set(EDITS)


def test_similar_in_memory_finds_what_the_server_finds(database):
    chance = random.Random(3)
    queries = []
    for row in TEXTS:
        words = row.split()
        for place in chance.sample(range(len(words)), 8):
            words[place] = "other"
        queries.append(" ".join(words))
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("CREATE TABLE post (id int PRIMARY KEY, body text, fingerprint bigint)")
        create_index(connection, "post", "fingerprint", design=DESIGN)
        load_rows(connection, "post", ["id", "body"], list(enumerate(TEXTS)), text_column="body")
        index = SearchIndex(connection, "post")
        for finder in (Near(7), Near(12), Similar(), Similar(0.99)):
            in_memory = finder.finds(queries, TEXTS, 0.6, DEFAULT_RECIPE).mask
            in_server = np.array([row in finder.search(index, query, 0.6) for row, query in enumerate(queries)])
            # A search for similar texts scans so few rows, which may find more than the prefixes do.
            assert (
                (in_server >= in_memory).all() if isinstance(finder, Similar) else (in_server == in_memory).all()
            )
