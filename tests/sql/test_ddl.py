"""Random statements of a table's owner: a search equals plain SQL, or raises an error that says what to do.

`make ddl` tries many more.
"""

import random

import pytest
from attempts import DifferenceError, template_with
from psycopg import errors
from random_ddl import ALL, FAULTS, VISIBLE, Counts, prepare, random_case, try_case


@pytest.fixture(scope="module")
def prepared(server):
    prepare(server)
    return server


def test_searches_are_exact_or_refused_whatever_the_owner_does(prepared):
    counts = Counts()
    for number in range(4):
        try_case(prepared, counts, random_case(random.Random(f"quick {number}")))
    assert counts.with_matches > 10


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_past_are_found_again(prepared, fault):
    template = template_with(prepared, FAULTS[fault])
    numbers = [number for number, (kind, _) in enumerate(ALL) if kind in VISIBLE[fault]]
    chance = random.Random(fault)
    for _ in range(12):
        case = random_case(chance) | {"role": "replica", "scoped": True, "scope_type": "integer"}
        case["sequences"] = [[(chance.choice(numbers), chance.randrange(1000)) for _ in range(4)]]
        try:
            try_case(prepared, Counts(), case, template)
        except DifferenceError:
            return
    pytest.fail("no difference was found")


def test_two_indexes_do_not_follow_to_one_column(articles):
    """One has lost its column, and that of the other is renamed to it."""
    articles.execute("ALTER TABLE article ADD spare bigint; SELECT simsql.create_index('article', 'spare')")
    articles.execute(
        "ALTER TABLE article DROP fingerprint CASCADE; ALTER TABLE article RENAME spare TO fingerprint"
    )
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="two simhash indexes") as caught:
        articles.execute("SELECT simsql.repair('article')")
    articles.execute(caught.value.diag.message_hint.partition(": ")[2])
    articles.execute("SELECT simsql.repair('article'); INSERT INTO article (fingerprint) VALUES (5)")
    found = articles.execute("SELECT column_name, state FROM simsql.indexes")
    assert found.fetchall() == [("fingerprint", "ready")]
    assert articles.execute("SELECT * FROM simsql.near('article', 4, 1)").fetchall() == [(5, 1)]
