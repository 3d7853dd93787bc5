"""Each step of SearchIndex.follow fingerprints what was written since the last one, and reads no more."""

import pytest
from program import wait_until
from upkeep import flush_statistics

from simsql import Recipe, UsageError, simhash
from simsql.database import SearchIndex, backfill, create_index, drop_index, search_index, to_bigint


@pytest.fixture
def articles(connection, database):
    connection.execute("CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint)")
    create_index(database, "article", "fingerprint", sources="body")
    write(connection, 1, 5)
    return connection


@pytest.fixture
def step(articles, database):
    """Take a step; return the numbers of written rows, of those without words, and of busy ones."""
    steps = SearchIndex(database, "article").follow()
    return lambda: next(steps)[:3]


def write(connection, first, last, body="'text ' || g"):
    connection.execute(f"INSERT INTO article SELECT g, {body} FROM generate_series({first}, {last}) AS g")


def test_rows_without_words_are_read_once(articles, step):
    write(articles, 6, 9, "'?!'")
    write(articles, 10, 19, "NULL")
    assert [step(), step()] == [(5, 4, 0), (0, 0, 0)]
    write(articles, 20, 29, "CASE WHEN g % 2 = 0 THEN '-' ELSE 'text ' || g END")
    articles.execute(
        "UPDATE article SET body = '?' WHERE id < 3; UPDATE article SET body = 'words' WHERE id IN (6, 10)"
    )
    assert [step(), step()] == [(7, 7, 0), (0, 0, 0)]
    found = articles.execute("SELECT body, fingerprint FROM article WHERE body IS NOT NULL").fetchall()
    assert [(body, fingerprint) for body, fingerprint in found if fingerprint != to_bigint(simhash(body))] == []


def test_a_transaction_that_ends_between_two_steps(articles, connect, step):
    writer = connect()
    with writer.transaction():
        write(writer, 6, 7)
        with writer.transaction():
            write(writer, 8, 9)
        write(articles, 10, 10)
        assert [step(), step()] == [(6, 0, 0), (0, 0, 0)]
    assert [step(), step()] == [(4, 0, 0), (0, 0, 0)]


def test_a_row_that_was_locked(articles, connect, step):
    step()
    write(articles, 6, 7)
    writer = connect()
    with writer.transaction():
        writer.execute("SELECT FROM article WHERE id = 6 FOR UPDATE")
        assert [step(), step()] == [(1, 0, 1), (0, 0, 1)]
    assert [step(), step()] == [(1, 0, 0), (0, 0, 0)]


def test_rows_that_appear_otherwise(connection, database, monkeypatch):
    monkeypatch.setattr(search_index, "_STEPS", 3)
    columns = "(id bigint PRIMARY KEY, body text, fingerprint bigint)"
    connection.execute(f"CREATE TABLE part {columns}; INSERT INTO part VALUES (1, 'text')")
    connection.execute(f"CREATE TABLE article {columns} PARTITION BY RANGE (id)")
    create_index(database, "article", "fingerprint", sources="body")
    steps = SearchIndex(database, "article").follow()
    assert next(steps).written == 0
    connection.execute("ALTER TABLE article ATTACH PARTITION part FOR VALUES FROM (0) TO (9)")
    assert sum(next(steps).written for _ in range(3)) == 1


def test_more_rows_than_a_step_remembers(articles, step, monkeypatch):
    step()
    monkeypatch.setattr(backfill, "_NEW_ROWS", 3)
    write(articles, 6, 20)
    assert step() == (15, 0, 0)


def test_the_index_is_asked_at_each_step(articles, database, step):
    step()
    drop_index(database, "article")
    create_index(database, "article", "fingerprint", recipe=None)
    with pytest.raises(UsageError, match="nobody has named the columns of the texts"):
        step()


def test_the_default_recipe_does_not_replace_that_of_a_dropped_index(articles, database):
    drop_index(database, "article")
    create_index(database, "article", "fingerprint", recipe="words3-log-1", sources="body")
    steps = SearchIndex(database, "article", "fingerprint").follow("body")
    assert next(steps).written == 5
    drop_index(database, "article")
    write(articles, 6, 7)
    with pytest.raises(UsageError, match=": name the recipe"):
        next(steps)
    named = SearchIndex(database, "article", "fingerprint", recipe=Recipe.from_id("words3-log-1")).follow("body")
    assert next(named).written == 2
    create_index(database, "article", "fingerprint", recipe="words3-log-1", sources="body")
    assert SearchIndex(database, "article").verify_texts().differing == 0


@pytest.mark.every_version
@pytest.mark.unpooled("PgBouncer keeps sessions open")
def test_a_step_without_new_rows_does_not_read_the_table(articles, database, step):
    # The statistics of PostgreSQL say that most rows are without a fingerprint.
    write(articles, 6, 20_000)
    articles.execute("ANALYZE article")
    step()

    def reads():
        database.dispose()
        others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        wait_until(lambda: not articles.execute(others).fetchall(), "the end of the session, which reports then")
        flush_statistics(articles)
        scans = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relname = 'article'"
        return articles.execute(scans).fetchone()

    before = reads()
    assert step() == (0, 0, 0)
    after = reads()
    assert after[0] == before[0]
    assert after[1] > before[1]
