"""A hot standby: searches find what they find on the primary, and what writes is refused with a reason."""

import oracle
import psycopg
import pytest
from articles import create_articles, near
from program import run, write_lines
from psycopg import errors
from similar import like_near
from sqlalchemy import BigInteger, make_url, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from standby import run_standby
from upkeep import flush_statistics

from simsql.database import (
    SearchIndex,
    change_storage,
    create_index,
    drop_index,
    install_schema,
    load_rows,
    open_engine,
    set_default_index,
    uninstall_schema,
)
from simsql.errors import SimsqlError
from simsql.sqlalchemy import Fingerprint
from simsql.sqlalchemy import near as near_in_model

pytestmark = pytest.mark.fault("a hot standby, and one that is promoted after its primary has died")

FINGERPRINTS = oracle.clustered(150, seed=24)
TENANT = ", scope => '{\"tenant\": 1}'"
SEARCHES = (
    "SELECT * FROM simsql.near({table}, {query}, 7{scope})",
    f"SELECT * FROM simsql.similar_candidates({{table}}, {like_near('{query}', 7, '{table}')}{{scope}})",
    "SELECT * FROM simsql.near_many({table}, ARRAY[{query}, 5]::bigint[], 7{scope})",
    "SELECT id FROM simsql.near_rows(NULL::{name}, {query}, 7{scope}) ORDER BY id",
    "SELECT split_part(line, ',', 1) FROM simsql.explain_near({table}, {query}, 7{scope}) AS line LIMIT 1",
    "SELECT * FROM simsql.pairs({table}, 7{scope}) ORDER BY 1, 2",
    "SELECT * FROM simsql.clusters({table}, 7{scope}) ORDER BY 1, 2",
    "SELECT * FROM simsql.verify({table})",
    # Without the advice, which follows from statistics that a standby lacks.
    "SELECT table_name, column_name, storage, state FROM simsql.indexes ORDER BY id",
)
REFUSED = (
    "SELECT simsql.claim('article', 5)",
    "SELECT simsql.create_index('article', 'other')",
    "CALL simsql.build('article', 'other')",
    "CALL simsql.vacuum('article')",
    "CALL simsql.maintain()",
    "SELECT simsql.repair('article')",
    "SELECT simsql.change_storage('article', 'expression')",
    "SELECT simsql.set_default_index('article', 'fingerprint')",
    "SELECT simsql.drop_index('article')",
)
COMMANDS = (
    ["index", "create", "article", "other", "--concurrently"],
    ["maintain"],
    ["index", "change-storage", "article", "expression"],
    ["backfill", "article", "--text-column", "body"],
    ["clusters", "article", "--into", "cluster"],
    ["dedup-table", "article", "--text-column", "body", "--into", "decision"],
    ["uninstall", "--drop-indexes"],
)


class Base(DeclarativeBase):
    pass


class Article(Base):
    __tablename__ = "article"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    fingerprint: Mapped[int | None] = mapped_column(Fingerprint)


@pytest.fixture(scope="module")
def standby(server):
    with run_standby(server) as running:
        yield running


@pytest.fixture
def copy(standby, connection):
    """A URL of the test's database on the standby, which has the tables `article` and `post` of the primary."""
    create_articles(connection, FINGERPRINTS)
    connection.execute("ALTER TABLE article ADD other bigint; UPDATE article SET body = 'text ' || id")
    connection.execute("INSERT INTO article (body) VALUES ('a text without a fingerprint')")
    connection.execute("CREATE TABLE post (id bigint, tenant integer, fingerprint bigint)")
    connection.execute("INSERT INTO post SELECT id, id % 2, fingerprint FROM article")
    options = "scope => '{tenant}', storage => 'expression'"
    connection.execute(f"SELECT simsql.create_index('post', 'fingerprint', {options})")
    standby.catch_up()
    return standby.url(connection.info.dbname)


def test_searches_equal_those_on_the_primary(standby, connection, copy):
    with standby.connect(connection.info.dbname) as reader:

        def check():
            standby.catch_up()
            for name, scope in (("article", ""), ("post", TENANT)):
                for query in FINGERPRINTS[::60]:
                    for search in SEARCHES:
                        statement = search.format(table=f"'{name}'", name=name, query=query, scope=scope)
                        found = reader.execute(statement).fetchall()
                        assert found == connection.execute(statement).fetchall(), statement
            rows = [row[0] for row in connection.execute("SELECT fingerprint FROM article")]
            for query in FINGERPRINTS[::40]:
                assert near(reader, query, 7) == oracle.near(rows, query, 7)

        check()
        # The session has cached plans, which the changes of the primary make wrong.
        connection.execute("DELETE FROM article WHERE id % 3 = 0")
        # PostgreSQL would subtract from what ANALYZE counts the deletes that this session has not reported yet.
        flush_statistics(connection)
        connection.execute("ANALYZE article, simsql.keys_1_0")
        flush_statistics(connection)
        standby.catch_up()
        health = "SELECT state, bytes, unvacuumed, last_vacuum FROM simsql.indexes WHERE id = 1"
        found = reader.execute(health).fetchone()
        assert found == connection.execute(health).fetchone()
        assert found[2] > 0.1  # a standby has no statistics of its own
        connection.execute("CALL simsql.vacuum('article')")
        connection.execute("INSERT INTO article (fingerprint) SELECT fingerprint # 3 FROM post WHERE id % 5 = 0")
        connection.execute("SELECT simsql.drop_index('post')")
        connection.execute("SELECT simsql.create_index('post', 'fingerprint', distance => 7, scope => '{tenant}')")
        connection.execute("SELECT simsql.change_storage('article', 'expression')")
        check()
        connection.execute("ALTER TABLE article RENAME fingerprint TO renamed")
        standby.catch_up()
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="was renamed"):
            near(reader, 5)


def test_python_and_the_command_line_read_a_standby(database_url, copy):
    engines = [open_engine(url) for url in (database_url, copy)]
    query = FINGERPRINTS[0] % 2**64
    results = []
    for engine in engines:
        index = SearchIndex(engine, "article")
        with Session(engine) as session:
            models = session.execute(near_in_model(Article.fingerprint, query, 7)).all()
            by_column = session.scalars(select(Article.id).where(Article.fingerprint.near(query, distance=7)))
            results.append(
                [
                    index.near(query, distance=7),
                    index.near_rows(query, distance=7),
                    list(index.near_many([query, 5], distance=7)),
                    sorted(index.pairs(7)),
                    sorted(index.clusters(7)),
                    [(article.id, distance) for article, distance in models],
                    sorted(by_column),
                ]
            )
        url = engine.url.render_as_string()
        for command in (
            ["near", "article", "--fingerprint", query, "--distance", 7],
            ["pairs", "article", "--keys"],
            ["clusters", "article", "--distance", 7, "--keys"],
            ["status", "--check"],
            ["index", "verify"],
        ):
            results[-1].append(run(*command, "--database", url).done().lines)
        engine.dispose()
    assert results[0] == results[1]


def test_writes_are_refused_with_a_reason(copy, tmp_path):
    with psycopg.connect(autocommit=True, dbname=copy.database, user="postgres", **copy.query) as reader:
        for statement in REFUSED:
            with pytest.raises(errors.ReadOnlySqlTransaction, match="standby, which accepts no writes") as refused:
                reader.execute(statement)
            assert refused.value.diag.message_hint == "Connect to the primary."
    engine = open_engine(copy)
    index = SearchIndex(engine, "article")
    with engine.connect() as transaction:
        with pytest.raises(DBAPIError, match="standby, which accepts no writes"):
            SearchIndex(transaction, "article").claim(5)
        transaction.rollback()
        with pytest.raises(DBAPIError, match="cannot execute COPY during recovery"):
            load_rows(transaction, "article", ["fingerprint"], [(5,)])
    for write in (
        lambda: index.backfill("body"),
        index.vacuum,
        index.repair,
        lambda: create_index(engine, "article", "other"),
        lambda: create_index(engine, "article", "other", concurrently=True),
        lambda: change_storage(engine, "article", "expression"),
        lambda: set_default_index(engine, "article", "fingerprint"),
        lambda: drop_index(engine, "article"),
        lambda: uninstall_schema(engine, drop_indexes=True),
    ):
        with pytest.raises(DBAPIError) as refused:
            write()
        assert refused.value.orig.sqlstate == "25006"
    engine.dispose()
    documents = write_lines(tmp_path / "documents.jsonl", {"a": "a text with words"})
    for command in (
        *COMMANDS,
        ["load", "article", documents, "--text-column", "body"],
    ):
        run(*command, "--database", copy.render_as_string()).failed(1, "standby")


def test_an_installation_on_a_standby_is_refused(server, standby):
    with server.new_database(template="template0") as url:
        standby.catch_up()
        engine = open_engine(standby.url(make_url(url).database))
        with pytest.raises(SimsqlError, match="the server is a standby, which accepts no writes: connect to the"):
            install_schema(engine)
        engine.dispose()
