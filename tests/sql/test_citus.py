"""A table that Citus distributes is searched like any other."""

import json
import re

import psycopg
import pytest
from articles import near
from oracle import near as expected_near
from partitions import (
    COLUMNS,
    DISTRIBUTE,
    FINGERPRINTS,
    QUERIES,
    create_distributed,
    create_index,
    insert,
    searches_are_exact,
)
from psycopg import errors, sql
from sessions import blocked
from similar import like_near
from upkeep import problems

import simsql.database
from simsql import Design


@pytest.fixture
def server(citus):
    return citus


@pytest.mark.parametrize("kind", DISTRIBUTE)
def test_every_kind_of_table_is_searched_exactly(connection, kind):
    create_distributed(connection, kind)
    insert(connection, FINGERPRINTS[:150])
    create_index(connection)
    insert(connection, [*FINGERPRINTS[150:], None])
    searches_are_exact(connection)
    assert connection.execute("SELECT storage, state FROM simsql.indexes").fetchone() == ("expression", "ready")
    assert near(connection, 0, 30) == expected_near(FINGERPRINTS, 0, 30)
    for within in (7, 30):
        wide = connection.execute(
            "SELECT fingerprint[1], distance FROM simsql.near_wide('article', '{0}', %s, '{fingerprint}')",
            [within],
        )
        assert wide.fetchall() == expected_near(FINGERPRINTS, 0, within)
    connection.execute("UPDATE article SET fingerprint = fingerprint # 4")
    searches_are_exact(connection)


@pytest.mark.parametrize("kind", ["distributed by id", "in a single shard", "reference"])
def test_every_row_of_a_match_is_found(connection, kind):
    create_distributed(connection, kind)
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
    create_distributed(connection, kind)
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
    create_distributed(connection)
    with pytest.raises(errors.FeatureNotSupported, match="managed by Citus") as caught:
        create_index(connection, ", storage => 'tables'")
    assert "storage => 'expression'" in caught.value.diag.message_hint


# Plans


def plan_of(connection: psycopg.Connection, within: int, more: str = "") -> str:
    rows = connection.execute(f"SELECT simsql.explain_near('article', 0, {within}{more})")
    return "\n".join(line for (line,) in rows)


def test_each_shard_is_read_by_its_b_trees(connection):
    create_distributed(connection, "distributed by tenant")
    connection.execute(
        "INSERT INTO article SELECT n, n % 16, '2025-01-01', ('x' || left(md5(n::text), 16))::bit(64)::bigint"
        " FROM generate_series(1, 8000) AS n"
    )
    create_index(connection)
    connection.execute("ALTER TABLE article ADD COLUMN copy bigint; UPDATE article SET copy = fingerprint")
    connection.execute("SELECT simsql.create_index('article', 'copy', blocks => 4, scope => '{tenant}')")
    connection.execute("VACUUM ANALYZE article")
    # The shards are so small that their planners might read all rows.
    connection.execute("BEGIN; SET LOCAL citus.propagate_set_commands = 'local'; SET LOCAL enable_seqscan = off")
    connection.execute("SET LOCAL citus.explain_all_tasks = on")
    plan = plan_of(connection, 3, ", 'fingerprint'")
    assert plan.startswith("strategy: exact,")
    assert "Task Count: 4" in plan
    assert plan.count("BitmapOr") == 4, plan
    scan = r"Bitmap Index Scan on simsql_1_\d_\d+ .*\n +Index Cond: \(\(fingerprint & .*\) = "
    assert len(re.findall(scan, plan)) == 16, plan
    query = like_near(0, 3, column="'fingerprint'")
    rows = connection.execute(f"SELECT simsql.explain_similar('article', {query}, 'fingerprint')")
    plan = "\n".join(line for (line,) in rows)
    assert plan.startswith("strategy: probes, ranges: 4,")
    assert (plan.count("Task Count: 4"), plan.count("BitmapOr"), len(re.findall(scan, plan))) == (1, 4, 16), plan
    plan = plan_of(connection, 3, """, 'copy', '{"tenant": 5}'""")
    assert "Task Count: 1\n" in plan
    scan = r"Bitmap Index Scan on simsql_2_\d_\d+ .*\n +Index Cond: \(\(tenant = .*\) AND \(\(copy & .*\) = "
    assert len(re.findall(scan, plan)) == 4, plan
    # For as many ranges, they read all rows, but still in the shard of the scope alone.
    plan = plan_of(connection, 7, """, 'copy', '{"tenant": 5}'""")
    assert plan.startswith("strategy: probes,")
    assert "Task Count: 1\n" in plan
    assert plan_of(connection, 40, ", 'fingerprint'").startswith("strategy: scan,")


# Changes


def test_a_table_that_is_distributed_later(connection):
    connection.execute(f"CREATE TABLE article ({COLUMNS})")
    insert(connection, FINGERPRINTS)
    create_index(connection, ", storage => 'expression'")
    connection.execute("SELECT create_distributed_table('article', 'id')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="was distributed after") as caught:
        near(connection, 0, 3)
    assert "simsql.repair('public.article')" in caught.value.diag.message_hint
    assert connection.execute("SELECT state FROM simsql.indexes").fetchone() == ("table distributed",)
    assert problems(connection) == {
        *{("function altered", f"simsql.{name}_1") for name in ("rows", "scan", "search", "similar")},
        ("table distributed", "public.article"),
    }
    connection.execute("SELECT * FROM simsql.repair('article')")
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_a_table_with_key_tables_cannot_be_distributed(connection):
    connection.execute(f"CREATE TABLE article ({COLUMNS})")
    create_index(connection)
    with pytest.raises(errors.InternalError_, match="because it has triggers"):
        connection.execute("SELECT create_distributed_table('article', 'id')")
    # This replaces the table by a new one, which has the triggers too.
    connection.execute("SELECT citus_add_local_table_to_metadata('article')")
    insert(connection, FINGERPRINTS)
    for call in ("near('article', 0, 3)", "pairs('article', 3)"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="was re-created"):
            connection.execute(f"SELECT * FROM simsql.{call}")
    with pytest.raises(errors.FeatureNotSupported, match="managed by Citus") as caught:
        connection.execute("SELECT * FROM simsql.repair('article')")
    assert "simsql.drop_index" in caught.value.diag.message_hint
    connection.execute("SELECT simsql.drop_index('article')")
    create_index(connection)
    searches_are_exact(connection)


@pytest.mark.parametrize(
    "change",
    [
        "alter_distributed_table('article', shard_count => 3)",
        "alter_distributed_table('article', distribution_column => 'tenant')",
        "undistribute_table('article')",
    ],
)
def test_an_index_follows_its_table_when_citus_re_creates_it(connection, change):
    create_distributed(connection)
    insert(connection, FINGERPRINTS)
    create_index(connection)
    connection.execute(f"SELECT {change}")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="was re-created") as caught:
        near(connection, 0, 3)
    assert "simsql.repair('public.article')" in caught.value.diag.message_hint
    assert connection.execute("SELECT state FROM simsql.indexes").fetchall() == [("table re-created",)]
    assert problems(connection, None) == {("table re-created", "public.article")}
    with pytest.raises(errors.DuplicateObject, match="already has a simhash index"):
        create_index(connection)
    # The remains of a dropped table are dropped with the next index, but those of this one are kept.
    connection.execute(
        "CREATE TABLE other (fingerprint bigint); SELECT simsql.create_index('other', 'fingerprint')"
    )
    mended = connection.execute("SELECT problem FROM simsql.repair('article')").fetchall()
    assert ("table re-created",) in mended
    searches_are_exact(connection)


def test_a_transaction_that_has_searched_sees_an_attached_partition(connection, connect):
    create_distributed(connection, "partitioned")
    create_index(connection)
    session = connect()
    session.execute("BEGIN")
    assert near(session, 0, 1) == []
    connection.execute(f"CREATE TABLE later ({COLUMNS}); INSERT INTO later VALUES (1, 1, '2026-01-01', 1)")
    connection.execute(
        "ALTER TABLE article ATTACH PARTITION later FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"
    )
    assert near(session, 0, 1) == [(1, 1)]
    session.execute("COMMIT")
    searches_are_exact(connection)
    connection.execute("ALTER TABLE article DETACH PARTITION later")
    assert near(session, 0, 1) == []


@pytest.mark.parametrize("kind", ["distributed by id", "partitioned"])
@pytest.mark.parametrize("online", [False, True], ids=["call", "client"])
def test_an_index_is_built_beside_writers(connection, database, kind, online):
    create_distributed(connection, kind)
    insert(connection, FINGERPRINTS)
    if online:
        simsql.database.create_index(
            database, "article", "fingerprint", design=Design(2), recipe=None, concurrently=True
        )
    else:
        connection.execute("CALL simsql.build('article', 'fingerprint', blocks => 2)")
    searches_are_exact(connection)
    connection.execute("DROP INDEX simsql_1_1")
    assert problems(connection) == {("search B-tree missing", "simsql_1_1")}
    connection.execute("SELECT * FROM simsql.repair('article')")
    searches_are_exact(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'simsql\\_1\\_%'"
    assert connection.execute(left).fetchone() == (0,)


def test_all_happens_in_one_transaction_or_not_at_all(connection):
    connection.execute("BEGIN")
    create_distributed(connection)
    insert(connection, FINGERPRINTS)
    create_index(connection)
    searches_are_exact(connection)
    connection.execute("INSERT INTO article VALUES (-1, 1, '2025-01-01', 6)")
    searches_are_exact(connection)
    connection.execute("COMMIT")
    connection.execute("BEGIN; DELETE FROM article; SELECT simsql.drop_index('article'); ROLLBACK")
    searches_are_exact(connection)


# Lost B-trees


DROP = "DROP INDEX {}"
INVALIDATE = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{}'::regclass"


def change_on_shard(citus, connection: psycopg.Connection, name: str, statement: str) -> str:
    """Change a B-tree of one shard on its worker, and return the shard as verify names it."""
    shard, shown = connection.execute(
        "SELECT shardid, format('%%s on %%s:%%s', shard_name, nodename, nodeport) FROM citus_shards"
        " WHERE table_name = 'article'::regclass AND nodeport = %s ORDER BY shardid LIMIT 1",
        [citus.ports[1]],
    ).fetchone()
    with citus.connect(connection.info.dbname, node=1) as worker:
        worker.execute(statement.format(f"{name}_{shard}"))
    return shown


@pytest.mark.parametrize("kind", ["distributed by id", "partitioned", "reference"])
def test_a_b_tree_that_a_shard_has_lost_is_reported_and_repaired(citus, connection, kind):
    create_distributed(connection, kind)
    insert(connection, FINGERPRINTS)
    create_index(connection)
    change_on_shard(citus, connection, "simsql_1_2", DROP)
    change_on_shard(citus, connection, "simsql_1_1", INVALIDATE)
    shard = change_on_shard(citus, connection, "article_fingerprint_idx", DROP)
    lost = {
        ("search B-tree missing on a shard", f"simsql_1_2 of {shard}"),
        ("search B-tree invalid on a shard", f"simsql_1_1 of {shard}"),
        ("B-tree missing on a shard", f"(fingerprint) of {shard}"),
    }
    found = problems(connection)
    # Those of partitions go with that of the whole shard.
    assert found == lost if kind != "partitioned" else found > lost and len(found) == 7
    with connection.transaction():
        # Locks that this transaction has on the shards keep nobody waiting.
        connection.execute("ALTER TABLE article ADD COLUMN more integer")
        mended = connection.execute("SELECT problem, object FROM simsql.repair('article')").fetchall()
        assert set(mended) == found
    assert problems(connection) == set()
    # The shards have kept what the coordinator has lost.
    connection.execute("SET citus.enable_ddl_propagation = off; DROP INDEX simsql_1_3")
    connection.execute("SET citus.enable_ddl_propagation = on")
    assert problems(connection) == {("search B-tree missing", "simsql_1_3")}
    connection.execute("SELECT simsql.repair('article')")
    assert problems(connection) == set()
    # An index that lacks a B-tree on a shard can be dropped.
    change_on_shard(citus, connection, "simsql_1_3", DROP)
    connection.execute("SELECT simsql.drop_index('article')")


# Names, roles and nodes


def test_names_of_all_kinds(connection):
    name, column, scope = '%s "q" \\ 名前', "finger 'print' %I", 'ten"ant %1$s'
    table = sql.Identifier("odd % schema", name)
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier("odd % schema")))
    connection.execute(
        sql.SQL("CREATE TABLE {} ({} text, {} bigint)").format(table, *map(sql.Identifier, (scope, column)))
    )
    quoted = table.as_string(connection)
    connection.execute("SELECT create_distributed_table(%s::regclass, %s)", [quoted, scope])
    connection.execute(
        sql.SQL("INSERT INTO {} SELECT '%s ''' || n % 2, n FROM generate_series(0, 200) AS n").format(table)
    )
    connection.execute("SELECT simsql.create_index(%s, %s, scope => %s)", [quoted, column, [scope]])
    for within in (0, 3, 7, 10):
        found = connection.execute(
            "SELECT * FROM simsql.near(%s, 5, %s, scope => %s::jsonb)",
            [quoted, within, json.dumps({scope: "%s '1"})],
        )
        assert found.fetchall() == expected_near(range(1, 201, 2), 5, within)
    assert connection.execute("SELECT * FROM simsql.verify()").fetchall() == []


def test_a_role_searches_the_columns_that_it_can_read(connection, connect, new_role):
    create_distributed(connection)
    insert(connection, FINGERPRINTS)
    create_index(connection)
    role = new_role()
    session = connect(role)
    similar = f"similar_candidates('article', {like_near(12345678, 3)})"
    for call in (
        "near('article', 12345678, 0)",
        similar,
        "near_rows(NULL::article, 0, 3)",
        "claim('article', 0, 3)",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            session.execute(f"SELECT * FROM simsql.{call}")
    connection.execute(f"GRANT SELECT (fingerprint) ON article TO {role}")
    for within in (0, 3, 7, 10):
        assert near(session, 0, within) == expected_near(FINGERPRINTS, 0, within)
    with pytest.raises(errors.InsufficientPrivilege):
        session.execute("SELECT * FROM simsql.near_rows(NULL::article, 0, 3)")
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    for call in ("near('article', 0, 3)", similar, "near_many('article', '{0}', 3)", "pairs('article', 3)"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=f"applies to role {role}"):
            session.execute(f"SELECT * FROM simsql.{call}")
    # Others can search the index, so it has no fault.
    assert session.execute("SELECT state FROM simsql.indexes").fetchone() == ("ready",)
    assert problems(session) == set()
    searches_are_exact(connection)


def test_a_search_runs_no_code_of_the_tables_owner(connection):
    """The generated function alone, as if the table had been replaced after the checks of `near`."""
    create_distributed(connection)
    create_index(connection)
    connection.execute(
        "CREATE SEQUENCE calls;"
        "CREATE FUNCTION seize() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('calls') $$"
    )
    search = "SELECT * FROM simsql.search_1(5, 3)"
    connection.execute("ALTER TABLE article RENAME TO old")
    connection.execute("CREATE VIEW article AS SELECT *, 1 AS ctid FROM (SELECT seize() AS fingerprint) AS f")
    with pytest.raises(errors.FeatureNotSupported, match="TABLESAMPLE"):
        connection.execute(search)
    connection.execute("DROP VIEW article; CREATE TYPE evil AS ENUM ('x')")
    connection.execute("CREATE FUNCTION cast_it(evil) RETURNS bigint LANGUAGE sql AS 'SELECT seize()'")
    connection.execute("CREATE CAST (evil AS bigint) WITH FUNCTION cast_it(evil) AS IMPLICIT")
    connection.execute("CREATE TABLE article (fingerprint evil); INSERT INTO article VALUES ('x')")
    with pytest.raises(errors.DatatypeMismatch, match="UNION"):
        connection.execute(search)
    assert connection.execute("SELECT is_called FROM calls").fetchone() == (False,)


def test_claims_of_near_fingerprints_wait_for_each_other(connection, connect):
    create_distributed(connection)
    create_index(connection)
    first = connect()
    first.execute("BEGIN")
    assert first.execute("SELECT * FROM simsql.claim('article', 7, 3)").fetchall() == []
    first.execute("INSERT INTO article VALUES (1, 1, '2025-01-01', 7)")
    search = "SELECT * FROM simsql.claim('article', 6, 3)"
    with blocked(connect, lambda session: session.execute(search).fetchall()) as claim:
        first.execute("COMMIT")
        assert claim.result() == [(7, 1)]


def test_a_worker_refuses(connection, server):
    create_distributed(connection)
    insert(connection, FINGERPRINTS)
    create_index(connection)
    with server.connect(connection.info.dbname, node=1) as worker:
        assert worker.execute("SELECT count(*) FROM article").fetchone() == (len(FINGERPRINTS),)
        for call in (
            "near('article', 0, 3)",
            "similar_candidates('article', '{}')",
            "claim('article', 0, 3)",
            "near_rows(NULL::article, 0, 3)",
            "near_many('article', ARRAY[0], 3)",
            "near_many('article', query_table => 'article', query_column => 'fingerprint')",
            "pairs('article', 3)",
            "clusters('article', 3)",
        ):
            with pytest.raises(errors.FeatureNotSupported, match="worker node of Citus") as caught:
                worker.execute(f"SELECT * FROM simsql.{call}")
            assert caught.value.diag.message_hint.startswith("Connect to the coordinator.")
        with pytest.raises(errors.UndefinedObject, match=r"simsql\.registry"):
            worker.execute("SELECT simsql.create_index('article', 'id')")


@pytest.mark.parametrize("together", [True, False])
def test_simsql_is_removed_from_all_nodes(connection, server, together):
    create_distributed(connection)
    create_index(connection)
    if together:
        connection.execute("SELECT simsql.uninstall(drop_indexes => true)")
    else:  # as a migration does
        with connection.transaction():
            connection.execute("SELECT simsql.drop_index('article')")
            connection.execute("ALTER TABLE article DROP COLUMN fingerprint")
            connection.execute("SELECT simsql.uninstall()")
    for node in range(3):
        with server.connect(connection.info.dbname, node=node) as session:
            assert session.execute("SELECT to_regnamespace('simsql')").fetchone() == (None,)
            left = "SELECT relname FROM pg_class WHERE relname LIKE 'simsql%'"
            assert session.execute(left).fetchall() == []
