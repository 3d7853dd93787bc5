"""maintain verifies and vacuums what needs it, goes on after failures, and says in one error what is wrong."""

import random

import pytest
from articles import create_articles, create_index, missing_keys
from internals import set_batch_size
from psycopg import errors
from psycopg.types.json import Jsonb
from roles import allow_indexes
from scoped import create_scoped
from sessions import blocked, started
from upkeep import flush_statistics, notices, problems, stored_fingerprints

pytestmark = pytest.mark.oldest_version

MAINTAIN = "CALL simsql.maintain()"
FINGERPRINTS = [random.Random(number).getrandbits(64) - 2**63 for number in range(300)]
SLOW = (
    "CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN NULL; END';"
    "CREATE TRIGGER slow AFTER DELETE ON simsql.keys_1_0 EXECUTE FUNCTION doze();"
    # Else verify would name it.
    "UPDATE pg_trigger SET tgisinternal = true WHERE tgname = 'slow'"
)


def halve(connection, table="article"):
    """Delete every other row, so that half of the keys are superfluous."""
    connection.execute(f"DELETE FROM {table} WHERE id % 2 = 0")
    flush_statistics(connection)


def said(connection, call=MAINTAIN):
    """What a call says of its own, without the notices of vacuum."""
    heard = notices(connection)
    connection.execute(call)
    return [line.removeprefix("simsql.maintain: ") for line in heard if line.startswith("simsql.maintain: ")]


def did(verified, vacuumed, skipped=0):
    return f"indexes verified: {verified}, vacuumed: {vacuumed}, skipped: {skipped}"


def is_clean(connection, table="article", column="fingerprint"):
    """Whether each key table holds exactly the keys of the rows."""
    rows = connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY 1")
    wanted = [fingerprint for (fingerprint,) in rows.fetchall()]
    return all(stored == wanted for stored in stored_fingerprints(connection, table))


@pytest.fixture
def articles(connection):
    """An index half of whose keys are superfluous, with batches of fifty keys."""
    create_articles(connection, FINGERPRINTS)
    halve(connection)
    set_batch_size(connection, 50)
    return connection


@pytest.fixture
def others(articles):
    """More indexes that need a vacuum, with the ids 2 and 3."""
    for name in ("other", "third"):
        articles.execute(f"CREATE TABLE {name} (LIKE article INCLUDING ALL)")
        articles.execute(f"INSERT INTO {name} (fingerprint) SELECT fingerprint FROM article")
        create_index(articles, name)
    for name in ("other", "third"):
        articles.execute(f"INSERT INTO {name} (fingerprint) SELECT -n FROM generate_series(1, 300) AS n")
        articles.execute(f"DELETE FROM {name} WHERE fingerprint BETWEEN -300 AND -1")
    flush_statistics(articles)
    return articles


def test_an_index_is_vacuumed_if_it_needs_it(articles):
    hint = "50% of the keys are superfluous: CALL simsql.maintain();"
    assert articles.execute("SELECT hint FROM simsql.indexes").fetchone() == (hint,)
    assert said(articles) == [did(1, 1)]
    assert is_clean(articles)
    flush_statistics(articles)
    assert articles.execute("SELECT hint FROM simsql.indexes").fetchone() == (None,)
    assert said(articles, "CALL simsql.maintain('1000000 years')") == [did(1, 0)]
    articles.execute("SELECT simsql.drop_index('article')")
    assert said(articles) == [did(0, 0)]


def test_what_a_procedure_cannot_do_is_said(connection):
    """VACUUM runs in no procedure."""
    create_articles(connection, storage="expression")
    connection.execute("INSERT INTO article (body) SELECT repeat('-', 1000) FROM generate_series(1, 10000)")
    flush_statistics(connection)
    vacuum = "public.article(fingerprint): 100% of the pages are not all-visible: VACUUM (ANALYZE) public.article"
    assert said(connection) == [vacuum, did(1, 0)]


def test_the_others_are_maintained_after_a_failure(others):
    others.execute("DELETE FROM simsql.keys_1_2; ALTER TABLE other RENAME fingerprint TO print")
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as failed:
        others.execute(MAINTAIN)
    message = failed.value.diag.message_primary
    assert message.startswith("simsql.maintain: failed for 2 indexes: ")
    assert "public.article(fingerprint): keys missing (simsql.keys_1_2)" in message
    assert "public.other(fingerprint): column renamed (print)" in message
    assert failed.value.diag.message_hint == (
        "SELECT * FROM simsql.repair('public.article'); SELECT * FROM simsql.repair('public.other');"
    )
    assert is_clean(others, "third")
    for name in ("article", "other"):
        others.execute(f"SELECT simsql.repair('{name}')")
    flush_statistics(others)
    assert did(3, 2) in said(others)
    assert is_clean(others)


def test_a_failure_within_a_vacuum_is_told_and_leaves_its_batch_undone(others):
    others.execute(SLOW.replace("PERFORM pg_sleep(0.02)", "RAISE $$the disk is full$$ USING HINT = $$Buy one.$$"))
    with pytest.raises(errors.RaiseException) as failed:  # the code of the failure
        others.execute(MAINTAIN)
    told = "simsql.maintain: failed for 1 index: public.article(fingerprint): the disk is full"
    assert (failed.value.diag.message_primary, failed.value.diag.message_hint) == (told, "Buy one.")
    assert (is_clean(others), is_clean(others, "other"), is_clean(others, "third")) == (False, True, True)
    assert problems(others) == set()


def test_what_is_locked_or_being_built_is_skipped(others, connect):
    holder, turn = connect(), connect()
    holder.execute("BEGIN; LOCK TABLE article IN ACCESS EXCLUSIVE MODE")
    turn.execute("BEGIN")
    turn.execute("SELECT simsql._take_turn('other', 'vacuum')")
    others.execute("UPDATE simsql.registry SET ready = false WHERE id = 3")
    *skipped, last = said(others)
    # Its vacuum was skipped, not that it was verified.
    assert last == did(1, 0, 3)
    assert sorted(line.split(":")[0] for line in skipped) == [
        f"skipped public.{name}(fingerprint)" for name in ("article", "other", "third")
    ]
    holder.execute("ROLLBACK")
    turn.execute("ROLLBACK")
    assert said(others)[-1] == did(2, 2, 1)


def test_what_is_renamed_or_dropped_between_two_batches_is_told(articles):
    def next_batch(state):
        return articles.execute("SELECT simsql._maintain_batch(NULL, %s)", [state and Jsonb(state)]).fetchone()[0]

    vacuuming = next_batch(next_batch(None))
    assert vacuuming["vacuum"]["index_id"] == 1
    for change, hint in (
        ("ALTER TABLE article RENAME TO paper", "Rename it back, or let the index follow"),
        ("ALTER TABLE article RENAME fingerprint TO print", "Rename it back, or let the index follow"),
        ("DROP TABLE article", "Drop the index: SELECT simsql.drop_index("),
        ("SELECT simsql.drop_index('article')", None),
    ):
        with articles.transaction(force_rollback=True):
            articles.execute(change)
            state = next_batch(vacuuming)
            assert state["left"] == []
            assert [failure["hint"][: len(hint)] for failure in state["failures"]] == ([hint] if hint else [])


def test_a_vacuum_that_waits_for_a_rename_says_so(articles, connect):
    holder = connect()
    holder.execute("BEGIN; ALTER TABLE article RENAME TO paper")
    with blocked(connect, lambda other: other.execute("CALL simsql.vacuum('article')")) as vacuum:
        holder.execute("COMMIT")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"paper was called public\.article"):
        vacuum.result()


def test_nobody_waits_for_a_locked_key_table_or_registry(articles, connect):
    articles.execute("ANALYZE; SELECT pg_stat_reset(); UPDATE simsql.registry SET vacuumed_at = NULL")
    flush_statistics(articles)
    holder = connect()
    holder.execute("BEGIN; LOCK TABLE simsql.keys_1_0 IN ACCESS EXCLUSIVE MODE")
    articles.execute("SET lock_timeout = '5s'")
    assert articles.execute("SELECT bytes, hint FROM simsql.indexes").fetchall() == [(None, None)]
    assert said(articles)[-1] == did(0, 0, 1)
    holder.execute("ROLLBACK; BEGIN; LOCK TABLE simsql.registry IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(errors.LockNotAvailable, match=r"locked simsql\.registry") as failed:
        articles.execute(MAINTAIN)
    assert "Call it again" in failed.value.diag.message_hint


def test_a_time_limit_ends_a_vacuum_and_several_calls_come_to_all_keys(articles):
    set_batch_size(articles, 100)
    last = said(articles, "CALL simsql.maintain(time_limit => '1 ms')")[-1]
    assert last == did(1, 0) + ", left at the time limit: 1"  # and not in the middle of the first batch
    assert 150 < len(stored_fingerprints(articles)[0]) < 300
    calls = 1
    while not is_clean(articles):
        calls += 1
        assert calls < 200
        articles.execute("UPDATE simsql.registry SET vacuumed_keys = 1")  # so that it seems to need one
        flush_statistics(articles)
        assert did(1, 0) in said(articles, "CALL simsql.maintain('1 ms')")[-1]
    assert missing_keys(articles) == []


@pytest.mark.parametrize("scope", [False, True], ids=["", "scope"])
def test_a_vacuum_that_begins_anywhere_comes_to_all_keys(connection, scope):
    if scope:
        create_scoped(connection, ("tenant text",), rows=[(n % 3, f) for n, f in enumerate(FINGERPRINTS)])
    else:
        create_articles(connection, FINGERPRINTS)
    column = "print" if scope else "fingerprint"
    for size in (50, 299, 1000):
        set_batch_size(connection, size)
        for change in (size, 0):  # the latter leaves equal keys
            connection.execute(f"UPDATE article SET {column} = {column} # {change}")
        flush_statistics(connection)
        assert not is_clean(connection, column=column)
        connection.execute(
            "DO $$ DECLARE state simsql._vacuum_state; BEGIN"
            " PERFORM setseed(0.5); state := (SELECT simsql._vacuum_anywhere(r) FROM simsql.registry AS r);"
            " ASSERT state.tables = '{0,0}', 'it began at the first key'; LOOP"
            " state := simsql._vacuum_batch('article', NULL, state); EXIT WHEN state.finished; END LOOP; END $$"
        )
        assert is_clean(connection, column=column), size


def test_two_at_once_leave_what_one_leaves(others, connect):
    others.execute(SLOW)
    with started(connect, lambda other: other.execute(MAINTAIN)) as second:
        others.execute(MAINTAIN)
    second.result()
    assert all(is_clean(others, name) for name in ("article", "other", "third"))


def test_the_worst_comes_first(others):
    others.execute("INSERT INTO third (fingerprint) SELECT n FROM generate_series(1, 2000) AS n")
    others.execute("DELETE FROM third WHERE fingerprint BETWEEN 1 AND 2000")
    flush_statistics(others)
    heard = notices(others)
    others.execute(MAINTAIN)
    vacuums = [line.split(" keys of ")[1] for line in heard if line.startswith("simsql.vacuum: removed")]
    assert vacuums == [f"public.{name}(fingerprint)" for name in ("third", "other", "article")]


def test_after_a_reset_of_the_statistics_the_rows_are_counted(articles):
    """Autovacuum does not know that there is something to do, either."""
    articles.execute("ANALYZE article; ANALYZE simsql.keys_1_0")
    articles.execute("DELETE FROM article WHERE id % 4 = 1")
    flush_statistics(articles)
    articles.execute("SELECT pg_stat_reset(); UPDATE simsql.registry SET vacuumed_at = now() - interval '1 hour'")
    flush_statistics(articles)
    hint = "PostgreSQL has not counted the rows: CALL simsql.maintain();"
    assert articles.execute("SELECT hint FROM simsql.indexes").fetchone() == (hint,)
    assert said(articles) == [did(1, 1)]
    assert is_clean(articles)
    flush_statistics(articles)
    assert articles.execute("SELECT hint FROM simsql.indexes").fetchone() == (None,)


def test_a_false_count_of_rows_is_corrected(connection):
    """After a crash or a failover, PostgreSQL knows the count of the last ANALYZE, and the later rows."""
    create_articles(connection, range(100))
    set_batch_size(connection, 50)
    connection.execute("ANALYZE article; INSERT INTO article (fingerprint) SELECT generate_series(1001, 1200)")
    flush_statistics(connection)
    connection.execute(
        "SELECT pg_stat_reset(); UPDATE simsql.registry SET vacuumed_at = now() - interval '1 hour'"
    )
    connection.execute("INSERT INTO article (fingerprint) SELECT generate_series(2001, 2100)")
    connection.execute("ANALYZE simsql.keys_1_0")
    flush_statistics(connection)
    (hint,) = connection.execute("SELECT hint FROM simsql.indexes").fetchone()
    assert hint.endswith("% of the keys are superfluous: CALL simsql.maintain();")
    assert said(connection) == [did(1, 1)]
    flush_statistics(connection)
    assert connection.execute("SELECT unvacuumed, hint FROM simsql.indexes").fetchone() == (0, None)


def test_a_vacuum_does_not_wait_for_a_count(articles, connect):
    with connect() as other, other.transaction():
        other.execute("LOCK TABLE article IN SHARE UPDATE EXCLUSIVE MODE")
        assert did(1, 1) in said(articles)
    assert is_clean(articles)


def test_a_role_maintains_its_own_indexes(others, new_role, connect):
    owner, stranger = new_role(), new_role()
    allow_indexes(others, owner)
    others.execute(f"ALTER TABLE third OWNER TO {owner}; SELECT simsql.drop_index('third')")
    create_index(connect(owner), "third")
    with pytest.raises(errors.InsufficientPrivilege, match="owns none of the simhash indexes"):
        connect(stranger).execute(MAINTAIN)
    assert said(connect(owner))[-1].startswith("indexes verified: 1, ")
    assert not is_clean(others, "other")


def test_what_is_refused(articles):
    for limit in ("0", "-1 hour"):
        with pytest.raises(errors.InvalidParameterValue, match="time_limit must be more than 0, not "):
            articles.execute(f"CALL simsql.maintain('{limit}')")
    articles.execute("BEGIN")
    with pytest.raises(errors.ActiveSqlTransaction, match=r"simsql\.maintain: it commits each batch"):
        articles.execute(MAINTAIN)
    articles.execute("ROLLBACK")
