"""Random statements on small tables: after each, every row has its keys. `make statements` tries many more."""

import random

import pytest
from attempts import DifferenceError, template_with
from random_statements import FAULTS, SEEDS, Counts, Plan, try_world


@pytest.mark.oldest_version
def test_every_row_has_its_keys_after_any_statement(server):
    counts = Counts()
    with server.new_database() as url:
        for number in range(6):
            plan = Plan(random.Random(f"quick {number}"), server.major)
            try_world(server, str(url.database), counts, plan, 60)
    assert counts.executed.total() > 300
    assert counts.with_matches > 20


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_past_are_found_again(server, fault):
    with server.new_database(template=template_with(server, FAULTS[fault])) as url:
        plan = Plan(random.Random(SEEDS[fault]), server.major)
        with pytest.raises(DifferenceError, match="has no key"):
            try_world(server, str(url.database), Counts(), plan, 200)
