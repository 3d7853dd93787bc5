"""A small run of tests/exactness.py; and proof that it sees what it looks for."""

import exactness
import pytest
from exactness import KINDS, Trial, uniform


@pytest.fixture(autouse=True)
def _fewer_distances(monkeypatch):
    monkeypatch.setattr(exactness, "DISTANCES", (3, 10))


def differences(connection, kind, sabotage=""):
    """The number of differences after each event."""
    trial = Trial(connection, uniform(300, seed=1), 2, seed=1)
    return {event: different for event, _, different in trial.run(KINDS[kind], sabotage)}


def test_there_are_no_differences(connection):
    found = differences(connection, "list")
    assert len(found) > 5
    assert set(found.values()) == {0}


def test_differences_are_noticed(connection):
    """Keys that are lost are written again with their rows."""
    found = differences(connection, "ordinary, key tables", "DELETE FROM simsql.keys_1_0 WHERE key % 9 = 0")
    assert found["create, insert"] > 0
    assert found["truncate, fill"] == 0
