"""Scopes from Python: values of many types, every search and stream, and loads through the triggers."""

import datetime
import enum
import json
from decimal import Decimal
from uuid import UUID

import numpy as np
import oracle
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from simsql import Design
from simsql.database import SearchIndex, create_index, from_bigint, load_rows, search_index
from simsql.database.bigint import encode_scope

FINGERPRINTS = oracle.clustered(240, seed=41)
TENANT = UUID("00000000-0000-4000-8000-0000000000ff")
SCOPE = {"tenant": TENANT, "day": datetime.date(2024, 5, 6)}
MINE = FINGERPRINTS[::2]


@pytest.fixture
def articles(database):
    """A connection to a database with `article`, every other row of which is in SCOPE."""
    with database.connect() as connection:
        connection.execute(text("CREATE TABLE article (id integer, tenant uuid, day date, fingerprint bigint)"))
        create_index(connection, "article", "fingerprint", distance=7, scope=["tenant", "day"])
        other = UUID(int=5)
        rows = [
            (number, other if number % 4 == 1 else TENANT, f"2024-05-{6 + number % 2:02}", found)
            for number, found in enumerate(FINGERPRINTS)
        ]
        load_rows(connection, "article", ["id", "tenant", "day", "fingerprint"], [*rows, (-1, TENANT, None, 0)])
        yield connection


@pytest.fixture
def index(articles):
    return SearchIndex(articles, "article", scope=SCOPE)


def unsigned(rows, places):
    return sorted(
        tuple(from_bigint(value) if place < places else value for place, value in enumerate(row)) for row in rows
    )


def test_every_search_keeps_to_its_scope(index, monkeypatch):
    assert index.verify() == []
    for query in (0, from_bigint(MINE[5])):
        expected = [(from_bigint(f), d) for f, d in oracle.near(MINE, oracle.to_bigint(query), 7)]
        assert index.near(query) == expected
        rows = index.near_rows(query)
        assert sorted({(found.fingerprint, found.distance) for found in rows}) == sorted(expected)
        assert {found.row["id"] % 2 for found in rows} <= {0}
        for at_most in (1, 0):  # in PostgreSQL, and in memory
            monkeypatch.setattr(search_index, "_QUERIES_IN_SQL", at_most)
            assert sorted(found[1:] for found in index.near_many([query])) == sorted(expected)
    expected_pairs = unsigned(oracle.pairs(MINE, 7), 2)
    assert sorted(index.pairs()) == expected_pairs
    expected_clusters = unsigned(oracle.clusters(MINE, 7), 2)
    assert sorted(index.clusters()) == expected_clusters
    assert index.pairs().copy_into("found") == len(expected_pairs)
    assert index.recipe()


@pytest.mark.parametrize(
    "search",
    [
        lambda index: index.near(0),
        lambda index: index.near_rows(0),
        lambda index: index.near_many([0]),
        lambda index: index.pairs(),
        lambda index: index.clusters(),
    ],
)
def test_every_search_needs_a_whole_scope(articles, search):
    for scope, message in ((None, "needs a scope"), ({"tenant": TENANT}, "no value for day")):
        with pytest.raises(DBAPIError, match=message), articles.begin_nested():
            search(SearchIndex(articles, "article", scope=scope))


class Language(enum.StrEnum):
    GERMAN = "de"


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("it's", "it's"),
        (42, 42),
        (True, True),
        (0.1, 0.1),
        (TENANT, str(TENANT)),
        (Decimal("1.50"), "1.50"),
        (datetime.datetime(2024, 5, 6, 7, tzinfo=datetime.UTC), "2024-05-06 07:00:00+00:00"),
        (Language.GERMAN, "de"),
        (None, None),
    ],
)
def test_values_become_json(value, encoded):
    assert json.loads(encode_scope({"tenant": value})) == {"tenant": encoded}
    assert encode_scope(None) is None


@pytest.mark.parametrize(
    ("value", "error"), [(object(), TypeError), (b"a", TypeError), (float("nan"), ValueError)]
)
def test_other_values_are_an_error(value, error):
    with pytest.raises(error):
        encode_scope({"tenant": value})


def test_a_large_load_goes_through_the_triggers_of_a_scoped_index_and_beside_those_of_others(database, connection):
    fingerprints = np.arange(10_001, dtype=np.uint64) << np.uint64(20)
    with database.begin() as transaction:
        transaction.execute(text("CREATE TABLE article (tenant integer, print bigint, fingerprint bigint)"))
        create_index(transaction, "article", "print", scope=["tenant"])
        create_index(transaction, "article", "fingerprint")
        rows = [(number % 2, number) for number in range(len(fingerprints))]
        load_rows(
            transaction, "article", ["tenant", "print"], rows, fingerprints=fingerprints, column="fingerprint"
        )
    with database.connect() as transaction:
        assert SearchIndex(transaction, "article").verify() == []
        assert len(SearchIndex(transaction, "article", "print", scope={"tenant": 0}).near(0, 1)) == 14
        assert len(SearchIndex(transaction, "article", "fingerprint").near(0, 1)) == 15


def test_a_search_can_have_a_scope_of_its_own(index, articles):
    elsewhere = SearchIndex(articles, "article", scope={**SCOPE, "tenant": UUID(int=7)})
    assert elsewhere.near(0, 64) == []
    for search in (SearchIndex.near, SearchIndex.near_rows, SearchIndex.claim):
        assert search(elsewhere, 0, 64, scope=SCOPE) == search(index, 0, 64)


def test_build_makes_the_b_tree_on_the_scope_too(database):
    with database.begin() as connection:
        connection.execute(text('CREATE TABLE article ("Tenant" text, fingerprint bigint)'))
        connection.execute(text("INSERT INTO article SELECT 'a', n FROM generate_series(1, 100) AS n"))
    create_index(database, "article", "fingerprint", design=Design(2), scope=["Tenant"], concurrently=True)
    with database.connect() as connection:
        assert SearchIndex(connection, "article").verify() == []
        assert len(SearchIndex(connection, "article", scope={"Tenant": "a"}).near(3, 0)) == 1
        (names,) = connection.execute(
            text("SELECT array_agg(indexdef) FROM pg_indexes WHERE tablename = 'article'")
        ).one()
        assert [name.rpartition(" USING ")[2] for name in names] == ['btree ("Tenant", fingerprint)']
    assert SearchIndex(database, "article").vacuum() == 0
