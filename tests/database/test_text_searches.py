"""Search by text: what the fingerprint of the text finds, by the recipe of the index."""

from dataclasses import replace

import numpy as np
import oracle
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from simsql import DEFAULT_RECIPE, Recipe, UsageError, simhash
from simsql.database import SearchIndex, alter_index, create_index, from_bigint, load_rows, to_bigint
from simsql.fingerprint import IdfTable, simhash_parts

TRIGRAMS = Recipe(tokens="characters", shingles=(3,))
WEIGHED = replace(DEFAULT_RECIPE, idf=IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 3))
TEXTS = [
    f"{word} is better than {other}" for word in ("simple", "flat", "sparse") for other in ("dense", "nested")
]
FINDERS = {
    "near": lambda index, **query: [(match.fingerprint, match.distance) for match in index.near(**query)],
    "near_rows": lambda index, **query: [(row.fingerprint, row.distance) for row in index.near_rows(**query)],
    "claim": lambda index, **query: [index.claim(**query)],
}
finders = pytest.mark.parametrize("find", FINDERS.values(), ids=FINDERS)


@pytest.fixture
def articles(database):
    """A connection to a table with three columns of fingerprints of the same texts, by three recipes."""
    with database.connect() as connection:
        connection.execute(text("CREATE TABLE article (body text, f bigint, characters bigint, weighed bigint)"))
        for column, recipe in (("f", DEFAULT_RECIPE), ("characters", TRIGRAMS), ("weighed", WEIGHED)):
            create_index(connection, "article", column, distance=24, recipe=recipe)
        rows = [[body, *(to_bigint(simhash(body, recipe)) for recipe in (TRIGRAMS, WEIGHED))] for body in TEXTS]
        columns = ["body", "characters", "weighed"]
        load_rows(connection, "article", columns, rows, text_column="body", column="f")
        connection.execute(text("INSERT INTO article VALUES ('?!')"))
        connection.commit()
        yield connection


@finders
@pytest.mark.parametrize(("column", "recipe"), [("f", DEFAULT_RECIPE), ("characters", TRIGRAMS)])
@pytest.mark.parametrize("body", [TEXTS[0], "simple is better than tense", "something else"])
def test_a_text_finds_what_its_fingerprint_finds(articles, find, column, recipe, body):
    """In the index's own recipe, at the index's own distance, and equal to brute force."""
    query = simhash(body, recipe)
    stored = [to_bigint(simhash(known, recipe)) for known in TEXTS]
    expected = [(from_bigint(f), d) for f, d in oracle.near(stored, to_bigint(query), 24)]
    found = find(SearchIndex(articles, "article", column), text=body)
    assert found == find(SearchIndex(articles, "article", column), fingerprint=query)
    assert found == (expected if find is not FINDERS["claim"] else expected[:1] or [None])
    assert find(SearchIndex(articles, "article", column), text=body, distance=0) == (
        [(query, 0)] if body in TEXTS else find(SearchIndex(articles, "article", column), fingerprint=None)
    )


@finders
def test_a_text_without_features_finds_nothing(articles, find):
    for nothing in ("", "?!"):
        found = find(SearchIndex(articles, "article", "f"), text=nothing, distance=64)
        assert found in ([], [None])


def test_with_an_engine_too(articles, database):
    (match,) = SearchIndex(database, "article", "f").near(text=TEXTS[0], distance=0)
    assert match == (simhash(TEXTS[0]), 0)
    assert database.pool.checkedout() == 1  # that of the fixture


@finders
def test_a_recipe_that_its_id_does_not_say_is_asked_for(articles, find):
    with pytest.raises(UsageError, match=r"article\(weighed\): the recipe .* pass the recipe itself"):
        find(SearchIndex(articles, "article", "weighed"), text=TEXTS[0])
    found = find(SearchIndex(articles, "article", "weighed", recipe=WEIGHED), text=TEXTS[0], distance=0)
    assert found == [(simhash(TEXTS[0], WEIGHED), 0)]
    other = SearchIndex(articles, "article", "weighed", recipe=TRIGRAMS)
    assert found == find(other, text=TEXTS[0], recipe=WEIGHED, distance=0)
    with pytest.raises(UsageError, match=r"article\(f\) has the recipe words12-log-1, not characters3"):
        find(SearchIndex(articles, "article", "f", recipe=TRIGRAMS), text=TEXTS[0])


@finders
def test_a_text_has_to_fit_the_index(articles, find):
    index = SearchIndex(articles, "article", "f")
    with pytest.raises(TypeError, match=r"^text must be a str, not int$"):
        find(index, text=5)
    with pytest.raises(UsageError, match=r"^article\(f\) has no source: pass text= as one str$"):
        find(index, text={"body": "five"})


@finders
def test_an_index_of_several_sources_needs_a_text_for_each(database, articles, find):
    articles.execute(text("ALTER TABLE article ADD title text"))
    texts = {"title": "A title of five words", "body": TEXTS[0]}
    wanted = simhash_parts([(texts["title"], 3), (texts["body"], 1)])
    articles.execute(text("UPDATE article SET f = :f"), {"f": to_bigint(wanted)})
    alter_index(articles, "article", "f", sources={"title": 3, "body": 1})
    index = SearchIndex(articles, "article", "f")
    assert index.fingerprint(texts) == wanted
    assert set(find(index, text=texts, distance=0)) == {(wanted, 0)}
    with pytest.raises(UsageError, match=r"article\(f\) has several sources, so a single text is not enough"):
        find(index, text=TEXTS[0])


@finders
def test_an_index_whose_recipe_nobody_has_named_is_not_searched_for_texts(articles, find):
    articles.execute(text("UPDATE simsql.registry SET recipe = NULL WHERE column_name = 'f'"))
    index = SearchIndex(articles, "article", "f")
    with pytest.raises(
        UsageError, match=r"nobody has named the recipe of .* article\(f\).*index alter .*words12-log-1"
    ):
        find(index, text=TEXTS[0])
    named = SearchIndex(articles, "article", "f", recipe=DEFAULT_RECIPE)
    assert find(named, text=TEXTS[0], distance=0) == [(simhash(TEXTS[0]), 0)]
    alter_index(articles, "article", "f", recipe=DEFAULT_RECIPE)
    assert find(index, text=TEXTS[0], distance=0) == [(simhash(TEXTS[0]), 0)]


def test_errors_of_the_index_come_from_postgresql(articles):
    with pytest.raises(DBAPIError, match="has 3 simhash indexes"):
        SearchIndex(articles, "article").near(text="five")
