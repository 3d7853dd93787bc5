"""Other databases on the server of a test."""

import pytest


@pytest.fixture
def subscriber(server):
    """A connection to another database on the same server."""
    with server.new_database() as url, server.connect(url.database) as connection:
        yield connection


@pytest.fixture
def restored(server):
    """A connection to a database without simsql, into which the test restores."""
    with server.new_database(template="template0") as url, server.connect(url.database) as connection:
        yield connection
