"""Pairs, clusters and matches through Python: brute force, row by row, batch by batch or into a table."""

import tracemalloc

import numpy as np
import oracle
import pytest
from articles import create_articles, create_table
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from simsql.database import SearchIndex, from_bigint, open_engine, results, search_index, to_bigint, transfer
from simsql.errors import UsageError

SEARCHES = [SearchIndex.pairs, SearchIndex.clusters]


@pytest.fixture(autouse=True)
def few_pages(monkeypatch):
    monkeypatch.setattr(transfer, "_PAGES", 1)


@pytest.fixture(params=[50_000, 0], ids=["queries in SQL", "queries in memory"])
def either_way(request, monkeypatch):
    """PostgreSQL searches for few queries, and numpy for many."""
    monkeypatch.setattr(search_index, "_QUERIES_IN_SQL", request.param)


def rows_of(results):
    """What a search finds as bigints and distances, and its batches checked."""
    found = []
    for batch in results.batches():
        assert len({len(array) for array in batch.values()}) == 1
        for name, array in batch.items():
            assert array.dtype == (np.uint8 if name == "distance" else np.uint64)
        arrays = [
            array.tolist() if name == "distance" else array.view(np.int64).tolist()
            for name, array in batch.items()
        ]
        found += zip(*arrays, strict=True)
    return found


TABLES = [
    [*oracle.clustered(300, seed=21), None, None],
    [*oracle.clustered(100, seed=22), 5, 5, 5, -1, -1, *oracle.EXTREMES, None],
    [2**40, 2**40],
    [7],
    [None],
    [],
]


def test_equal_to_brute_force(connection, database):
    create_articles(connection)
    for values in TABLES:
        connection.execute("DELETE FROM article")
        connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [values])
        with database.connect() as reader:
            index = SearchIndex(reader, "article")
            for within in (0, 3, 7, 20):
                expected = oracle.pairs(values, within)
                assert sorted(rows_of(index.pairs(within))) == expected
                rows = [(to_bigint(a), to_bigint(b), d) for a, b, d in index.pairs(within)]
                assert sorted(rows) == expected
                expected = oracle.clusters(values, within)
                assert rows_of(index.clusters(within)) == expected
                rows = [(to_bigint(c), to_bigint(f)) for c, f in index.clusters(within)]
                assert rows == expected


@pytest.mark.usefixtures("either_way")
def test_matches_equal_brute_force(connection, database):
    values = [*oracle.clustered(400, seed=23), 5, 5, *oracle.EXTREMES, None]
    wanted = [query for query in (*values[::7], *oracle.EXTREMES, 5, 6, 6, 2**62) if query is not None]
    queries = [from_bigint(query) for query in wanted]
    create_articles(connection, values)
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        for within in (0, 3, 7, 20):
            expected = sorted((q, f, d) for q in set(wanted) for f, d in oracle.near(values, q, within))
            for given in (queries, iter(queries), np.array(queries, dtype=np.uint64)):
                found = index.near_many(given, within)
                assert sorted(rows_of(found)) == sorted(rows_of(found)) == expected
            rows = index.near_many(queries, within)
            assert sorted((to_bigint(q), to_bigint(f), d) for q, f, d in rows) == expected
        for given in ([], iter([]), np.array([], dtype=np.uint64)):
            assert rows_of(index.near_many(given, 3)) == []


def test_what_is_no_fingerprint_is_not_searched_for(connection, database):
    create_articles(connection, [1])
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        for queries, error in (([2**64], ValueError), ([1.5], TypeError), (["1"], ValueError)):
            with pytest.raises(error, match=r"is not a fingerprint|a fingerprint must be"):
                index.near_many(queries)
        with pytest.raises(UsageError, match=r"^'text' is not .*, fingerprint texts with simhash_many,"):
            index.near_many([1, "text"])
        with pytest.raises(TypeError, match="uint64"):
            index.near_many(np.zeros(1))


def test_without_a_distance_the_index_has_one(connection, database):
    create_table(connection, oracle.clustered(200, seed=4))
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', distance => 5)")
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        for search in SEARCHES:
            assert rows_of(search(index)) == rows_of(search(index, 5)) != []
            assert rows_of(search(index, 3)) != rows_of(search(index))


def test_of_two_indexes_the_column_says_which(connection, database):
    create_articles(connection, [1, 3])
    connection.execute("ALTER TABLE article ADD title bigint DEFAULT 9")
    connection.execute("SELECT simsql.create_index('article', 'title')")
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        assert rows_of(SearchIndex(reader, "article", "fingerprint").pairs(3)) == [(1, 3, 1)]
        assert rows_of(SearchIndex(reader, "article", "title").pairs(3)) == []
        assert rows_of(SearchIndex(reader, "article", "title").clusters(3)) == [(9, 9)]
        for search in SEARCHES:
            with pytest.raises(DBAPIError, match="has 2 simhash indexes"):
                search(index)
            reader.rollback()


def test_the_checks_of_an_index_come_first(connection, database):
    create_articles(connection, [1, 3])
    connection.execute("CREATE TABLE plain (fingerprint bigint)")
    cases = [
        ("plain", 3, "has no simhash index"),
        ("missing", 3, "does not exist"),
    ]
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        for search in SEARCHES:
            for table, distance, said in cases:
                with pytest.raises(DBAPIError, match=said):
                    search(SearchIndex(reader, table), distance)
                reader.rollback()
        found = index.pairs(3)
        connection.execute("ALTER TABLE article DISABLE TRIGGER ALL")
        for search in SEARCHES:
            with pytest.raises(DBAPIError, match="triggers"):
                search(index, 3)
            reader.rollback()
        with pytest.raises(DBAPIError, match="triggers"):
            list(found)


# Into a table


def test_into_a_table(connection, database, monkeypatch):
    monkeypatch.setattr(results, "_COPY_ROWS", 50)
    values = [*oracle.clustered(300, seed=31), 5, 5]
    create_articles(connection, values)
    connection.execute('CREATE SCHEMA "Found %s"')
    with database.begin() as writer:
        index = SearchIndex(writer, "article")
        expected = oracle.pairs(values, 7)
        for table in ("near_pairs", '"Found %s"."the ""Pairs"""'):
            assert index.pairs(7).copy_into(table) == len(expected)
            assert connection.execute("SELECT count(*) FROM article").fetchone() == (len(values),)
        assert index.clusters(7).copy_into("public.clusters") > 0
        assert index.near_many([5], 7).copy_into("matches") > 0
    for table in ("near_pairs", '"Found %s"."the ""Pairs"""'):
        found = connection.execute(f"SELECT a, b, distance FROM {table} ORDER BY 1, 2".encode())
        assert found.fetchall() == expected
        assert [(column.name, column.type_display) for column in found.description] == [
            ("a", "int8"), ("b", "int8"), ("distance", "int4"),
        ]  # fmt: skip
    found = connection.execute(
        "SELECT fingerprint, distance FROM matches WHERE query = 5 ORDER BY 2, 1"
    ).fetchall()
    assert found == oracle.near(values, 5, 7)
    found = connection.execute("SELECT cluster, fingerprint FROM clusters ORDER BY 1, 2").fetchall()
    assert found == oracle.clusters(values, 7)


def test_a_table_for_nothing_found(connection, database):
    create_articles(connection, [1])
    with database.begin() as writer:
        index = SearchIndex(writer, "article")
        assert index.pairs().copy_into("found") == 0
    assert connection.execute("SELECT a, b, distance FROM found").fetchall() == []


def test_the_table_belongs_to_the_transaction(connection, database):
    create_articles(connection, [1, 3])
    with database.connect() as writer:
        index = SearchIndex(writer, "article")
        assert index.pairs().copy_into("found") == 1
        assert writer.execute(text("SELECT * FROM found")).all() == [(1, 3, 1)]
        writer.rollback()
    assert connection.execute("SELECT to_regclass('found')").fetchone() == (None,)
    with database.connect().execution_options(isolation_level="AUTOCOMMIT") as writer:
        index = SearchIndex(writer, "article")
        assert index.pairs().copy_into("found") == 1
        assert sorted(index.near_many([1], 1)) == [(1, 1, 0), (1, 3, 1)]
    assert connection.execute("SELECT * FROM found").fetchall() == [(1, 3, 1)]


def test_a_table_that_is_there_is_left_alone(connection, database):
    create_articles(connection, [1, 3])
    connection.execute("CREATE TABLE found (a bigint, b bigint, distance integer)")
    with database.connect() as writer:
        index = SearchIndex(writer, "article")
        with pytest.raises(ProgrammingError, match='relation "found" already exists'):
            index.pairs().copy_into("found")
        # The transaction goes on, and its temporary table does not stand in for one of the same bare name.
        writer.execute(text("CREATE TEMPORARY TABLE other (a bigint, b bigint, distance integer)"))
        assert index.pairs().copy_into("other") == 1
        assert index.pairs().copy_into("pg_temp.third") == 1
        assert writer.execute(text("SELECT count(*) FROM pg_temp.other")).scalar_one() == 0
        assert writer.execute(text("SELECT count(*) FROM public.other")).scalar_one() == 1
    assert connection.execute("SELECT * FROM found").fetchall() == []


def test_names_that_are_none(connection, database):
    create_articles(connection, [1, 3])
    with database.connect() as writer:
        index = SearchIndex(writer, "article")
        for name, error in (
            ("a.b.c", UsageError),
            ("", DBAPIError),
            ("a b", DBAPIError),
            ("x;y", DBAPIError),
        ):
            with pytest.raises(error):
                index.pairs().copy_into(name)
            writer.rollback()
        with pytest.raises(DBAPIError, match='schema "missing" does not exist'):
            index.pairs().copy_into("missing.found")


# Transactions and rights


def test_the_snapshot_is_that_of_the_transaction(connection, database):
    create_articles(connection, [1, 3])
    for level, expected in (
        ("READ COMMITTED", [(1, 3, 1), (1, 1025, 1), (2, 3, 1), (1024, 1025, 1)]),
        ("REPEATABLE READ", [(1, 3, 1), (1, 1025, 1), (1024, 1025, 1)]),
    ):
        with database.connect().execution_options(isolation_level=level) as reader:
            index = SearchIndex(reader, "article")
            found = index.pairs(1)
            connection.execute("INSERT INTO article (fingerprint) VALUES (2)")
            reader.execute(text("INSERT INTO article (fingerprint) VALUES (1024), (1025)"))
            assert sorted(rows_of(found)) == expected
        connection.execute("DELETE FROM article WHERE fingerprint = 2")


def test_other_statements_may_run_between_batches(connection, database):
    create_articles(connection, range(512))
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        for found in (
            index.pairs(1),
            index.near_many(range(512), 1),
        ):
            total = 0
            for batch in found.batches():
                total += len(batch["distance"])
                reader.execute(
                    text("UPDATE article SET fingerprint = fingerprint + 1024 WHERE fingerprint < 1024")
                )
            assert total in (512 * 9 // 2, 512 * 10)
            reader.rollback()


def test_what_the_caller_may_not_see_is_not_found(connection, database_url, new_role):
    create_articles(connection, [1, 3, 7, 7, 1024])
    role = new_role()
    connection.execute("CREATE POLICY few ON article FOR SELECT USING (fingerprint <> 3)")
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    engine = create_engine(open_engine(database_url).url.set(username=role))
    with engine.connect() as reader:
        index = SearchIndex(reader, "article")
        with pytest.raises(ProgrammingError, match="permission denied"):
            rows_of(index.pairs(3))
        reader.rollback()
        connection.execute(f"GRANT SELECT (fingerprint) ON article TO {role}")
        assert sorted(rows_of(index.pairs(2))) == [(1, 7, 2), (1, 1024, 2)]
        assert rows_of(index.clusters(1)) == [(7, 7)]
    engine.dispose()


def test_many_near_fingerprints_take_no_quadratic_memory(connection, database, monkeypatch):
    """All 2,048 fingerprints of 11 bits within a distance of 11: two million pairs, 36 MB if they were kept."""
    monkeypatch.setattr("simsql.hamming.pairs._BATCH", 1 << 14)
    create_articles(connection, range(2048))
    with database.connect() as reader:
        index = SearchIndex(reader, "article")
        tracemalloc.start()
        count = sum(len(batch["a"]) for batch in index.pairs(11).batches())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert count == 2048 * 2047 // 2
    assert peak < 18_000_000
