"""Searches that wait for a lock while something changes, each change once. `make waiting` combines them."""

import itertools
from functools import partial

import pytest
from waiting_searches import (
    CHANGES,
    FAULTS,
    LEVELS,
    SEARCHES,
    Case,
    Counts,
    DifferenceError,
    Stage,
    changes_of,
    prepare,
    put_back,
)

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


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_past_are_found_again(prepared, fault):
    case = Case("ordinary", "tables", False, "near", LEVELS[1], ("lock and insert",))
    template = prepared.template(partial(put_back, fault=fault))
    with (
        prepared.new_database(template=template) as url,
        Stage(prepared, str(url.database)) as stage,
        pytest.raises(DifferenceError, match="missed"),
    ):
        stage.try_case(case, Counts())
