"""COPY: every row arrives, triggers fire, names may be odd, and a failure adds nothing."""

import pytest
from articles import create_articles, missing_keys, near
from oracle import EXTREMES
from psycopg import errors
from sqlalchemy import text

from simsql.database import copy_rows


@pytest.fixture
def articles(connection):
    create_articles(connection, [1])
    return connection


def test_copied_rows_are_found(articles, database):
    with database.begin() as transaction:
        count = copy_rows(transaction, ["article"], ["body", "fingerprint"], [("x", f) for f in EXTREMES])
        assert count == len(EXTREMES)
    assert missing_keys(articles) == []
    assert {found for found, _ in near(articles, 0, 64)} == set(EXTREMES)


def test_nothing_to_copy_is_no_error(articles, database):
    with database.begin() as transaction:
        assert copy_rows(transaction, ["article"], ["fingerprint"], iter([])) == 0


def test_copying_begins_a_transaction_that_commit_ends(articles, database):
    with database.connect() as transaction:
        copy_rows(transaction, ["article"], ["fingerprint"], [(8,)])
        assert transaction.in_transaction()
        transaction.commit()
        copy_rows(transaction, ["article"], ["fingerprint"], [(9,)])
        transaction.rollback()
    assert near(articles, 8, 0) == [(8, 0)]
    assert near(articles, 9, 0) == []


def test_copied_rows_belong_to_the_transaction(articles, database):
    with database.connect() as transaction:
        copy_rows(transaction, ["article"], ["fingerprint"], [(8,)])
        assert transaction.execute(text("SELECT count(*) FROM simsql.near('article', 8, 0)")).scalar_one() == 1
        assert near(articles, 8, 0) == []
        transaction.rollback()
    assert near(articles, 8, 0) == []


@pytest.mark.parametrize(
    "value", ["", "\\N", "tab\there", "line\nbreak", "back\\slash", "\\.", "'\"", "naïve 日本", None]
)
def test_texts_arrive_as_they_are(articles, database, value):
    with database.begin() as transaction:
        copy_rows(transaction, ("article",), ("body",), [(value,)])
    assert articles.execute("SELECT body FROM article ORDER BY id DESC LIMIT 1").fetchone() == (value,)


@pytest.mark.parametrize(
    "name",
    ["Article", 'say "when"', "select", "a.b", "a b", "100%", "%s", "日本", "x; DROP TABLE article", "ü" * 31],
)
def test_any_name_will_do(articles, database, name):
    quoted = '"' + name.replace('"', '""') + '"'
    articles.execute(f"CREATE SCHEMA {quoted}")
    articles.execute(f"CREATE TABLE {quoted}.{quoted} ({quoted} bigint)")
    with database.begin() as transaction:
        assert copy_rows(transaction, [name, name], [name], [(-1,), (None,)]) == 2
    assert articles.execute(f"SELECT {quoted} FROM {quoted}.{quoted}".encode()).fetchall() == [(-1,), (None,)]


def breaking_off():
    yield (8,)
    raise KeyError("the source broke off")


@pytest.mark.parametrize(
    ("table", "rows", "error"),
    [
        ("article", lambda: [(8,), ("no number",)], errors.InvalidTextRepresentation),
        ("article", lambda: [(8,), (2**63,)], errors.NumericValueOutOfRange),
        ("article", lambda: [(8,), (8, 9)], errors.BadCopyFileFormat),
        ("missing", lambda: [(8,)], errors.UndefinedTable),
        ("article", breaking_off, KeyError),
    ],
    ids=["no number", "no bigint", "too many values", "no table", "source broke off"],
)
def test_a_failure_adds_no_row(articles, database, table, rows, error):
    with database.connect() as transaction:
        with pytest.raises(error):
            copy_rows(transaction, [table], ["fingerprint"], rows())
        transaction.rollback()
        assert copy_rows(transaction, ["article"], ["fingerprint"], [(9,)]) == 1  # the connection goes on
        transaction.commit()
    assert near(articles, 8, 0) == []
    assert near(articles, 9, 0) == [(9, 0)]
