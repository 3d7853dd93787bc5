"""Transactions that run beside each other, stepped by hand: no snapshot ever sees a row without its keys."""

import re

import pytest
from articles import count_keys, create_articles, create_index, create_table, missing_keys, near
from internals import key_tables, stamp
from psycopg import errors
from sessions import ALL_LEVELS, ONE_SNAPSHOT, begin, blocked

pytestmark = pytest.mark.oldest_version

FINGERPRINT = 7
INSERT = f"INSERT INTO article (fingerprint) VALUES ({FINGERPRINT})"


def remove_superfluous_keys(connection, kept="min"):
    """What a vacuum may do: in each table one statement, that is one snapshot, and deletes by place."""
    for keys in key_tables(connection):
        connection.execute(
            f"DELETE FROM simsql.{keys.name} AS k WHERE key IS NOT NULL"
            f" AND (NOT EXISTS (SELECT FROM article AS t WHERE t.fingerprint = {keys.fingerprint})"
            f" OR k.ctid <> (SELECT {kept}(same.ctid) FROM simsql.{keys.name} AS same WHERE same.key = k.key))"
        )


def look_before_adding(connection):
    """Break the insert trigger: it leaves out keys that are already there."""
    (definition,) = connection.execute("SELECT pg_get_functiondef('simsql.add_on_insert_1'::regproc)").fetchone()
    for keys in key_tables(connection):
        look = f"WHERE NOT EXISTS (SELECT FROM simsql.{keys.name} AS k WHERE {keys.fingerprint} = simsql.one.fp);"
        # A single row has a statement of its own, and a check that it was added.
        single = rf"(INSERT INTO simsql\.{keys.name} [^;]*?)VALUES \(([^;]*)\);\s*IF NOT FOUND.*?END IF;"
        definition, found = re.subn(single, rf"\1SELECT \2 {look}", definition, count=1, flags=re.DOTALL)
        assert found
    connection.execute(definition)
    stamp(connection)


def fill_articles(connection):
    """One row, and an index on it."""
    create_articles(connection, [FINGERPRINT])


# Beside a vacuum


def insert_while_the_key_is_being_removed(writer, vacuum):
    writer.execute("DELETE FROM article")
    vacuum.execute("BEGIN")
    remove_superfluous_keys(vacuum)
    writer.execute(INSERT)
    vacuum.execute("COMMIT")


def test_a_key_is_added_though_it_seems_to_be_there(articles, connect):
    insert_while_the_key_is_being_removed(connect(), connect())
    assert missing_keys(articles) == []
    assert near(articles, FINGERPRINT, 0) == [(FINGERPRINT, 0)]
    assert count_keys(articles) == [1, 1, 1, 1]


def test_writers_that_look_before_they_add_lose_a_row(articles, connect):
    look_before_adding(articles)
    insert_while_the_key_is_being_removed(connect(), connect())
    assert len(missing_keys(articles)) == 4
    assert near(articles, FINGERPRINT, 0) == []


def test_a_vacuum_leaves_what_its_snapshot_does_not_see(articles, connect):
    writer, vacuum = connect(), connect()
    writer.execute("DELETE FROM article")
    begin(vacuum, "REPEATABLE READ")
    writer.execute(INSERT)
    remove_superfluous_keys(vacuum)
    vacuum.execute("COMMIT")
    assert missing_keys(articles) == []
    assert count_keys(articles) == [1, 1, 1, 1]


def test_a_vacuum_that_deletes_by_value_in_a_later_snapshot_loses_a_row(articles, connect):
    writer, vacuum = connect(), connect()
    writer.execute("DELETE FROM article")
    found = vacuum.execute(
        "SELECT array_agg(key) FROM simsql.keys_1_0 WHERE key NOT IN (SELECT fingerprint FROM article)"
    ).fetchone()
    writer.execute(INSERT)
    vacuum.execute("DELETE FROM simsql.keys_1_0 WHERE key = ANY (%s)", found)
    assert missing_keys(articles) == [("keys_1_0", FINGERPRINT)]


def test_two_vacuums_at_once_would_lose_a_row(articles, connect):
    one, other = connect(), connect()
    articles.execute(INSERT)
    begin(one, "REPEATABLE READ")
    begin(other, "REPEATABLE READ")
    remove_superfluous_keys(one, kept="min")
    remove_superfluous_keys(other, kept="max")
    one.execute("COMMIT")
    other.execute("COMMIT")
    assert count_keys(articles) == [0, 0, 0, 0]
    assert near(articles, FINGERPRINT, 0) == []


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_vacuum_does_not_wait_for_a_writer_nor_take_its_keys(articles, connect, level):
    writer, vacuum = connect(), connect()
    begin(writer, level)
    writer.execute("INSERT INTO article (fingerprint) VALUES (8)")
    remove_superfluous_keys(vacuum)
    writer.execute("COMMIT")
    assert missing_keys(articles) == []
    assert near(articles, 8, 0) == [(8, 0)]


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
def test_a_vacuum_takes_no_key_from_an_older_snapshot(articles, connect, level):
    reader = connect()
    begin(reader, level)
    articles.execute("DELETE FROM article")
    remove_superfluous_keys(articles)
    articles.execute("VACUUM")
    assert count_keys(articles) == [0, 0, 0, 0]
    assert near(reader, FINGERPRINT, 0) == [(FINGERPRINT, 0)]
    assert missing_keys(reader) == []
    reader.execute("COMMIT")
    assert near(reader, FINGERPRINT, 0) == []


def test_a_row_that_came_back_keeps_its_key_whoever_deleted_it(articles, connect):
    """Two transactions: one deletes the row, the other inserts its fingerprint; a vacuum before either ends."""
    deleter, inserter = connect(), connect()
    begin(deleter, "READ COMMITTED")
    deleter.execute("DELETE FROM article")
    begin(inserter, "READ COMMITTED")
    inserter.execute(INSERT)
    remove_superfluous_keys(articles)
    deleter.execute("COMMIT")
    remove_superfluous_keys(articles)
    assert count_keys(articles) == [0, 0, 0, 0]
    inserter.execute("COMMIT")
    assert missing_keys(articles) == []
    remove_superfluous_keys(articles)
    assert missing_keys(articles) == []
    assert count_keys(articles) == [1, 1, 1, 1]


def test_an_update_of_other_columns_keeps_the_key_beside_a_vacuum(articles, connect):
    writer, vacuum = connect(), connect()
    begin(vacuum, "REPEATABLE READ")
    writer.execute("BEGIN")
    writer.execute("UPDATE article SET body = 'x'")
    remove_superfluous_keys(vacuum)
    writer.execute("COMMIT")
    vacuum.execute("COMMIT")
    assert missing_keys(articles) == []


# Beside create_index and drop_index


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_create_index_waits_for_a_writer_and_sees_its_rows(connection, connect, level):
    create_table(connection, [5])
    writer = connect()
    begin(writer, level)
    writer.execute(INSERT)
    with blocked(connect, create_index) as created:
        writer.execute("COMMIT")
    created.result()
    assert missing_keys(connection) == []
    assert near(connection, FINGERPRINT, 0) == [(FINGERPRINT, 0)]


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_writer_waits_for_create_index_and_adds_its_keys(connection, connect, level):
    create_table(connection, [5])

    def write(writer):
        begin(writer, level)
        writer.execute(INSERT)
        writer.execute("COMMIT")

    connection.execute("BEGIN")
    create_index(connection)
    with blocked(connect, write) as written:
        connection.execute("COMMIT")
    written.result()
    assert missing_keys(connection) == []


def test_a_writer_waits_for_an_index_that_is_rolled_back(connection, connect):
    create_table(connection, [5])
    connection.execute("BEGIN")
    create_index(connection)
    with blocked(connect, lambda writer: writer.execute(INSERT)) as written:
        connection.execute("ROLLBACK")
    written.result()
    create_index(connection)
    assert missing_keys(connection) == []


def test_of_two_create_index_at_once_one_succeeds(connection, connect):
    create_table(connection, [FINGERPRINT])
    connection.execute("BEGIN")
    create_index(connection)
    with blocked(connect, create_index) as second:
        connection.execute("COMMIT")
    with pytest.raises(errors.DuplicateObject):
        second.result()
    assert missing_keys(connection) == []


def test_drop_index_waits_for_a_writer(articles, connect):
    writer = connect()
    begin(writer, "READ COMMITTED")
    writer.execute(INSERT)
    drop = "SELECT simsql.drop_index('article')"
    with blocked(connect, lambda dropper: dropper.execute(drop)) as dropped:
        writer.execute(INSERT)
        writer.execute("COMMIT")
    dropped.result()
    assert articles.execute("SELECT count(*) FROM article").fetchone() == (3,)


# Searches and writes


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_search_sees_what_its_transaction_has_written_and_others_have_committed(articles, connect, level):
    one, other = connect(), connect()
    begin(one, level)
    one.execute("INSERT INTO article (fingerprint) VALUES (8)")
    other.execute("BEGIN")
    other.execute("INSERT INTO article (fingerprint) VALUES (15)")
    assert near(one, FINGERPRINT, 64) == [(7, 0), (8, 4)]
    assert near(other, FINGERPRINT, 64) == [(7, 0), (15, 1)]
    one.execute("SAVEPOINT s")
    one.execute("DELETE FROM article")
    assert near(one, FINGERPRINT, 64) == []
    one.execute("ROLLBACK TO s")
    other.execute("COMMIT")
    seen = [(7, 0), (15, 1), (8, 4)] if level == "READ COMMITTED" else [(7, 0), (8, 4)]
    assert near(one, FINGERPRINT, 64) == seen


def test_of_two_serializable_transactions_that_search_then_insert_one_has_to_retry(articles, connect):
    transactions = [connect(), connect()]
    for each in transactions:
        begin(each, "SERIALIZABLE")
        assert near(each, -1, 3) == []
    for each in transactions:
        each.execute("INSERT INTO article (fingerprint) VALUES (-1)")
    transactions[0].execute("COMMIT")
    with pytest.raises(errors.SerializationFailure):
        transactions[1].execute("COMMIT")
    assert near(articles, -1, 3) == [(-1, 0)]
