"""Commands on an index whose recipe is in a file, because its id does not say all of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from oracle import to_bigint
from program import run, write_lines

from simsql import DEFAULT_RECIPE, simhash
from simsql.fingerprint import IdfTable, write_recipe

# Words that are known weigh hardly anything beside the others, so this and the default recipe differ.
RECIPE = replace(DEFAULT_RECIPE, weight="tf", idf=IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 3))
FOX = "The quick brown fox jumps over the lazy dog and the lazy cat"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "idf.recipe.json"
    write_recipe(RECIPE, path)
    return path


@pytest.fixture
def posts(connection, database_url, file):
    """A table that `simsql index` has given an index of this recipe."""
    connection.execute("CREATE TABLE post (id text PRIMARY KEY, body text, fp bigint)")
    run("index", "create", "post", "fp", "--recipe", file, "--database", database_url).done()
    assert connection.execute("SELECT recipe FROM simsql.indexes").fetchone() == (RECIPE.id,)
    return connection


def test_load_backfill_and_near(posts, database_url, file, tmp_path):
    number = simhash(FOX, RECIPE)
    assert number != simhash(FOX)
    lines = write_lines(tmp_path / "a.jsonl", {"x": FOX})
    posts.execute("INSERT INTO post VALUES ('y', %s)", [FOX])
    for command in (
        ["load", "post", lines, "--id-column", "id"],
        ["backfill", "post", "--text-column", "body"],
        ["near", "post", "--text", FOX],
    ):
        at = [*command, "--database", database_url]
        run(*at).failed(2, "the simhash index on post(fp): the recipe", "a file written by write_recipe")
        run(*at, "--recipe", DEFAULT_RECIPE.id).failed(2, f"has the recipe {RECIPE.id}, not words12-log-1")
        found = run(*at, "--recipe", file).done()
    assert posts.execute("SELECT id, fp FROM post ORDER BY id").fetchall() == [
        ("x", to_bigint(number)),
        ("y", to_bigint(number)),
    ]
    assert [json.loads(line)["row"]["id"] for line in found.lines] == ["x", "y"]
    at = ["near", "post", "--fingerprint", number, "--database", database_url]
    assert len(run(*at).done().lines) == len(run(*at, "--recipe", file).done().lines) == 2
    run(*at, "--recipe", DEFAULT_RECIPE.id).failed(2, "has the recipe")


def test_build(posts, database_url, file):
    posts.execute("SELECT simsql.drop_index('post')")
    run("index", "create", "post", "fp", "--recipe", file, "--concurrently", "--database", database_url).done()
    assert posts.execute("SELECT recipe FROM simsql.indexes").fetchone() == (RECIPE.id,)


def test_dedup(file, tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", {"x": FOX, "y": FOX.upper(), "z": "A ship"})
    assert run("dedup", lines, "--recipe", file).done().groups == {frozenset({"x", "y"})}
