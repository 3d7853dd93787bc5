"""pg_partman keeps the partitions of a table with an index: searches stay exact through its maintenance."""

import articles
import pytest
from oracle import clustered
from upkeep import problems

pytestmark = pytest.mark.every_version  # the bundled ones lack pg_partman

FINGERPRINTS = clustered(400, seed=16)


@pytest.fixture
def partman(connection):
    """Skip where there is no pg_partman: Debian has postgresql-15-partman."""
    if not connection.execute("SELECT name FROM pg_available_extensions WHERE name = 'pg_partman'").fetchone():
        pytest.skip("pg_partman is not installed for this PostgreSQL")
    connection.execute("CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman")
    (version,) = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'pg_partman'").fetchone()
    if not version.startswith("4."):
        pytest.skip(f"pg_partman {version} is called otherwise than 4")
    return connection


def months(connection):
    """The partitions, by month, and the default one."""
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'article'::regclass"
    )
    return sorted(name for (name,) in rows)


def searches_are_exact(connection):
    articles.searches_are_exact(connection, queries=(0, -1, *FINGERPRINTS[:4]))
    assert problems(connection) == set()


def test_searches_are_exact_through_monthly_maintenance(partman):
    partman.execute("CREATE TABLE article (day timestamptz NOT NULL, fingerprint bigint) PARTITION BY RANGE (day)")
    partman.execute("SELECT simsql.create_index('article', 'fingerprint', blocks => 4)")
    partman.execute(
        "SELECT partman.create_parent('public.article', 'day', 'native', 'monthly', p_premake => 2,"
        " p_start_partition => (now() - interval '4 months')::text)"
    )
    made = months(partman)
    assert len(made) == 8  # four months that have gone, this one, two to come, and the default partition
    partman.execute(
        "INSERT INTO article (day, fingerprint) SELECT now() - (n %% 120) * interval '1 day', f"
        " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
        [FINGERPRINTS[:200]],
    )
    searches_are_exact(partman)
    # Rows of a month that has no partition go into the default partition, until they are moved.
    partman.execute(
        "INSERT INTO article SELECT now() + interval '3 months', f FROM unnest(%s::bigint[]) AS f",
        [FINGERPRINTS[200:]],
    )
    searches_are_exact(partman)
    assert partman.execute("SELECT count(*) FROM article_default").fetchone() == (200,)
    partman.execute("CALL partman.partition_data_proc('public.article')")
    assert partman.execute("SELECT count(*) FROM article_default").fetchone() == (0,)
    assert len(months(partman)) == len(made) + 1
    searches_are_exact(partman)
    # More months in advance.
    partman.execute("UPDATE partman.part_config SET premake = 5")
    partman.execute("SELECT partman.run_maintenance('public.article')")
    assert len(months(partman)) > len(made) + 1
    searches_are_exact(partman)
    # Months that are over are detached, and kept or dropped.
    for kept in ("true", "false"):
        before = months(partman)
        retention = "3 months" if kept == "true" else "2 months"
        partman.execute(
            f"UPDATE partman.part_config SET retention = '{retention}', retention_keep_table = {kept},"
            " infinite_time_partitions = true"
        )
        partman.execute("CALL partman.run_maintenance_proc()")
        gone = set(before) - set(months(partman))
        assert gone
        exists = [partman.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone()[0] for name in gone]
        assert set(exists) == {kept == "true"}
        searches_are_exact(partman)
    # A new index on what is left.
    partman.execute("SELECT simsql.drop_index('article')")
    partman.execute("SELECT simsql.create_index('article', 'fingerprint')")
    searches_are_exact(partman)
