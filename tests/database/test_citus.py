"""Bulk work from Python in a table that Citus distributes."""

import pytest
from sqlalchemy import Engine, text

from simsql.database import SearchIndex, create_index, to_bigint
from simsql.database.rows_with_origin import RowWithOrigin, load_rows_with_origin
from simsql.dedup.sources.table import TableOptions, open_table
from simsql.errors import UsageError
from simsql.fingerprint import simhash, sketch

TEXTS = [f"the quick brown fox number {number} jumps over the lazy dog" for number in range(40)]


@pytest.fixture
def server(citus):
    return citus


@pytest.fixture
def database(database: Engine) -> Engine:
    with database.begin() as connection:
        connection.execute(
            text("CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint, sketch bigint)")
        )
        connection.execute(text("SELECT create_distributed_table('article', 'id')"))
        rows = [{"id": number, "body": body} for number, body in enumerate(TEXTS)]
        connection.execute(text("INSERT INTO article VALUES (:id, :body)"), rows)
    return database


def test_an_index_is_built_filled_and_searched(database):
    create_index(database, "article", "fingerprint", concurrently=True)
    filled = SearchIndex(database, "article").backfill("body", sketch_column="sketch", batch_rows=15)
    assert (filled.written, filled.busy) == (40, 0)
    steps = SearchIndex(database, "article").follow("body")
    for written in (0, 2):
        assert next(steps).written == written
        with database.begin() as connection:
            connection.execute(text("UPDATE article SET fingerprint = NULL WHERE id < 2"))
    next(steps)
    index = SearchIndex(database, "article")
    for number, body in enumerate(TEXTS):
        assert (number, 0) in {(found.row["id"], found.distance) for found in index.near_rows(text=body)}
    assert {found.fingerprint for found in index.near(text=TEXTS[0], distance=64)} == set(map(simhash, TEXTS))
    same = {"similarity": 1, "text_column": "body", "sketch_column": "sketch"}
    assert [found.row["id"] for found in index.near_rows(text=TEXTS[7], **same)] == [7]
    with database.connect() as connection:
        filtered = text("SELECT count(*) FROM article WHERE simsql.similarity(sketch, :sketch) = 1")
        assert connection.scalar(filtered, {"sketch": to_bigint(sketch(TEXTS[7]))}) == 1
    assert index.verify() == []


def test_a_backfill_overwrites_no_change_by_others(database):
    """Between reading and writing a batch, somebody writes a row of it."""
    changes = iter(["UPDATE article SET fingerprint = 5 WHERE id = 3"])

    def change(_share: float) -> None:
        for statement in changes:
            with database.begin() as connection:
                connection.execute(text(statement))

    SearchIndex(database, "article", "fingerprint").backfill("body", batch_rows=1, report=change)
    with database.connect() as connection:
        assert connection.scalar(text("SELECT fingerprint FROM article WHERE id = 3")) == 5


def test_repeated_ids_are_skipped(database):
    skipped = []
    rows = [RowWithOrigin([number, "new"], str(number), f"file:{number}") for number in (39, 40, 41, 40, 3, 42)]
    with database.begin() as connection:
        added = load_rows_with_origin(
            connection,
            "article",
            ["id", "body"],
            rows,
            id_column="id",
            skip=lambda row, earlier: skipped.append((row.name, earlier and earlier.name)),
        )
    assert added == 3
    assert skipped == [("39", None), ("40", "40"), ("3", None)]
    with database.connect() as connection:
        ids = connection.scalars(text("SELECT id FROM article WHERE body = 'new' ORDER BY id")).all()
    assert ids == [40, 41, 42]


def test_its_rows_are_not_decided_about(database):
    options = TableOptions("article", {"body": None}, "decisions")
    with pytest.raises(UsageError, match="managed by Citus"), open_table(database, options):
        pass
