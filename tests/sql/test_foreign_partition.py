"""A foreign table may be a partition: its rows are found, and it has no B-trees of this server."""

import pytest
from articles import near
from oracle import near as expected_near
from oracle import pairs as expected_pairs
from partitions import FINGERPRINTS, QUERIES, create_index, create_months, insert, searches_are_exact

import simsql.database
from simsql.database import SearchIndex, search_index

pytestmark = pytest.mark.every_version  # the bundled ones lack postgres_fdw


@pytest.fixture
def articles(connection):
    """Three months of articles. The last month is in a foreign table: of a table in this database."""
    if not connection.execute("SELECT name FROM pg_available_extensions WHERE name = 'postgres_fdw'").fetchone():
        pytest.skip("postgres_fdw is not installed for this PostgreSQL")
    connection.execute("CREATE EXTENSION postgres_fdw")
    info = connection.info
    create_months(connection)
    connection.execute(
        f"CREATE SERVER here FOREIGN DATA WRAPPER postgres_fdw"
        f" OPTIONS (host '{info.host}', port '{info.port}', dbname '{info.dbname}');"
        " CREATE USER MAPPING FOR CURRENT_USER SERVER here OPTIONS (user 'postgres');"
        " CREATE TABLE far_away (LIKE article); DROP TABLE part_3;"
        " CREATE FOREIGN TABLE part_3 PARTITION OF article FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')"
        " SERVER here OPTIONS (table_name 'far_away')"
    )
    insert(connection, FINGERPRINTS)
    assert connection.execute("SELECT count(*) > 50 FROM far_away").fetchone() == (True,)
    return connection


@pytest.mark.parametrize("how", ["create_index", "call", "client"])
def test_searches_are_exact(articles, database, how, monkeypatch):
    if how == "client":
        simsql.database.create_index(database, "article", "fingerprint", recipe=None, concurrently=True)
    elif how == "call":
        articles.execute("CALL simsql.build('article', 'fingerprint')")
    else:
        create_index(articles)
    searches_are_exact(articles)
    articles.execute("UPDATE far_away SET fingerprint = fingerprint # 4")
    articles.execute("UPDATE article SET fingerprint = fingerprint # 8 WHERE id % 3 = 0")
    searches_are_exact(articles)
    live = [found for (found,) in articles.execute("SELECT fingerprint FROM article")]
    found = articles.execute("SELECT * FROM simsql.pairs('article', 7)").fetchall()
    assert sorted(found) == expected_pairs(live, 7)
    many = articles.execute("SELECT * FROM simsql.near_many('article', %s::bigint[], 7)", [QUERIES]).fetchall()
    assert sorted(many) == sorted((query, *match) for query in QUERIES for match in expected_near(live, query, 7))
    for at_most in (1, 0):  # in PostgreSQL, and in memory
        monkeypatch.setattr(search_index, "_QUERIES_IN_SQL", at_most)
        matches = SearchIndex(database, "article").near_many([0], 64)
        assert {match.fingerprint for match in matches} == {value % 2**64 for value in live}


def test_it_is_created_attached_and_detached_beside_an_index(articles):
    create_index(articles)
    articles.execute("ALTER TABLE article DETACH PARTITION part_3")
    searches_are_exact(articles)
    articles.execute("UPDATE far_away SET fingerprint = 1 WHERE id % 5 = 0")
    articles.execute(
        "ALTER TABLE article ATTACH PARTITION part_3 FOR VALUES FROM ('2025-03-01') TO ('2025-04-01')"
    )
    searches_are_exact(articles)
    assert near(articles, 1, 0) == [(1, 0)]
    articles.execute("DROP INDEX simsql_1_1, article_fingerprint_idx")
    articles.execute("SELECT * FROM simsql.repair('article')")
    searches_are_exact(articles)
