"""vacuum leaves one key for each fingerprint of a row, in every table, and takes none that a snapshot needs."""

import random
import re

import pytest
from articles import DESIGNS, count_keys, create_articles, create_table, fingerprints_of, missing_keys, near
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from internals import set_batch_size, take_turn
from oracle import EXTREMES, clustered
from oracle import near as expected_near
from psycopg import errors
from sessions import ALL_LEVELS, ONE_SNAPSHOT, blocked
from upkeep import notices, stored_fingerprints

pytestmark = pytest.mark.oldest_version

VACUUM = "CALL simsql.vacuum('article')"
STEP = "SELECT (simsql._vacuum_batch('article', NULL, NULL)).removed"


def fill_articles(connection):
    """One row with the fingerprint 7, and an index on it."""
    create_articles(connection, [7])


def clean(connection):
    """Whether each table holds exactly the keys of the rows."""
    live = sorted(set(fingerprints_of(connection)) - {None})
    return all(stored == live for stored in stored_fingerprints(connection))


# What is removed


@pytest.mark.parametrize("design", [*DESIGNS[::3], (64, 1, 0)], ids=str)
def test_one_key_for_each_fingerprint_stays(connection, design):
    create_articles(connection, clustered(120, seed=3), design)
    set_batch_size(connection, 7 if design[0] < 64 else 50)  # 64 tables take their time
    connection.execute("DELETE FROM article WHERE id % 3 = 0")
    connection.execute("UPDATE article SET fingerprint = fingerprint # 12345 WHERE id % 3 = 1 AND id % 2 = 0")
    for number in range(3):
        connection.execute(
            f"INSERT INTO article (fingerprint) SELECT fingerprint FROM article WHERE id % 5 = {number}"
        )
    assert not clean(connection)
    connection.execute(VACUUM)
    assert clean(connection)
    for query in EXTREMES:
        assert near(connection, query, 20) == expected_near(fingerprints_of(connection), query, 20)


few_values = st.sampled_from([*EXTREMES, None, 5, 1 << 48, -(1 << 16)])


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    statements=st.lists(st.lists(few_values, max_size=9), max_size=6),
    deleted=st.sets(st.integers(1, 20)),
    # Keys that only one table has: nobody adds such, but whatever is superfluous is removed.
    more=st.lists(st.tuples(st.integers(0, 2), few_values.filter(lambda key: key is not None)), max_size=5),
    size=st.integers(2, 12),
)
def test_whatever_was_written_and_deleted(connection, statements, deleted, more, size):
    connection.execute("DROP TABLE IF EXISTS article")
    create_articles(connection, [1], (3, 1, 0))
    (index,) = connection.execute("SELECT max(id) FROM simsql.registry").fetchone()
    set_batch_size(connection, size)
    for values in statements:  # each statement adds its keys again
        connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [values])
    for number, key in more:
        connection.execute(f"INSERT INTO simsql.keys_{index}_{number} VALUES ({key})")
    connection.execute("DELETE FROM article WHERE id = ANY(%s)", [list(deleted)])
    connection.execute(VACUUM)
    assert clean(connection)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(few_values, max_size=5),
    stored=st.lists(st.lists(few_values.filter(lambda key: key is not None), max_size=9), min_size=2, max_size=2),
    size=st.integers(2, 5),
)
def test_from_tables_that_lack_keys_none_is_taken_that_a_row_needs(connection, rows, stored, size):
    connection.execute("DROP TABLE IF EXISTS article")
    create_articles(connection, rows, (2, 1, 0))
    (index,) = connection.execute("SELECT max(id) FROM simsql.registry").fetchone()
    set_batch_size(connection, size)
    for number, fingerprints in enumerate(stored):
        half = 32 * number
        connection.execute(f"DELETE FROM simsql.keys_{index}_{number} WHERE key IS NOT NULL")
        connection.execute(
            f"INSERT INTO simsql.keys_{index}_{number} SELECT f << {half} | (f >> 32 & 4294967295) * {number}"
            " FROM unnest(%s::bigint[]) AS f",
            [fingerprints],
        )
    needed = [sorted(set(rows) & set(fingerprints)) for fingerprints in stored]
    connection.execute(VACUUM)
    found = stored_fingerprints(connection)
    assert [sorted(set(keys) & set(rows)) for keys in found] == needed


def test_a_key_stored_more_often_than_a_batch_holds(articles):
    set_batch_size(articles, 5)
    for _ in range(23):
        articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    articles.execute("INSERT INTO article (fingerprint) VALUES (8), (6)")
    assert count_keys(articles) == [26] * 4
    articles.execute(VACUUM)
    assert clean(articles)


def test_the_column_is_named_where_there_are_two_indexes(articles):
    articles.execute("ALTER TABLE article ADD COLUMN other bigint")
    articles.execute("SELECT simsql.create_index('article', 'other', blocks => 2)")
    articles.execute("INSERT INTO article (fingerprint, other) VALUES (1, 2)")
    articles.execute("DELETE FROM article WHERE other = 2")
    with pytest.raises(errors.AmbiguousColumn):
        articles.execute(VACUUM)
    articles.execute("CALL simsql.vacuum('article', 'other')")
    assert (count_keys(articles), count_keys(articles, 2)) == ([2] * 4, [0] * 2)


def test_it_says_how_many_keys_it_has_removed(articles):
    heard = notices(articles)
    articles.execute("DELETE FROM article")
    articles.execute(VACUUM)
    articles.execute(VACUUM)
    said = "simsql.vacuum: removed {} keys of public.article(fingerprint)"
    assert heard == [said.format(4), said.format(0)]


def test_a_long_one_says_how_far_it_is(connection):
    create_articles(connection, [random.Random(n).getrandbits(64) - 2**63 for n in range(300)])
    set_batch_size(connection, 10)
    heard = notices(connection)
    connection.execute(VACUUM)
    shares = [int(notice.split()[1]) for notice in heard[:-1]]
    assert shares == sorted(shares)
    assert 10 < len(shares) <= 20
    assert re.fullmatch(r"simsql\.vacuum: \d+ % done, 0 keys removed", heard[5])


# Transactions


def test_whatever_the_isolation_of_the_database(articles):
    for level in ALL_LEVELS:
        articles.execute("INSERT INTO article (fingerprint) VALUES (7); DELETE FROM article")
        articles.execute(f"SET default_transaction_isolation = '{level}'")
        articles.execute(VACUUM)
        assert count_keys(articles) == [0] * 4
        assert articles.execute("SHOW transaction_isolation").fetchone() == (level.lower(),)


INSIDE = [
    "BEGIN; {}",
    "SELECT 1; {}",
    "BEGIN; DO $$ BEGIN {}; END $$",
    "CREATE OR REPLACE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {}; END $$; SELECT f()",
    "DO $$ BEGIN {}; EXCEPTION WHEN division_by_zero THEN NULL; END $$",
]


@pytest.mark.parametrize("statement", [VACUUM, "CALL simsql.build('article', 'fingerprint')"])
def test_inside_a_transaction_it_says_that_it_cannot_commit(articles, statement):
    for inside in INSIDE:
        with pytest.raises(errors.ActiveSqlTransaction, match="cannot run inside a transaction") as caught:
            articles.execute(inside.format(statement))
        articles.execute("ROLLBACK")
        assert "outside BEGIN and COMMIT" in caught.value.diag.message_hint


def test_a_procedure_outside_a_transaction_may_call_it(articles):
    articles.execute("DELETE FROM article")
    articles.execute("SET lc_messages = 'C'")
    articles.execute(f"DO $$ BEGIN {VACUUM}; END $$")
    assert count_keys(articles) == [0] * 4


def test_a_batch_does_not_run_with_an_older_snapshot(articles):
    for level in ONE_SNAPSHOT:
        articles.execute(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(errors.ActiveSqlTransaction, match="must be read committed"):
            articles.execute(STEP)
        articles.execute("ROLLBACK")


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_it_waits_for_no_writer_and_no_writer_waits_for_it(articles, connect, level):
    writer = connect()
    writer.execute("SET lock_timeout = '1s'")
    articles.execute("SET lock_timeout = '1s'")
    writer.execute(f"BEGIN ISOLATION LEVEL {level}")
    writer.execute("INSERT INTO article (fingerprint) VALUES (8), (9)")
    writer.execute("UPDATE article SET fingerprint = 10 WHERE fingerprint = 9")
    articles.execute(VACUUM)
    articles.execute("BEGIN")
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")  # so that there is something to remove
    articles.execute(STEP)
    writer.execute("INSERT INTO article (fingerprint) VALUES (7), (11)")
    writer.execute("UPDATE article SET body = 'x' WHERE fingerprint = 8")
    writer.execute("COMMIT")
    articles.execute("COMMIT")
    articles.execute(VACUUM)
    assert clean(articles)


def test_an_older_snapshot_keeps_its_keys(articles, connect):
    readers = [connect(), connect()]
    for reader, level in zip(readers, ONE_SNAPSHOT, strict=True):
        reader.execute(f"BEGIN ISOLATION LEVEL {level}")
        reader.execute("SELECT FROM article")
    articles.execute("UPDATE article SET fingerprint = 8")
    articles.execute(VACUUM)
    articles.execute("VACUUM")
    for reader in readers:
        assert near(reader, 7, 0) == [(7, 0)]
        assert missing_keys(reader) == []
    assert clean(articles)


def test_of_equal_keys_two_vacuums_do_not_remove_one_each(articles, connect):
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    articles.execute("BEGIN")
    take_turn(articles, "vacuum")
    for number in range(4):  # the one that the other would keep
        keys = f"simsql.keys_1_{number}"
        articles.execute(f"DELETE FROM {keys} WHERE ctid = (SELECT min(ctid) FROM {keys})")
    with blocked(connect, lambda other: other.execute(VACUUM)) as second:
        articles.execute("COMMIT")
    second.result()
    assert clean(articles)


def test_of_an_index_made_anew_meanwhile_nothing_is_removed(articles):
    set_batch_size(articles, 2)
    (state,) = articles.execute("SELECT simsql._vacuum_batch('article', NULL, NULL)::text").fetchone()
    articles.execute("SELECT simsql.drop_index('article'); SELECT simsql.create_index('article', 'fingerprint')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="was re-created during the vacuum"):
        articles.execute("SELECT simsql._vacuum_batch('article', NULL, %s::simsql._vacuum_state)", [state])


# What is refused


NOT_SEARCHED = {
    "ALTER TABLE article RENAME fingerprint TO print": "renamed or dropped",
    "ALTER TABLE article RENAME TO paper; CREATE VIEW article AS TABLE paper": "article has no simhash index",
    "ALTER TABLE article DISABLE TRIGGER ALL": "have been disabled",
    "ALTER TABLE article ENABLE TRIGGER simsql_1_insert": "have been disabled",
    "UPDATE simsql.registry SET ready = false": "still being built",
    "CREATE TABLE child () INHERITS (article)": "became part of an inheritance tree",
    "DROP INDEX article_fingerprint_idx": "column fingerprint of public.article has no B-tree",
    "DROP INDEX simsql.keys_1_0_key_idx": "column key of simsql.keys_1_0 has no B-tree",
    "DROP INDEX simsql.keys_1_3_key_idx": "column key of simsql.keys_1_3 has no B-tree",
}


def test_an_index_that_is_not_searched_is_not_vacuumed(articles):
    articles.execute("DELETE FROM article")
    for change, error in NOT_SEARCHED.items():
        articles.execute("BEGIN")
        articles.execute(change)
        with pytest.raises((errors.ObjectNotInPrerequisiteState, errors.UndefinedObject), match=error):
            articles.execute(STEP)
        articles.execute("ROLLBACK")
    assert articles.execute(STEP).fetchone() == (4,)


def test_a_table_without_an_index_is_an_error(connection):
    create_table(connection)
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index"):
        connection.execute(VACUUM)


def test_the_owner_may_vacuum_and_nobody_else(connection, owner, new_role, connect):
    other = new_role()
    connection.execute(f"GRANT ALL ON article TO {other}")
    connection.execute("DELETE FROM article WHERE id = 1")
    assert not clean(connection)
    with pytest.raises(errors.InsufficientPrivilege, match="must be owner of the simhash index"):
        connect(other).execute(VACUUM)
    connect(owner).execute(VACUUM)
    assert clean(connection)


def test_rows_that_row_level_security_hides_keep_their_keys(connection, owner, connect):
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    with pytest.raises(errors.InsufficientPrivilege, match=r"row-level security hides rows of public.article"):
        connect(owner).execute(VACUUM)
    assert missing_keys(connection) == []


def test_names_on_the_search_path_are_not_taken_for_those_of_the_catalog(articles):
    """Procedures that commit cannot have a search_path of their own."""
    articles.execute("CREATE SCHEMA trap")
    for operator, types in (("=", "text, text"), ("=", "double precision, double precision")):
        left, right = types.split(", ")
        articles.execute(
            f"CREATE OR REPLACE FUNCTION trap.seized({types}) RETURNS boolean LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'seized'; END $$"
        )
        articles.execute(
            f"CREATE OPERATOR trap.{operator} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = trap.seized)"
        )
    articles.execute(
        "CREATE FUNCTION trap._vacuum_batch(regclass, text, simsql._vacuum_state) RETURNS void LANGUAGE sql AS ''"
    )
    articles.execute("SET search_path = trap, pg_catalog, public")
    with pytest.raises(errors.RaiseException, match="seized"):  # the trap works
        articles.execute("SELECT 'a'::text = 'b'::text")
    articles.execute("DELETE FROM article")
    articles.execute(VACUUM)
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute("CALL simsql.build('article', 'fingerprint')")
    assert count_keys(articles, 2) == [0] * 4


# How it is planned


def test_a_batch_reads_one_range_and_looks_each_key_up(connection):
    create_articles(connection, [random.Random(n).getrandbits(63) for n in range(2000)])
    connection.execute("ANALYZE")  # on few rows, where the planner would rather scan
    settings_of = "SELECT unnest(proconfig) FROM pg_proc WHERE proname = '_vacuum_batch'"
    for (setting,) in connection.execute(settings_of).fetchall():
        connection.execute(
            "SELECT set_config(split_part(%s, '=', 1), split_part(%s, '=', 2), false)", [setting] * 2
        )
    for number, tables in ((0, 4), (2, 1)):
        (statement,) = connection.execute(
            "SELECT simsql._vacuum_statement(r, %s) FROM simsql.registry AS r", [number]
        ).fetchone()
        connection.execute(f"PREPARE batch (bigint, integer) AS {statement}")
        plan = "\n".join(line for (line,) in connection.execute("EXPLAIN EXECUTE batch (0, 100)").fetchall())
        connection.execute("DEALLOCATE batch")
        assert plan.count("Index Only Scan using article_fingerprint_idx") == 1, plan
        assert plan.count("Index Scan using keys_1_") == plan.count("Tid Scan on keys_1_") == tables, plan
        for word in ("Seq Scan", "Hash Join", "Merge Join", "Bitmap"):
            assert word not in plan, plan
