"""A short soak of writers, searchers, vacuum and rebuilds; and proof that a soak sees what it looks for."""

import pytest
from soak import Soak


class NeverRebuilt(Soak):
    def _rebuild(self, connection, chance):
        self.done.wait(0.1)


class HastyVacuum(NeverRebuilt):
    """Deletes by value what had no row a statement ago, writers' new keys among it."""

    def _vacuum(self, connection, chance):
        (rows,) = connection.execute("SELECT coalesce(array_agg(fingerprint), '{}') FROM article").fetchone()
        self.done.wait(0.02)
        connection.execute("DELETE FROM simsql.keys_1_0 WHERE key <> ALL (%s)", [rows])


@pytest.fixture
def connect_often(server, database_url):
    name = database_url.rsplit("/", 1)[1].split("?")[0]
    return lambda: server.connect(name)


def test_no_snapshot_misses_a_row(connect_often):
    counts = Soak(connect_often, seed=1).run(seconds=8)
    assert counts["rows lost"] == 0
    for what in ("transactions", "searches", "invariants checked", "vacuums", "keys removed", "indexes built"):
        assert counts[what] > 0


def test_a_disabled_trigger_is_noticed(connect_often):
    def sabotage(connection):
        connection.execute("ALTER TABLE article DISABLE TRIGGER simsql_1_update")

    assert NeverRebuilt(connect_often, seed=2).run(seconds=60, sabotage=sabotage)["rows lost"] > 0


def test_a_vacuum_that_trusts_two_snapshots_is_noticed(connect_often):
    assert HastyVacuum(connect_often, seed=3).run(seconds=60)["rows lost"] > 0


def test_writers_that_look_whether_a_key_is_there_are_noticed(connect_often):
    def sabotage(connection):
        for event in ("insert", "update"):
            (definition,) = connection.execute(
                "SELECT pg_get_functiondef(%s::regproc)", [f"simsql.add_on_{event}_1"]
            ).fetchone()
            look = ") AS f WHERE NOT EXISTS (SELECT FROM simsql.keys_1_0 AS k WHERE k.key = f.fp)"
            assert ") AS f" in definition
            connection.execute(definition.replace(") AS f", look, 1))

    assert NeverRebuilt(connect_often, seed=4).run(seconds=60, sabotage=sabotage)["rows lost"] > 0
