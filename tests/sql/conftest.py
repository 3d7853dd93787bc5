"""A table with an index, a role that owns one, and other databases on the server of a test."""

import pytest
from articles import create_articles, create_index, create_table
from oracle import clustered
from roles import allow_indexes


@pytest.fixture
def subscriber(server, _roles):
    """A connection to another database on the same server, which is dropped before the roles of the test."""
    with server.new_database() as url, server.connect(url.database) as connection:
        yield connection


@pytest.fixture
def restored(server, _roles):
    """A connection to a database without simsql, into which the test restores."""
    with server.new_database(template="template0") as url, server.connect(url.database) as connection:
        yield connection


@pytest.fixture
def restore(server, connection, restored, tmp_path):
    """Call it to restore a dump of the test's database into another one; it returns a connection to that."""

    def dump_and_restore(*options):
        file = str(tmp_path / "dump")
        server.run("pg_dump", *options, f"--file={file}", connection.info.dbname)
        server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}", restored.info.dbname)
        return restored

    return dump_and_restore


def one_and_three(connection):
    create_articles(connection, [1, 3])


@pytest.fixture
def fill(request, fill):
    """For tests that ask for `articles`: `fill_articles` of their module, or the rows 1 and 3."""
    if fill or "articles" not in request.fixturenames or hasattr(request.module, "articles"):
        return fill
    return one_and_three


@pytest.fixture
def owner(connection, new_role):
    """The role that owns `article` and its index, and is no superuser."""
    create_table(connection, clustered(20, seed=3))
    role = new_role()
    allow_indexes(connection, role)
    connection.execute(f"ALTER TABLE article OWNER TO {role}; SET ROLE {role}")
    create_index(connection)
    connection.execute("RESET ROLE")
    return role
