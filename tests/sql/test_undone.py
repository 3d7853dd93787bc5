"""What stops keys, a write, and what undoes it: searches refuse or find all. `make undone` combines them."""

import pytest
from attempts import DifferenceError, template_with
from undone_causes import (
    CAUSES,
    FAULTS,
    RESTORES,
    WRITES,
    Case,
    Counts,
    Event,
    World,
    prepare,
)

WRITE = Event("write", WRITES[0].replace("{n}", "7").replace("{fresh}", "114688"))
UPDATE = Event("write", WRITES[2].replace("{fresh}", "131072"))


@pytest.fixture(scope="module")
def prepared(server):
    prepare(server)
    return server


def events(name):
    cause, back = CAUSES[name]
    return (Event(f"cause: {name}", cause), WRITE, UPDATE, *([Event(f"undo: {name}", back)] if back else []))


@pytest.mark.parametrize("name", CAUSES)
def test_a_state_that_comes_back_leaves_a_mark(prepared, name):
    if "EXPRESSION" in CAUSES[name][0] and prepared.major < 17:
        pytest.skip("PostgreSQL 17 can change expressions")
    kind = "generated" if "EXPRESSION" in CAUSES[name][0] else "unlogged" if name == "logged" else "ordinary"
    in_one = len(name) % 2 == 0
    World(prepared, Case(kind, name > "m", False, "", in_one, events(name)), Counts()).run()


@pytest.mark.parametrize("name", ["disable a trigger", "be a partition", "another policy", "truncate keys"])
def test_an_upgrade_does_not_launder_it(prepared, name):
    World(prepared, Case("ordinary", False, True, "", False, events(name)), Counts()).run()


@pytest.mark.parametrize("storage", ["tables", "expression"])
@pytest.mark.parametrize("name", ["disable a trigger", "have a child", "another policy", "truncate keys"])
def test_an_interrupted_change_of_the_storage_does_not_launder_it(prepared, name, storage):
    World(prepared, Case("ordinary", name > "m", False, "", False, events(name), storage), Counts()).run()


@pytest.mark.parametrize("restore", RESTORES)
def test_a_restore_that_lacks_something_is_noticed(prepared, restore):
    World(prepared, Case("ordinary", False, False, restore, False, (WRITE,)), Counts()).run()


def test_a_crash_that_emptied_keys_is_noticed(prepared):
    cause, undo = events("logged")[0], events("logged")[-1]
    case = Case("unlogged", False, False, "", False, (cause, WRITE, Event("crash", "-- crash"), undo))
    World(prepared, case, Counts()).run()


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_past_are_found_again(prepared, fault):
    template = template_with(prepared, FAULTS[fault])
    interrupted = "tables" if fault == "interrupted" else ""
    case = Case("ordinary", False, False, "", False, events("disable a trigger"), interrupted)
    with pytest.raises(DifferenceError, match=r"misses|keys are missing"):
        World(prepared, case, Counts(), template).run()
