"""near finds every live fingerprint within the distance, and nothing else, at every distance and layout."""

import random

import pytest
from articles import DESIGNS, create_articles, create_index, create_table, fingerprints_of, missing_keys, near
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import EXTREMES, clustered, distance, flip
from oracle import near as expected_near
from psycopg import errors
from sessions import ONE_SNAPSHOT, begin
from similar import like_near

from simsql.hamming import Design

pytestmark = pytest.mark.every_version

FINGERPRINTS = clustered(400, seed=2)
# Stored ones, a random one, and one that is far from all.
QUERIES = [0, -1, -(2**63), FINGERPRINTS[17], flip(FINGERPRINTS[5], [63, 31, 0]), 0x0123456789ABCDEF]
designs = pytest.mark.parametrize("design", DESIGNS, ids=str)
whole_bigints = st.integers(-(2**63), 2**63 - 1)
few_bits = st.builds(flip, st.sampled_from(EXTREMES), st.sets(st.integers(0, 63), max_size=9))
on_this_database = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@designs
def test_near_is_exact_at_every_distance(connection, storage, design):
    create_articles(connection, FINGERPRINTS, design, storage)
    for query in QUERIES[:2]:
        for within in range(65) if design[0] < 64 else (0, 1, 3, 20, 62, 63, 64):
            assert near(connection, query, within) == expected_near(FINGERPRINTS, query, within)


@designs
def test_every_strategy_is_exact_where_it_applies(connection, design):
    create_articles(connection, FINGERPRINTS[:120], design)
    for strategy in ("exact", "probes", "skip", "scan"):
        strategy_is_exact(connection, design, strategy)


def strategy_is_exact(connection, design, strategy):
    statement, check = connection.execute(
        "SELECT simsql._search_statement(r, %s), simsql._search_statement(r, 'check') FROM simsql.registry AS r",
        [strategy],
    ).fetchone()
    if strategy != "scan":
        statement = check.replace("unnest(candidates)", f"({statement})")
    variables = connection.execute(
        "SELECT format('%%s %%s := %%s;', v.name, v.type, v.value)"
        " FROM simsql.registry AS r, simsql._search_variables(r) AS v WHERE %s = ANY (v.strategies)",
        [strategy],
    ).fetchall()
    connection.execute(
        "CREATE OR REPLACE FUNCTION search(bigint, integer) RETURNS SETOF simsql.match LANGUAGE plpgsql"
        f" AS $search$ DECLARE {' '.join(v for (v,) in variables)} BEGIN RETURN QUERY {statement}; END $search$"
    )
    layout = Design(*design)
    tried = 0
    for within in range(65):
        if design[0] == 64 and within % 9:
            continue  # 64 tables take their time
        if (strategy == "exact" and layout.radius(within) > 0) or (
            strategy in ("probes", "skip") and layout.probes(within) > 8_000
        ):
            continue
        tried += 1
        for query in QUERIES[::2]:
            found = connection.execute("SELECT * FROM search(%s, %s)", [query, within]).fetchall()
            assert found == expected_near(FINGERPRINTS[:120], query, within)
    assert tried


def test_near_probes_a_large_table_and_stays_exact(connection):
    fingerprints = clustered(32_000, seed=3)
    create_articles(connection, fingerprints)
    # Distances with radius 0, 1 and 2, and beyond what probing pays for.
    for within, strategy in ((3, "exact"), (7, "probes"), (10, "probes"), (30, "scan")):
        explained = connection.execute("SELECT simsql.explain_near('article', 0, %s)", [within]).fetchone()[0]
        assert explained.startswith(f"strategy: {strategy},")
        for query in (0, -(2**63), *random.Random(4).sample(fingerprints, 3)):
            assert near(connection, query, within) == expected_near(fingerprints, query, within)


@on_this_database
@given(
    fingerprints=st.lists(few_bits | whole_bigints | st.none(), max_size=30),
    design=st.sampled_from(DESIGNS[:-1]),
    query=few_bits | whole_bigints,
    within=st.integers(0, 64),
)
def test_near_finds_what_brute_force_finds(connection, storage, fingerprints, design, query, within):
    with connection.transaction(force_rollback=True):
        create_articles(connection, fingerprints[::2], design, storage)
        connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [fingerprints[1::2]])
        assert near(connection, query, within) == expected_near(fingerprints, query, within)


def test_a_null_fingerprint_matches_nothing(connection, storage):
    create_articles(connection, [0, None, 1], storage=storage)
    assert near(connection, None, 64) == []
    assert near(connection, 0, 64) == [(0, 0), (1, 1)]


def test_without_a_distance_the_one_of_the_index_is_taken(connection):
    create_table(connection, [0b0, 0b1, 0b11, 0b111])
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', distance => 2)")
    assert near(connection, 0) == [(0b0, 0), (0b1, 1), (0b11, 2)]
    assert connection.execute("SELECT * FROM simsql.near('article', 0)").fetchall() == near(connection, 0)


@pytest.mark.parametrize("function", ["near('article', 0, {})", "pairs('article', {})", "clusters('article', {})"])
@pytest.mark.parametrize("within", [-1, 65])
def test_a_distance_out_of_range_is_an_error(connection, function, within):
    create_articles(connection, [0])
    with pytest.raises(errors.InvalidParameterValue, match=f"between 0 and 64, not {within}"):
        connection.execute(f"SELECT * FROM simsql.{function.format(within)}")


def test_near_reports_what_is_alive_after_any_history(connection, storage):
    create_articles(connection, [1, 2, 3], storage=storage)
    connection.execute("DELETE FROM article WHERE fingerprint = 1")
    assert near(connection, 0, 64) == [(2, 1), (3, 2)]
    connection.execute("UPDATE article SET fingerprint = 7 WHERE fingerprint = 3")
    assert near(connection, 0, 64) == [(2, 1), (7, 3)]
    connection.execute("UPDATE article SET fingerprint = NULL WHERE fingerprint = 2")
    assert near(connection, 0, 64) == [(7, 3)]
    connection.execute("TRUNCATE article")
    assert near(connection, 0, 64) == []
    connection.execute("INSERT INTO article (fingerprint) VALUES (1)")
    assert near(connection, 0, 64) == [(1, 1)]


def test_what_was_rolled_back_is_not_found_and_what_it_replaced_is(connection, storage):
    create_articles(connection, [1], storage=storage)
    with connection.transaction(force_rollback=True):
        connection.execute("UPDATE article SET fingerprint = 2")
        with connection.transaction(force_rollback=True):
            connection.execute("UPDATE article SET fingerprint = 4")
            assert near(connection, 0, 64) == [(4, 1)]
        assert near(connection, 0, 64) == [(2, 1)]
    assert near(connection, 0, 64) == [(1, 1)]


def test_near_does_not_see_the_statement_it_runs_in(connection):
    create_articles(connection, [8])
    found = connection.execute(
        "WITH new AS (INSERT INTO article (fingerprint) VALUES (9) RETURNING id)"
        " SELECT n.fingerprint FROM new, simsql.near('article', 9, 3) AS n"
    )
    assert found.fetchall() == [(8,)]


def test_only_documents_without_a_neighbour_are_inserted_by_one_statement(connection):
    create_articles(connection, [0b1111])
    connection.execute(
        "INSERT INTO article (fingerprint) SELECT f FROM unnest(ARRAY[0, 1, 255]) AS f"
        " WHERE NOT EXISTS (SELECT FROM simsql.near('article', f, 2))"
    )
    assert fingerprints_of(connection) == [0b1111, 0, 1, 255]
    assert missing_keys(connection) == []


def test_a_snapshot_sees_its_own_state_while_others_write(connect, storage):
    reader, writer = connect(), connect()
    create_articles(writer, [1, 2], storage=storage)
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert near(reader, 0, 64) == [(1, 1), (2, 1)]
    writer.execute("INSERT INTO article (fingerprint) VALUES (4)")
    writer.execute("DELETE FROM article WHERE fingerprint = 1")
    assert near(reader, 0, 64) == [(1, 1), (2, 1)]
    reader.execute("COMMIT")
    assert near(reader, 0, 64) == [(2, 1), (4, 1)]


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
@pytest.mark.parametrize("function", ["near('article', 0)", "near_rows(NULL::article, 0)", "pairs('article')"])
def test_a_snapshot_older_than_the_index_gets_an_error_not_a_part(connect, function, level):
    reader, owner = connect(), connect()
    create_table(owner, [1])
    begin(reader, level)
    create_index(owner)
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index") as caught:
        reader.execute(f"SELECT * FROM simsql.{function}")
    assert "after this transaction took its snapshot" in caught.value.diag.message_hint
    reader.execute("ROLLBACK")
    reader.execute(f"SELECT * FROM simsql.{function}")
    assert near(reader, 0, 1) == [(1, 1)]


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
def test_a_snapshot_older_than_a_new_layout_gets_an_error_not_a_part(connect, storage, level):
    reader, owner = connect(), connect()
    create_articles(owner, [1], storage=storage)
    begin(reader, level)
    owner.execute("SELECT simsql.drop_index('article')")
    create_index(owner, design=(2, 1, 0), storage=storage)
    with pytest.raises(errors.UndefinedObject, match="was dropped after this transaction"):
        near(reader, 0, 3)


def test_near_runs_in_a_read_only_transaction(connection, storage):
    create_articles(connection, [1], storage=storage)
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        assert near(connection, 0, 7) == [(1, 1)]
        assert connection.execute("SELECT * FROM simsql.pairs('article', 64)").fetchall() == []
        assert connection.execute("SELECT * FROM simsql.clusters('article', 64)").fetchall() == []


def test_joined_to_the_table_near_gives_the_documents(connection):
    create_articles(connection, FINGERPRINTS)
    rows = connection.execute(
        "SELECT a.id, n.distance FROM article AS a JOIN simsql.near('article', 0, 12) AS n USING (fingerprint)"
    ).fetchall()
    expected = [
        (id_, distance(fingerprint, 0))
        for id_, fingerprint in enumerate(FINGERPRINTS, 1)
        if distance(fingerprint, 0) <= 12
    ]
    assert sorted(rows) == expected


def test_near_can_be_asked_for_every_row_of_a_table(connection, storage):
    create_articles(connection, FINGERPRINTS[:100], storage=storage)
    rows = connection.execute(
        "SELECT a.fingerprint, n.fingerprint, n.distance FROM article AS a"
        " CROSS JOIN simsql.near('article', a.fingerprint, 8) AS n"
    ).fetchall()
    expected = [
        (query, *match) for query in FINGERPRINTS[:100] for match in expected_near(FINGERPRINTS[:100], query, 8)
    ]
    assert sorted(rows) == sorted(expected)


def test_near_rows_gives_every_document_nearest_first(connection, storage):
    create_articles(connection, [1, 0, None, 1, 7], storage=storage)
    connection.execute("UPDATE article SET body = 'text ' || id")
    rows = connection.execute("SELECT * FROM simsql.near_rows(NULL::article, 0, 2)").fetchall()
    assert rows[0] == (2, "text 2", 0)
    assert sorted(rows[1:]) == [(1, "text 1", 1), (4, "text 4", 1)]


def test_near_rows_copes_with_dropped_and_added_columns(connection):
    create_articles(connection, [1])
    assert connection.execute("SELECT * FROM simsql.near_rows(NULL::article, 0)").fetchall() == [(1, None, 1)]
    connection.execute("ALTER TABLE article DROP COLUMN body, ADD COLUMN title text DEFAULT 'new'")
    assert connection.execute("SELECT * FROM simsql.near_rows(NULL::article, 0)").fetchall() == [(1, 1, "new")]


@pytest.mark.parametrize("value", ["1", "NULL::simsql.match", "NULL::text"])
def test_near_rows_of_something_that_is_no_row_of_a_table_is_an_error(connection, value):
    with pytest.raises(errors.WrongObjectType, match="is not the row type of a table") as caught:
        connection.execute(f"SELECT simsql.near_rows({value}, 0)")
    assert "NULL::article" in caught.value.diag.message_hint


def test_near_rows_of_a_view_says_that_it_has_no_index(connection):
    create_articles(connection, [1])
    connection.execute("CREATE VIEW reading AS SELECT * FROM article")
    with pytest.raises(errors.UndefinedObject, match="reading has no simhash index"):
        connection.execute("SELECT simsql.near_rows(NULL::reading, 0)")


def test_searches_leave_the_settings_of_the_session_as_they_were(connection, storage):
    create_articles(connection, FINGERPRINTS, storage=storage)
    shown = "SELECT name, setting FROM pg_settings WHERE name ~ '^(enable_|plan_|jit|max_parallel|search_path)'"
    before = connection.execute(shown).fetchall()
    for within in (3, 7, 30):
        near(connection, 0, within)
        connection.execute("SELECT * FROM simsql.explain_near('article', 0, %s)", [within])
        connection.execute("SELECT count(*) FROM simsql.pairs('article', %s)", [within])
    assert connection.execute(shown).fetchall() == before


def test_an_index_for_which_there_is_no_static_call(connection):
    connection.execute("SELECT setval('simsql.registry_id_seq', 32)")
    create_articles(connection, FINGERPRINTS)
    assert near(connection, FINGERPRINTS[5], 7) == expected_near(FINGERPRINTS, FINGERPRINTS[5], 7)


def test_a_session_plans_what_a_statement_calls_only_once(connection, storage):
    # Planning may take longer than the search itself.
    create_articles(connection, FINGERPRINTS, storage=storage)
    planned = []
    connection.add_notice_handler(
        lambda notice: planned.append(notice.context) if notice.message_primary == "PLANNER STATISTICS" else None
    )
    connection.execute("SET log_planner_stats = on")
    connection.execute("SET client_min_messages = log")
    for number, statement in enumerate(
        [
            "SELECT * FROM simsql.near('article', %s, 3)",
            "SELECT * FROM simsql.near('article', %s, 7)",
            f"SELECT * FROM simsql.similar_candidates('article', {like_near('%s', 7)})",
            "SELECT * FROM simsql.claim('article', %s, 3)",
            "INSERT INTO article (fingerprint) VALUES (%s)",
            "UPDATE article SET fingerprint = %s WHERE id = 7",
        ]
    ):
        planned.clear()
        connection.execute(statement, [1])
        assert number or any(planned)  # only what a function plans has a context
        for query in range(2, 20):
            planned.clear()
            connection.execute(statement, [query])
        assert not any(planned), statement
