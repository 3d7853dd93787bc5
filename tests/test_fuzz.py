"""Some bad input of every kind. tests/generators/fuzz.py tries more of it, and for as long as you like."""

from random import Random

import pytest
from fuzz_commands import COMMANDS, trying_options
from fuzz_files import FILES
from fuzz_sql import find_routines, make_call, trying_calls
from fuzz_values import VALUES
from fuzzing import random_of, try_one

# How many take a few tenths of a second.
COUNTS = {
    "records": 100,
    "compressed": 30,
    "encodings": 15,
    "parquet": 15,
    "pictures": 20,
    "labels": 150,
    "recipes": 30,
    "recipe files": 30,
    "text forms": 200,
    "fingerprint files": 10,
    "URLs": 50,
    "Python": 300,
    "dedup": 8,
}
TARGETS = [target for target in (*FILES, *VALUES, *COMMANDS) if target.name in COUNTS]


def check(attempt, name, count):
    for number in range(count):
        outcome, _, said, _ = try_one(attempt, random_of(1, name, number))
        assert outcome in ("refused", "accepted"), f"{name}, number {number}: {said}"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_bad_input(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with target.prepare(tmp_path / target.name.replace(" ", "_")) as attempt:
        check(attempt, target.name, COUNTS[target.name])


def test_bad_arguments_of_sql(connect, new_role, connection):
    for routine in find_routines(connection):
        for number in range(20):
            make_call(Random(number), routine)  # there are values of the type of each parameter
    with trying_calls(connect, new_role()) as attempt:
        check(attempt, "SQL", 50)


def test_bad_options(database_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with trying_options(
        tmp_path / "work", database_url + "&options=-c default_transaction_read_only=on"
    ) as attempt:
        check(attempt, "options", 25)
