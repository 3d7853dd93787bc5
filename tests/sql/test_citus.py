"""A table that Citus distributes is searched like any other."""

import json

import psycopg
import pytest
from articles import near
from oracle import clustered
from oracle import near as expected_near
from psycopg import errors
from upkeep import problems

FINGERPRINTS = clustered(300, seed=15)
QUERIES = [0, -1, FINGERPRINTS[17], FINGERPRINTS[150]]
COLUMNS = "id bigint, tenant integer NOT NULL, day date NOT NULL, fingerprint bigint"
DISTRIBUTE = {
    "distributed by id": "SELECT create_distributed_table('article', 'id')",
    "distributed by tenant": "SELECT create_distributed_table('article', 'tenant')",
    "in a single shard": "SELECT create_distributed_table('article', NULL)",
    "reference": "SELECT create_reference_table('article')",
    "local": "SELECT citus_add_local_table_to_metadata('article')",
    "partitioned": "SELECT create_distributed_table('article', 'id')",
}
PARTITIONS = """
    CREATE TABLE part_1 PARTITION OF article FOR VALUES FROM ('2025-01-01') TO ('2025-02-01');
    CREATE TABLE part_2 PARTITION OF article FOR VALUES FROM ('2025-02-01') TO ('2026-01-01')"""


@pytest.fixture
def server(citus):
    return citus


def create_table(connection: psycopg.Connection, kind: str = "distributed by id") -> None:
    if kind == "partitioned":
        connection.execute(f"CREATE TABLE article ({COLUMNS}) PARTITION BY RANGE (day); {PARTITIONS}")
    else:
        connection.execute(f"CREATE TABLE article ({COLUMNS})")
    connection.execute(DISTRIBUTE[kind])


def insert(connection: psycopg.Connection, fingerprints: list[int | None]) -> None:
    """Rows of the tenants 1 to 4 in the first three months of a year."""
    connection.execute(
        "INSERT INTO article SELECT n, 1 + n %% 4, date '2025-01-01' + (n * 7 %% 90)::integer, f"
        " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
        [fingerprints],
    )


def create_index(connection: psycopg.Connection, more: str = "") -> None:
    connection.execute(f"SELECT simsql.create_index('article', 'fingerprint', blocks => 4{more})")


def searches_are_exact(connection: psycopg.Connection) -> None:
    live = [found for (found,) in connection.execute("SELECT fingerprint FROM article")]
    for query in QUERIES:
        for within in (0, 3, 7, 10):
            assert near(connection, query, within) == expected_near(live, query, within)
    assert problems(connection) == set()


@pytest.mark.parametrize("kind", DISTRIBUTE)
def test_every_kind_of_table_is_searched_exactly(connection, kind):
    create_table(connection, kind)
    insert(connection, FINGERPRINTS[:150])
    create_index(connection)
    insert(connection, [*FINGERPRINTS[150:], None])
    searches_are_exact(connection)
    assert connection.execute("SELECT storage, state FROM simsql.indexes").fetchone() == ("expression", "ready")
    assert near(connection, 0, 30) == expected_near(FINGERPRINTS, 0, 30)
    connection.execute("UPDATE article SET fingerprint = fingerprint # 4")
    searches_are_exact(connection)


@pytest.mark.parametrize("kind", ["distributed by id", "in a single shard", "reference"])
def test_every_row_of_a_match_is_found(connection, kind):
    create_table(connection, kind)
    insert(connection, [*FINGERPRINTS, *FINGERPRINTS[:40]])
    connection.execute("ALTER TABLE article ADD PRIMARY KEY (id)")
    create_index(connection)
    rows = connection.execute("SELECT id, fingerprint FROM article ORDER BY id").fetchall()
    for query in QUERIES:
        for within in (0, 3, 7, 10):
            matches = dict(expected_near(FINGERPRINTS, query, within))
            expected = sorted((matches[found], found, number) for number, found in rows if found in matches)
            found = connection.execute(
                "SELECT id, fingerprint FROM simsql.near_rows(NULL::article, %s, %s)", [query, within]
            ).fetchall()
            assert [fingerprint for _, fingerprint in found] == [fingerprint for _, fingerprint, _ in expected]
            assert sorted(found) == sorted((number, fingerprint) for _, fingerprint, number in expected)
            documents = connection.execute(
                "SELECT fingerprint, distance, document"
                " FROM simsql._near_documents('article', %s, %s, NULL, NULL)",
                [query, within],
            ).fetchall()
            assert sorted((away, fingerprint, row["id"]) for fingerprint, away, row in documents) == expected
            keys = connection.execute(
                "SELECT key, fingerprint FROM simsql._keys_of_rows('article', %s::bigint[], NULL, NULL)",
                [list(matches)],
            ).fetchall()
            assert keys == sorted(([number], fingerprint) for _, fingerprint, number in expected)


@pytest.mark.parametrize("kind", ["distributed by tenant", "partitioned", "reference"])
def test_a_scope_restricts_a_search(connection, kind):
    create_table(connection, kind)
    insert(connection, FINGERPRINTS)
    create_index(connection, ", scope => '{tenant}'")
    rows = connection.execute("SELECT tenant, fingerprint FROM article").fetchall()
    for tenant in (1, 4, 9):
        live = [fingerprint for of, fingerprint in rows if of == tenant]
        scope = json.dumps({"tenant": tenant})
        for query in QUERIES:
            for within in (0, 3, 7, 10):
                found = connection.execute(
                    "SELECT * FROM simsql.near('article', %s, %s, scope => %s::jsonb)", [query, within, scope]
                ).fetchall()
                assert found == expected_near(live, query, within)
        found = connection.execute(
            "SELECT fingerprint FROM simsql.near_rows(NULL::article, 0, 30, scope => %s::jsonb)", [scope]
        ).fetchall()
        assert set(found) == {(match,) for match, _ in expected_near(live, 0, 30)}


def test_key_tables_are_refused(connection):
    create_table(connection)
    with pytest.raises(errors.FeatureNotSupported, match="managed by Citus") as caught:
        create_index(connection, ", storage => 'tables'")
    assert "storage => 'expression'" in caught.value.diag.message_hint
