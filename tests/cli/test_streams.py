"""Every command and its streams: results, messages and progress go where they belong, wherever that leads."""

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import typer
from program import PROGRAM, environment, run, run_at_terminal, run_into, run_with_stderr, spawn, write_lines

from simsql import simhash
from simsql.cli import _app
from simsql.database import to_bigint

BAR = "━"
ESCAPE = "\x1b"
TEXTS = {str(number): f"a text of some words about the number {number // 2}" for number in range(6)}


NO_INDEX = "SELECT simsql.drop_index('article') FROM simsql.indexes WHERE table_name = 'public.article';"
FRESH = f"""
    {NO_INDEX}
    TRUNCATE article RESTART IDENTITY;
    INSERT INTO article (body, fingerprint) SELECT 'text ' || f, f FROM unnest(ARRAY[0, 7, 63, -1, -2]) AS f;
    SELECT simsql.create_index('article', 'fingerprint', recipe => 'words12-log-1');
"""
SIMILAR = f"UPDATE article SET body = 'seven', fingerprint = {to_bigint(simhash('seven'))} WHERE id = 1;"


@dataclass(frozen=True)
class Case:
    """A call of a command on the table `article`."""

    arguments: str
    stages: tuple[str, ...] = ()
    """Those whose progress it shows."""
    before: str = ""
    """SQL that lets a command that changes the table begin as it did before."""
    silent: bool = False
    """Whether it prints no result."""
    rows: bool = False
    """Whether it prints a table at a terminal, and JSON lines elsewhere."""


DATABASE = "--database {url}"
CASES = {
    "backfill": Case(
        f"article --text-column body {DATABASE}",
        ("fingerprints",),
        FRESH + "UPDATE article SET fingerprint = NULL",
    ),
    "dedup": Case("{lines}", ("read and fingerprint", "find clusters"), rows=True),
    "dedup-table": Case(
        f"article --text-column body --into decisions {DATABASE}",
        ("read and fingerprint", "check texts", "write decisions"),
        "DROP TABLE IF EXISTS decisions",
    ),
    "evaluate": Case("{labels} {lines}", ("read",), rows=True),
    "sample": Case("{lines} --pairs 40", ("read and fingerprint", "find pairs")),
    "fingerprint": Case("{lines}", ("fingerprint",)),
    "load": Case(f"article {{lines}} {DATABASE}", ("read, fingerprint, load",), FRESH, silent=True),
    "find-pairs": Case("--input {numbers}"),
    "find-clusters": Case("--input {numbers}"),
    "plan": Case("--rows 1000", rows=True),
    "install": Case(DATABASE),
    "uninstall": Case("--database {empty}"),
    "status": Case(DATABASE, rows=True),
    "maintain": Case(DATABASE, silent=True),
    "install --sql": Case(""),
    "near": Case(f"article --fingerprint 7 {DATABASE}", rows=True),
    "similar": Case(f"article --text seven --text-column body {DATABASE}", before=FRESH + SIMILAR, rows=True),
    "pairs": Case(f"article {DATABASE}", ("find pairs",), rows=True),
    "clusters": Case(f"article {DATABASE}", ("find clusters",), rows=True),
    "index create": Case(f"article fingerprint {DATABASE}", before=FRESH + NO_INDEX),
    "index create --concurrently": Case(f"article fingerprint {DATABASE}", ("index",), FRESH + NO_INDEX),
    "index list": Case(DATABASE, rows=True),
    "index verify": Case(DATABASE, silent=True),
    "index verify --repair": Case(f"article {DATABASE}", silent=True),
    "index set-default": Case(f"article fingerprint {DATABASE}"),
    "index alter": Case(f"article --recipe words12-log-1 {DATABASE}"),
    "index change-storage": Case(f"article expression {DATABASE}", ("index",), FRESH),
    "index drop": Case(f"article {DATABASE}", before=FRESH, silent=True),
}


def all_commands(group=None, prefix="") -> Iterator[str]:
    group = group or _app.as_click_command()
    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        if hasattr(command, "commands"):
            yield from all_commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def test_every_command_is_tested_here():
    called = {case.partition(" --")[0] for case in CASES}
    assert set(all_commands()) == called | {"server"}  # which does not end


@pytest.fixture(scope="module")
def connection(server) -> Iterator[psycopg.Connection]:
    with server.new_database() as url, server.connect(url.database) as connection:
        connection.execute(
            "CREATE TABLE article (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, fingerprint bigint)"
        )
        connection.execute(FRESH)
        yield connection


@pytest.fixture(scope="module")
def places(server, connection, tmp_path_factory) -> Iterator[dict[str, object]]:
    """What the calls name: a database, one without simsql, and files."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "numbers").write_text("0\n7\n255\n")
    labels = write_lines(folder / "labels.jsonl", [{"id_a": "0", "id_b": "1", "label": "near-duplicate"}])
    lines = write_lines(folder / "lines.jsonl", TEXTS)
    with server.new_database(template="template0") as empty:
        urls = {"url": server.url(connection.info.dbname), "empty": empty}
        named = {name: url.render_as_string(hide_password=False) for name, url in urls.items()}
        yield {**named, "lines": lines, "numbers": folder / "numbers", "labels": labels}


@pytest.fixture(params=CASES)
def case(request, connection, places) -> Iterator[tuple[Case, list[str], Callable[[], None]]]:
    """A case, its arguments, and what prepares the table for a run."""
    found = CASES[request.param]

    def prepare() -> None:
        if found.before:
            connection.execute(found.before)

    yield found, [*request.param.split(), *found.arguments.format(**places).split()], prepare
    if found.before:
        connection.execute(FRESH)


def test_what_is_redirected_gets_its_own_and_the_terminal_the_rest(case):
    wanted, arguments, prepare = case
    prepare()
    piped = run(*arguments).done()
    assert (piped.stdout == b"") == wanted.silent

    prepare()
    found = run_at_terminal(*arguments, redirected={"stdout"})
    assert (found.code, found.stdout) == (0, piped.stdout)
    assert (BAR in found.terminal) == bool(wanted.stages)
    for stage in wanted.stages:
        assert stage in found.terminal

    prepare()
    found = run_at_terminal(*arguments, redirected={"stderr"})
    assert found.code == 0
    if wanted.rows and piped.lines:  # a table for people
        assert '{"' not in found.terminal
    else:
        for line in piped.lines:
            assert line.rstrip() in found.terminal
    assert BAR not in found.err + found.terminal
    assert ESCAPE not in found.err

    # Continuous integration sets FORCE_COLOR, which makes no terminal of a file.
    prepare()
    found = run_at_terminal(*arguments, redirected={"stdout", "stderr"}, FORCE_COLOR="1")
    assert (found.code, found.stdout, found.terminal) == (0, piped.stdout, "")
    assert BAR not in found.err
    assert ESCAPE not in found.err


# Results that cannot be written


def test_results_that_reach_nobody_are_an_error(case):
    """As from `cat` to `git`: exit code 1 and a message, or that of SIGPIPE if the reader has gone."""
    wanted, arguments, prepare = case
    prepare()
    closed = run_into(None, *arguments)
    prepare()
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        on_full_disk = run_into(full, *arguments)
    prepare()
    source, target = os.pipe()
    os.close(source)
    with open(target, "w", encoding="utf-8") as pipe:  # noqa: PTH123
        without_reader = run_into(pipe, *arguments)

    found = closed, on_full_disk, without_reader
    assert [result.code for result in found] == ([0, 0, 0] if wanted.silent else [1, 1, 141])
    if not wanted.silent:
        assert "simsql: error: standard output is closed: redirect it to a file" in closed.err
        assert "simsql: error: standard output cannot be written: No space left on device" in on_full_disk.err
    assert "simsql: " not in without_reader.err


@pytest.mark.parametrize(
    ("arguments", "redirection"),
    [("--version", ">&-"), ("--help", ">&-"), ("near --help", ">/dev/full"), ("fingerprint {lines}", ">&-")],
)
def test_the_process_ends_as_one_that_failed(arguments, redirection, tmp_path):
    """Also where the library prints, and when Python flushes its streams, which has an exit code of its own."""
    lines = write_lines(tmp_path / "lines.jsonl", TEXTS)
    command = f"{PROGRAM} {arguments.format(lines=lines)} {redirection}"
    found = subprocess.run(command, shell=True, env=environment(None), capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.startswith("simsql: error: standard output ")
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_rest_of_what_is_written_is_not_lost_in_silence(unbuffered):
    """With PYTHONUNBUFFERED, Python writes once and forgets what the system did not take of it."""
    process = spawn(
        "install", "--sql", variables={"PYTHONUNBUFFERED": unbuffered}, stdin=subprocess.DEVNULL, bufsize=0
    )
    process.stdout.read(1)
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(60), err) == (141, b"")


def test_messages_that_reach_nobody_hide_no_success(case):
    """What was asked for is done, and the exit code says so: on a full disk, or without a reader."""
    wanted, arguments, prepare = case
    source, target = os.pipe()
    os.close(source)
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
    for stderr in (full, open(target, "w", encoding="utf-8")):  # noqa: PTH123, SIM115
        prepare()
        with stderr:
            found = run_with_stderr(stderr, *arguments)
        assert (found.code, found.stdout == b"") == (0, wanted.silent)
