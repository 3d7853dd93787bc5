"""The handle of an index: with an engine or a connection it says the same, and each commits what it should."""

from contextlib import closing

import numpy as np
import oracle
import pytest
from sqlalchemy import text

from simsql import UsageError
from simsql.database import SearchIndex, create_index, load_rows

FINGERPRINTS = [*oracle.clustered(60, seed=17), 5, 5, None]
SEARCHES = {
    "near": lambda index: index.near(5),
    "near_rows": lambda index: index.near_rows(5),
    "near_many": lambda index: sorted(index.near_many([5, 7, 5])),
    "pairs": lambda index: sorted(index.pairs()),
    "clusters": lambda index: list(index.clusters()),
    "pairs in batches": lambda index: rows_of(index.pairs()),
    "recipe": lambda index: index.recipe(),
    "verify": lambda index: index.verify(),
}


def rows_of(results):
    return sorted(tuple(map(int, row)) for batch in results.batches() for row in zip(*batch.values(), strict=True))


@pytest.fixture
def articles(database):
    """An engine of a database with an indexed table."""
    with database.begin() as connection:
        connection.execute(text("CREATE TABLE article (id serial PRIMARY KEY, body text, fingerprint bigint)"))
        create_index(connection, "article", "fingerprint", distance=7)
        load_rows(connection, "article", ["fingerprint"], [[fingerprint] for fingerprint in FINGERPRINTS])
    return database


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_an_engine_finds_what_a_connection_finds_and_gives_its_connections_back(articles, search):
    with articles.connect() as connection:
        expected = search(SearchIndex(connection, "article"))
        assert connection.in_transaction()
    assert search(SearchIndex(articles, "article")) == expected
    assert articles.pool.checkedout() == 0


@pytest.mark.parametrize(
    "search",
    [
        lambda index, within: index.near(5, within),
        lambda index, within: index.near_rows(5, within),
        lambda index, within: index.claim(5, within),
        lambda index, within: index.near_many([5], within),
        lambda index, within: index.pairs(within),
        lambda index, within: index.clusters(within),
    ],
)
def test_a_distance_out_of_range_is_refused(articles, search):
    with articles.connect() as connection:
        index = SearchIndex(connection, "article")
        with pytest.raises(UsageError, match=r"^distance must be between 0 and 64, not 65$"):
            search(index, 65)
        search(index, np.int64(64))


def test_what_is_broken_off_gives_its_connection_back(articles):
    index = SearchIndex(articles, "article")
    with closing(iter(index.pairs(20))) as pairs:
        next(pairs)
        assert articles.pool.checkedout() == 1
    assert articles.pool.checkedout() == 0


def test_with_an_engine_a_copy_is_committed(articles):
    count = SearchIndex(articles, "article").pairs().copy_into("found")
    with articles.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM found")).scalar_one() == count > 0


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "SERIALIZABLE"])
def test_with_an_engine_a_repair_is_committed(articles, isolation):
    with articles.begin() as connection:
        connection.execute(text("DELETE FROM simsql.keys_1_0 WHERE key IS NOT NULL"))
    index = SearchIndex(articles.execution_options(isolation_level=isolation), "article")
    assert [finding.problem for finding in index.repair()] == ["keys missing"]
    assert index.verify() == []


def test_backfill_and_vacuum_commit(articles):
    index = SearchIndex(articles, "article")
    with articles.begin() as connection:
        connection.execute(text("UPDATE article SET body = 'one text', fingerprint = NULL"))
    assert index.backfill("body").written == len(FINGERPRINTS)
    assert index.vacuum() > 0
    assert index.vacuum() == 0


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("vacuum", lambda connection: SearchIndex(connection, "article").vacuum()),
        ("backfill", lambda connection: SearchIndex(connection, "article").backfill("body")),
        (
            r"create_index\(concurrently=True\)",
            lambda connection: create_index(connection, "article", "fingerprint", concurrently=True),
        ),
    ],
)
def test_what_commits_refuses_a_connection(articles, what, call):
    with (
        articles.connect() as connection,
        pytest.raises(UsageError, match=f"{what} commits as it works: pass an Engine, not a Connection"),
    ):
        call(connection)


def test_a_claim_refuses_an_engine(articles):
    """Its transaction would end before the insert."""
    with pytest.raises(UsageError, match="pass the Connection of the insert, not an Engine"):
        SearchIndex(articles, "article").claim(5)
    with articles.connect() as connection:
        assert SearchIndex(connection, "article").claim(5) == (5, 0)
        assert connection.in_transaction()
