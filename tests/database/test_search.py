"""Searching from Python: unsigned fingerprints, equal to brute force, whatever the table is called."""

import numpy as np
import oracle
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from simsql import DEFAULT_RECIPE, Recipe
from simsql.database import SearchIndex, create_index, from_bigint, load_rows, to_bigint
from simsql.errors import UsageError
from simsql.fingerprint import KNOWN_RECIPES

FINGERPRINTS = [*oracle.clustered(150, seed=11), -1, None]
QUERIES = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, *map(from_bigint, FINGERPRINTS[5:8])]
DISTANCES = [0, 3, 7, 64]


@pytest.fixture
def articles(database):
    """A connection of SQLAlchemy to a database with an indexed table of fingerprints."""
    with database.connect() as connection:
        connection.execute(text("CREATE TABLE article (id integer PRIMARY KEY, body text, fingerprint bigint)"))
        rows = [(number, "text", fingerprint) for number, fingerprint in enumerate(FINGERPRINTS)]
        load_rows(connection, "article", ["id", "body", "fingerprint"], rows)
        create_index(connection, "article", "fingerprint", distance=7)
        yield connection


@pytest.fixture
def index(articles):
    return SearchIndex(articles, "article")


@pytest.mark.parametrize("within", DISTANCES)
def test_near_equals_brute_force(within, index):
    for query in QUERIES:
        expected = [(from_bigint(f), d) for f, d in oracle.near(FINGERPRINTS, to_bigint(query), within)]
        found = index.near(query, within)
        assert found == expected
        assert all(match.distance == (match.fingerprint ^ query).bit_count() for match in found)


@pytest.mark.parametrize("within", DISTANCES)
def test_near_rows_equals_brute_force(within, index):
    for query in QUERIES:
        expected = sorted(
            (oracle.distance(f, query), f, number)
            for number, f in enumerate(FINGERPRINTS)
            if f is not None and oracle.distance(f, query) <= within
        )
        found = index.near_rows(query, within)
        assert [(match.distance, to_bigint(match.fingerprint)) for match in found] == [
            (distance, f) for distance, f, _ in expected
        ]
        assert sorted((match.distance, match.row["fingerprint"], match.row["id"]) for match in found) == expected
        assert all(set(match.row) == {"id", "body", "fingerprint"} for match in found)


def test_without_a_distance_the_index_has_one(index):
    assert index.near(0) == index.near(0, 7)
    assert index.near_rows(0) == index.near_rows(0, 7)
    assert list(index.pairs()) == list(index.pairs(7))
    assert list(index.clusters()) == list(index.clusters(7))


def test_of_two_indexes_the_column_says_which(articles, index):
    articles.execute(text("ALTER TABLE article ADD COLUMN title bigint DEFAULT 5"))
    create_index(articles, "article", "title", recipe=Recipe(shingles=(3,)))
    articles.commit()
    assert SearchIndex(articles, "article", "title").near(5, 0) == [(5, 0)]
    assert SearchIndex(articles, "article", "fingerprint").near(2**64 - 1, 0) == [(2**64 - 1, 0)]
    assert len(SearchIndex(articles, "article", "title").near_rows(5, 0)) == len(FINGERPRINTS)
    assert list(SearchIndex(articles, "article", "title").pairs(7)) == []
    assert list(SearchIndex(articles, "article", "title").clusters(7)) == [(5, 5)]
    assert SearchIndex(articles, "article", "title").recipe() == Recipe(shingles=(3,))
    assert SearchIndex(articles, "article", "fingerprint").recipe() == DEFAULT_RECIPE
    for search in (index.near, index.near_rows):
        with pytest.raises(DBAPIError, match="has 2 simhash indexes"):
            search(5, 0)
        articles.rollback()


@pytest.mark.parametrize("within", [0, 3, 64, None])
def test_many_queries_find_what_one_query_finds(within, index):
    queries = np.array([*QUERIES[5:], 0, 2**64 - 1, 2**63, 12345, 0], dtype=np.uint64)
    found = sorted(index.near_many(queries, within))
    assert found == sorted(
        (query, *match) for query in set(queries.tolist()) for match in index.near(query, within)
    )
    assert found
    assert list(index.near_many([])) == []
    with pytest.raises(ValueError, match=f"{2**64} is not a fingerprint"):
        index.near_many([1, 2**64])


@pytest.mark.parametrize("search", [SearchIndex.near, SearchIndex.near_rows])
@pytest.mark.parametrize("number", [-(2**63) - 1, 2**64])
def test_what_is_no_fingerprint_is_refused(index, search, number):
    with pytest.raises(ValueError, match="is not a fingerprint"):
        search(index, number)


@pytest.mark.parametrize("search", [SearchIndex.near, SearchIndex.near_rows])
@pytest.mark.parametrize(
    ("table", "column", "distance", "said"),
    [
        ("missing", None, 3, 'relation "missing" does not exist'),
        ("pg_class", None, 3, "has no simhash index"),
        ("article", "body", 3, "has no simhash index on column body"),
    ],
)
def test_what_cannot_be_searched_is_an_error_of_postgresql(articles, search, table, column, distance, said):
    with pytest.raises(DBAPIError, match=said):
        search(SearchIndex(articles, table, column), 0, distance)


def test_odd_names_are_searched(articles):
    table, schema, column = 'say "when" %s :x', "Ar.chive", "100% fp's"
    quoted = f'"{schema}"."{table.replace(chr(34), chr(34) * 2)}"'
    for statement in (
        f'CREATE SCHEMA "{schema}"',
        f'CREATE TABLE {quoted} ("{column}" bigint)',
        f"INSERT INTO {quoted} VALUES (-1), (-2)",
    ):
        articles.execution_options(no_parameters=True).exec_driver_sql(statement)
    create_index(articles, quoted, column)
    assert SearchIndex(articles, quoted).near(2**64 - 1, 0) == [(2**64 - 1, 0)]
    assert [match.row for match in SearchIndex(articles, quoted, column).near_rows(2**64 - 1, 1)] == [
        {column: -1},
        {column: -2},
    ]
    assert list(SearchIndex(articles, quoted).pairs(1)) == [(2**64 - 2, 2**64 - 1, 1)]
    assert SearchIndex(articles, quoted, column).recipe() == DEFAULT_RECIPE


def test_the_recipe_of_an_index_that_named_none_is_unknown(articles, index):
    articles.execute(text("SELECT simsql.drop_index('article')"))
    articles.execute(text("SELECT simsql.create_index('article', 'fingerprint')"))
    with pytest.raises(
        UsageError, match=r"nobody has named the recipe of the simhash index on article\(fingerprint\)"
    ):
        index.recipe()
    assert SearchIndex(articles, "article", recipe=DEFAULT_RECIPE).recipe() == DEFAULT_RECIPE
    assert index.near(2**64 - 1, 0) == [(2**64 - 1, 0)]


def test_the_recipe_of_an_index_may_be_a_name(articles, index):
    articles.execute(text("SELECT simsql.drop_index('article')"))
    create_index(articles, "article", "fingerprint", recipe="pypi-simhash")
    known = KNOWN_RECIPES["pypi-simhash"]
    assert index.recipe() == SearchIndex(articles, "article", recipe=known).recipe() == known
    with pytest.raises(UsageError, match="has the recipe pypi-simhash, not words12-log-1"):
        SearchIndex(articles, "article", recipe=DEFAULT_RECIPE).recipe()
    with pytest.raises(TypeError, match="a recipe must be a Recipe, not str"):
        SearchIndex(articles, "article", recipe="pypi-simhash").recipe()
