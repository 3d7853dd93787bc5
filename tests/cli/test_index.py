"""`simsql index ...`: what it prints, and its exit codes."""

import json
import signal

import pytest
from articles import create_articles, create_table, missing_keys
from internals import set_batch_size
from program import finish, run, spawn, wait_until

from simsql import Recipe


@pytest.fixture
def table(connection):
    """The table `article` without an index."""
    create_table(connection, [1, 3, None, -1])
    return connection


@pytest.fixture
def index(database_url):
    """Run `simsql index` on the test's database."""
    return lambda *arguments, **options: run("index", *arguments, "--database", database_url, **options)


def listed(index):
    """The cells of each index, apart from what to do."""
    rows = [json.loads(line) for line in index("list").done().lines]
    names = [
        "table",
        "column",
        "scope",
        "distance",
        "blocks",
        "lead",
        "inner_blocks",
        "recipe",
        "storage",
        "state",
        "all_visible",
        "hint",
    ]
    assert all(list(row) == names for row in rows)
    return [list(row.values())[:-2] for row in rows]


def rows_of(found):
    return [list(json.loads(line).values()) for line in found.lines]


@pytest.mark.parametrize("command", ["create", "build"])
def test_an_index_is_made_and_dropped(table, index, command):
    assert listed(index) == []
    made = index(command, "article", "fingerprint").done()
    assert made.out == "simhash index on article(fingerprint): ready\n"
    assert listed(index) == [["public.article", "fingerprint", [], 3, 4, 1, 0, "words12-log-1", "tables", "ready"]]
    assert missing_keys(table) == []
    index(command, "article", "fingerprint").failed(
        1, "PostgreSQL: ", "already has a simhash index", "drop it first"
    )
    index("drop", "article").done()
    assert listed(index) == []
    index("drop", "article").failed(1, "PostgreSQL: ", "has no simhash index")


@pytest.mark.parametrize("command", ["create", "build"])
def test_distance_design_and_recipe(table, index, command):
    recipe = Recipe(shingles=(3,)).id
    options = ["--distance", 7, "--blocks", 5, "--lead", 2, "--inner-blocks", 3, "--recipe", recipe]
    index(command, "public.article", "fingerprint", *options).done()
    assert listed(index) == [["public.article", "fingerprint", [], 7, 5, 2, 3, recipe, "tables", "ready"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--blocks", 1], "blocks"),
        (["--lead", 2], "need --blocks"),
        (["--blocks", 12, "--lead", 6], "924 tables"),
        (["--recipe", "unknown"], "is not the id of a recipe"),
        (["--distance", "far"], "--distance"),
    ],
)
def test_wrong_usage(options, said):
    for command in ("create", "build"):
        found = run("index", command, "article", "fingerprint", *options)
        assert found.code == 2
        assert said in found.err


def test_faults_are_printed_and_mended(table, index):
    index("create", "article", "fingerprint", "--blocks", 2).done()
    sound = index("verify").done()
    assert (sound.out, sound.err) == ("", "no faults\n")
    table.execute('DELETE FROM simsql.keys_1_1; ALTER TABLE article RENAME TO "odd\tname"')
    found = index("verify")
    repair = "simsql index repair 'public.\"odd\tname\"'"
    renamed = ["public.article", "fingerprint", "table renamed", 'public."odd\tname"', None]
    missing = ["public.article", "fingerprint", "keys missing", "simsql.keys_1_1", 3]
    assert (found.code, found.err) == (1, "")
    assert rows_of(found) == [[*renamed, repair], [*missing, repair]]
    mended = index("repair", '"odd\tname"').done()
    missing[0] = 'public."odd\tname"'
    assert rows_of(mended) == [[*renamed, None], [*missing, None]]
    for again in (index("verify", '"odd\tname"').done(), index("repair", '"odd\tname"').done()):
        assert again.out == ""
        assert again.err.startswith("no faults")


def test_superfluous_keys_are_no_fault_and_removed(connection, index):
    create_articles(connection, [1, 3, 5])
    connection.execute("DELETE FROM article WHERE id < 3")
    assert index("verify", "article", "--column", "fingerprint").done().out == ""
    assert index("vacuum", "article", "--column", "fingerprint").done().out == "8 keys removed\n"
    assert index("vacuum", "article").done().out == "0 keys removed\n"
    assert index("verify").done().out == ""


def test_what_postgresql_refuses(table, index):
    index("verify", "article").failed(1, "PostgreSQL: public.article has no simhash index")
    index("repair", "missing").failed(1, 'PostgreSQL: relation "missing" does not exist')
    index("vacuum", "article").failed(1, "PostgreSQL: public.article has no simhash index")
    index("build", "article", "body").failed(1, "simsql.build: column body of public.article is text, not bigint")


def test_a_database_without_simsql(empty_database):
    url = empty_database.url.render_as_string(hide_password=False)
    run("index", "list", "--database", url).failed(1, "schema simsql is not installed: run simsql install")
    run("index", "verify", "--database", url).failed(1, "run simsql install")


def test_an_interrupted_build_goes_on(table, database_url, index):
    table.execute("INSERT INTO article (fingerprint) SELECT n FROM generate_series(1, 3000) AS n")
    set_batch_size(table, 1)
    process = spawn("index", "build", "article", "fingerprint", "--database", database_url)
    for progress in ("registry", "built_1"):
        wait_until(
            lambda name=progress: table.execute(f"TABLE simsql.{name}").fetchall(), "the first batch", process
        )
    process.send_signal(signal.SIGINT)
    interrupted = finish(process)
    assert (interrupted.code, interrupted.err) == (130, "simsql: interrupted\n")
    (row,) = listed(index)
    assert row[-1] == "building"
    (line,) = index("verify").lines
    assert json.loads(line)["problem"] == "not ready"
    set_batch_size(table, 1000)
    index("build", "article", "fingerprint").done()
    assert missing_keys(table) == []
    index("verify").done()


def test_help():
    found = run("index", "--help").done()
    for command in ("create", "build", "list", "verify", "repair", "vacuum", "drop"):
        assert f" {command} " in found.out
        assert f"Usage: simsql index {command}" in run("index", command, "--help").done().out


@pytest.mark.parametrize("command", ["create", "build"])
def test_an_index_on_a_partitioned_table(connection, database_url, index, command):
    connection.execute(
        "CREATE TABLE article (id integer, fingerprint bigint) PARTITION BY RANGE (id);"
        "CREATE TABLE few PARTITION OF article FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE others PARTITION OF article DEFAULT;"
        "INSERT INTO article VALUES (1, 0), (2, 3), (20, 1), (21, -1)"
    )
    refused = index(command, "article", "fingerprint", "--storage", "tables")
    refused.failed(1, "is partitioned", "Use --storage expression")
    index(command, "article", "fingerprint").done()
    assert listed(index)[0][-2:] == ["expression", "ready"]
    assert index("verify").done().out == ""
    found = run("near", "article", "--fingerprint", 0, "--distance", 1, "--database", database_url).done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [1, 20]
    found = run("pairs", "article", "--distance", 1, "--database", database_url).done()
    assert [tuple(json.loads(line).values())[:2] for line in found.lines] == [(0, 1), (1, 3)]
    assert index("vacuum", "article").done().out == "0 keys removed\n"
    connection.execute("DROP INDEX simsql_1_2")
    assert [row[2:4] for row in rows_of(index("repair", "article").done())] == [
        ["search B-tree missing", "simsql_1_2"]
    ]
    connection.execute("UPDATE simsql.registry SET ready = false")
    assert "--storage expression" in index("create", "article", "fingerprint").err
    index("drop", "article").done()
    assert listed(index) == []
