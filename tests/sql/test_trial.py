"""A short trial of all kinds of tables, and one of texts; and proof that a trial sees what it looks for."""

import pytest
from trial.run import Trial
from trial.sabotage import KINDS, SABOTAGES
from trial.tally import Tally
from trial.texts import Texts
from trial.workers import Workers

# How often each must have happened.
ENOUGH = {
    "transactions: read committed": 60,
    "transactions: serializable": 30,
    "two-phase commits": 10,
    "two-phase rollbacks": 5,
    "savepoints rolled back": 20,
    "statements: MERGE": 10,
    "statements: COPY": 10,
    "claims accepted": 20,
    "simsql.vacuum": 2,
}
ENOUGH_TEXTS = {"texts: decisions": 3, "texts: claims accepted": 40, "texts: claims refused": 20}
SEARCHES = 1000


class EndsWithEnough(Tally):
    """Ends when enough has happened, however busy the machine is."""

    def __init__(self, operations, searches=0, dropped=0):
        super().__init__()
        self._enough = operations, searches, dropped

    def operation(self, what, number=1):
        super().operation(what, number)
        operations, searches, dropped = self._enough
        if self.compared >= searches and self.checks["texts dropped"] >= dropped and not self.missing(operations):
            self.done.set()

    def missing(self, operations):
        return {what for what, least in operations.items() if self.operations[what] < least}


@pytest.fixture
def connect_often(server, database):
    """Connect to the test's database; whoever does so closes the connection."""
    return lambda: server.connect(database.url.database)


def test_nothing_is_lost_or_wrong(connect_often):
    tally = EndsWithEnough(ENOUGH, SEARCHES)
    trial = Trial(connect_often, 1, tally, bystanders=400)
    trial.prepare()
    trial.round(lambda _: tally.done.wait(60))
    trial.check(searches=1)
    assert not tally.failed, list(tally.lines())
    assert not tally.missing(ENOUGH)
    assert tally.compared >= SEARCHES
    assert tally.matching.total() >= tally.compared / 2


# Keys that are deleted are matches that are missing.
@pytest.mark.parametrize("sabotage", sorted(SABOTAGES.keys() - {"missing-matches"}))
def test_what_is_broken_is_noticed(connect_often, sabotage):
    tally = Tally()
    trial = Trial(connect_often, 2, tally, KINDS, bystanders=400, is_kept_up=False)
    trial.prepare()
    with connect_often() as connection:
        SABOTAGES[sabotage](connection)
    for _ in range(60):
        trial.check(searches=1)
        if tally.failed:
            break
        trial.round(lambda _: tally.done.wait(0.5))
    assert tally.failed


# Claims, writers and clean-ups


class WithoutLock(Texts):
    claimers = 0
    delete = Texts.delete.replace(" FOR SHARE", "")


class WithoutDigests(Texts):
    claimers = 0
    delete = Texts.delete.replace("= d.text_digest", "IS NOT NULL").replace("= d.kept_text_digest", "IS NOT NULL")


class WithoutClaims(Texts):
    claimers, writers, cleaners = 8, 0, 0
    claim = Texts.claim.replace("claim", "near")


def run(texts):
    texts.prepare()
    Workers(texts.tally, "1").run(texts.jobs(), lambda _: texts.tally.done.wait(60))
    texts.check()
    return texts.tally


def test_no_text_is_lost_and_no_near_duplicate_accepted(connect_often):
    tally = run(Texts(connect_often, 1, EndsWithEnough(ENOUGH_TEXTS, dropped=100)))
    assert not tally.failed, list(tally.lines())
    assert not tally.missing(ENOUGH_TEXTS)


@pytest.mark.parametrize("texts", [WithoutLock, WithoutDigests, WithoutClaims])
def test_lost_texts_and_near_duplicates_are_noticed(connect_often, texts):
    tally = run(texts(connect_often, 2, Tally()))
    assert (tally.wrong if texts is WithoutClaims else tally.lost).total() > 0
