"""near_many finds what near finds, one query at a time, whichever way it is computed."""

import random

import psycopg
import pytest
from articles import DESIGNS, create_articles, near
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from internals import near_many_statements, run_statements
from oracle import EXTREMES, clustered, flip
from oracle import near as expected_near
from psycopg import errors

pytestmark = pytest.mark.oldest_version

FINGERPRINTS = clustered(400, seed=21)
QUERIES = [*FINGERPRINTS[:25], *clustered(25, seed=22), *EXTREMES]
few_bits = st.builds(flip, st.sampled_from(EXTREMES), st.sets(st.integers(0, 63), max_size=9))


def near_many(connection, queries, within=None):
    statement = "SELECT query, fingerprint, distance FROM simsql.near_many('article', %s::bigint[], %s)"
    return sorted(connection.execute(statement, [queries, within]).fetchall())


def expected(fingerprints, queries, within):
    found = (
        (query, *match) for query in set(queries) - {None} for match in expected_near(fingerprints, query, within)
    )
    return sorted(found)


@pytest.mark.parametrize("design", DESIGNS[:-1], ids=str)
def test_it_finds_what_brute_force_finds(connection, storage, design):
    create_articles(connection, [*FINGERPRINTS, None], design, storage)
    for within in (0, 2, 3, 7, 10, 30, 64):
        assert near_many(connection, QUERIES, within) == expected(FINGERPRINTS, QUERIES, within)


@pytest.mark.parametrize(
    ("strategy", "queries", "rows"), [("probes", 10, 10**7), ("join", 10**7, 10**6), ("scan", 10, 10)]
)
def test_each_strategy_finds_each_match_in_one_statement(connection, storage, strategy, queries, rows):
    create_articles(connection, FINGERPRINTS + FINGERPRINTS[:50], storage=storage)
    if storage == "tables":  # a key twice
        connection.execute("INSERT INTO simsql.keys_1_0 SELECT key FROM simsql.keys_1_0 LIMIT 50")
    # Keys without a row.
    connection.execute("DELETE FROM article WHERE id % 3 = 0")
    alive = [found for (found,) in connection.execute("SELECT fingerprint FROM article")]
    for within in (0, 1, 3, 4, 7):
        chosen, statements = near_many_statements(connection, queries, rows, within)
        assert chosen == strategy
        assert run_statements(connection, statements, QUERIES, within) == expected(alive, QUERIES, within)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fingerprints=st.lists(few_bits | st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=25),
    queries=st.lists(few_bits | st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=8),
    design=st.sampled_from(DESIGNS[:-1]),
    within=st.integers(0, 64),
)
def test_it_finds_what_near_finds_one_by_one(connection, fingerprints, queries, design, within):
    with connection.transaction(force_rollback=True):
        create_articles(connection, fingerprints, design)
        found = near_many(connection, queries, within)
        one_by_one = (
            (query, *match) for query in set(queries) - {None} for match in near(connection, query, within)
        )
        assert found == sorted(one_by_one) == expected(fingerprints, queries, within)


@pytest.mark.parametrize(("queries", "times_as_many_rows"), [(3, 1), (50_000, 50)])
def test_range_scans_go_through_the_indexes_alone(connection, queries, times_as_many_rows):
    create_articles(connection, clustered(20_000, seed=23))
    connection.execute("VACUUM ANALYZE")
    # What the planner takes the tables to hold.
    connection.execute(
        "UPDATE pg_class SET reltuples = reltuples * %s WHERE relname ~ '^(keys_|article)'", [times_as_many_rows]
    )
    _, statements = near_many_statements(connection, 100, 20_000, 3)
    (settings,) = connection.execute(
        "SELECT proconfig FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace AND proname = 'near_many'"
        " AND pronargs = 5"
    ).fetchone()
    with connection.transaction(force_rollback=True):
        for setting in [*settings, "enable_seqscan=off", "enable_hashjoin=off"]:
            connection.execute("SELECT set_config(%s, %s, true)", setting.split("=", 1))
        for number, statement in enumerate(statements):
            # With the limit, as near_many runs it: for the first of very many rows the planner has other ideas.
            connection.execute(f"PREPARE m{number} (bigint[], integer) AS {statement} LIMIT 100000001")
            array = "{" + ",".join(map(str, range(queries))) + "}"
            plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN EXECUTE m{number} ('{array}', 3)"))
            assert f"Index Only Scan using keys_1_{number}_key_idx" in plan
            assert "Index Cond: ((key >= " in plan  # a range for each query, not all keys for all ranges
            assert "Join Filter" not in plan
            assert "Seq Scan" not in plan
            assert "Hash" not in plan


def test_queries_in_a_table_are_the_same_as_in_an_array(connection):
    create_articles(connection, FINGERPRINTS)
    connection.execute('CREATE SCHEMA "My"')
    connection.execute('CREATE TABLE "My"."Wanted" (id int, "The Fingerprint" bigint)')
    connection.execute('INSERT INTO "My"."Wanted" SELECT 1, unnest(%s::bigint[])', [[*QUERIES, None, *QUERIES]])
    rows = connection.execute(
        """SELECT query, fingerprint, distance
             FROM simsql.near_many('article', '"My"."Wanted"', 'The Fingerprint', 7)"""
    ).fetchall()
    assert sorted(rows) == near_many(connection, QUERIES, 7) == expected(FINGERPRINTS, QUERIES, 7)
    connection.execute('CREATE VIEW nobody AS SELECT "The Fingerprint" AS f FROM "My"."Wanted" WHERE id = 2')
    assert (
        connection.execute(
            "SELECT * FROM simsql.near_many('article', query_table => 'nobody', query_column => 'f')"
        ).fetchall()
        == []
    )


def test_nothing_asked_finds_nothing(connection):
    create_articles(connection, FINGERPRINTS)
    assert near_many(connection, []) == near_many(connection, [None, None], 64) == []
    assert connection.execute("SELECT * FROM simsql.near_many('article', NULL::bigint[])").fetchall() == []


def test_without_a_distance_the_one_of_the_index_is_taken(connection):
    create_articles(connection, [0b0, 0b111, 0b1111111])
    assert near_many(connection, [0]) == [(0, 0, 0), (0, 0b111, 3)]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("('nothing', ARRAY[1::bigint])", errors.UndefinedTable),
        ("('article', ARRAY[1::bigint], 65)", errors.InvalidParameterValue),
        ("('article', ARRAY[1::bigint], 3, 'body')", errors.UndefinedObject),
        ("('article', query_table => 'nothing', query_column => 'fingerprint')", errors.UndefinedTable),
        ("('article', query_table => 'article', query_column => 'nothing')", errors.UndefinedColumn),
        ("('article', query_table => 'article', query_column => NULL)", errors.UndefinedColumn),
        ("('article', query_table => NULL, query_column => 'fingerprint')", errors.UndefinedColumn),
        ("('article', query_table => 'article', query_column => 'body')", errors.DatatypeMismatch),
    ],
)
def test_wrong_arguments_are_errors(connection: psycopg.Connection, call, error):
    create_articles(connection, FINGERPRINTS[:10])
    with pytest.raises(error):
        connection.execute(f"SELECT * FROM simsql.near_many{call}")


def test_an_ordinary_role_finds_the_same(connection, new_role, connect):
    create_articles(connection, FINGERPRINTS)
    role = new_role()
    reader = connect(role)
    with pytest.raises(errors.InsufficientPrivilege):
        near_many(reader, QUERIES, 3)
    connection.execute(f"GRANT SELECT ON article TO {role}")
    assert near_many(reader, QUERIES, 3) == expected(FINGERPRINTS, QUERIES, 3)


def test_it_sees_what_its_transaction_sees(connection, connect):
    create_articles(connection, [1, 2])
    other = connect()
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert near_many(other, [1], 0) == [(1, 1, 0)]
    query = random.Random(1).getrandbits(60)
    connection.execute("DELETE FROM article")
    connection.execute("INSERT INTO article (fingerprint) VALUES (%s)", [query])
    assert near_many(other, [1, query], 0) == [(1, 1, 0)]
    assert near_many(connection, [1, query], 0) == [(query, query, 0)]


def test_queries_of_another_recipe_are_refused(connection):
    """A wrong distance would look like any other. What has no recipe is known to the caller alone."""
    create_articles(connection, [1, 2])
    connection.execute("UPDATE simsql.registry SET recipe = NULL")
    connection.execute("CREATE TABLE post (f bigint, g bigint, h bigint)")
    connection.execute("INSERT INTO post VALUES (1, 1, 1)")
    connection.execute("SELECT simsql.create_index('post', 'f', recipe => 'words3-set-1')")
    connection.execute("SELECT simsql.create_index('post', 'g', recipe => 'words12-log-1')")

    def count(table, column, of_queries, queries):
        statement = "SELECT count(*) FROM simsql.near_many(%s::regclass, %s::regclass, %s, column_name => %s)"
        return connection.execute(statement, [table, of_queries, queries, column]).fetchone()[0]

    assert [count("article", "fingerprint", "post", name) for name in "fgh"] == [2, 2, 2]
    connection.execute("UPDATE simsql.registry SET recipe = 'words12-log-1' WHERE column_name = 'fingerprint'")
    assert [count("article", "fingerprint", "post", name) for name in "gh"] == [2, 2]
    assert count("post", "g", "article", "fingerprint") == 2
    wrong = [
        ("article", "fingerprint", "post", "f"),
        ("post", "f", "article", "fingerprint"),
        ("post", "g", "post", "f"),
    ]
    for names in wrong:
        with pytest.raises(errors.ObjectNotInPrerequisiteState) as raised:
            count(*names)
    assert raised.value.diag.message_primary == (
        "simsql.near_many: public.post(g) has fingerprints of recipe words12-log-1,"
        " but public.post(f) has fingerprints of recipe words3-set-1"
    )
    assert raised.value.diag.message_hint.startswith("Distances between recipes mean nothing")
