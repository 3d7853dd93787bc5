"""Databases with a released version of the schema and indexes of every kind, and their upgrade."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psycopg
from articles import create_articles, create_index, missing_keys, near
from catalog import contents_of_simsql
from internals import begin_build
from oracle import clustered
from oracle import near as expected_near
from sqlalchemy import Engine

from simsql.database import open_engine
from simsql.database.history import History

# What `simsql sql`, now `simsql install --sql`, printed, by version.
RELEASED = {path.stem: path for path in (Path(__file__).parents[1] / "released").glob("*.sql")}
FINGERPRINTS = clustered(100, seed=40)
UNFINISHED = {"unfinished": "tables", "unfinished_btrees": "expression"}


@contextlib.contextmanager
def released(server, version: str) -> Iterator[tuple[psycopg.Connection, Engine]]:
    """A database with a released version and its indexes."""
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[version].read_text(encoding="utf-8"))
        create_indexes(connection)
        yield connection, engine


@contextlib.contextmanager
def bare(server) -> Iterator[tuple[psycopg.Connection, Engine]]:
    """A database without simsql."""
    with server.new_database(template="template0") as url, server.connect(url.database) as connection:
        engine = open_engine(url)
        try:
            yield connection, engine
        finally:
            engine.dispose()


def create_indexes(connection: psycopg.Connection) -> None:
    """Indexes of both storages and several layouts, scoped, unlogged, without rows, and unfinished ones."""
    create_articles(connection, FINGERPRINTS)
    connection.execute("CREATE SCHEMA app")
    connection.execute('CREATE TABLE app."An ""article" (print bigint)')
    create_index(connection, 'app."An ""article"', "print", (5, 2, 3))
    connection.execute("CREATE DOMAIN app.tenant AS text")
    connection.execute('CREATE TABLE scoped (tenant app.tenant, "it\'s 100%" integer, print bigint)')
    connection.execute("INSERT INTO scoped SELECT 'a', 1, unnest(%s::bigint[])", [FINGERPRINTS])
    connection.execute(
        "SELECT simsql.create_index('scoped', 'print', recipe => 'words12-log-1',"
        " scope => ARRAY['tenant', 'it''s 100%'])"
    )
    connection.execute("CREATE UNLOGGED TABLE unlogged (fingerprint bigint)")
    connection.execute("INSERT INTO unlogged SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    create_index(connection, "unlogged", "fingerprint", (4, 1, 0))
    connection.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    connection.execute("CREATE TABLE parts (fingerprint bigint) PARTITION BY HASH (fingerprint)")
    connection.execute("CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    connection.execute("INSERT INTO parts SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    create_index(connection, "parts", "fingerprint")
    for table, storage in UNFINISHED.items():
        connection.execute(f"CREATE TABLE {table} (fingerprint bigint)")
        connection.execute(f"INSERT INTO {table} SELECT unnest(%s::bigint[])", [FINGERPRINTS])
        connection.execute(f"CREATE INDEX ON {table} (fingerprint)")
        begin_build(connection, table, storage=storage)


_fresh: dict[str, list[tuple[str, ...]]] = {}


def fresh_contents(server) -> list[tuple[str, ...]]:
    """What an installation holds, with the indexes; made once for each server."""
    if server.name not in _fresh:
        with bare(server) as (connection, engine):
            upgrade(engine)
            create_indexes(connection)
            # In 0.2.0, an index without a recipe had this one.
            connection.execute("UPDATE simsql.registry SET recipe = coalesce(recipe, 'words12-log-1')")
            connection.execute("SELECT simsql._describe(r) FROM simsql.registry AS r")
            _fresh[server.name] = contents_of_simsql(engine)
    return _fresh[server.name]


def upgrade(engine: Engine) -> None:
    history = History()
    with engine.begin() as transaction:
        history.upgrade(transaction)
        assert history.current(transaction) == history.newest


def check_indexes(connection: psycopg.Connection) -> None:
    """The indexes answer, writers add keys, a build goes on, and nothing is wrong."""
    for table in UNFINISHED:
        connection.execute(f"CALL simsql.build('{table}', 'fingerprint')")
    for table in ("article", "unlogged", "parts", *UNFINISHED):
        for within in (0, 3, 7, 40):
            assert near(connection, FINGERPRINTS[0], within, table) == expected_near(
                FINGERPRINTS, FINGERPRINTS[0], within
            )
        connection.execute(f"INSERT INTO {table} (fingerprint) VALUES (123456789)")
        connection.execute(f"UPDATE {table} SET fingerprint = 987654321 WHERE fingerprint = 123456789")
        assert (987654321, 0) in near(connection, 987654321, 0, table)
    connection.execute("INSERT INTO scoped VALUES ('b', 2, 77)")
    found = connection.execute(
        "SELECT fingerprint, distance FROM simsql.near('scoped', %s, 7, scope => %s)",
        [FINGERPRINTS[0], '{"tenant": "a", "it\'s 100%": 1}'],
    )
    assert found.fetchall() == expected_near(FINGERPRINTS, FINGERPRINTS[0], 7)
    for table in ("article", "scoped", "unlogged", "unfinished", 'app."An ""article"'):  # those with key tables
        assert missing_keys(connection, table) == []
    assert connection.execute("SELECT table_name, problem FROM simsql.verify()").fetchall() == []
    assert connection.execute("SELECT DISTINCT state FROM simsql.indexes").fetchall() == [("ready",)]


def difference(one: list, other: list) -> set:
    return set(one) ^ set(other)
