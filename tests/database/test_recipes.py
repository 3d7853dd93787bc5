"""The recipe of an index: others are refused, and one that its id does not say is asked for."""

from dataclasses import replace

import numpy as np
import pytest
from oracle import to_bigint
from sqlalchemy import text

from simsql import DEFAULT_RECIPE, Recipe, UsageError, simhash, simhash_many
from simsql.database import SearchIndex, create_index, load_rows, read_status
from simsql.fingerprint import IdfTable

TEXTS = ["The fox and the dog and the fox and the cat and the cow", "The ship on the sea of the sea", "?!"]
WEIGHED = replace(DEFAULT_RECIPE, weight="tf", idf=IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 3))


@pytest.fixture
def articles(database):
    """A table with two columns of fingerprints: one index by WEIGHED, one by the default recipe."""
    with database.begin() as connection:
        connection.execute(
            text("CREATE TABLE article (id serial PRIMARY KEY, body text, f bigint, d bigint, n bigint)")
        )
        create_index(connection, "article", "f", recipe=WEIGHED)
        create_index(connection, "article", "d")
    return database


def stored(database, column):
    with database.connect() as connection:
        return connection.execute(text(f"SELECT {column} FROM article ORDER BY id")).scalars().all()


def made(recipe):
    return [None if number is None else to_bigint(number) for number in simhash_many(TEXTS, recipe).tolist()]


def test_the_recipe_of_an_index(articles):
    with articles.connect() as connection:
        assert (
            SearchIndex(connection, "article", "d").recipe()
            == SearchIndex(connection, "article", "d", recipe=DEFAULT_RECIPE).recipe()
            == DEFAULT_RECIPE
        )
        assert SearchIndex(connection, "article", "f", recipe=WEIGHED).recipe() is WEIGHED
        with pytest.raises(
            UsageError, match=r"article\(f\): the recipe 'words12-tf-idf\.\w{8}-1' has parts that its id"
        ):
            SearchIndex(connection, "article", "f").recipe()
        with pytest.raises(
            UsageError, match=r"article\(f\) has the recipe words12-tf-idf\.\w{8}-1, not words12-log-1"
        ):
            SearchIndex(connection, "article", "f", recipe=DEFAULT_RECIPE).recipe()
        with pytest.raises(UsageError, match=r"article\(d\) has the recipe words12-log-1, not words12-tf-idf"):
            SearchIndex(connection, "article", "d", recipe=WEIGHED).recipe()


def test_loads(articles):
    rows = [[body] for body in TEXTS]
    numbers = simhash_many(TEXTS, WEIGHED)
    assert made(WEIGHED) != made(DEFAULT_RECIPE)
    with articles.begin() as connection:
        for options in (
            {"column": "f"},
            {"column": "f", "recipe": DEFAULT_RECIPE},
            {"column": "d", "recipe": WEIGHED},
        ):
            with pytest.raises(UsageError, match=r"the simhash index on article\("):
                load_rows(connection, "article", ["body"], rows, text_column="body", **options)
        with pytest.raises(UsageError, match="has the recipe words12-log-1, not words12-tf"):
            load_rows(connection, "article", ["body"], rows, fingerprints=numbers, column="d", recipe=WEIGHED)
        with pytest.raises(ValueError, match="recipe needs text_column or fingerprints"):
            load_rows(connection, "article", ["body"], rows, recipe=DEFAULT_RECIPE)
        for column, recipe in (("f", WEIGHED), ("d", DEFAULT_RECIPE), ("n", WEIGHED)):
            connection.execute(text("TRUNCATE article"))
            load_rows(connection, "article", ["body"], rows, text_column="body", column=column, recipe=recipe)
            found = connection.execute(text(f"SELECT {column} FROM article ORDER BY id")).scalars().all()
            assert found == made(recipe)
        load_rows(connection, "article", ["body"], rows, fingerprints=numbers, column="f", recipe=WEIGHED)
        assert SearchIndex(connection, "article", "f").near(simhash(TEXTS[1], WEIGHED), 0) == [
            (simhash(TEXTS[1], WEIGHED), 0)
        ]


def test_backfills(articles):
    with articles.begin() as connection:
        load_rows(connection, "article", ["body"], [[body] for body in TEXTS])
    for options in (
        {"column": "f"},
        {"column": "f", "recipe": DEFAULT_RECIPE},
        {"column": "d", "recipe": WEIGHED},
    ):
        with pytest.raises(UsageError, match=r"the simhash index on article\("):
            SearchIndex(articles, "article", **options).backfill("body")
    for column in ("f", "n"):
        SearchIndex(articles, "article", column, recipe=WEIGHED).backfill("body")
        assert stored(articles, column) == made(WEIGHED)


def test_fingerprints_that_are_not_made_of_texts(articles):
    """An index of images has a name for its recipe, by which no text is fingerprinted."""
    with articles.begin() as connection:
        create_index(connection, "article", "n", recipe="phash64")
        load_rows(connection, "article", [], [[]], fingerprints=np.array([2**63 + 5], dtype=np.uint64), column="n")
        assert SearchIndex(connection, "article", "n").near(2**63, 3) == [(2**63 + 5, 2)]
        with pytest.raises(UsageError, match=r"article\(n\): 'phash64' is not the id of a recipe"):
            SearchIndex(connection, "article", "n").recipe()
        with pytest.raises(UsageError, match="has the recipe phash64, not words12-log-1"):
            load_rows(connection, "article", ["body"], [["x"]], text_column="body", column="n", recipe=Recipe())
        connection.execute(text("SELECT simsql.drop_index('article', 'n')"))
    create_index(articles, "article", "n", recipe="phash64", concurrently=True)
    assert read_status(articles).indexes[-1].recipe == "phash64"
