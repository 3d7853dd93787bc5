"""Searches that wait for a lock while something changes, each change once. `make waiting` combines them."""

import itertools

import pytest
from waiting_searches import CHANGES, LEVELS, SEARCHES, Case, Counts, Stage, changes_of, prepare

KINDS = [
    ("ordinary", "tables"),
    ("generated", "tables"),
    ("partitioned", "expression"),
    ("ordinary", "expression"),
]


@pytest.fixture(scope="module")
def prepared(server):
    prepare(server)
    return server


@pytest.mark.parametrize("part", range(4))
def test_a_search_that_waited_equals_plain_sql_or_says_why(prepared, part):
    searches, levels = itertools.cycle(SEARCHES), itertools.cycle(LEVELS)
    counts = Counts()
    with prepared.new_database() as url, Stage(prepared, str(url.database)) as stage:
        for number, change in enumerate(CHANGES):
            kind, storage = next(k for k in KINDS if change in changes_of(*k))
            search, level = next(searches), next(levels)
            if "column" in change:
                level = LEVELS[1]  # plain SQL sees the columns of now, and the rows of its snapshot
            if number % 4 == part:
                reader, before = number % 3 == 0, number % 5 < 2
                stage.try_case(
                    Case(kind, storage, number % 2 == 0, search, level, (change,), reader, before), counts
                )
    assert counts.waited > 5
