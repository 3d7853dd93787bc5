"""Upkeep from Python: what the SQL functions do, in transactions of its own, on an engine of any isolation."""

import random
import threading

import pytest
from articles import create_table, missing_keys
from internals import set_batch_size
from program import wait_until
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError
from upkeep import stored_fingerprints

from simsql import Design, Recipe
from simsql.database import IndexSpec, SearchIndex, create_index, read_status
from simsql.database.index import Finding, create_btree, verify

FINGERPRINTS = [random.Random(number).getrandbits(64) - 2**63 for number in range(40)]
BTREES = (
    "SELECT indexrelid::regclass::text, indisvalid FROM pg_index WHERE indrelid = 'article'::regclass ORDER BY 1"
)
MADE = [("article_fingerprint_idx", True), ("article_pkey", True)]


@pytest.fixture
def articles(connection):
    """Forty rows without an index; batches of seven."""
    create_table(connection, FINGERPRINTS)
    set_batch_size(connection, 7)
    return connection


@pytest.fixture(params=["READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"])
def engine(request, database):
    """An engine as an application might have it."""
    return database.execution_options(isolation_level=request.param)


def test_build_vacuum_verify(articles, engine):
    shares: list[float] = []
    number = create_index(
        engine,
        "article",
        "fingerprint",
        distance=5,
        design=Design(5, 2),
        concurrently=True,
        report=shares.append,
    )
    (index,) = read_status(engine).indexes
    assert (index.id, index.distance, index.blocks, index.lead, index.state) == (number, 5, 5, 2, "ready")
    assert shares == sorted(shares)
    assert (len(shares), shares[-1]) == (6, 1)
    articles.execute("DELETE FROM article WHERE id > 30")
    articles.execute("INSERT INTO article (fingerprint) SELECT fingerprint FROM article WHERE id <= 2")
    shares.clear()
    with engine.connect() as connection:
        assert SearchIndex(connection, "article").verify() == []
        superfluous = connection.execute(text("SELECT simsql.superfluous_keys('article')")).scalar_one()
        assert superfluous == 12 * 10
    assert SearchIndex(engine, "article").vacuum(report=shares.append) == 12 * 10
    assert (shares == sorted(shares), shares[-1]) == (True, 1)
    assert SearchIndex(engine, "article", "fingerprint").vacuum() == 0
    with engine.connect() as connection:
        assert verify(connection) == []
    assert stored_fingerprints(articles) == [sorted(FINGERPRINTS[:30])] * 10


def test_repair_lives_in_the_transaction(articles, database):
    with database.begin() as connection:
        create_index(connection, "article", "fingerprint")
    articles.execute("DELETE FROM simsql.keys_1_0 WHERE key IN (SELECT key FROM simsql.keys_1_0 LIMIT 3)")
    hint = "SELECT * FROM simsql.repair('public.article');"
    missing = Finding("public.article", "fingerprint", "keys missing", "simsql.keys_1_0", 3, True, hint)
    with database.connect() as connection:
        assert (
            SearchIndex(connection, "article").verify()
            == SearchIndex(connection, "article", "fingerprint").verify()
            == [missing]
        )
        assert SearchIndex(connection, "article").repair() == [missing._replace(hint=None)]
        assert verify(connection) == []
        connection.rollback()
        assert verify(connection) == [missing]
        SearchIndex(connection, "article").repair()
        connection.commit()
        assert SearchIndex(connection, "article").repair() == []


def test_a_build_makes_the_b_tree_it_needs(articles, database):
    create_index(database, "article", "fingerprint", concurrently=True)
    assert articles.execute(BTREES).fetchall() == MADE
    assert missing_keys(articles) == []
    create_btree(database, "article", IndexSpec("fingerprint"))
    assert articles.execute(BTREES).fetchall() == MADE


@pytest.mark.parametrize("leftovers", [1, 2])
def test_what_an_interrupted_attempt_left_is_dropped(articles, database, leftovers):
    for _ in range(leftovers):
        articles.execute("CREATE INDEX ON article (fingerprint)")
    articles.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text ~ 'fingerprint'")
    create_index(database, "article", "fingerprint", concurrently=True)
    assert articles.execute(BTREES).fetchall() == MADE


def test_a_b_tree_that_somebody_creates_just_now_is_waited_for_and_taken(articles, database, connect):
    writer, creator = connect(), connect()
    writer.execute("BEGIN")
    writer.execute("INSERT INTO article (fingerprint) VALUES (1)")
    creation = threading.Thread(
        target=creator.execute, args=["CREATE INDEX CONCURRENTLY ON article (fingerprint)"]
    )
    creation.start()
    wait_until(lambda: len(articles.execute(BTREES).fetchall()) == 2, "an index that is not valid yet")
    refused = threading.Event()
    event.listen(database, "handle_error", lambda _: refused.set())
    building = threading.Thread(
        target=create_index, args=[database, "article", "fingerprint"], kwargs={"concurrently": True}
    )
    building.start()
    wait_until(refused.is_set, "the build to be refused the lock")
    writer.execute("COMMIT")
    creation.join()
    building.join()
    assert articles.execute(BTREES).fetchall() == MADE
    assert missing_keys(articles) == []


def test_an_interrupted_build_is_gone_on_with(articles, database):
    class Interrupt(Exception):  # noqa: N818
        pass

    def interrupt(share):
        if share > 0.3:
            raise Interrupt

    with pytest.raises(Interrupt):
        create_index(database, "article", "fingerprint", report=interrupt, concurrently=True)
    (index,) = read_status(database).indexes
    assert index.state == "building"
    stored = len(stored_fingerprints(articles)[0])
    assert 7 <= stored < 40
    calls: list[float] = []
    assert create_index(database, "article", "fingerprint", report=calls.append, concurrently=True) == index.id
    assert len(calls) == (40 - stored) // 7 + 1
    assert missing_keys(articles) == []


def test_the_recipe_is_kept(articles, database):
    recipe = Recipe(shingles=(3,))
    create_index(database, "article", "fingerprint", recipe=recipe, concurrently=True)
    with database.connect() as connection:
        assert SearchIndex(connection, "article").recipe() == recipe


def test_names_are_quoted_where_they_have_to_be(articles, database):
    table, column = 'a "%s" %(b)s :c.d', "e'%s%% :f"
    quoted = '"' + table.replace('"', '""') + '"'
    articles.execute(f'CREATE TABLE {quoted} ("{column}" bigint)'.encode())
    articles.execute(f"INSERT INTO {quoted} VALUES (7), (NULL)".encode())
    create_index(database, quoted, column, concurrently=True)
    assert SearchIndex(database, quoted, column).vacuum() == 0
    with database.begin() as connection:
        assert SearchIndex(connection, quoted, column).verify() == SearchIndex(connection, quoted).repair() == []
        assert SearchIndex(connection, quoted).near(6) == [(7, 1)]


MISTAKES = {
    "article has no simhash index": lambda engine: SearchIndex(engine, "article").vacuum(),
    'relation "missing" does not exist': lambda engine: SearchIndex(engine, "missing").vacuum(),
    "simsql.build: column body of public.article is text": lambda engine: create_index(
        engine, "article", "body", concurrently=True
    ),
    "has no column missing": lambda engine: create_index(engine, "article", "missing", concurrently=True),
}


def test_errors_are_postgresqls_and_leave_nothing_behind(articles, database):
    statements: list[str] = []
    event.listen(database, "before_cursor_execute", lambda *details: statements.append(details[2]))
    for said, mistake in MISTAKES.items():
        with pytest.raises(DBAPIError, match=said):
            mistake(database)
    assert not any("CREATE INDEX" in statement for statement in statements)
    assert read_status(database).indexes == ()


def test_an_index_that_is_ready_is_not_built_again(articles, database):
    create_index(database, "article", "fingerprint", concurrently=True)
    with pytest.raises(DBAPIError, match="already has a simhash index"):
        create_index(database, "article", "fingerprint", concurrently=True)
