"""What errors and findings advise: commands of this program, which can be run as they stand, and help."""

import json
import re
import shlex
from pathlib import Path

import pytest
from articles import create_articles, create_table
from internals import begin_build
from program import run

from simsql.cli._app import _COMMANDS_OF_CALLS, as_commands

REPOSITORY = Path(__file__).resolve().parents[2]

SEARCH = ["near", '"Art icle"', "--fingerprint", "7"]


def test_every_hint_with_a_call_has_a_code():
    """Otherwise the command line would print SQL: see sql/calls.sql."""
    calls = "|".join(_COMMANDS_OF_CALLS.keys() - {"alter_index"})  # a hint leaves out its sources
    written = re.compile(rf"(?:SELECT|FROM|CALL) simsql\.(?:{calls})\((?:%L|'')")
    for path in (*REPOSITORY.glob("sql/**/*.sql"), *REPOSITORY.glob("simsql/database/*.py")):
        assert not written.search(path.read_text(encoding="utf-8")), path


@pytest.fixture
def call(database_url):
    """Run a command on the test's database."""
    return lambda *arguments: run(*arguments, "--database", database_url)


@pytest.fixture
def table(connection):
    """An indexed table whose name has to be quoted, in SQL and in the shell."""
    create_articles(connection, [1, 3, 7])
    connection.execute("SELECT simsql.drop_index('article'); ALTER TABLE article RENAME TO \"Art icle\"")
    connection.execute("""SELECT simsql.create_index('"Art icle"', 'fingerprint')""")
    return connection


def advised(message):
    """The commands that a message names: each ends with the message, or where a semicolon ends it."""
    assert not re.search(r"simsql\.\w+\(|=>", message), message
    return [shlex.split(found)[1:] for found in re.findall(r"\bsimsql [a-z][^;\n]*", message)]


@pytest.mark.parametrize(
    ("damage", "command"),
    [
        ('ALTER TABLE "Art icle" RENAME TO "Art\'icle"', ["near", '"Art\'icle"', "--fingerprint", "7"]),
        ('ALTER TABLE "Art icle" RENAME COLUMN fingerprint TO f', SEARCH),
        ('ALTER TABLE "Art icle" DISABLE TRIGGER ALL', SEARCH),
        ("SELECT simsql.drop_index('\"Art icle\"')", SEARCH),
        ("SELECT simsql.drop_index('\"Art icle\"')", ["pairs", '"Art icle"']),
        ("SELECT simsql.drop_index('\"Art icle\"')", ["clusters", '"Art icle"']),
        ("SELECT 1", ["uninstall"]),
    ],
)
def test_the_command_that_an_error_names_helps(table, call, damage, command):
    table.execute(damage)
    found = call(*command)
    found.failed(2 if "drop_index" in damage else 1, "PostgreSQL: ")
    (help_, *_) = advised(found.err)
    call(*help_).done()
    if command != ["uninstall"]:
        call(*command).done()


def test_the_commands_for_a_default_index_help(table, call):
    table.execute('ALTER TABLE "Art icle" ADD COLUMN second bigint')
    table.execute("""SELECT simsql.create_index('"Art icle"', 'second')""")
    found = call(*SEARCH)
    found.failed(2, "2 simhash indexes", "Name the column: one of fingerprint, second")
    call(*advised(found.err)[0]).done()
    defaults = [json.loads(line) for line in call("index", "list").done().lines]
    assert [(row["column"], row["is_default"]) for row in defaults] == [("fingerprint", True), ("second", False)]
    assert len(call(*SEARCH).done().out.splitlines()) == 3
    found = call("index", "set-default", '"Art icle"', "second")
    found.failed(1, '3 rows of public."Art icle" with a fingerprint in fingerprint have none in second')
    call(*advised(found.err)[-1]).done()
    assert call(*SEARCH).done().out == ""


def test_the_commands_that_verify_names_help(table, call):
    table.execute(
        'DELETE FROM simsql.keys_2_0; DROP TRIGGER simsql_2_update ON "Art icle";'
        " INSERT INTO simsql.keys_2_1 VALUES (5), (6)"
    )
    found = call("index", "verify")
    assert found.code == 1
    for line in found.lines:
        (help_,) = advised(json.loads(line)["hint"])
        call(*help_).done()
    assert call("index", "verify").done().out == ""


def test_an_unfinished_build_is_gone_on_with_as_the_error_says(connection, call):
    create_table(connection, [1, 3, 7])
    connection.execute("ALTER TABLE article ADD tenant int DEFAULT 1")
    options = ["--distance", 5, "--blocks", 5, "--scope-column", "tenant", "--concurrently"]
    call("index", "create", "article", "fingerprint", *options).done()
    connection.execute(
        "UPDATE simsql.registry SET ready = false; CREATE TABLE simsql.built_1 (fp bigint, scope text[])"
    )
    for command in (["pairs", "article", "--scope", "tenant=1"], ["index", "create", "article", "fingerprint"]):
        found = call(*command)
        found.failed(1, "PostgreSQL: ")
        go_on = advised(found.err)[0]
        assert go_on[:4] == ["index", "create", "public.article", "fingerprint"]
        assert go_on[-1] == "--concurrently"
    call(*go_on).done()
    call("pairs", "article", "--scope", "tenant=1").done()


def test_a_build_without_a_recipe_is_gone_on_with_as_the_hint_says(connection, call):
    """A default recipe would be another one, and searches by text would miss all rows of such fingerprints."""
    create_table(connection, [1, 3, 7])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    begin_build(connection)
    connection.execute("UPDATE simsql.registry SET recipe = NULL")
    (problem,) = map(json.loads, call("status", "--check").lines)
    (go_on,) = advised(problem["remedy"])
    assert go_on[:2] == ["index", "create"]
    call(*go_on).done()
    (index,) = map(json.loads, call("index", "list").done().lines)
    assert (index["state"], index["recipe"]) == ("ready", None)
    # The command for a new index has no option for that.
    connection.execute("BEGIN; SET LOCAL simsql.hints = 'codes'")
    (again,) = connection.execute("SELECT simsql._create_again(r) FROM simsql.registry AS r").fetchone()
    connection.execute("COMMIT")
    drop, create = as_commands(again).split("; ")
    assert drop.startswith("simsql index drop")
    assert create.startswith("SELECT simsql.create_index('public.article', 'fingerprint', distance => 3")


def test_options_are_named_as_the_program_has_them(connection, call, tmp_path):
    create_table(connection, [1])
    connection.execute("ALTER TABLE article ADD title bigint, ADD tenant int")
    (tmp_path / "a.txt").write_text("some words")
    for command in (["backfill", "article", "--text-column", "body"], ["load", "article", tmp_path]):
        call(*command).failed(
            2, "article has no simhash index: name the column for the fingerprints (column, --column)"
        )
    connection.execute("SELECT simsql.create_index('article', 'title')")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}')")
    for command in (["backfill", "article", "--text-column", "body"], ["load", "article", tmp_path]):
        call(*command).failed(2, "several simhash indexes (title, fingerprint): name the column", "--column)")
    for command in (["pairs", "article"], ["index", "drop", "article"]):
        call(*command).failed(2, "Name the column: one of title, fingerprint.")
    call("pairs", "article", "--column", "fingerprint").failed(
        1, "Give a value for each column: --scope tenant=..."
    )
    call("index", "drop", "article", "--column", "body").failed(2, "simsql index list lists them.")
