"""Partitions of unusual kinds, and unusual ways of writing to them: searches stay exact."""

import pytest
from oracle import pairs as expected_pairs
from partitions import FINGERPRINTS, create_index, create_months, insert, searches_are_exact
from program import run
from replication import rows_of, subscription, wait_for

from simsql.database import SearchIndex, load_rows


@pytest.fixture
def months(connection):
    """Three months of articles with two tenants' columns, indexed."""
    create_months(connection)
    create_index(connection)
    return connection


def test_columns_may_be_in_another_order_and_schema(months):
    months.execute(
        'CREATE SCHEMA "older ""ones"""; SET search_path = "older ""ones""", public;'
        " CREATE TABLE part (gone int, fingerprint bigint, also_gone text, day date NOT NULL, id bigint,"
        " tenant int NOT NULL);"
        " ALTER TABLE part DROP gone, DROP also_gone"
    )
    months.execute(
        "INSERT INTO part (id, tenant, day, fingerprint) SELECT n, 1, '2024-05-05', f"
        " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
        [FINGERPRINTS[:100]],
    )
    months.execute(
        "ALTER TABLE public.article ATTACH PARTITION part FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');"
        " RESET search_path"
    )
    insert(months, FINGERPRINTS[100:])
    searches_are_exact(months)
    assert sorted(months.execute("SELECT * FROM simsql.pairs('article', 7)").fetchall()) == expected_pairs(
        FINGERPRINTS, 7
    )
    months.execute('ALTER SCHEMA "older ""ones""" RENAME TO o; ALTER TABLE o.part RENAME TO "% p"')
    searches_are_exact(months)
    months.execute("SELECT * FROM simsql.repair('article')")
    months.execute("SELECT simsql.drop_index('article')")
    months.execute("CALL simsql.build('article', 'fingerprint')")
    searches_are_exact(months)


def test_a_partition_filled_with_copy_freeze(months):
    insert(months, FINGERPRINTS[:100])
    with months.transaction():
        months.execute("CREATE TABLE part PARTITION OF article FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')")
        with months.cursor().copy("COPY part (day, tenant, fingerprint) FROM STDIN (FREEZE)") as copy:
            for fingerprint in FINGERPRINTS[100:]:
                copy.write_row(["2024-07-07", 1, fingerprint])
    searches_are_exact(months)


@pytest.mark.parametrize("through_root", [True, False], ids=["through the root", "partition by partition"])
def test_replicated_partitions(connection, subscriber, through_root):
    for side in (connection, subscriber):
        create_months(side)
        side.execute("ALTER TABLE article ADD PRIMARY KEY (id, day)")
    create_index(subscriber)
    insert(connection, FINGERPRINTS[:100])
    connection.execute("UPDATE article SET id = id + 100")
    condition = f"WITH (publish_via_partition_root = {through_root})"
    with subscription(connection, subscriber, condition=condition):
        insert(connection, FINGERPRINTS[100:120])
        connection.execute("UPDATE article SET day = day + 28 WHERE day < '2025-03-01' AND id % 3 = 0")
        connection.execute("DELETE FROM article WHERE id % 7 = 0")
        wait_for(subscriber, rows_of(connection))
        searches_are_exact(subscriber)
        connection.execute("TRUNCATE article")
        insert(connection, [5])
        wait_for(subscriber, rows_of(connection))
        searches_are_exact(subscriber)


def test_partitions_gathered_by_replication_in_one_table(connection, subscriber):
    """The rows of a partitioned table in an ordinary one, whose triggers keep its keys."""
    create_months(connection)
    connection.execute("ALTER TABLE article ADD PRIMARY KEY (id, day)")
    subscriber.execute(
        "CREATE TABLE article (id bigint, tenant int, day date, fingerprint bigint, PRIMARY KEY (id, day));"
        " SELECT simsql.create_index('article', 'fingerprint')"
    )
    insert(connection, FINGERPRINTS[:50])
    with subscription(connection, subscriber, condition="WITH (publish_via_partition_root = true)"):
        connection.execute(
            "UPDATE article SET fingerprint = fingerprint # 6, day = day + 28 WHERE day < '2025-03-01'"
        )
        wait_for(subscriber, rows_of(connection))
        searches_are_exact(subscriber)


# Python and the command line


def create_texts(connection):
    """Texts in three partitions, without fingerprints; a primary key has to contain the day."""
    create_months(connection)
    connection.execute("ALTER TABLE article ADD body text, ADD PRIMARY KEY (id, day)")
    create_index(connection)
    connection.execute("UPDATE simsql.registry SET recipe = 'words12-log-1'")


def test_rows_are_loaded_into_partitions_and_fingerprinted_there(connection, database):
    create_texts(connection)
    days = ["2025-01-03", "2025-02-03", "2025-03-03"]
    rows = [(n, 1, days[n % 3], FINGERPRINTS[n % 300]) for n in range(10_100)]
    with database.begin() as transaction:
        assert load_rows(transaction, "article", ["id", "tenant", "day", "fingerprint"], rows) == len(rows)
    searches_are_exact(connection)
    connection.execute(
        "DELETE FROM article WHERE id > 30; UPDATE article SET fingerprint = NULL, body = 'text ' || id"
    )
    filled = SearchIndex(database, "article").backfill("body", batch_rows=7)
    assert (filled.written, filled.busy) == (31, 0)
    searches_are_exact(connection)


def test_commands_take_a_partitioned_table(connection, database_url):
    create_texts(connection)
    connection.execute(
        "INSERT INTO article (id, tenant, day, body) SELECT n, 1, date '2025-01-03' + 31 * (n - 1),"
        " repeat('the same words ', n) FROM generate_series(1, 3) AS n"
    )
    where = ["--database", database_url]
    run("backfill", "article", "--text-column", "body", *where).done()
    searches_are_exact(connection)
    assert connection.execute("SELECT count(fingerprint) FROM article").fetchone() == (3,)
    assert b'"indexes": 1' in run("status", *where).done().stdout
    assert run("index", "verify", "article", *where).done().lines == []
