"""A short soak of writers, searchers, vacuums and builds; and proof that a soak sees what it looks for."""

import pytest
from soak import IndexSoak
from soak_texts import TextSoak

# How often each must have happened.
ENOUGH = {
    "transactions": 800,
    "searches": 100,
    "invariants checked": 30,
    "vacuums": 2,
    "keys removed": 1000,
    "vacuums and builds killed": 2,
    "indexes made together": 3,
}
ENOUGH_TEXTS = {"rows dropped": 150, "decisions": 3, "claims accepted": 60, "claims refused": 20, "checks": 3}


class EndsWithEnough:
    """Ends when enough has happened, however busy the machine is."""

    enough: dict[str, int]

    def count(self, what, number=1):
        super().count(what, number)
        if all(self.counts[counted] >= least for counted, least in self.enough.items()):
            self.done.set()


class Short(EndsWithEnough, IndexSoak):
    enough = ENOUGH

    def _kill(self, connection, chance):
        """Kill no more than that: on a busy machine no vacuum would ever end."""
        killed = "vacuums and builds killed"
        if self.counts[killed] < ENOUGH[killed]:
            super()._kill(connection, chance)
        else:
            self.done.wait(0.1)


class NeverRebuilt(IndexSoak):
    def _rebuild(self, connection, chance):
        self.done.wait(0.1)


class GreedyVacuum(NeverRebuilt):
    """Removes all of equal keys, not all but one."""

    def _vacuum(self, connection, chance):
        connection.execute(
            "DELETE FROM simsql.keys_1_0 WHERE key IN"
            " (SELECT key FROM simsql.keys_1_0 GROUP BY key HAVING count(*) > 1)"
        )


@pytest.fixture
def connect_often(server, database):
    """Connect to the test's database; whoever does so closes the connection."""
    return lambda: server.connect(database.url.database)


def test_no_snapshot_misses_a_row(connect_often):
    counts = Short(connect_often, seed=1).run(seconds=60)
    assert counts["rows lost"] == 0
    assert {what for what, least in ENOUGH.items() if counts[what] < least} == set()


def test_a_trigger_that_adds_nothing_is_noticed(connect_often):
    def sabotage(connection):
        # Disabling it would make searches refuse.
        connection.execute(
            "CREATE OR REPLACE FUNCTION simsql.add_on_update_1() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN RETURN NULL; END'"
        )

    assert NeverRebuilt(connect_often, seed=2).run(seconds=60, sabotage=sabotage)["rows lost"] > 0


def test_a_vacuum_that_keeps_none_of_equal_keys_is_noticed(connect_often):
    assert GreedyVacuum(connect_often, seed=3).run(seconds=60)["rows lost"] > 0


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


# Claims, writers and clean-ups


class ShortOfTexts(EndsWithEnough, TextSoak):
    enough = ENOUGH_TEXTS


class WithoutLock(TextSoak):
    delete = TextSoak.delete.replace(" FOR SHARE", "")


class WithoutDigests(TextSoak):
    delete = TextSoak.delete.replace("= d.text_digest", "IS NOT NULL").replace(
        "= d.kept_text_digest", "IS NOT NULL"
    )


class WithoutClaims(TextSoak):
    claim = TextSoak.claim.replace("claim", "near")


def test_no_text_is_lost_and_no_near_duplicate_accepted(connect_often):
    soak = ShortOfTexts(connect_often, seed=1)
    counts = soak.run(seconds=60)
    assert [counts[fault] for fault in soak.FAULTS] == [0, 0]
    assert {what for what, least in soak.enough.items() if counts[what] < least} == set()


@pytest.mark.parametrize("soak", [WithoutLock, WithoutDigests, WithoutClaims])
def test_lost_texts_and_near_duplicates_are_noticed(connect_often, soak):
    counts = soak(connect_often, seed=2).run(seconds=60)
    assert counts["near-duplicates accepted" if soak is WithoutClaims else "texts lost"] > 0
