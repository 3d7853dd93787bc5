"""simsql.indexes says how much of a table is all-visible, and what to do about that and about locks."""

import psycopg
import pytest
from articles import create_articles

pytestmark = pytest.mark.oldest_version

STATISTICS = "SELECT pg_stat_force_next_flush()"


def advice(connection: psycopg.Connection) -> tuple[float | None, str | None]:
    if connection.info.server_version >= 150000:
        connection.execute(STATISTICS)
    return connection.execute("SELECT all_visible, hint FROM simsql.indexes").fetchone()


def test_the_share_of_all_visible_pages_is_close_to_the_truth(connection):
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
    assert advice(connection) == (0, vacuum)
    connection.execute(vacuum)
    assert advice(connection) == (1, None)
    connection.execute("UPDATE article SET visits = 1 WHERE hashint8(id) % 50 = 0")
    connection.execute("SELECT count(*) FROM article WHERE body > ''")
    estimated, hint = advice(connection)
    assert hint == vacuum
    connection.execute("ANALYZE article")
    counted, hint = advice(connection)
    assert hint == vacuum
    assert 0.75 < counted < 0.89
    assert estimated == pytest.approx(counted, abs=0.03)
    connection.execute(vacuum)
    connection.execute(insert.format(12_001, 14_000))
    added, _ = advice(connection)
    assert added == pytest.approx(12 / 14, abs=0.03)
    # Of a small table, every page is in memory.
    connection.execute("TRUNCATE article")
    assert advice(connection) == (None, None)
    connection.execute(insert.format(1, 100))
    assert advice(connection) == (0, None)


def test_key_tables_need_no_visible_pages(connection):
    create_articles(connection, range(2000))
    assert advice(connection) == (None, None)


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
    promised = 20 + 41 * 7
    hint = (
        f"a search takes up to {promised} locks: set max_locks_per_transaction to {(promised + 1) // 2} or more,"
        " or have fewer partitions"
    )
    assert advice(connection) == (None, hint)
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
