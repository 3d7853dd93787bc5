"""An index changes its storage in place: searches, writers and claims go on, and none of them misses a row."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import articles
import pytest
from articles import create_table, fingerprints_of, near
from claims import CENTRE, check_waiting_claim, claim, post
from oracle import clustered, flip
from oracle import near as expected_near
from oracle import pairs as expected_pairs
from program import wait_until
from psycopg import errors
from roles import allow_indexes
from sessions import ONE_SNAPSHOT, begin, blocked, started
from similar import like_near
from sqlalchemy import NullPool, create_engine, event
from sqlalchemy.exc import OperationalError
from upkeep import problems

from simsql.database import change_storage
from simsql.database import index as index_module
from simsql.errors import SimsqlError

FINGERPRINTS = clustered(300, seed=16)
QUERIES = [0, -1, FINGERPRINTS[17], flip(FINGERPRINTS[5], [63, 31, 0])]
OTHER = {"tables": "expression", "expression": "tables"}
from_either = pytest.mark.parametrize("storage", OTHER)


def create_index(connection, storage, more=""):
    call = "simsql.create_index('article', 'fingerprint', 7, 5, 2, recipe => 'own', storage => %s"
    connection.execute(f"SELECT {call}{more})", [storage])


def change(connection, storage):
    return connection.execute("SELECT simsql.change_storage('article', %s)", [storage]).fetchone()[0]


def described(connection):
    columns = "table_name, column_name, scope, distance, blocks, lead, inner_blocks, recipe, state"
    return connection.execute(f"SELECT {columns} FROM simsql.indexes").fetchall()


def objects(connection):
    """Every function and table of indexes, and their triggers and B-trees, without the ids."""
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relname ~ '^(keys|simsql)_[0-9]+_'"
        " UNION ALL SELECT proname FROM pg_proc"
        " WHERE pronamespace = 'simsql'::regnamespace AND proname ~ '_[0-9]+$'"
        " UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
        " AND tgrelid NOT IN ('simsql.registry'::regclass, 'simsql.schema_version'::regclass)"
    )
    return sorted(re.sub("_[0-9]+", "_ID", name, count=1) for (name,) in rows)


searches_are_exact = partial(articles.searches_are_exact, queries=QUERIES)


@from_either
def test_nothing_but_the_storage_changes(connection, storage):
    create_table(connection, [*FINGERPRINTS[:200], None])
    create_index(connection, OTHER[storage])
    made = objects(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    create_index(connection, storage)
    before = described(connection)
    change(connection, OTHER[storage])
    assert described(connection) == before
    assert connection.execute("SELECT storage FROM simsql.indexes").fetchone() == (OTHER[storage],)
    assert objects(connection) == made
    assert problems(connection) == set()
    searches_are_exact(connection)
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS[200:]])
    connection.execute("UPDATE article SET fingerprint = fingerprint # 4 WHERE id % 3 = 0")
    searches_are_exact(connection)
    change(connection, storage)
    assert problems(connection) == set()
    searches_are_exact(connection)
    found = connection.execute("SELECT * FROM simsql.pairs('article', 3)").fetchall()
    assert sorted(found) == expected_pairs(fingerprints_of(connection), 3)
    connection.execute("SELECT simsql.drop_index('article')")
    assert objects(connection) == []


@from_either
def test_a_scope_stays(connection, storage):
    connection.execute("CREATE DOMAIN tenant AS text")
    create_table(connection, FINGERPRINTS)
    connection.execute("ALTER TABLE article ADD tenant tenant; UPDATE article SET tenant = 1 + id % 2")
    create_index(connection, storage, ", scope => '{tenant}'")
    change(connection, OTHER[storage])
    assert problems(connection) == set()
    assert described(connection)[0][2] == ["tenant"]
    for within in (0, 3, 7, 10):
        search = "SELECT * FROM simsql.near('article', 0, %s, scope => '{\"tenant\": 2}')"
        found = connection.execute(search, [within])
        assert found.fetchall() == expected_near(FINGERPRINTS[::2], 0, within)


def test_what_cannot_be_changed(connection, new_role, connect):
    create_table(connection, FINGERPRINTS)
    with pytest.raises(errors.UndefinedObject, match="has no simhash index"):
        change(connection, "tables")
    create_index(connection, "tables")
    with pytest.raises(errors.InvalidParameterValue, match="storage must be tables or expression, not 'rows'"):
        change(connection, "rows")
    with pytest.raises(errors.NullValueNotAllowed, match="the storage must not be null"):
        change(connection, None)
    for level in ONE_SNAPSHOT:
        begin(connection, level)
        with pytest.raises(errors.ActiveSqlTransaction, match="must be read committed"):
            change(connection, "expression")
        connection.execute("ROLLBACK")
    role = new_role()
    connection.execute(f"GRANT ALL ON article TO {role}")
    with pytest.raises(errors.InsufficientPrivilege, match=r"must be owner of table public\.article"):
        change(connect(role), "expression")
    connection.execute("CREATE TABLE parts (fingerprint bigint) PARTITION BY HASH (fingerprint)")
    connection.execute("SELECT simsql.create_index('parts', 'fingerprint')")
    with pytest.raises(errors.FeatureNotSupported, match="is partitioned"):
        connection.execute("SELECT simsql.change_storage('parts', 'tables')")


@from_either
def test_an_owner_who_may_create_an_index_may_change_it(connection, new_role, connect, storage):
    create_table(connection, FINGERPRINTS)
    role = new_role()
    connection.execute(f"ALTER TABLE article OWNER TO {role}")
    allow_indexes(connection, role)
    owner = connect(role)
    create_index(owner, storage)
    change(owner, OTHER[storage])
    searches_are_exact(owner)
    change(connection, storage)
    # The superuser has changed the index of another role, which keeps it.
    owner.execute("SELECT simsql.drop_index('article')")
    assert objects(connection) == []


# Others, beside the change


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
@from_either
def test_an_older_snapshot_gets_everything_or_an_error(connection, connect, storage, level):
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage)
    reader = connect()
    begin(reader, level)
    change(connection, OTHER[storage])
    if storage == "tables":
        assert near(reader, 0, 3) == expected_near(FINGERPRINTS, 0, 3)  # in the B-trees
        with pytest.raises(errors.UndefinedObject, match="Start a new transaction"):
            reader.execute("SELECT FROM simsql.near_many('article', ARRAY(SELECT generate_series(1, 20)))")
    else:
        with pytest.raises((errors.UndefinedObject, errors.ObjectNotInPrerequisiteState)):
            near(reader, 0, 3)
    reader.execute("ROLLBACK")
    begin(reader, level)
    change(connection, storage)
    assert problems(reader) == {("index dropped", "public.article")}
    columns = "SELECT state, hint FROM simsql.indexes"
    assert reader.execute(columns).fetchall() == [("index dropped", "Start a new transaction.")]
    reader.execute("ROLLBACK")
    assert problems(reader) == set()
    searches_are_exact(reader)


@from_either
def test_searches_go_on_without_deadlocks_and_writers_wait(connection, connect, storage):
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage)
    for _ in range(7):  # cached plans, too
        searches_are_exact(connection)
    reader = connect()
    # It locks the table, and then the keys, if there are any. Searches lock them in another order.
    reader.execute("BEGIN; SELECT FROM article LIMIT 1")
    with started(connect, lambda session: change(session, OTHER[storage])) as changed:
        wait_until(lambda: changing(connection), "the change to wait for the reader")
        searches_are_exact(connection)
        with blocked(
            connect, lambda writer: writer.execute("INSERT INTO article (fingerprint) VALUES (5)")
        ) as written:
            searches_are_exact(reader)
            reader.execute("COMMIT")
    changed.result()
    written.result()
    assert connection.execute("SELECT storage FROM simsql.indexes").fetchone() == (OTHER[storage],)
    assert (5, 0) in near(connection, 5, 0)
    assert problems(connection) == set()
    searches_are_exact(connection)


@from_either
def test_a_transaction_that_has_searched_can_write(connection, connect, storage):
    """A claim and an insert, for example. The change must neither fail it nor wait for it forever."""
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage)
    writer = connect()
    writer.execute("SET lock_timeout = '3s'; SET deadlock_timeout = '1s'; BEGIN")
    near(writer, 5, 3)
    locks = "SELECT FROM pg_locks WHERE mode = 'ShareRowExclusiveLock' AND relation = 'article'::regclass"
    with ThreadPoolExecutor(1) as thread:
        changed = thread.submit(change, connect(), OTHER[storage])
        wait_until(lambda: connection.execute(locks).fetchall(), "writers to be locked out")
        writer.execute("INSERT INTO article (fingerprint) VALUES (5)")
        writer.execute("COMMIT")
        if storage == "tables":
            with pytest.raises(
                errors.DeadlockDetected, match=r"has searched public\.article is waiting to write to it"
            ):
                changed.result()
        else:
            changed.result()
            assert connection.execute("SELECT storage FROM simsql.indexes").fetchone() == ("tables",)
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_a_transaction_that_has_searched_can_write_before_the_keys_are_dropped(connection, connect):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "tables")
    connection.execute("SELECT simsql._change_storage('article', 'expression', NULL, keep => true)")
    writer = connect()
    writer.execute("SET lock_timeout = '3s'; BEGIN")
    near(writer, 5, 3)
    with started(connect, lambda session: change(session, "expression")) as changed:
        writer.execute("INSERT INTO article (fingerprint) VALUES (5)")
        writer.execute("COMMIT")
        assert changed.result() == 1
    assert problems(connection) == set()
    searches_are_exact(connection)


def changing(connection):
    """Whether a change has created what it needs, and waits for the lock under which it drops the rest."""
    locks = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
        " AND relation = 'article'::regclass"
    )
    return locks.fetchone() == (1,)


@pytest.mark.parametrize(
    "search",
    [
        "near('article', 5, 3)",
        f"similar_candidates('article', {like_near(5, 3)})",
        "near_many('article', ARRAY(SELECT generate_series(1, 20)))",
    ],
)
def test_a_search_that_waits_for_a_change_finds_the_rows(connection, connect, search):
    create_table(connection, range(20))
    create_index(connection, "tables")
    search = f"SELECT fingerprint, distance FROM simsql.{search}"
    expected = connection.execute(search).fetchall()
    connection.execute("BEGIN")
    change(connection, "expression")
    with blocked(connect, lambda other: other.execute(search).fetchall()) as found:
        connection.execute("COMMIT")
    assert found.result() == expected
    assert connection.execute(search).fetchall() == expected


def test_it_gives_up_after_lock_timeout(connection, connect):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "tables")
    reader = connect()
    reader.execute("BEGIN; SELECT FROM article LIMIT 1")
    connection.execute("SET lock_timeout = '300ms'")
    with pytest.raises(errors.LockNotAvailable, match=r"public\.article could not be locked within 300ms"):
        change(connection, "expression")
    assert connection.execute("SHOW lock_timeout").fetchone() == ("300ms",)
    searches_are_exact(connection)
    assert problems(connection) == set()
    reader.execute("COMMIT")
    change(connection, "expression")
    assert connection.execute("SHOW lock_timeout").fetchone() == ("300ms",)


@pytest.mark.every_version
@from_either
def test_a_change_that_gives_up_keeps_its_work(connection, database, connect, storage):
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage)
    reader = connect()
    reader.execute("BEGIN; SELECT FROM article LIMIT 1")
    with pytest.raises(OperationalError, match="run it again"):
        change_storage(impatient(database), "article", OTHER[storage])
    work = files(connection)
    assert {name[:4] for name in work} == {"keys", "sims"}
    assert problems(connection) == set()
    # What others write meanwhile is in both, and a search that is older than the change finds what it sees.
    connection.execute("INSERT INTO article (fingerprint) VALUES (5)")
    searches_are_exact(connection)
    found = connection.execute("SELECT problem FROM simsql.problems").fetchall()
    assert found == [("change of storage unfinished",)]
    reader.execute("COMMIT")
    change_storage(database, "article", OTHER[storage])
    assert files(connection) < work
    assert {name[:4] for name in files(connection)} == {"keys" if storage == "expression" else "sims"}
    assert connection.execute("SELECT problem FROM simsql.problems").fetchall() == []
    assert problems(connection) == set()
    connection.execute("INSERT INTO article (fingerprint) VALUES (7)")
    searches_are_exact(connection)


@pytest.mark.parametrize(
    "meanwhile",
    [
        "ALTER TABLE article DISABLE TRIGGER USER; INSERT INTO article (fingerprint) VALUES (5);"
        " ALTER TABLE article ENABLE TRIGGER USER",
        "ALTER TABLE article DISABLE TRIGGER simsql_1_insert; INSERT INTO article (fingerprint) VALUES (5);"
        " ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_insert",
        "TRUNCATE simsql.keys_1_3",
        "DROP TABLE simsql.keys_1_2",
        "SELECT simsql.repair('article')",
        "CALL simsql.maintain()",
        "SELECT simsql.change_storage('article', 'expression')",
        "TRUNCATE article",
    ],
)
def test_work_that_may_be_incomplete_is_done_again(connection, database, connect, meanwhile):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "expression")
    connection.execute("SELECT simsql._change_storage('article', 'tables', NULL, keep => true)")
    connection.execute(meanwhile)
    searches_are_exact(connection)
    assert change(connection, "tables") == 2
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_maintain_keeps_unfinished_work(connection):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "expression")
    connection.execute("SELECT simsql._change_storage('article', 'tables', NULL, keep => true)")
    work = files(connection)
    connection.execute("CALL simsql.maintain()")
    change(connection, "tables")
    assert files(connection) < work
    searches_are_exact(connection)


@pytest.mark.parametrize("ends", ["change_storage('article', 'tables')", "drop_index('article')"])
def test_what_an_interrupted_reindex_has_left_goes_with_the_btrees(connection, connect, ends):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "expression")
    writer = connect()
    writer.execute("BEGIN; INSERT INTO article (fingerprint) VALUES (5)")
    connection.execute("SET lock_timeout = '300ms'")
    with pytest.raises(errors.LockNotAvailable):
        connection.execute("REINDEX TABLE CONCURRENTLY article")
    writer.execute("COMMIT")
    connection.execute(f"SELECT simsql.{ends}")
    left = "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'article'::regclass"
    assert [name for (name,) in connection.execute(left) if name.startswith("simsql")] == []


def test_unfinished_work_goes_when_a_column_is_renamed(connection):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "expression")
    connection.execute("SELECT simsql._change_storage('article', 'tables', NULL, keep => true)")
    connection.execute("ALTER TABLE article RENAME fingerprint TO print; SELECT simsql.repair('article')")
    connection.execute("INSERT INTO article (print) VALUES (5)")
    assert problems(connection) == set()
    assert change(connection, "tables") == 2
    assert (5, 0) in near(connection, 5, 0)


def test_an_index_with_unfinished_work_can_be_dropped(connection):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "expression")
    connection.execute("SELECT simsql._change_storage('article', 'tables', NULL, keep => true)")
    connection.execute("SELECT simsql.drop_index('article')")
    assert objects(connection) == []


def test_a_change_to_key_tables_keeps_the_owner(connection, new_role, connect):
    """A superuser changes it in two parts."""
    create_table(connection, FINGERPRINTS)
    role = new_role()
    connection.execute(f"ALTER TABLE article OWNER TO {role}")
    allow_indexes(connection, role)
    create_index(connect(role), "expression")
    connection.execute("SELECT simsql._change_storage('article', 'tables', NULL, keep => true)")
    connect(role).execute("INSERT INTO article (fingerprint) VALUES (5)")
    change(connection, "tables")
    assert problems(connection) == set()
    connect(role).execute("SELECT simsql.drop_index('article')")


@pytest.mark.every_version
@pytest.mark.parametrize("work", ["change_storage", "expression", "tables"])
def test_concurrent_work_gives_up_waiting_for_a_snapshot(connection, database, connect, work):
    """CREATE INDEX CONCURRENTLY waits for transactions that have only read other tables."""
    create_table(connection, FINGERPRINTS)

    def run(engine):
        if work == "change_storage":
            change_storage(engine, "article", "expression")
        else:
            index_module.create_index(engine, "article", "fingerprint", storage=work, concurrently=True)

    if work == "change_storage":
        create_index(connection, "tables")
    reader = connect()
    connection.execute("CREATE TABLE other ()")
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM other")
    said = rf"CREATE INDEX CONCURRENTLY gave up after 0\.3 s.* process {reader.info.backend_pid} \(.* goes on"
    with pytest.raises(SimsqlError, match=said):
        run(impatient(database))
    if work == "change_storage":
        searches_are_exact(connection)
        assert problems(connection) == set()
    reader.execute("COMMIT")
    run(impatient(database))
    searches_are_exact(connection)
    assert problems(connection) == set()
    assert connection.execute("SELECT FROM pg_index WHERE NOT indisvalid").fetchall() == []


def impatient(database):
    """An engine whose statements wait for locks briefly."""
    engine = create_engine(database.url, poolclass=NullPool)
    event.listen(engine, "begin", lambda begun: begun.exec_driver_sql("SET LOCAL lock_timeout = '300ms'"))
    return engine


def files(connection):
    """The key tables and B-trees of indexes, without their ids, and the files that hold them."""
    rows = connection.execute(
        "SELECT regexp_replace(relname, '[0-9]+', 'ID') || ' ' || relfilenode FROM pg_class"
        " WHERE relname ~ '^(keys|simsql)_[0-9]+_[0-9]+$'"
    )
    return {name for (name,) in rows}


@from_either
def test_of_two_claims_before_and_after_a_change_one_finds_the_other(connection, connect, storage):
    create_table(connection)
    create_index(connection, storage)
    session = connect()
    session.execute("BEGIN")
    assert post(session, CENTRE) == []
    with started(connect, lambda other: change(other, OTHER[storage])) as changed:
        with started(connect, lambda other: post(other, flip(CENTRE, [0]))) as second:
            session.execute("COMMIT")
        assert second.result() == [(CENTRE, 1)]
    changed.result()
    assert claim(connection, CENTRE) == [(CENTRE, 0)]


@from_either
def test_a_claim_that_waits_for_its_locks_meets_those_after_the_change(connection, connect, storage):
    create_table(connection)
    create_index(connection, storage)
    check_waiting_claim(connection, connect, lambda session: change(session, OTHER[storage]))


# Online


def test_online_nobody_waits(connection, database, connect, monkeypatch):
    """B-trees are created concurrently, then searches use them, and only then are the keys dropped."""
    create_table(connection, FINGERPRINTS)
    create_index(connection, "tables")
    connection.execute("SET lock_timeout = '2s'")
    states = []
    run = index_module._run

    def beside(session, statement):
        run(session, statement)
        connection.execute("INSERT INTO article (fingerprint) VALUES (5)")
        searches_are_exact(connection)
        states.append(statement.split()[:3])

    monkeypatch.setattr(index_module, "_run", beside)
    assert change_storage(database, "article", "expression") == 1
    assert ["CREATE", "INDEX", "CONCURRENTLY"] in states
    assert problems(connection) == set()
    searches_are_exact(connection)
    assert change_storage(database, "article", "tables", "fingerprint") == 2
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_a_search_that_has_begun_before_an_online_change_finds_the_keys(connection, connect):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "tables")
    reader = connect()
    begin(reader, "REPEATABLE READ")
    connection.execute("SELECT simsql._change_storage('article', 'expression', NULL, keep => true)")
    connection.execute("INSERT INTO article (fingerprint) VALUES (5)")
    for session, live in ((reader, FINGERPRINTS), (connection, [*FINGERPRINTS, 5])):
        for within in (0, 3, 7, 10):
            assert near(session, 5, within) == expected_near(live, 5, within)
    reader.execute("ROLLBACK")
    assert problems(connection) == set()
    # The second half, which may have been interrupted.
    change(connection, "expression")
    assert [name for name in objects(connection) if name.startswith(("keys", "add"))] == []
    searches_are_exact(connection)


def test_what_an_interrupted_change_has_left_is_dropped(connection):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "tables")
    made = objects(connection)
    mask = connection.execute("SELECT lead_mask FROM simsql._permutations(5, 2, 0) WHERE number = 3").fetchone()[0]
    left = f"CREATE INDEX simsql_1_3 ON article ((fingerprint & {mask}), fingerprint)"
    connection.execute(left)
    assert change(connection, "tables") == 1
    assert objects(connection) == made
    connection.execute(left)
    connection.execute("SELECT simsql.drop_index('article')")
    assert objects(connection) == []


@from_either
def test_a_dump_restores_a_changed_index(connection, restore, storage):
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage)
    change(connection, OTHER[storage])
    restored = restore()
    assert problems(restored) == set()
    searches_are_exact(restored)
    change(restored, storage)
    searches_are_exact(restored)


def test_create_index_says_how_to_change_the_storage(connection):
    create_table(connection, FINGERPRINTS)
    create_index(connection, "tables")
    with pytest.raises(errors.DuplicateObject) as caught:
        create_index(connection, "expression")
    connection.execute(re.search("SELECT .*;", caught.value.diag.message_hint)[0])
    assert connection.execute("SELECT storage FROM simsql.indexes").fetchone() == ("expression",)
