"""Beside CREATE INDEX CONCURRENTLY and its like, which wait for every snapshot, calls fail and do not deadlock."""

import pytest
from articles import create_articles, create_table, near
from partitions import FINGERPRINTS, create_months, create_partitioned, insert, searches_are_exact
from partitions import create_index as create_index_on_partitions
from psycopg import errors
from sessions import blocked
from upkeep import problems

from simsql.database import create_index, load_rows

CONCURRENTLY = [
    ("tables", "CREATE INDEX CONCURRENTLY mine ON article (body)"),
    ("expression", "REINDEX INDEX CONCURRENTLY article_fingerprint_idx"),
    ("expression", "DROP INDEX CONCURRENTLY article_fingerprint_idx"),
]
REFUSED = "another session is changing an index or a partition of public.{} concurrently"


@pytest.fixture
def writer(connect):
    """Call it with an INSERT to begin a transaction for which others wait, and again to end it."""
    session = connect()

    def write(statement="COMMIT"):
        session.execute(statement if statement == "COMMIT" else f"BEGIN; {statement}")

    yield write
    write()


@pytest.mark.parametrize(("storage", "statement"), CONCURRENTLY)
def test_calls_that_lock_the_table_are_refused(connection, connect, writer, storage, statement):
    create_table(connection, [1, 2])
    connection.execute("ALTER TABLE article ADD other bigint")
    connection.execute(f"SELECT simsql.create_index('article', 'fingerprint', storage => '{storage}')")
    writer("INSERT INTO article (fingerprint) VALUES (3)")
    with blocked(connect, lambda session: session.execute(statement)):
        for call in (
            f"SELECT simsql.create_index('article', 'other', storage => '{storage}')",
            f"CALL simsql.build('article', 'other', storage => '{storage}')",
            "SELECT * FROM simsql.repair('article')",
            "SELECT simsql.drop_index('article')",
        ):
            with pytest.raises(errors.ObjectInUse, match=REFUSED.format("article")):
                connection.execute(call)
        assert near(connection, 1, 0) == [(1, 0)]
        writer()
    connection.execute("SELECT * FROM simsql.repair('article')")
    assert problems(connection) == set()
    connection.execute("SELECT simsql.drop_index('article')")


def test_a_load_goes_on(connection, database, connect, writer):
    """The triggers add its keys, as for any other writer."""
    create_articles(connection, [1])
    writer("INSERT INTO article (fingerprint) VALUES (2)")
    create = "CREATE INDEX CONCURRENTLY mine ON article (body)"
    with blocked(connect, lambda session: session.execute(create)):
        with database.begin() as transaction:
            # As many as would otherwise be loaded without the triggers.
            assert load_rows(transaction, "article", ["fingerprint"], ((3,) for _ in range(10_000))) == 10_000
        assert near(connection, 3, 0) == [(3, 0)]
        writer()
    assert problems(connection) == set()


def test_a_vacuum_of_the_table_is_waited_for(connection, connect):
    """It holds the same lock, but waits for nobody."""
    create_articles(connection, [1])
    other = connect()
    other.execute("BEGIN; LOCK TABLE article IN SHARE UPDATE EXCLUSIVE MODE")  # VACUUM cannot be stopped halfway
    with blocked(connect, lambda session: session.execute("SELECT simsql.drop_index('article')")) as dropped:
        other.execute("COMMIT")
        dropped.result()


def test_a_partition_with_an_index_under_way_is_named(connection, database, connect, writer):
    create_months(connection)
    insert(connection, FINGERPRINTS[:50])
    connection.execute("CREATE INDEX ON article (tenant)")
    writer("INSERT INTO part_2 VALUES (1, 1, '2025-02-02', 1)")
    create = "CREATE INDEX CONCURRENTLY mine ON part_2 (fingerprint)"
    with blocked(connect, lambda session: session.execute(create)) as created:
        with pytest.raises(errors.ObjectInUse, match=REFUSED.format("part_2")):
            create_index_on_partitions(connection)
        # Another partition can be indexed, so a build comes as far as the one that is busy.
        with pytest.raises(errors.ObjectInUse, match=REFUSED.format("part_2")):
            connection.execute("CALL simsql.build('article', 'fingerprint')")
        writer()
        created.result()
    create_index(database, "article", "fingerprint", recipe=None, concurrently=True)
    searches_are_exact(connection)


# Invalid B-trees on partitions


@pytest.mark.parametrize(
    ("partition", "how"),
    [("part_2", "create_index"), ("part_1_2", "call"), ("part_1_2", "client"), ("part_1_2", "repair")],
)
def test_an_invalid_b_tree_on_a_partition_is_mended(connection, database, partition, how):
    """PostgreSQL attaches it to that of the partitioned table, which is invalid then."""
    create_partitioned(connection, "partitions of partitions")
    insert(connection, FINGERPRINTS)
    if how == "repair":
        connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
        connection.execute("DROP INDEX article_fingerprint_idx, simsql_1_0")
    # As two failed attempts of CREATE INDEX CONCURRENTLY leave them.
    first, second = "(fingerprint & -281474976710656), fingerprint", "(fingerprint & 281470681743360), fingerprint"
    for name, columns in ("mine", "fingerprint"), ("one", first), ("two", first):
        connection.execute(f"CREATE INDEX {name} ON {partition} ({columns})")
        connection.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass")
    if how == "repair":
        connection.execute("CREATE INDEX whole ON article (fingerprint)")
        assert problems(connection) == {
            ("B-tree invalid", "public.whole"),
            ("search B-tree missing", "simsql_1_0"),
        }
        connection.execute("SELECT * FROM simsql.repair('article')")
    elif how == "create_index":
        connection.execute(f"CREATE INDEX ON ONLY part_1 ({second})")
        connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    elif how == "call":
        connection.execute("CALL simsql.build('article', 'fingerprint')")
    else:
        create_index(database, "article", "fingerprint", recipe=None, concurrently=True)
    assert problems(connection) == set()
    (invalid,) = connection.execute("SELECT count(*) FROM pg_index WHERE NOT indisvalid").fetchone()
    assert invalid == 0
    searches_are_exact(connection)
    attached = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhrelid = 'mine'::regclass").fetchone()
    assert attached == (1,) or how in ("call", "client")


def test_an_invalid_b_tree_that_cannot_be_mended_is_replaced(connection):
    """One that lacks a partition's, as after CREATE INDEX ON ONLY, is the user's to complete."""
    create_partitioned(connection, "partitions of partitions")
    insert(connection, FINGERPRINTS)
    connection.execute("CREATE INDEX mine ON ONLY part_1 (fingerprint)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert problems(connection) == set()
    searches_are_exact(connection)
