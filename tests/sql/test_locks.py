"""Operations that lock out readers or writers wait for them without making others wait."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from articles import create_articles, create_index
from program import run
from psycopg import errors
from upkeep import problems

pytestmark = pytest.mark.oldest_version

READERS = {
    "drop_index": "SELECT simsql.drop_index('article')",
    "drop_clear_on_change": "SELECT simsql.drop_clear_on_change('article', 'fingerprint')",
    "alter_index": "SELECT simsql.alter_index('article', sources => '{}')",
    "change_storage": "SELECT simsql.change_storage('article', 'expression')",
    "repair": "DROP TABLE simsql.keys_1_1; SELECT simsql.repair('article')",
    "repair of a policy": "DROP POLICY readers ON simsql.keys_1_2; SELECT simsql.repair('article')",
    "uninstall": "SELECT simsql.uninstall(drop_indexes => true)",
}
WRITERS = {
    "create_index": "SELECT simsql.create_index('article', 'second')",
    "clear_on_change": "SELECT simsql.clear_on_change('article', 'second', '{body}')",
    "sources": "SELECT simsql.alter_index('article', sources => '{\"body\": 2}')",
    "repair of a trigger": "DROP TRIGGER simsql_1_update ON article; SELECT simsql.repair('article')",
}


@pytest.fixture
def table(connection):
    create_articles(connection, [1, 3])
    connection.execute(
        "ALTER TABLE article ADD second bigint; SELECT simsql.alter_index('article', sources => '{\"body\": 1}')"
    )
    return connection


def damage_and_call(statement):
    *damage, call = statement.split("; ")
    return "; ".join(damage), call


def check_nobody_waits(table, connect, statement, open_transaction, others):
    """While the call waits for an open transaction, others come and go; then it fails, and then it succeeds."""
    damage, call = damage_and_call(statement)
    table.execute(damage)
    holder = connect()
    holder.execute(f"BEGIN; {open_transaction}")
    before = table.execute("SELECT count(*) FROM pg_trigger").fetchone(), problems(table)
    waiting = connect()
    waiting.execute("SET lock_timeout = '1s'")
    other = connect()
    other.execute("SET lock_timeout = '500ms'")
    with ThreadPoolExecutor(1) as thread:
        called = thread.submit(waiting.execute, call)
        count = 0
        while not called.done():
            other.execute(others)
            count += 1
        assert count > 10
        with pytest.raises(errors.LockNotAvailable) as refused:
            called.result()
    pid = holder.info.backend_pid
    assert "could not be locked within 1s, because of other transactions" in refused.value.diag.message_primary
    assert f"process {pid} (postgres, in a transaction since " in refused.value.diag.message_hint
    assert f"SELECT pg_terminate_backend({pid});" in refused.value.diag.message_hint
    assert (table.execute("SELECT count(*) FROM pg_trigger").fetchone(), problems(table)) == before
    assert waiting.execute("SHOW lock_timeout").fetchone() == ("1s",)
    with ThreadPoolExecutor(1) as thread:
        called = thread.submit(waiting.execute, call)
        holder.execute("COMMIT")
        called.result()


@pytest.mark.parametrize("operation", READERS)
def test_no_reader_waits_behind_one_that_waits_for_a_reader(table, connect, operation):
    read = "SELECT FROM article; SELECT FROM simsql.keys_1_0"
    if "repair" not in operation:  # then searches are refused
        read += "; SELECT FROM simsql.near('article', 1)"
    check_nobody_waits(table, connect, READERS[operation], read, read)


@pytest.mark.parametrize("operation", WRITERS)
def test_no_writer_waits_behind_one_that_waits_for_a_writer(table, connect, operation):
    write = "INSERT INTO article (body, fingerprint) VALUES ('text', 5)"
    check_nobody_waits(table, connect, WRITERS[operation], write, write)


@pytest.mark.parametrize("command", ["index drop article", "uninstall --drop-indexes"])
def test_a_command_gives_up_and_names_who_is_in_the_way(table, connect, database_url, command):
    holder = connect()
    holder.execute("BEGIN; SELECT FROM article")
    call = *command.split(), "--lock-timeout", "1s", "--database", database_url
    run(*call).failed(
        1, "could not be locked within 1s", f"process {holder.info.backend_pid}", "pg_terminate_backend"
    )
    assert problems(table) == set()
    holder.execute("COMMIT")
    run(*call).done()


def test_a_prepared_transaction_is_named(table, connect):
    connect().execute("BEGIN; SELECT FROM article; PREPARE TRANSACTION 'it''s'")
    table.execute("SET lock_timeout = '300ms'")
    with pytest.raises(errors.LockNotAvailable, match=r"ROLLBACK PREPARED 'it''s';"):
        table.execute(READERS["drop_index"])
    table.execute("ROLLBACK PREPARED 'it''s'")


def test_nothing_runs_what_a_setting_says(table):
    """Whoever owns the database sets the settings of everybody's sessions."""
    table.execute("SET simsql.nowait = '; CREATE TABLE injected ()'")
    table.execute("SELECT simsql.set_default_index('article', 'fingerprint'), simsql._lock_all('SHARE')")
    assert table.execute("SELECT to_regclass('injected')").fetchone() == (None,)


def test_the_remains_of_a_table_that_is_being_dumped_stay(table, connect):
    """pg_dump holds their keys. A new index neither waits for it nor makes writers of its table wait."""
    table.execute("CREATE TABLE gone (fingerprint bigint)")
    create_index(table, "gone")
    holder = connect()
    holder.execute("BEGIN; SELECT FROM simsql.keys_2_0")
    table.execute("DROP TABLE gone")
    table.execute("SET lock_timeout = '300ms'")
    create_index(table, column="second")
    assert table.execute("SELECT state FROM simsql.indexes WHERE id = 2").fetchone() == ("table dropped",)
    holder.execute("COMMIT")
    table.execute("CREATE TABLE later (fingerprint bigint)")
    create_index(table, "later")
    assert table.execute("SELECT count(*) FROM simsql.indexes WHERE id = 2").fetchone() == (0,)
