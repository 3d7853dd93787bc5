"""simsql.indexes says what a vacuum would clean up, what an index takes on disk, and what to do."""

import psycopg
import pytest
from articles import count_keys, create_articles, create_table
from internals import set_batch_size
from upkeep import flush_statistics

pytestmark = pytest.mark.oldest_version


def advice(connection: psycopg.Connection) -> tuple[float | None, str | None]:
    flush_statistics(connection)
    return connection.execute("SELECT unvacuumed, hint FROM simsql.indexes").fetchone()


def test_the_share_of_pages_that_are_not_all_visible_is_close_to_the_truth(connection):
    """ANALYZE counts the pages. Before it runs, the changes are estimated."""
    connection.execute(
        "CREATE TABLE article (id bigint, fingerprint bigint, body text, visits integer NOT NULL DEFAULT 0)"
        " PARTITION BY LIST ((id % 2));"
        "CREATE TABLE even PARTITION OF article FOR VALUES IN (0);"
        # Updates are HOT, and reading prunes dead rows.
        "CREATE TABLE odd PARTITION OF article FOR VALUES IN (1) WITH (fillfactor = 80)"
    )
    insert = "INSERT INTO article SELECT n, n, repeat('-', 700) FROM generate_series({}, {}) AS n"
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert advice(connection) == (None, None)
    connection.execute(insert.format(1, 12_000))
    vacuum = "VACUUM (ANALYZE) public.article"
    hint = "{}% of the pages are not all-visible: " + vacuum
    assert advice(connection) == (1, hint.format(100))
    connection.execute(vacuum)
    assert advice(connection) == (0, None)
    assert connection.execute("SELECT last_vacuum < now() FROM simsql.indexes").fetchone() == (True,)
    connection.execute("UPDATE article SET visits = 1 WHERE hashint8(id) % 50 = 0")
    connection.execute("SELECT count(*) FROM article WHERE body > ''")
    estimated, said = advice(connection)
    assert said == hint.format(round(100 * estimated))
    connection.execute("ANALYZE article")
    counted, said = advice(connection)
    assert said == hint.format(round(100 * counted))
    assert 0.11 < counted < 0.25
    assert estimated == pytest.approx(counted, abs=0.03)
    connection.execute(vacuum)
    connection.execute(insert.format(12_001, 14_000))
    added, _ = advice(connection)
    assert added == pytest.approx(2 / 14, abs=0.03)
    # Of a small table, every page is in memory.
    connection.execute("TRUNCATE article")
    assert advice(connection) == (None, None)
    connection.execute(insert.format(1, 100))
    assert advice(connection) == (1, None)


# The share of superfluous keys


RANDOM = "(random() * 9e18)::bigint"
ROWS = f"INSERT INTO article (fingerprint) SELECT {RANDOM} FROM generate_series(1, 400)"
WITHOUT = "INSERT INTO article (body) SELECT 'none yet' FROM generate_series(1, 400)"
EACH_TWICE = "INSERT INTO article (fingerprint) SELECT n % 200 * 1000003::bigint FROM generate_series(1, 400) AS n"
CHANGED = f"UPDATE article SET fingerprint = {RANDOM} WHERE id % {{}} = 0"
DELETED = "DELETE FROM article WHERE id % {} = 0"
INDEX = "SELECT simsql.create_index('article', 'fingerprint', blocks => 4)"
VACUUM = "CALL simsql.vacuum('article')"
ANALYZE = "ANALYZE article; ANALYZE simsql.keys_1_0"
RESET = (
    "SELECT pg_stat_reset_single_table_counters(t::regclass) FROM unnest('{article, simsql.keys_1_0}'::text[]) t"
)


@pytest.mark.parametrize(
    "statements",
    [
        [INDEX, ROWS, CHANGED.format(3), DELETED.format(4), VACUUM, CHANGED.format(3), ANALYZE, ROWS, ANALYZE],
        [ROWS, INDEX, DELETED.format(2), ANALYZE, RESET, DELETED.format(3), VACUUM, ROWS],
        # Of these rows, a key serves two.
        [
            INDEX,
            EACH_TWICE,
            VACUUM,
            "DELETE FROM article WHERE id % 200 < 50",
            "TRUNCATE article; ANALYZE article",
        ],
        # Most rows get their fingerprints later.
        [WITHOUT, ROWS, "DELETE FROM article WHERE id > 450", INDEX, CHANGED.format(1), VACUUM, DELETED.format(3)],
        # At the vacuum, half of the rows had no fingerprint.
        [INDEX, ROWS, WITHOUT, VACUUM, f"{CHANGED.format(1)} AND fingerprint IS NULL; ANALYZE article"],
    ],
    ids=["as rows come", "statistics reset", "duplicates", "backfill", "filled"],
)
def test_the_share_of_superfluous_keys_is_close_to_the_truth(connection, statements):
    create_table(connection)
    for number, statement in enumerate(statements):
        if statement == INDEX:
            flush_statistics(connection)  # the index notes how many rows it had
        connection.execute(statement)
        if INDEX not in statements[: number + 1]:
            continue
        estimated, hint = advice(connection)
        assert hint is None  # of a few keys
        keys = count_keys(connection)[0]
        (superfluous,) = connection.execute("SELECT simsql.superfluous_keys('article')").fetchone()
        if keys:
            assert estimated == pytest.approx(superfluous / keys / 4, abs=0.05), statement


def test_when_a_vacuum_is_worth_while(connection):
    set_batch_size(connection, 100)
    create_table(connection)
    connection.execute(INDEX)
    connection.execute(ROWS)
    vacuum = "CALL simsql.maintain();"
    assert advice(connection) == (0, f"there are about 400 keys, and 0 at the last vacuum: {vacuum}")
    connection.execute(VACUUM)
    assert advice(connection) == (0, None)
    connection.execute(CHANGED.format(10))
    assert advice(connection)[1] is None
    connection.execute(CHANGED.format(5))
    assert advice(connection)[1] == f"23% of the keys are superfluous: {vacuum}"
    before, now = "SELECT last_vacuum FROM simsql.indexes", "SELECT now()"
    (start,) = connection.execute(now).fetchone()
    assert connection.execute(before).fetchone() < (start,)
    connection.execute(VACUUM)
    assert connection.execute(before).fetchone() > (start,)
    # As after a restore without statistics.
    connection.execute(RESET.replace(", simsql.keys_1_0", ""))
    connection.execute("UPDATE pg_class SET reltuples = -1 WHERE oid = 'article'::regclass")
    connection.execute("UPDATE simsql.registry SET vacuumed_at = now() - interval '1 hour'")
    assert advice(connection) == (None, f"PostgreSQL has not counted the rows: {vacuum}")
    connection.execute(vacuum)
    assert advice(connection) == (0, None)


def test_a_fault_comes_before_a_vacuum(connection):
    set_batch_size(connection, 1)
    create_articles(connection, range(100))
    connection.execute("DELETE FROM article; ALTER TABLE article RENAME fingerprint TO print")
    assert advice(connection) == (
        1,
        "Rename it back, or let the index follow the column: SELECT * FROM simsql.repair('public.article');",
    )


# The size


def test_the_size_is_that_of_what_is_dropped_with_an_index(connection, storage):
    size = "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class AS c WHERE relkind = 'r'"
    create_articles(connection, range(2000), storage=storage)
    # The names of index 10 begin as those of index 1.
    connection.execute("ALTER TABLE simsql.registry ALTER id RESTART WITH 10")
    connection.execute("CREATE TABLE other AS SELECT generate_series(1, 3000)::bigint AS fingerprint")
    connection.execute("SELECT simsql.create_index('other', 'fingerprint', storage => %s)", [storage])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    (told,) = connection.execute("SELECT bytes FROM simsql.indexes WHERE id = 1").fetchone()
    with connection.transaction(force_rollback=True):
        (before,) = connection.execute(size).fetchone()
        connection.execute("SELECT simsql.drop_index('article')")
        (after,) = connection.execute(size).fetchone()
    assert told == pytest.approx(before - after, rel=0.1)


def test_a_monitor_does_not_wait_for_a_locked_index(connection, connect, storage):
    create_articles(connection, range(100), storage=storage)
    with connect() as session, session.transaction(force_rollback=True):
        session.execute(f"REINDEX TABLE {'article' if storage == 'expression' else 'simsql.keys_1_0'}")
        query = connection.execute("SELECT state, bytes, hint FROM simsql.indexes")
        assert query.fetchone() == ("ready", None, None)


# Room for locks


def test_many_partitions_need_room_for_locks(connection, connect):
    heard = []
    connection.add_notice_handler(lambda found: heard.append((found.severity, found.message_hint)))
    connection.execute("CREATE TABLE article (id bigint PRIMARY KEY, fingerprint bigint) PARTITION BY RANGE (id)")
    partition = "CREATE TABLE part_{0} PARTITION OF article FOR VALUES FROM ({0}) TO ({0} + 1)"
    for number in range(12):
        connection.execute(partition.format(number))
    create = "SELECT simsql.create_index('article', 'fingerprint', blocks => 4)"
    connection.execute(create)
    assert heard == []
    for number in range(12, 40):
        connection.execute(partition.format(number))
    # Each partition with four B-trees of the index, one of its column and that of the key; and simsql's relations.
    promised = 24 + 41 * 7
    hint = (
        f"a search takes up to {promised} locks: set max_locks_per_transaction to {(promised + 1) // 2} or more,"
        " or have fewer partitions"
    )
    assert advice(connection) == (None, hint)
    labelled = connection.execute("SELECT problem, remedy FROM simsql.problems").fetchall()
    assert labelled == [("too few locks", hint.partition(": ")[2])]
    session = connect()
    with session.transaction():
        session.execute("SELECT * FROM simsql.near('article', 0, 3)")
        held = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = %s AND locktype = 'relation'", [session.info.backend_pid]
        )
        assert promised - 10 < held.fetchone()[0] <= promised
    connection.execute("SELECT simsql.drop_index('article')")
    connection.execute(create)
    assert heard == [("WARNING", f"{hint[0].upper()}{hint[1:]}.")]
