"""A partitioned table is searched like any other, whatever becomes of its partitions."""

import random
import re

import psycopg
import pytest
from articles import near
from internals import begin_build, build_batch
from oracle import near as expected_near
from oracle import pairs as expected_pairs
from partitions import (
    COLUMNS,
    FINGERPRINTS,
    KINDS,
    QUERIES,
    create_index,
    create_months,
    create_partitioned,
    insert,
    searches_are_exact,
)
from psycopg import errors
from similar import like_near
from upkeep import problems

import simsql.database
from simsql.database import SearchIndex, search_index

pytestmark = pytest.mark.oldest_version


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_partitioned_table_is_searched_exactly(connection, kind):
    create_partitioned(connection, kind)
    insert(connection, FINGERPRINTS[:150])
    create_index(connection)
    insert(connection, FINGERPRINTS[150:])
    searches_are_exact(connection)
    assert connection.execute("SELECT storage, state FROM simsql.indexes").fetchone() == ("expression", "ready")
    found = connection.execute("SELECT * FROM simsql.pairs('article', 7)").fetchall()
    assert sorted(found) == expected_pairs(FINGERPRINTS, 7)
    many = connection.execute(
        "SELECT * FROM simsql.near_many('article', %s::bigint[], 7)", [FINGERPRINTS[:40]]
    ).fetchall()
    assert sorted(many) == sorted(
        (query, *match) for query in set(FINGERPRINTS[:40]) for match in expected_near(FINGERPRINTS, query, 7)
    )
    # Rows move between partitions, and one is emptied.
    connection.execute("UPDATE article SET tenant = 1 + tenant % 4, day = day + 31, fingerprint = fingerprint # 4")
    searches_are_exact(connection)
    connection.execute("TRUNCATE part_2")
    searches_are_exact(connection)


def fill_articles(connection):
    """Three months of articles, indexed."""
    create_months(connection)
    insert(connection, FINGERPRINTS)
    create_index(connection)


def attach(connection: psycopg.Connection) -> None:
    connection.execute(f"CREATE TABLE later ({COLUMNS})")
    insert(connection, [0, 1, 3, -1], "later")
    connection.execute("UPDATE later SET day = '2026-01-01'")
    connection.execute(
        "ALTER TABLE article ATTACH PARTITION later FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"
    )


def test_partitions_come_and_go(articles):
    attach(articles)
    searches_are_exact(articles)
    articles.execute("CREATE TABLE new PARTITION OF article FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')")
    articles.execute("INSERT INTO new (id, tenant, day, fingerprint) VALUES (-1, 1, '2024-05-05', 0)")
    searches_are_exact(articles)
    articles.execute("ALTER TABLE article DETACH PARTITION part_1")
    searches_are_exact(articles)
    articles.execute("DROP TABLE later")
    searches_are_exact(articles)


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize(
    "call",
    [
        "near('article', 0, 1)",
        f"similar_candidates('article', {like_near(0, 3)})",
        "near_many('article', ARRAY(SELECT generate_series(0, 30)), 0)",
        "pairs('article', 1)",
    ],
)
def test_a_transaction_that_has_searched_sees_an_attached_partition(connection, connect, level, call):
    """It holds the locks that its next search needs, so PostgreSQL need not tell it of the new partition."""
    create_months(connection)
    create_index(connection)
    session = connect()
    search = f"SELECT * FROM simsql.{call}"
    for _ in range(7):  # from the sixth execution on, a plan is used again
        assert session.execute(search).fetchall() == []
    session.execute(f"BEGIN ISOLATION LEVEL {level}")
    assert session.execute(search).fetchall() == []
    # Not an INSERT afterwards: an older snapshot would hide its rows.
    other = connect()
    other.execute("BEGIN")
    attach(other)
    other.execute("COMMIT")
    found = session.execute(search).fetchall()
    plain = session.execute("SELECT fingerprint FROM article").fetchall()
    assert bool(found) == bool(plain) == (level == "READ COMMITTED")
    session.execute("COMMIT")
    assert session.execute(search).fetchall()


def test_a_transaction_that_has_searched_sees_a_detached_partition(articles, connect):
    session, waiting = connect(), connect()
    for _ in range(7):
        assert near(session, 0, 0) == [(0, 0)]
    session.execute("BEGIN")
    near(session, 0, 0)
    # It cannot be completed while the transaction lasts.
    waiting.execute("SET statement_timeout = '300ms'")
    with pytest.raises(errors.QueryCanceled):
        waiting.execute("ALTER TABLE article DETACH PARTITION part_1 CONCURRENTLY")
    live = [found for (found,) in session.execute("SELECT fingerprint FROM article")]
    for query in QUERIES:
        assert near(session, query, 7) == expected_near(live, query, 7)
    session.execute("COMMIT")
    searches_are_exact(articles)
    articles.execute("ALTER TABLE article DETACH PARTITION part_1 FINALIZE")
    searches_are_exact(articles)


# Scopes and pruning


def plan_of(connection: psycopg.Connection, within: int) -> str:
    rows = connection.execute(
        """SELECT simsql.explain_near('article', 0, %s, scope => '{"tenant": 1}')""", [within]
    )
    return "\n".join(line for (line,) in rows)


def test_a_search_reads_the_partition_of_its_scope_alone(connection):
    create_partitioned(connection, "list")
    chance = random.Random(16)
    fingerprints = [chance.randrange(-(2**63), 2**63) for _ in range(6_000)]
    insert(connection, fingerprints)
    create_index(connection, ", scope => '{tenant}'")
    connection.execute("VACUUM ANALYZE article")
    for within, strategy, condition in ((3, "exact", "= "), (7, "probes", r"= ANY ")):
        plan = plan_of(connection, within)
        assert plan.startswith(f"strategy: {strategy},")
        read = re.findall(r"Scan using (\S+) on (\S+)", plan)
        assert {partition for _, partition in read} == {"part_1"}
        assert len(read) == 4
        scan = r"Index Only Scan using part_1_tenant_\S+ on part_1.*\n +Index Cond: "
        lead_bits = r"\(\(tenant = \S+\) AND \(\(\(fingerprint & .*\)\) "
        assert len(re.findall(scan + lead_bits + condition, plan)) == 4, plan
        assert plan.count("Subplans Removed: 2") == 4
    for tenant in (1, 2, 4):
        live = [
            found for (found,) in connection.execute("SELECT fingerprint FROM article WHERE tenant = %s", [tenant])
        ]
        statement = (
            "SELECT * FROM simsql.near('article', %s, %s, scope => jsonb_build_object('tenant', %s::integer))"
        )
        for query in (live[0], live[5] ^ 7):
            for within in (0, 3, 7, 10, 20):
                found = connection.execute(statement, [query, within, tenant]).fetchall()
                assert found == expected_near(live, query, within)


def test_without_a_scope_every_partition_is_read_by_its_b_tree(articles):
    articles.execute("VACUUM ANALYZE article")
    rows = articles.execute("SELECT simsql.explain_near('article', 0, 3)")
    plan = "\n".join(line for (line,) in rows)
    assert len(re.findall(r"Index Only Scan using part_\d_expr_fingerprint_idx\d* on part_\d", plan)) == 12


# Upkeep


def test_key_tables_are_refused(connection):
    create_partitioned(connection, "range")
    with pytest.raises(errors.FeatureNotSupported, match="is partitioned") as caught:
        create_index(connection, ", storage => 'tables'")
    assert "storage => 'expression'" in caught.value.diag.message_hint


@pytest.mark.parametrize("online", [False, True], ids=["call", "client"])
def test_a_build_goes_from_partition_to_partition(connection, database, online):
    create_partitioned(connection, "partitions of partitions")
    insert(connection, FINGERPRINTS)
    # Half of what an interrupted build has left.
    begin_build(connection)
    for _ in range(7):
        build_batch(connection)
    connection.execute(
        "UPDATE pg_index SET indisvalid = false"
        " WHERE indexrelid = (SELECT max(oid) FROM pg_class WHERE relname LIKE 'simsql\\_1\\_0\\_%')"
    )
    if online:
        simsql.database.create_index(database, "article", "fingerprint", recipe=None, concurrently=True)
    else:
        connection.execute("CALL simsql.build('article', 'fingerprint')")
    searches_are_exact(connection)
    unattached = connection.execute(
        "SELECT relname FROM pg_class WHERE relname LIKE 'simsql\\_1\\_%\\_%' AND NOT relispartition"
    )
    assert unattached.fetchall() == []


def test_what_is_missing_on_a_partition_is_reported_and_repaired(articles):
    articles.execute("DROP INDEX simsql_1_2")
    articles.execute("CREATE INDEX simsql_1_2 ON ONLY article ((fingerprint & 4294901760), fingerprint)")
    articles.execute("CREATE INDEX made ON part_1 ((fingerprint & 4294901760), fingerprint)")
    articles.execute("ALTER INDEX simsql_1_2 ATTACH PARTITION made")
    assert problems(articles) == {
        ("search B-tree invalid", "public.simsql_1_2"),
        ("partition without search B-tree", "public.part_2"),
        ("partition without search B-tree", "public.part_3"),
    }
    for within in (3, 7):
        assert near(articles, 0, within) == expected_near(FINGERPRINTS, 0, within)
    articles.execute("SELECT * FROM simsql.repair('article')")
    searches_are_exact(articles)


def test_dropping_the_index_leaves_the_plain_b_tree_alone(articles):
    articles.execute("SELECT simsql.drop_index('article')")
    left = articles.execute("SELECT indexname FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1").fetchall()
    assert left == [(f"{table}_fingerprint_idx",) for table in ("article", "part_1", "part_2", "part_3")]
    create_index(articles)
    searches_are_exact(articles)


def test_python_reads_all_partitions(articles, database, monkeypatch):
    index = SearchIndex(database, "article")
    found = [(pair.a, pair.b) for pair in index.pairs(3)]
    live = {fingerprint % 2**64 for fingerprint in FINGERPRINTS}
    expected = {
        (min(a % 2**64, b % 2**64), max(a % 2**64, b % 2**64)) for a, b, _ in expected_pairs(FINGERPRINTS, 3)
    }
    assert {tuple(sorted(pair)) for pair in found} == expected
    for at_most in (1, 0):  # in PostgreSQL, and in memory
        monkeypatch.setattr(search_index, "_QUERIES_IN_SQL", at_most)
        assert {match.fingerprint for match in index.near_many([0], 64)} == live
