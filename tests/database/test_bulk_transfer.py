"""Arrays and PostgreSQL: every value arrives, in the caller's snapshot and with the caller's rights."""

import gc

import numpy as np
import psycopg
import pytest
from articles import create_articles, create_table
from oracle import EXTREMES, clustered
from psycopg import errors, sql
from refusals import refused
from sqlalchemy import create_engine, text

from simsql.database import open_engine, transfer
from simsql.database.transfer import copy_columns, fetch_fingerprints


def fetched(connection, table="article", column=None):
    """Bigints, sorted."""
    batches = list(fetch_fingerprints(connection, table, column))
    assert all(batch.dtype == np.uint64 and batch.size for batch in batches)
    return sorted(value for batch in batches for value in batch.view(np.int64).tolist())


@pytest.fixture(autouse=True)
def pages(request, monkeypatch):
    """Few pages a piece, so that a small table has several."""
    monkeypatch.setattr(transfer, "_PAGES", 2)


def test_all_fingerprints_come_out_as_often_as_they_stand(connection, database):
    values = [*clustered(3000, seed=3), *EXTREMES, -1, -1]
    create_articles(connection, [*values, None, None])
    with database.connect() as reader:
        batches = list(fetch_fingerprints(reader, "public.article"))
        assert len(batches) > 3
        assert sorted(np.concatenate(batches).view(np.int64).tolist()) == sorted(values)


def test_empty_tables_and_pages(connection, database):
    create_articles(connection)
    with database.connect() as reader:
        assert fetched(reader) == []
        connection.execute(
            "INSERT INTO article (fingerprint) SELECT CASE WHEN n % 1500 = 7 THEN n END"
            " FROM generate_series(1, 3000) AS n"
        )
        assert fetched(reader) == [7, 1507]
        connection.execute("DELETE FROM article WHERE id < 3000")
        connection.execute("VACUUM article")
        assert fetched(reader) == []


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_one_snapshot(connection, database, level):
    """Rows that move between pieces are seen once, where the snapshot has them."""
    create_articles(connection, range(3000))
    with database.connect().execution_options(isolation_level=level) as reader:
        batches = fetch_fingerprints(reader, "article")
        found = [next(batches)]
        # All rows move behind the former end, some with other values; and others come.
        connection.execute("UPDATE article SET fingerprint = fingerprint + 3000 * (fingerprint % 2)")
        connection.execute("INSERT INTO article (fingerprint) VALUES (-5)")
        reader.execute(text("INSERT INTO article (fingerprint) VALUES (-6)"))
        found += batches
        assert sorted(np.concatenate(found).tolist()) == list(range(3000))
        changed = fetched(reader)
        assert changed[0] == -6
        assert (len(changed) == 3002) == (level == "READ COMMITTED")
        assert (max(changed) > 3000) == (level == "READ COMMITTED")


def test_the_transaction_sees_its_own_rows(connection, database):
    create_articles(connection, [1])
    with database.connect() as reader:
        reader.execute(text("INSERT INTO article (fingerprint) VALUES (2)"))
        assert fetched(reader) == [1, 2]
        reader.rollback()
        assert fetched(reader) == [1]


def test_in_autocommit_and_read_only_transactions(connection, database):
    create_articles(connection, range(2000))
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as reader:
        assert fetched(reader) == list(range(2000))
        next(iter(fetch_fingerprints(reader, "article")))
        assert reader.execute(text("SELECT count(*) FROM pg_cursors WHERE name ~ 'simsql'")).scalar_one() == 0
    with database.connect().execution_options(postgresql_readonly=True) as reader:
        assert fetched(reader) == list(range(2000))


def test_an_iteration_may_be_given_up_at_any_time(connection, database):
    create_articles(connection, range(2000))
    with database.connect() as reader:
        for end in (lambda: None, reader.commit, reader.rollback):
            batches = fetch_fingerprints(reader, "article")
            next(batches)
            end()
            reader.execute(text("CREATE TEMPORARY TABLE IF NOT EXISTS mine (a integer)"))
            batches.close()
            assert reader.execute(text("SELECT count(*) FROM mine")).scalar_one() == 0
            assert reader.execute(text("SELECT count(*) FROM pg_cursors WHERE name ~ 'simsql'")).scalar_one() == 0
            reader.rollback()
        batches = fetch_fingerprints(reader, "article")
        next(batches)
        with pytest.raises(Exception, match="division by zero"):
            reader.execute(text("SELECT 1 / 0"))
        batches.close()
        batches = fetch_fingerprints(reader.execution_options() if reader.rollback() else reader, "article")
        next(batches)
    batches.close()  # the connection is in its pool
    del batches
    gc.collect()


def test_policies_and_rights_are_the_callers(connection, database_url, new_role):
    create_articles(connection, range(2000))
    role = new_role()
    connection.execute("CREATE POLICY even ON article FOR SELECT USING (fingerprint % 2 = 0)")
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    engine = create_engine(open_engine(database_url).url.set(username=role))
    with engine.connect() as reader:
        with refused(errors.InsufficientPrivilege):
            fetched(reader)
        reader.rollback()
        for granted in ("(fingerprint)", ""):
            connection.execute(f"GRANT SELECT {granted} ON article TO {role}")
            assert fetched(reader) == list(range(0, 2000, 2))
    engine.dispose()


def test_each_piece_reads_its_pages_alone(connection, new_role, connect):
    """Under row-level security too, or the work would grow with the square of the table."""
    create_articles(connection, range(3000))
    role = new_role()
    connection.execute("CREATE POLICY even ON article FOR SELECT USING (fingerprint % 2 = 0)")
    connection.execute(f"ALTER TABLE article ENABLE ROW LEVEL SECURITY; GRANT SELECT ON article TO {role}")
    for reader in (connection, connect(user=role)):
        plan = reader.execute(
            "EXPLAIN SELECT fingerprint FROM ONLY article AS t"
            " WHERE fingerprint IS NOT NULL AND ctid >= '(4,0)' AND ctid < '(6,0)'"
        ).fetchall()
        assert "Tid Range Scan" in str(plan)
        reader.execute("SET enable_tidscan = off")
        reader.execute("SELECT simsql._packed_pieces('article', NULL, 2)")


def test_an_index_that_cannot_be_searched_is_an_error(connection, database):
    create_table(connection, [1])
    with database.connect() as reader:
        for table, said in (("article", "has no simhash index"), ("missing", "does not exist")):
            with refused(psycopg.Error, match=said):
                fetched(reader, table)
            reader.rollback()


# In


def test_arrays_arrive(connection, database):
    connection.execute('CREATE TABLE "a %s" ("x "" y" bigint, z integer)')
    wide = np.array(EXTREMES, dtype=np.int64)
    for columns in (
        {'x " y': wide, "z": np.arange(7, dtype=np.uint8)},
        {"z": np.arange(-7, 0, dtype=np.int32), 'x " y': wide.view(np.uint64)},
    ):
        with database.begin() as writer:
            assert copy_columns(writer, sql.Identifier("a %s"), columns) == 7
        expected = list(zip(EXTREMES, columns["z"].tolist(), strict=True))
        assert connection.execute(b'SELECT * FROM "a %s"').fetchall() == expected
        connection.execute(b'TRUNCATE "a %s"')


def test_more_than_one_block_and_none(connection, database, monkeypatch):
    monkeypatch.setattr(transfer, "_BLOCK_BYTES", 1000)
    connection.execute("CREATE TABLE number (n bigint)")
    with database.begin() as writer:
        for count in (0, 1, 71, 72, 1000):
            assert copy_columns(writer, sql.Identifier("number"), {"n": np.arange(count)}) == count
    assert connection.execute("SELECT count(*), sum(n) FROM number").fetchone() == (
        1144,
        sum(map(sum, map(range, (1, 71, 72, 1000)))),
    )


def test_a_copy_that_fails_adds_nothing(connection, database):
    connection.execute("CREATE TABLE number (n bigint CHECK (n < 50))")
    with database.connect() as writer:
        with pytest.raises(errors.CheckViolation):
            copy_columns(writer, sql.Identifier("number"), {"n": np.arange(60)})
        writer.rollback()
    assert connection.execute("SELECT count(*) FROM number").fetchone() == (0,)
