"""Many searches, pairs and clusters in tables that Citus distributes."""

import json

import psycopg
import pytest
from internals import near_many_statements, run_statements
from oracle import clustered
from oracle import clusters as expected_clusters
from oracle import near as expected_near
from oracle import pairs as expected_pairs
from partitions import create_distributed, create_index, insert

FINGERPRINTS = clustered(200, seed=16)
QUERIES = [*FINGERPRINTS[::7], *clustered(20, seed=17)]
DISTANCES = (0, 3, 7, 10)
KINDS = ["distributed by id", "distributed by tenant", "reference", "partitioned"]


@pytest.fixture
def server(citus):
    return citus


def create_articles(connection: psycopg.Connection, kind: str, scope: str = "{}") -> None:
    """Rows of the tenants 1 to 4, some of which have the same fingerprint, and one without a fingerprint."""
    create_distributed(connection, kind)
    insert(connection, [*FINGERPRINTS, *FINGERPRINTS[:9], None])
    create_index(connection, f", scope => '{scope}'")


def expected_many(fingerprints, within: int) -> list[tuple[int, int, int]]:
    return sorted(
        (query, *match) for query in set(QUERIES) for match in expected_near(fingerprints, query, within)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_exact_on_every_kind_of_table(connection, kind):
    create_articles(connection, kind)
    connection.execute("CREATE TABLE query (f bigint)")
    connection.execute("INSERT INTO query SELECT unnest(%s::bigint[])", [QUERIES])
    if kind == "distributed by id":
        connection.execute("SELECT create_distributed_table('query', 'f')")
    rows = [*FINGERPRINTS, *FINGERPRINTS[:9]]
    for within in DISTANCES:
        expected = expected_many(rows, within)
        for arguments, values in (("%s::bigint[]", [QUERIES, within]), ("'query', 'f'", [within])):
            found = connection.execute(f"SELECT * FROM simsql.near_many('article', {arguments}, %s)", values)
            assert sorted(found) == expected
        pairs = connection.execute("SELECT * FROM simsql.pairs('article', %s) ORDER BY 1, 2", [within]).fetchall()
        assert pairs == expected_pairs(rows, within)
        clusters = connection.execute("SELECT * FROM simsql.clusters('article', %s)", [within]).fetchall()
        assert clusters == expected_clusters(rows, within)


@pytest.mark.parametrize(
    ("strategy", "queries", "rows"), [("probes", 10, 10**7), ("join", 10**7, 10**4), ("scan", 10, 10)]
)
def test_each_strategy_is_exact(connection, strategy, queries, rows):
    create_articles(connection, "distributed by id")
    for within in DISTANCES:
        chosen, statements = near_many_statements(connection, queries, rows, within)
        assert chosen == strategy
        assert run_statements(connection, statements, QUERIES, within) == expected_many(FINGERPRINTS, within)


@pytest.mark.parametrize("kind", ["distributed by id", "distributed by tenant"])
def test_a_scope_restricts_batches(connection, kind):
    create_articles(connection, kind, "{tenant}")
    rows = [f for (f,) in connection.execute("SELECT fingerprint FROM article WHERE tenant = 2")]
    scope = json.dumps({"tenant": 2})
    for within in DISTANCES:
        for queries in (QUERIES, QUERIES[:3]):
            found = connection.execute(
                "SELECT * FROM simsql.near_many('article', %s::bigint[], %s, scope => %s)",
                [queries, within, scope],
            )
            assert sorted(found) == [match for match in expected_many(rows, within) if match[0] in queries]
        pairs = connection.execute(
            "SELECT * FROM simsql.pairs('article', %s, scope => %s) ORDER BY 1, 2", [within, scope]
        ).fetchall()
        assert pairs == expected_pairs(rows, within)
        clusters = connection.execute(
            "SELECT * FROM simsql.clusters('article', %s, scope => %s)", [within, scope]
        ).fetchall()
        assert clusters == expected_clusters(rows, within)


def test_the_rows_of_one_shard_are_estimated(connection):
    """Which strategy is the fastest depends on them."""
    create_articles(connection, "distributed by id")

    def expected_keys(scope: str | None = None) -> int:
        return connection.execute(
            "SELECT simsql._expected_keys(r, 100, 7, %s::jsonb) FROM simsql.registry AS r", [scope]
        ).fetchone()[0]

    shards = connection.execute("SELECT count(*) FROM pg_dist_shard").fetchone()[0]
    assert expected_keys() == (len(FINGERPRINTS) + 9) // shards
    connection.execute("INSERT INTO article SELECT n, 0, '2025-01-01', n FROM generate_series(1, 40000) AS n")
    assert 40_000 / shards / 3 < expected_keys() < 40_000 / shards * 3
    connection.execute("DROP TABLE article")
    create_articles(connection, "distributed by tenant", "{tenant}")
    of_tenant = connection.execute("SELECT count(fingerprint) FROM article WHERE tenant = 3").fetchone()[0]
    assert expected_keys(json.dumps({"tenant": 3})) == of_tenant
