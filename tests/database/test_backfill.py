"""Every row with a text has the fingerprint of that text afterwards, whoever writes meanwhile."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from articles import create_index, missing_keys
from oracle import to_bigint
from psycopg import errors, sql
from refusals import refused

from simsql import Recipe, UsageError, simhash
from simsql.database import SearchIndex
from simsql.database import create_index as index_column
from simsql.fingerprint import simhash_parts

WORDS = ["lamb", "wolf", "king", "shepherd", "river", "stone", "bread", "winter", "letter", "garden"]
RECIPE = Recipe(tokens="characters", shingles=(4,), weight="set")


def text_of(number):
    """Texts of all kinds, two of each seven without a fingerprint."""
    kinds = ["{}", "naïve {}\n%s", "?!", None, "日本語 {}", "{} '\"\\", "{}"]
    kind = kinds[number % len(kinds)]
    return kind and kind.format(" ".join(random.Random(number).choices(WORDS, k=8)))


def expected(text, recipe=None):
    found = simhash(text, *([recipe] if recipe else [])) if text is not None else None
    return None if found is None else to_bigint(found)


def stale(connection, table="article", text="body", column="fingerprint", recipe=None):
    """The rows whose fingerprint is not that of their text."""
    query = sql.SQL("SELECT {}, {} FROM {}").format(sql.Identifier(text), sql.Identifier(column), sql.SQL(table))
    return [row for row in connection.execute(query) if row[1] != expected(row[0], recipe)]


def create_articles(connection, rows):
    """The table `article` with texts and an index, and no fingerprint."""
    connection.execute(
        "CREATE TABLE article (id bigint PRIMARY KEY, body text, views integer DEFAULT 0, fingerprint bigint)"
    )
    create_index(connection)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO article (id, body) VALUES (%s, %s)",
            [(number * 3, text_of(number)) for number in range(rows)],
        )


KEYS = {
    "small": ("k smallint PRIMARY KEY", "g - 30"),
    "uuid": ("k uuid PRIMARY KEY", "md5(g::text)::uuid"),
    "text": ("k text PRIMARY KEY", "CASE g WHEN 0 THEN '' ELSE repeat(chr(g * 3 + 30), 2) || '\"''{%s}\\' END"),
    "sorted as C": ('k text COLLATE "C" PRIMARY KEY', "chr(g + 200) || g"),
    "padded": ("k char(5) PRIMARY KEY", "g::text"),
    "number": ("k float8 PRIMARY KEY", "CASE g WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE 1 / g::float8 END"),
    "time": (
        "k timestamptz PRIMARY KEY",
        "CASE g WHEN 0 THEN 'infinity' ELSE 'epoch'::timestamptz + g * interval '1.7s' END",
    ),
    "bytes": ("k bytea PRIMARY KEY", "int4send(g * 7)"),
    "composite": (
        "z text, a int, k date, PRIMARY KEY (k, z, a)",
        "(g % 3)::text, g / 9, 'epoch'::date + g % 9 / 3",
    ),
    "including": ("k int, PRIMARY KEY (k) INCLUDE (fingerprint)", "g"),
    "unique": ("a int NOT NULL, k date NOT NULL, UNIQUE (k, a) INCLUDE (body)", "g % 7, 'epoch'::date + g / 7"),
}


def test_tables_with_any_key(connection, database):
    for key, value in KEYS.values():
        connection.execute("DROP TABLE IF EXISTS article")
        connection.execute(f"CREATE TABLE article ({key}, number int, body text, fingerprint bigint)")
        connection.execute(f"INSERT INTO article SELECT {value}, g FROM generate_series(0, 59) AS g")
        with connection.cursor() as cursor:
            cursor.executemany(
                "UPDATE article SET body = %s WHERE number = %s",
                [(text_of(number), number) for number in range(60)],
            )
        filled = SearchIndex(database, "article", "fingerprint").backfill("body", batch_rows=7)
        assert stale(connection) == [], key
        assert filled == (42, 9, 0, 0, 0)
        assert SearchIndex(database, "article", "fingerprint").backfill("body") == (0, 9, 0, 0, 0)


def test_a_key_that_is_sorted_by_operators_outside_the_search_path(connection, database):
    """As citext may be. This type is sorted backwards by its own operators, and forwards by PostgreSQL's."""
    connection.execute("CREATE SCHEMA other CREATE TABLE other.article (code text, id int, body text, fp bigint)")
    connection.execute("CREATE TYPE other.code AS ENUM ('a', 'b', 'c')")
    for name, operator in {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">"}.items():
        connection.execute(
            f"CREATE FUNCTION other.{name}(other.code, other.code) RETURNS boolean LANGUAGE sql IMMUTABLE"
            f" RETURN enum_{name}($2, $1)"
        )
        connection.execute(
            f"CREATE OPERATOR other.{operator} (LEFTARG = other.code, RIGHTARG = other.code,"
            f" FUNCTION = other.{name})"
        )
    connection.execute(
        "CREATE FUNCTION other.compare(other.code, other.code) RETURNS integer LANGUAGE sql IMMUTABLE"
        " RETURN enum_cmp($2, $1)"
    )
    connection.execute(
        "CREATE OPERATOR CLASS other.backwards DEFAULT FOR TYPE other.code USING btree AS OPERATOR 1 other.<,"
        " OPERATOR 2 other.<=, OPERATOR 3 other.=, OPERATOR 4 other.>=, OPERATOR 5 other.>,"
        " FUNCTION 1 other.compare(other.code, other.code)"
    )
    connection.execute("ALTER TABLE other.article ALTER code TYPE other.code USING NULL")
    for key in ("code, id", "id, code"):
        connection.execute("TRUNCATE other.article")
        connection.execute(
            "INSERT INTO other.article SELECT (enum_range(NULL::other.code))[1 + g % 3], g / 3, 'text ' || g"
            " FROM generate_series(0, 29) AS g"
        )
        connection.execute(f"ALTER TABLE other.article ADD PRIMARY KEY ({key})")
        assert SearchIndex(database, "other.article", "fp").backfill("body", batch_rows=4) == (30, 0, 0, 0, 0)
        connection.execute("ALTER TABLE other.article DROP CONSTRAINT article_pkey")


def test_odd_names_and_several_columns(connection, database):
    schema, table, key, title, column = ('M%s "y', "{o}'dd", "%(k)s", 'a "{}" b', "?%")
    names = [sql.Identifier(name) for name in (schema, table, key, title, column)]
    connection.execute(sql.SQL("CREATE SCHEMA {}").format(names[0]))
    connection.execute(
        sql.SQL("CREATE TABLE {}.{} ({} int PRIMARY KEY, {} varchar(20), body text, {} bigint)").format(*names)
    )
    insert = sql.SQL("INSERT INTO {}.{} VALUES (1, 'Wolves', 'and sheep'), (2, NULL, 'sheep'), (3, NULL, NULL)")
    connection.execute(insert.format(*names[:2]))
    quoted = sql.SQL("{}.{}").format(*names[:2]).as_string(connection)
    assert SearchIndex(database, quoted, column).backfill({title: 3, "body": 1}, batch_rows=1) == (2, 0, 0, 0, 0)
    found = connection.execute(sql.SQL("SELECT {} FROM {}.{} ORDER BY {}").format(names[4], *names[:3])).fetchall()
    both = to_bigint(simhash_parts([("Wolves", 3), ("and sheep", 1)]))
    assert found == [(both,), (expected("sheep"),), (None,)]


@pytest.mark.pooled
def test_the_index_has_the_keys_and_its_recipe_is_taken(connection, database):
    connection.execute("CREATE TABLE article (id int PRIMARY KEY, body text, fingerprint bigint)")
    with database.begin() as transaction:
        index_column(transaction, "article", "fingerprint", recipe=RECIPE)
    connection.execute("INSERT INTO article SELECT g, 'text ' || g FROM generate_series(1, 50) AS g")
    shares = []
    filled = SearchIndex(database, "article").backfill("body", batch_rows=20, report=shares.append)
    assert filled == (50, 0, 0, 0, 0)
    assert (stale(connection, recipe=RECIPE), missing_keys(connection)) == ([], [])
    assert shares == sorted(shares)
    assert shares[-1] == 1
    with pytest.raises(UsageError, match="has the recipe characters4-set-1, not words12-log-1, and their"):
        SearchIndex(database, "article", recipe=Recipe()).backfill("body")


def test_all_rows_get_the_fingerprints_of_another_recipe(connection, database):
    create_articles(connection, 40)
    connection.execute("SELECT simsql.drop_index('article')")
    SearchIndex(database, "article", "fingerprint").backfill("body")
    connection.execute("UPDATE article SET fingerprint = 1 WHERE body IS NULL")

    def fill(recipe):
        return SearchIndex(database, "article", "fingerprint", recipe=recipe).backfill(
            "body", all_rows=True, batch_rows=9
        )

    # Those without a text have none then, six without words had none before.
    assert fill(RECIPE) == (28 + 6, 6 + 6, 0, 0, 0)
    assert stale(connection, recipe=RECIPE) == []
    before = connection.execute("SELECT ctid FROM article ORDER BY id").fetchall()
    assert fill(RECIPE) == (0, 6, 0, 28, 0)
    assert connection.execute("SELECT ctid FROM article ORDER BY id").fetchall() == before
    assert fill(Recipe()) == (28, 6, 0, 0, 0)
    assert stale(connection) == []


def test_partitions(connection, database):
    connection.execute(
        "CREATE TABLE article (id int PRIMARY KEY, body text, fingerprint bigint) PARTITION BY RANGE (id)"
    )
    for low in (0, 20):
        connection.execute(f"CREATE TABLE part_{low} PARTITION OF article FOR VALUES FROM ({low}) TO ({low + 20})")
    connection.execute("INSERT INTO article SELECT g, 'text ' || g FROM generate_series(0, 39) AS g")
    assert SearchIndex(database, "article", "fingerprint").backfill("body", batch_rows=6) == (40, 0, 0, 0, 0)
    assert stale(connection) == []


# Beside writers


def test_what_is_written_between_reading_and_writing_is_not_overwritten(connection, database):
    """All rows are read before the first is written; its report is the moment."""
    create_articles(connection, 0)
    connection.execute("INSERT INTO article SELECT g, 'text ' || g FROM generate_series(1, 7) AS g")

    def write(share):
        if share == 1 / 7:
            connection.execute("UPDATE article SET body = 'other words' WHERE id = 2")
            connection.execute("DELETE FROM article WHERE id = 3")
            connection.execute("UPDATE article SET views = 1 WHERE id = 4")
            connection.execute("UPDATE article SET fingerprint = 77 WHERE id = 5")
            connection.execute("UPDATE article SET body = NULL WHERE id = 6")

    assert SearchIndex(database, "article").backfill("body", batch_rows=1, report=write) == (4, 0, 0, 0, 0)
    assert stale(connection) == [("text 5", 77)]
    found = connection.execute("SELECT id, body, views FROM article ORDER BY id").fetchall()
    assert found == [
        (1, "text 1", 0),
        (2, "other words", 0),
        (4, "text 4", 1),
        (5, "text 5", 0),
        (6, None, 0),
        (7, "text 7", 0),
    ]
    assert missing_keys(connection) == []


def test_a_locked_row_is_left_to_the_next_backfill(connection, connect, database):
    create_articles(connection, 0)
    connection.execute("INSERT INTO article SELECT g, 'text ' || g FROM generate_series(1, 5) AS g")
    writer = connect()
    with writer.transaction():
        writer.execute("UPDATE article SET body = 'other words' WHERE id = 3")
        assert SearchIndex(database, "article").backfill("body") == (4, 0, 1, 0, 0)
    assert stale(connection) == [("other words", None)]
    assert SearchIndex(database, "article").backfill("body") == (1, 0, 0, 0, 0)
    assert stale(connection) == []


def test_a_reference_to_a_row_does_not_keep_its_fingerprint_back(connection, connect, database):
    create_articles(connection, 2)
    connection.execute("CREATE TABLE remark (article_id bigint REFERENCES article)")
    writer = connect()
    with writer.transaction():
        writer.execute("INSERT INTO remark VALUES (0), (3)")
        assert SearchIndex(database, "article").backfill("body") == (2, 0, 0, 0, 0)


def test_beside_writers_no_fingerprint_is_of_another_text(connection, connect, database):
    create_articles(connection, 500)
    done = threading.Event()

    def write(seed):
        chance = random.Random(seed)
        with closing(connect()) as writer:
            while not done.is_set():
                # In any order, two at a time: a backfill that waited would be in deadlock.
                with writer.transaction():
                    for _ in range(2):
                        writer.execute(
                            "UPDATE article SET body = %s, fingerprint = NULL WHERE id = %s",
                            [text_of(chance.randrange(10_000)), 3 * chance.randrange(500)],
                        )
                writer.execute(
                    "INSERT INTO article (id, body) VALUES (%s, 'new words') ON CONFLICT DO NOTHING",
                    [chance.randrange(1500)],
                )

    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write, seed) for seed in range(2)]
        fillers = [
            threads.submit(SearchIndex(database, "article").backfill, "body", batch_rows=rows) for rows in (40, 90)
        ]
        try:
            assert sum(filler.result().written for filler in fillers) > 0
        finally:
            done.set()
    for writer in writers:
        # Of two writers, one may have to give way to the other.
        assert writer.exception() is None or isinstance(writer.exception(), errors.DeadlockDetected)
    assert [row for row in stale(connection) if row[1] is not None] == []
    assert SearchIndex(database, "article").backfill("body").busy == 0
    assert (stale(connection), missing_keys(connection)) == ([], [])


# What cannot be


def test_what_cannot_be_filled(connection, database):
    connection.execute("CREATE TABLE bare (body text, fingerprint bigint)")
    connection.execute("CREATE VIEW view AS SELECT * FROM bare")
    connection.execute(
        "CREATE TABLE article (id int PRIMARY KEY, body text, number int, fingerprint bigint,"
        " made bigint GENERATED ALWAYS AS (id + 1) STORED)"
    )

    def fill(table, text="body", column="fingerprint", **options):
        return SearchIndex(database, table, column).backfill(text, **options)

    connection.execute("CREATE MATERIALIZED VIEW stored AS TABLE bare")
    for table, why in {
        "bare": "has neither a primary key nor a unique index on NOT NULL columns",
        **dict.fromkeys(["view", "stored"], "is a view: fill the table below it"),
    }.items():
        with refused(errors.ObjectNotInPrerequisiteState, match=rf"public\.{table} {why}"):
            fill(table)
    with refused(errors.UndefinedTable):
        fill("missing")
    with refused(errors.UndefinedColumn, match=r"public\.article has no column title"):
        fill("article", "title")
    with refused(errors.InvalidParameterValue, match="column fingerprint of .* cannot hold the texts and"):
        fill("article", "fingerprint", all_rows=True)
    with refused(errors.DatatypeMismatch, match=r"column number of .* is integer, not text"):
        fill("article", "number")
    with pytest.raises(UsageError, match=r"column body of article is text, not bigint"):
        fill("article", column="body")
    with refused(errors.FeatureNotSupported, match=r"column made of .* is generated"):
        fill("article", column="made")
    with pytest.raises(UsageError, match="article has no simhash index: name the column"):
        fill("article", column=None)
    with pytest.raises(ValueError, match="batch_rows must be at least 1, not 0"):
        fill("article", batch_rows=0)
    with pytest.raises(ValueError, match="source must name at least one"):
        fill("article", {})
    with pytest.raises(ValueError, match="the weight of text 0 must be between 1 and"):
        fill("article", {"body": 0})
