"""A table that Citus distributes is searched like any other."""

import pytest


@pytest.fixture
def server(citus):
    return citus


def test_x(connection, citus):
    connection.execute("CREATE TABLE article (id bigint, fingerprint bigint)")
    connection.execute("SELECT create_distributed_table('article', 'id')")
    assert connection.execute("SELECT count(*) FROM pg_dist_shard").fetchone() == (4,)


def test_y(connection, citus, new_role):
    new_role()
    assert connection.execute("SELECT count(*) FROM pg_dist_shard").fetchone() == (0,)
