"""From a URL to an engine, and from an error to one line; a password stays unsaid."""

import os
import re

import psycopg
import pytest
from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from simsql.database import install_schema, open_engine
from simsql.database.connect import one_line
from simsql.errors import UsageError

PASSWORD = "hunter2"


SCHEMES = ["postgresql", "postgres", *(f"postgresql+{driver}" for driver in ("psycopg", "psycopg2", "asyncpg"))]


@pytest.mark.parametrize("scheme", [*SCHEMES, "postgres+asyncpg", "postgresql+pg8000", "postgresql+psycopg_async"])
def test_every_driver_means_psycopg(scheme):
    engine = open_engine(f"{scheme}://someone@somewhere:5433/archive?connect_timeout=3")
    assert engine.url == make_url("postgresql+psycopg://someone@somewhere:5433/archive?connect_timeout=3")
    assert engine.dialect.driver == "psycopg"


@pytest.mark.parametrize(
    ("query", "translated"),
    [
        ("ssl=require", {"sslmode": "require"}),
        ("ssl=true", {"sslmode": "require"}),
        ("ssl=verify-full&sslrootcert=/ca", {"sslmode": "verify-full", "sslrootcert": "/ca"}),
        ("ssl=disable&sslmode=require", {"sslmode": "require"}),
        ("timeout=2.5&command_timeout=60&prepared_statement_cache_size=0", {"connect_timeout": "3"}),
        ("prepare_threshold=0", {}),
        ("statement_cache_size=0&max_cached_statement_lifetime=0&async_fallback=true", {}),
        ("database=x&target_session_attrs=any", {"dbname": "x", "target_session_attrs": "any"}),
        ("host=a:1&host=b:2", {"host": ("a:1", "b:2")}),
        ("unix_sock=/run/pg/.s.PGSQL.5433", {"host": "/run/pg", "port": "5433"}),
        ("tcp_keepalive=false", {"keepalives": "0"}),
        pytest.param(
            *("direct_tls=true", {"sslnegotiation": "direct"}),
            marks=pytest.mark.skipif(psycopg.pq.version() < 170000, reason="libpq 17 has sslnegotiation"),
        ),
    ],
)
def test_parameters_of_other_drivers_are_translated(query, translated):
    assert open_engine(f"postgresql+asyncpg://someone@/archive?{query}").url.query == translated


def test_an_application_may_use_its_own_url(database_url):
    """As with asyncpg: the whole URL is that of the application, and TLS is asked for if the server has it."""
    url = make_url(database_url)
    query = {name: url.query[name] for name in ("host", "port")} | {"ssl": "prefer", "timeout": "9"}
    engine = open_engine(url.set(drivername="postgresql+asyncpg", query=query))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT current_database()")).scalar_one() == url.database
    engine.dispose()


@pytest.mark.parametrize(
    ("query", "options", "threshold"),
    [
        ("", {}, 5),
        ("&prepare_threshold=0", {}, 0),
        ("&prepare_threshold=None", {}, None),
        ("", {"prepare": False}, None),
    ],
)
@pytest.mark.unpooled("PgBouncer needs another prepare_threshold")
def test_statements_that_are_prepared(database_url, query, options, threshold):
    engine = open_engine(database_url + query, **options)
    with engine.connect() as connection:
        assert connection.connection.dbapi_connection.prepare_threshold == threshold
    engine.dispose()


def test_a_url_may_be_an_object_and_is_not_changed():
    url = URL.create("postgresql", username="someone", password=PASSWORD, host="somewhere", database="archive")
    assert open_engine(url).url.password == PASSWORD
    assert url.drivername == "postgresql"


@pytest.mark.parametrize(
    ("database", "said"),
    [
        (f"sqlite:///{PASSWORD}.db", "sqlite:// is not supported"),
        (f"mysql://root:{PASSWORD}@localhost/x", "mysql:// is not supported"),
        (f"postgresql+nonsense://root:{PASSWORD}@localhost/x", "postgresql+nonsense:// names an unknown driver"),
        (f"postgresql++a+b://root:{PASSWORD}@localhost/x", "postgresql++a+b:// names an unknown driver"),
        (
            f"postgresql+asyncpg://root:{PASSWORD}@localhost/x?ssl=no-verify",
            "has ssl=no-verify: write it as sslmode",
        ),
        (
            f"postgresql+asyncpg://root:{PASSWORD}@localhost/x?timeout=soon",
            "timeout=soon: write it as connect_timeout",
        ),
        (f"postgresql+pg8000://root:{PASSWORD}@localhost/x?ssl_context=1", "the parameter ssl_context, which"),
        (f"postgresql+asyncpg://root:{PASSWORD}@h/x?frobnicate=1", "frobnicate, which libpq does not have"),
        (f"postgresql://root:{PASSWORD}@h/x?prepare_threshold=-1", "prepare_threshold=-1: write a whole number"),
        (f"postgresql://root:{PASSWORD}@h/x?row_factory=dict_row", "row_factory, which libpq does not have"),
        (f"root:{PASSWORD}@localhost/x", "not a URL"),
        (f"password={PASSWORD} dbname=x", "not a URL"),
        (PASSWORD, "not a URL"),
        ("", "not a URL"),
        (f"postgresql://root:{PASSWORD}@localhost:port/x", "not a URL"),
        (f"postgresql:///x?port={PASSWORD}", "a port that is not a number"),
    ],
)
def test_another_database_is_refused_in_one_line_without_the_password(database, said):
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        open_engine(database)
    assert PASSWORD not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_engine_reads_committed_rows_whatever_the_database_does(server, database_url):
    name = make_url(database_url).database
    server.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    engine = open_engine(database_url)
    with engine.connect() as connection:
        assert connection.execute(text("SHOW transaction_isolation")).scalar_one() == "read committed"
        assert connection.execute(text("SHOW application_name")).scalar_one() == "simsql"
    engine.dispose()


def failure(engine, statement):
    with engine.connect() as connection, pytest.raises(DBAPIError) as failed:
        connection.execute(text(statement))
    return failed.value


def test_an_error_becomes_its_message_and_hint(database):
    error = failure(database, "SELECT simsql.fp(-1)")
    assert one_line(error) == one_line(error.orig)
    assert one_line(error).startswith("simsql.fp: -1 is not an unsigned 64-bit fingerprint. Pass a whole number")


def test_an_error_without_a_hint_is_its_message_alone(database):
    assert one_line(failure(database, "SELECT 1 / 0")) == "division by zero"


def test_an_error_of_many_lines_becomes_one(database):
    error = failure(
        database, "DO $$ BEGIN RAISE EXCEPTION E'first\\n\\n  second' USING HINT = E'do\\nthis'; END $$"
    )
    assert one_line(error) == "first second. do this"


def test_a_database_without_simsql_is_told_how_to_get_it(empty_database):
    error = failure(empty_database, "SELECT simsql.version()")
    assert one_line(error).endswith("simsql is not installed in the database: run simsql install")
    install_schema(empty_database)
    with empty_database.connect() as connection:
        connection.execute(text("SELECT simsql.version()"))
    # One of a later version.
    error = failure(empty_database, "CALL simsql.tidy_up('1 hour')")
    assert one_line(error).endswith("does not exist. Schema simsql is outdated: run simsql install")


def test_another_missing_schema_is_not_taken_for_simsql(database):
    assert "simsql install" not in one_line(failure(database, "SELECT elsewhere.version()"))


def test_a_server_that_does_not_answer_is_said_in_one_line_without_the_password(tmp_path):
    url = URL.create("postgresql", "someone", PASSWORD, database="x", query={"host": os.fspath(tmp_path)})
    with pytest.raises(OperationalError) as failed:
        open_engine(url).connect()
    line = one_line(failed.value)
    assert os.fspath(tmp_path) in line
    assert PASSWORD not in line
    assert "\n" not in line


def test_an_error_of_psycopg_alone_is_said_as_well(connection):
    with pytest.raises(psycopg.Error) as failed:
        connection.execute("SELECT simsql.near('pg_class', 1)")
    assert one_line(failed.value).startswith("pg_class has no simhash index. Create it: SELECT")
