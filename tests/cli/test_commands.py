"""The commands beside the main job, and wrong usage of all of them."""

import gzip
import importlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from signal import SIGINT, SIGTERM

import psycopg
import pytest
from articles import create_articles
from oracle import to_bigint
from program import PROGRAM, run, run_apart, write_lines
from typer.main import get_group

from simsql import __version__, cli, simhash
from simsql.cli import _app

TEXT = "The quick brown fox jumps over the lazy dog"


@pytest.fixture
def indexed(connection):
    """The table `article` with four fingerprints, the first that of TEXT."""
    first = simhash(TEXT)
    create_articles(connection, [to_bigint(value) for value in (first, first ^ 0b111, first ^ 2**63, 2**64 - 1)])
    return first


def usage(*arguments, **options):
    """Run with arguments that cannot be: exit code 2, nothing on stdout, no traceback."""
    found = run(*arguments, **options)
    assert found.code == 2
    assert found.stdout == b""
    assert re.fullmatch(r"simsql: error: [^A-Z].*(; see|\? See) simsql.* --help\n", found.err)
    return found.err


# near


def test_near_a_fingerprint(database_url, indexed):
    found = run("near", "article", "--fingerprint", indexed, "--database", database_url).done()
    rows = [json.loads(line) for line in found.lines]
    # 3 is the index's own distance.
    assert [(row["distance"], row["row"]["id"]) for row in rows] == [(0, 1), (1, 3), (3, 2)]
    assert {row["fingerprint"] for row in rows} == {indexed, indexed ^ 0b111, indexed ^ 2**63}
    assert rows[0]["row"] == {"id": 1, "body": None, "fingerprint": to_bigint(indexed)}


@pytest.mark.parametrize(("distance", "ids"), [(0, [1]), (1, [1, 3]), (2, [1, 3]), (3, [1, 3, 2])])
def test_near_at_a_distance(database_url, indexed, distance, ids):
    options = ["--distance", distance, "--database", database_url]
    found = run("near", "public.article", "--fingerprint", indexed, *options).done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == ids
    everything = run("near", "article", "--fingerprint", 0, "--distance", 64, "--database", database_url).done()
    assert len(everything.lines) == 4


def test_near_a_text(database_url, indexed):
    options = ["--distance", 0, "--database", database_url]
    found = run("near", "article", "--text", TEXT.upper(), *options).done()
    assert run("near", "article", "--text", "-", *options, stdin=TEXT.encode()).done().out == found.out
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [1]
    run("near", "article", "--text", "?!", *options).failed(
        1, "the text has too few letters and digits for a fingerprint of the recipe words12-log-1"
    )


def test_near_what_a_file_holds(database_url, indexed, tmp_path):
    """Read as `load` and `dedup` read it, whatever the encoding and the compression."""
    (tmp_path / "plain.txt").write_text(TEXT)
    (tmp_path / "marked.txt").write_text(TEXT, encoding="utf-16")
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    write_lines(tmp_path / "one.jsonl", {"x": TEXT})
    write_lines(tmp_path / "two.jsonl", {"x": TEXT, "y": TEXT})
    (tmp_path / "latin").write_bytes("né né né".encode("latin-1"))
    options = ["--distance", 0, "--database", database_url]
    for name in ("plain.txt", "marked.txt", "packed.txt.gz", "one.jsonl"):
        found = run("near", "article", "--file", tmp_path / name, *options).done()
        assert [json.loads(line)["row"]["id"] for line in found.lines] == [1]
    for data in (TEXT.encode(), TEXT.encode("utf-16")):
        assert len(run("near", "article", "--file", "-", *options, stdin=data).done().lines) == 1
    for name, code, said in (
        ("two.jsonl", 2, "two.jsonl contains several documents: name a file with one text"),
        ("missing", 2, "no such file or folder"),
        (
            "latin",
            1,
            "latin: not utf-8: byte 1 is not utf-8: the file is damaged or in another encoding",
        ),
    ):
        run("near", "article", "--file", tmp_path / name, *options).failed(code, said)
    run("near", "article", "--file", tmp_path / "latin", "--encoding", "latin-1", *options).done()
    run("near", "article", "--file", "-", *options).failed(1, "stdin: empty: the file is empty")


def test_a_text_that_is_the_name_of_a_file(database_url, indexed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text(TEXT)
    options = ["--distance", 0, "--database", database_url]
    found = run("near", "article", "--text", "a.txt", *options).done()
    assert found.out == ""
    assert found.err.splitlines() == [
        "a.txt is a file, and --text searches for its name: use --file a.txt to search for its content",
        "no matches",
    ]
    for text in ("b.txt", "long " * 10_000):
        assert run("near", "article", "--text", text, *options).done().err == "no matches\n"


def test_near_the_extremes(database_url, indexed):
    options = ["--distance", 0, "--database", database_url]
    assert len(run("near", "article", "--fingerprint", 2**64 - 1, *options).done().lines) == 1
    assert len(run("near", "article", "--fingerprint", -1, *options).done().lines) == 1
    assert len(run("near", "article", "--fingerprint", f"0x{2**64 - 1:X}", *options).done().lines) == 1
    assert run("near", "article", "--fingerprint", 0, *options).done().lines == []


@pytest.mark.parametrize(
    "number", ["-9223372036854775809", "18446744073709551616", "1.5", "0x10", "one", "1\n2", "c" * 16, "1" * 21]
)
def test_numbers_that_are_no_fingerprints(number):
    found = run("near", "article", "--fingerprint", number)
    found.failed(2, "is not a fingerprint: expected a whole number between 0 and 2**64 - 1, the bigint of one")


@pytest.mark.parametrize("distance", [-1, 65, 10**20])
@pytest.mark.parametrize("command", [["near", "article", "--fingerprint", 1], ["dedup", "."]])
def test_distances_that_cannot_be(command, distance):
    found = run(*command, "--distance", distance)
    found.failed(
        2, f"'--distance' / '-d': it must be between 0 and 64, not {distance}; see simsql {command[0]} --help"
    )


def test_what_near_searches_for():
    for options in ([], ["--text", "x", "--fingerprint", 1], ["--text", "x", "--file", "-"]):
        run("near", "article", *options).failed(2, "one of --text, --file and --fingerprint")


def test_near_where_there_is_no_index(database_url, connection, indexed):
    connection.execute("CREATE TABLE plain (fingerprint bigint, other text)")
    connection.execute("CREATE VIEW seen AS SELECT * FROM article")
    for table, part in (
        ("plain", "plain has no simhash index"),
        ("missing", 'relation "missing" does not exist'),
        ("seen", "seen has no simhash index"),
        ('"', "invalid name syntax"),
    ):
        run("near", table, "--fingerprint", 1, "--database", database_url).failed(2, "PostgreSQL: ", part)
    options = ["--fingerprint", 1, "--database", database_url]
    run("near", "article", "--column", "body", *options).failed(2, "body")
    run("near", "article", "--column", "nothing", *options).failed(2, "nothing")


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("SELECT simsql.create_index('article', 'body')", "column body of public.article is text, not bigint"),
        ("SELECT simsql.create_index('parts', 'fingerprint', storage => 'tables')", "parts is partitioned"),
        ("SELECT simsql.create_index('seen', 'fingerprint')", "seen is a view"),
    ],
)
def test_what_cannot_be_indexed(connection, indexed, statement, part):
    connection.execute("CREATE VIEW seen AS SELECT * FROM article")
    connection.execute("CREATE TABLE parts (fingerprint bigint) PARTITION BY HASH (fingerprint)")
    with pytest.raises(psycopg.Error, match=part):
        connection.execute(statement)


def test_near_with_two_indexes(database_url, connection, indexed):
    connection.execute("ALTER TABLE article ADD COLUMN title_fp bigint")
    connection.execute("UPDATE article SET title_fp = 5 WHERE id = 4")
    connection.execute("SELECT simsql.create_index('article', 'title_fp')")
    options = ["--fingerprint", 5, "--distance", 0, "--database", database_url]
    run("near", "article", *options).failed(2, "PostgreSQL: ")
    found = run("near", "article", "--column", "title_fp", *options).done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [4]


def test_the_url_of_an_application(database_url, indexed):
    """The usual one of FastAPI, with the parameters of its driver."""
    url = database_url.replace("+psycopg:", "+asyncpg:") + "&ssl=prefer&command_timeout=60"
    found = run("near", "article", "--fingerprint", indexed, "--distance", 0, "--database", url).done()
    assert len(found.lines) == 1
    assert run("status", SIMSQL_DATABASE=database_url.replace("postgresql+psycopg:", "postgres:")).done().lines


# install, status, sql


def test_install_and_status(empty_database):
    url = empty_database.url.render_as_string(hide_password=False)
    found = run("status", "--format", "table", "--database", url).done()
    assert re.search(r"^PostgreSQL +\d+", found.out)
    assert "not installed: run simsql install" in found.out
    assert run("install", "--database", url).done().out == f"schema simsql {__version__}: installed\n"
    assert run("install", "--database", url).done().out == f"schema simsql {__version__}: up to date\n"
    found = run("status", "--format", "table", SIMSQL_DATABASE=url).done()
    assert re.search(rf"^schema simsql +{re.escape(__version__)} \(revision \w+\)$", found.out, re.MULTILINE)
    assert re.search(r"^indexes +0$", found.out, re.MULTILINE)
    row = json.loads(run("status", SIMSQL_DATABASE=url).done().out)
    assert re.fullmatch(r"\d.*", row.pop("postgresql"))
    assert row.pop("revision") in found.out
    assert row == {"schema": __version__, "outdated": False, "indexes": 0}


def test_status_names_the_indexes(database_url, connection):
    connection.execute('CREATE TABLE "odd [bold]%% name" (f bigint)')
    connection.execute("SELECT simsql.create_index('\"odd [bold]%% name\"', 'f', distance => 5)")
    found = run("status", "--format", "table", "--database", database_url).done()
    assert re.search(r"^indexes +1$", found.out, re.MULTILINE)
    row = found.lines[-1]
    assert 'public."odd [bold]' in row
    assert re.search(r"\bf +- +5 +3 +1 +0 +- ", row)


def test_a_schema_of_somebody_else_is_left_alone(empty_database):
    url = empty_database.url.render_as_string(hide_password=False)
    with empty_database.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA simsql; CREATE TABLE simsql.theirs (a int)")
    run("install", "--database", url).failed(1, "has a schema simsql", "rename or drop it")


def test_the_printed_sql_installs_the_schema(server, empty_database):
    script = run("install", "--sql").done().out
    assert run("install", "--sql", SIMSQL_DATABASE="postgresql://nobody@localhost:1/nothing").done().out == script
    for options in (["--from", "0001"], ["--sql", "--database", "postgresql://nobody@localhost:1/nothing"]):
        run("install", *options).failed(2, "--from needs --sql, and --sql connects to no database")
    with server.connect(empty_database.url.database) as connection:
        connection.execute(script)
    url = empty_database.url.render_as_string(hide_password=False)
    assert run("install", "--database", url).done().out == f"schema simsql {__version__}: up to date\n"


# Usage


def test_version_and_help():
    assert run("--version").done().out == f"simsql {__version__}\n"
    found = run("--help").done()
    commands = ("dedup", "fingerprint", "load", "plan", "near", "pairs", "clusters", "install", "status")
    for command in commands:
        assert re.search(rf"^ +{command} ", found.out, re.MULTILINE)
        assert "Usage: simsql" in run(command, "--help").done().out


def test_help_says_of_each_command_what_its_own_help_begins_with():
    overview = run("--help", COLUMNS="200").done().out.partition("Commands:\n")[2]
    summaries = dict(re.findall(r"^  (\S+) +(.+)$", overview, re.MULTILINE))
    for module in pkgutil.iter_modules(cli.__path__, "simsql.cli."):
        importlib.import_module(module.name)
    assert summaries.keys() == get_group(_app.app).commands.keys()
    for name, summary in summaries.items():
        assert run(name, "--help").done().lines[2].strip() == summary


def test_a_command_imports_no_more_than_it_needs():
    """The start of the program is most of the time that a small command takes."""
    script = "import sys\nfrom simsql.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    heavy = {"numpy", "psycopg", "sqlalchemy", "alembic"}
    for arguments, unwanted in (
        (["--help"], heavy | {"rich.progress"}),
        (["--version"], heavy | {"rich.progress"}),
        *(([name, "--help"], heavy) for name in _app._COMMANDS),
        (["index", "create", "--help"], heavy),
        (["find-pairs"], {"psycopg", "sqlalchemy", "alembic"}),
        (["fingerprint", "-"], {"psycopg", "sqlalchemy", "alembic"}),
        (["plan", "--rows", "1"], {"psycopg", "sqlalchemy", "alembic"}),
        (["near", "article"], {"alembic"}),
    ):
        command = [sys.executable, "-c", script, *arguments]
        result = subprocess.run(command, input="", capture_output=True, text=True, check=False)
        imported = set(result.stdout.splitlines()[-1].split())
        assert "simsql.cli" in imported
        assert imported & unwanted == set()


# Run by Python before the program: sends the process a signal when a module is imported, or when Python ends.
SIGNALS = """
import atexit, os, signal, sys
where, number = os.environ["SIGNAL_AT"], int(os.environ["SIGNAL"])

def send():
    os.kill(os.getpid(), number)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == where:
            send()

sys.meta_path.insert(0, Finder())
if where == "exit":
    atexit.register(send)
"""


@pytest.mark.parametrize(
    ("where", "number", "code", "said"),
    [
        ("simsql.cli._app", SIGINT, 130, "interrupted"),
        ("typer", SIGINT, 130, "interrupted"),
        ("numpy", SIGINT, 130, "interrupted"),
        ("psycopg", SIGTERM, 143, "terminated"),
        ("exit", SIGINT, 130, ""),
        ("exit", SIGTERM, 143, ""),
    ],
)
def test_a_signal_while_python_imports_or_ends(tmp_path, where, number, code, said):
    (tmp_path / "sitecustomize.py").write_text(SIGNALS)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {"PYTHONPATH": path, "SIGNAL_AT": where, "SIGNAL": str(int(number))}
    arguments = ["--version"] if where == "exit" else ["near", "article", "--fingerprint", "1"]
    found = run_apart(*arguments, variables=variables)
    assert found.err == (f"simsql: {said}\n" if said else "")
    assert found.code == code
    assert found.out == (f"simsql {__version__}\n" if where == "exit" else "")


def test_python_m_simsql():
    called = [sys.executable, "-m", "simsql", "nonsense"]
    found = subprocess.run(called, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (2, "", usage("nonsense"))


def test_the_program_itself():
    found = run_apart("--version").done()
    assert found.out == f"simsql {__version__}\n"
    assert found.err == ""


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["dedup"], "PATH"),
        (["fingerprint"], "PATH"),
        (["near"], "TABLE"),
        (["pairs"], "TABLE"),
        (["clusters"], "TABLE"),
        (["load"], "TABLE"),
        (["load", "article"], "PATH"),
        (["frobnicate"], "frobnicate"),
        (["dedup", ".", "--frobnicate"], "--frobnicate"),
        (["dedup", ".", "--distance", "three"], "--distance"),
        (["dedup", ".", "--distance"], "--distance"),
        (["install", "extra"], "extra"),
    ],
)
def test_wrong_usage(arguments, part):
    assert part.lower() in usage(*arguments).lower()


def test_nothing_heavy_is_imported_by_the_package():
    """`import simsql` reads no configuration, opens nothing and prints nothing."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import simsql"], capture_output=True, check=True
    )
    assert result.stdout == result.stderr == b""
    assert PROGRAM.exists()
