"""Uninstalling: nothing of simsql is left behind, and nothing else is taken away."""

import psycopg
import pytest
from articles import create_articles, create_index
from catalog import objects_of_database
from program import run
from psycopg import errors
from sqlalchemy import make_url

from simsql.database import install_schema, open_engine, uninstall_schema
from simsql.database.install import UNINSTALL_IF_UNUSED


@pytest.fixture
def prepared(server, empty_database):
    """A connection to a database with simsql, two tables, their B-trees, and what it held before simsql came."""
    with server.connect(empty_database.url.database) as connection:
        connection.execute(
            "CREATE TABLE article (id bigint GENERATED ALWAYS AS IDENTITY, body text, fingerprint bigint)"
        )
        connection.execute("CREATE INDEX ON article (fingerprint)")
        connection.execute('CREATE TABLE "An ""article" (print bigint UNIQUE)')
        before = objects_of_database(empty_database)
        install_schema(empty_database)
        yield connection, before


def uninstall(connection: psycopg.Connection, **options: bool) -> None:
    connection.execute("SELECT simsql.uninstall(drop_indexes => %s)", [options.get("drop_indexes", False)])


def test_nothing_is_left_behind(prepared, empty_database):
    _, before = prepared
    assert objects_of_database(empty_database) != before
    assert uninstall_schema(empty_database)
    assert objects_of_database(empty_database) == before
    assert not uninstall_schema(empty_database)
    assert install_schema(empty_database)


def test_indexes_go_only_when_that_is_asked_for(prepared, empty_database):
    connection, before = prepared
    create_index(connection)
    create_index(connection, '"An ""article"', "print")
    connection.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    connection.execute("INSERT INTO article (fingerprint) VALUES (1)")
    complete = objects_of_database(empty_database)
    with pytest.raises(errors.DependentObjectsStillExist) as refused:
        uninstall(connection)
    assert refused.value.diag.message_primary == (
        'simsql.uninstall: simhash indexes exist: public.article(fingerprint), public."An ""article"(print)'
    )
    assert "drop_indexes => true" in refused.value.diag.message_hint
    assert objects_of_database(empty_database) == complete
    uninstall(connection, drop_indexes=True)
    assert objects_of_database(empty_database) == before
    connection.execute("INSERT INTO article (fingerprint) VALUES (2)")
    assert connection.execute("SELECT fingerprint FROM article").fetchall() == [(1,), (2,)]


def test_indexes_that_were_dropped_do_not_stand_in_the_way(prepared, empty_database):
    connection, before = prepared
    connection.execute("CREATE TABLE gone (fingerprint bigint)")
    create_index(connection, "gone")
    create_index(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    connection.execute("DROP TABLE gone")
    uninstall(connection)
    assert objects_of_database(empty_database) == before


def test_what_uses_simsql_is_named_and_kept(prepared, empty_database):
    connection, before = prepared
    create_index(connection)
    connection.execute("CREATE SCHEMA app")
    connection.execute("CREATE VIEW app.twins AS SELECT * FROM simsql.pairs('article', 3)")
    connection.execute("CREATE TABLE app.number (n numeric, f bigint DEFAULT simsql.fp(1))")
    connection.execute("CREATE TABLE app.found (m simsql.match)")
    connection.execute("CREATE DOMAIN app.matches AS simsql.match")
    connection.execute(
        "CREATE FUNCTION app.one() RETURNS SETOF simsql.match LANGUAGE sql AS 'SELECT 1::bigint, 2'"
    )
    complete = objects_of_database(empty_database)
    with pytest.raises(errors.DependentObjectsStillExist) as refused:
        uninstall(connection, drop_indexes=True)
    message = refused.value.diag.message_primary
    for name in ("view app.twins", "column f of table app.number", "column m of table app.found", "app.matches"):
        assert name in message
    assert "function app.one()" in message
    assert objects_of_database(empty_database) == complete
    for kind, name in (("VIEW", "twins"), ("TABLE", "number"), ("TABLE", "found"), ("DOMAIN", "matches")):
        connection.execute(f"DROP {kind} app.{name}")
    connection.execute("DROP SCHEMA app CASCADE")
    uninstall(connection, drop_indexes=True)
    assert objects_of_database(empty_database) == before


def test_only_the_owner_uninstalls(database_url, connection, new_role):
    create_articles(connection, [1])
    engine = open_engine(make_url(database_url).set(username=new_role()))
    with pytest.raises(Exception, match=r"simsql\.uninstall: must be owner of schema simsql"):
        uninstall_schema(engine, drop_indexes=True)
    engine.dispose()
    assert connection.execute("SELECT count(*) FROM simsql.near('article', 1, 0)").fetchone() == (1,)


def test_the_command(database_url, connection):
    create_articles(connection, [1])
    options = ("--database", database_url)
    assert run("install", *options).done().out.endswith(": up to date\n")
    run("uninstall", *options).failed(1, "public.article(fingerprint)", "simsql uninstall --drop-indexes")
    assert run("uninstall", "--drop-indexes", *options).done().out == "schema simsql: uninstalled\n"
    assert run("uninstall", *options).done().out == "schema simsql: not installed\n"
    assert run("install", *options).done().out.endswith(": installed\n")


def test_a_migration_of_a_role_that_may_not_remove_the_schema_keeps_it(connection, new_role):
    connection.execute(f"SET ROLE {new_role()}")
    connection.execute(UNINSTALL_IF_UNUSED)
    assert connection.execute("SELECT to_regnamespace('simsql') IS NOT NULL").fetchone() == (True,)
