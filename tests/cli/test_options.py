"""What all commands have in common: numbers, -h, --quiet, errors in arguments, completion, a pipe that closes."""

import json
import shutil
import signal
import subprocess

import psycopg
import pytest
import typer
from articles import create_articles
from program import (
    PROGRAM,
    environment,
    finish,
    run,
    run_at_terminal,
    spawn,
    temporary_folder,
    write_lines,
)

from simsql.cli import _app
from simsql.cli._app import _ELSEWHERE, _OTHER_COMMANDS
from simsql.cli._options import MEANINGS


def all_commands(group=None, *path):
    group = group or _app.as_click_command()
    yield path
    for name in group.list_commands(typer.Context(group)):
        command = group.get_command(typer.Context(group), name)
        if hasattr(command, "commands"):
            yield from all_commands(command, *path, name)
        else:
            yield (*path, name)


@pytest.mark.parametrize("written", ["1000000", "1,000,000", "1e6", "1.0E+6"])
def test_large_numbers_are_written_in_several_ways(written):
    found = run("plan", "--rows", written, "--distance", "3").done()
    assert found.out == run("plan", "--rows", 10**6).done().out


@pytest.mark.parametrize("written", ["1,00", "1e", "1.5", "1.25e1", "1_000", "0x10", "", "1e99", "\u0663"])
def test_what_is_no_number(written):
    run("plan", "--rows", written).failed(2, "invalid value for '--rows': ", "; see simsql plan --help")


def test_every_command_has_a_short_option_for_help():
    for path in all_commands():
        found = run(*path, "-h").done()
        assert found.out.startswith(f"Usage: {' '.join(['simsql', *path])} ")
        assert found.out == run(*path, "--help").done().out


def test_without_a_command_there_is_help():
    for path in ([], ["index"]):
        found = run(*path)
        assert "Usage: simsql" in found.out + found.err
        assert "error" not in found.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "no such command 'frobnicate'; see simsql --help"),
        (["index", "frobnicate"], "no such command 'frobnicate'; see simsql index --help"),
        (["verify"], "no such command 'verify': use simsql index verify; see simsql --help"),
        (["build", "a", "b"], "no such command 'build': use simsql index create --concurrently; see"),
        (["repair"], "no such command 'repair': use simsql index verify --repair; see"),
        (["index", "vacuum"], "no such command 'vacuum': use simsql maintain; see simsql index --help"),
        (["near"], "missing argument 'TABLE'; see simsql near --help"),
        (["dedup-table", "article"], "name the table for the decisions with --into"),
        (["index", "alter", "article"], "say what the fingerprints are: --recipe, --source or both"),
        (
            ["fingerprint", ".", "--encode", "octal"],
            "'octal' is not one of 'decimal', 'hex', 'signed', 'bits'",
        ),
        (["near", "article", "--format", "xml"], "'xml' is not one of 'table', 'jsonl', 'csv', 'tsv'; see"),
        (["plan", "--rows"], "option '--rows' requires an argument; see simsql plan --help"),
        (["dedup", ".", "-d", "x"], "'x' is not a whole number from 0 to 64; see simsql dedup --help"),
        (
            ["dedup", ".", "--threshold", "0.8"],
            "no such option: --threshold: use --similarity; see simsql dedup",
        ),
        (["dedup", ".", "--delete"], "--delete: use --clean, or --drop-list for files that are one document; see"),
        (["find-pairs", "--threshold", "3"], "no such option: --threshold: use --distance; see simsql find-pairs"),
        (["dedup", ".", "--bit_diff=3"], "no such option: --bit_diff: use --distance; see simsql dedup --help"),
        (
            ["dedup", ".", "--dry-run"],
            "--dry-run: this command only decides, it removes nothing from what it reads",
        ),
        (["install", "--dry-run"], "no such option: --dry-run; see simsql install --help"),
        (["dedup", ".", "--max-document", "x"], "invalid value for '--max-document': 'x' is not a size"),
    ],
)
def test_errors_in_arguments_are_one_line(arguments, said):
    found = run(*arguments)
    found.failed(2, said)
    assert "Value error" not in found.err


def options_of(path):
    context = typer.Context(command := _app.as_click_command())
    for name in path:
        command = command.get_command(context, name)
    return [each for each in command.params if each.param_type_name == "option"]


OPTIONS = [
    pytest.param(path, each, id=" ".join([*path, each.opts[0]]))
    for path in all_commands()
    for each in options_of(path)
    if path and "--help" not in each.opts
]


@pytest.mark.parametrize(("path", "option"), OPTIONS)
def test_a_repeated_option_of_one_value_is_an_error(path, option):
    """Otherwise, the last one would win in silence. Lists and flags may be repeated."""
    values = [] if option.is_flag else ["1"] * option.nargs
    found = run(*path, *[option.opts[-1], *values] * 2, "--help")
    if option.is_flag or option.multiple:
        found.done()
    else:
        called = " ".join(path)
        found.failed(2, f"error: {option.opts[0]} is given twice: it takes one value; see simsql {called} --help")


def test_options_that_errors_name_instead_of_those_of_other_programs_exist():
    assert {option for options in _ELSEWHERE.values() for option in options} <= MEANINGS.keys()
    assert not _ELSEWHERE.keys() & MEANINGS.keys() - {"--column"}
    for command in _OTHER_COMMANDS.values():
        run(*command.split(), "--help").done()


@pytest.mark.parametrize(
    "arguments",
    [
        ["dedup", ""],
        ["dedup", "nowhere", "--output", ""],
        ["dedup", "nowhere", "--drop-list", ""],
        ["status", "--server-dir", ""],
        ["find-pairs", "--input", ""],
        ["find-clusters", "--output", ""],
        ["server", ""],
    ],
)
def test_an_empty_path_is_not_this_folder(arguments):
    """As a shell leaves a variable that is not set."""
    run(*arguments).failed(2, "path is empty")


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--database", ""],
        ["backfill", "article", "--text-column", "body", "--text-column", ""],
        ["pairs", "article", "--into", ""],
        ["clusters", ""],
        ["near", "article", "--file", ""],
        ["index", "create", "article", ""],
        ["index", "verify", ""],
    ],
)
def test_an_empty_name_is_not_the_default(arguments):
    run(*arguments).failed(2, "it is empty: give a value")


def test_an_empty_variable_is_not_the_default():
    run("status", SIMSQL_DATABASE="").failed(2, "SIMSQL_DATABASE is empty: set it to a URL, or unset it")
    run("status", SIMSQL_HOME="").failed(2, "SIMSQL_HOME is empty: set it to a folder, or unset it")


@pytest.mark.parametrize("arguments", [["near", "article", "--text", "a"], ["install"], ["load", "article", "."]])
def test_a_server_is_in_a_folder(tmp_path, arguments):
    file = write_lines(tmp_path / "a.jsonl", {})
    run(*arguments, "--server-dir", file).failed(2, f"{file} is a file: name a folder")
    run("server", file).failed(2, f"{file} is a file: name a folder")


def test_quiet(tmp_path, connection, database_url):
    create_articles(connection, [1, 3])
    lines = write_lines(tmp_path / "a.jsonl", [{"id": "a", "text": "some words"}, {"id": "b"}])
    pair = {"text": "some words words", "text_a": "some words", "text_b": "words", "label": "yes"}
    labels = write_lines(tmp_path / "l.jsonl", [pair])
    numbers = tmp_path / "numbers"
    numbers.write_text("1\n3\n")
    at = ["--database", database_url]
    for arguments in (
        ["dedup", lines],
        ["evaluate", labels],
        ["sample", lines, labels],
        ["fingerprint", lines],
        ["load", "article", lines, *at],
        ["backfill", "article", "--text-column", "body", *at],
        ["near", "article", "--fingerprint", 2**63, *at],
        ["pairs", "article", "--distance", 0, *at],
        ["clusters", "article", "--distance", 0, *at],
        ["find-pairs", "--input", numbers],
        ["find-clusters", "--input", numbers],
        ["plan", "--rows", 10],
        ["index", "list", *at],
        ["index", "verify", *at],
        ["index", "verify", "article", "--repair", *at],
        ["maintain", *at],
    ):
        found = run_at_terminal(*arguments, "--quiet", redirected={"stdout"})
        assert (found.code, found.terminal) == (0, ""), arguments
        assert run(*arguments, "-q").err == ""
    run("dedup", tmp_path / "missing", "-q").failed(2, "no such file or folder")


# Completion


def complete(*words):
    """What bash offers for the last word."""
    variables = {"_SIMSQL_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": len(words) - 1}
    return run(**{name: str(value) for name, value in variables.items()}).done().lines


def test_commands_and_options_are_completed():
    assert complete("simsql", "inst") == ["install"]
    assert complete("simsql", "index", "v") == ["verify"]
    assert "--server-dir" in complete("simsql", "near", "article", "--")
    assert complete("simsql", "near", "--format", "j") == ["jsonl"]


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_completion_is_shown_and_installed(tmp_path):
    # The shell is the process above this one; bash would become the program, were that its last command.
    script = f"{PROGRAM} --show-completion && {PROGRAM} --install-completion; echo $?"
    variables = {**environment(None), "HOME": str(tmp_path)}
    found = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=True)
    assert "_SIMSQL_COMPLETE=complete_bash" in found.stdout
    assert found.stdout.endswith("\n0\n")
    assert found.stderr == ""
    (installed,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".bashrc")
    assert "_SIMSQL_COMPLETE=complete_bash" in installed.read_text()
    assert str(installed) in (tmp_path / ".bashrc").read_text()


# Pipes


@pytest.mark.parametrize(
    ("command", "redirection"),
    [
        ("install --sql", "| head -n 1"),
        ("fingerprint", "| head -n 1"),
        ("fingerprint", "2>&1 | head -n 1"),
        ("fingerprint --lines", "2>&1 | head -n 1"),
    ],
)
def test_a_reader_that_has_read_enough_is_no_error(tmp_path, command, redirection):
    if command.startswith("fingerprint"):
        documents = [{"id": number} for number in range(5000)]
        lines = write_lines(tmp_path / "a.jsonl", [{"id": "a", "text": "some words " * 50_000}, *documents])
        command = f"{command} {lines}"
    script = f"{PROGRAM} {command} {redirection}; echo ${{PIPESTATUS[0]}}"
    found = subprocess.run(
        ["bash", "-c", script], env=environment(None), capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines()[-1] in ("0", "141")
    assert "Traceback" not in found.stderr
    assert "error" not in found.stderr


# simsql server


@pytest.mark.parametrize(
    ("end", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_server_is_held_open_until_it_is_told_to_end(end, code, said):
    with temporary_folder() as folder:
        process = spawn("server", folder / "data")
        url = process.stdout.readline().decode().strip()
        assert url.startswith("postgresql://")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == ("simsql",)
        data = ["--server-dir", folder / "data"]
        missing = f"run simsql install --server-dir {folder / 'data'}"
        for command in (["index", "create", "article", "fp"], ["index", "list"]):
            run(*command, *data).failed(1, missing)
        assert missing in run("status", "--format", "table", *data).done().out
        run("install", "--database", url).done()
        assert json.loads(run("status", "--server-dir", folder / "data").done().out)["indexes"] == 0
        process.send_signal(end)
        ended = finish(process)
        assert (ended.code, ended.out, ended.err) == (code, "", f"simsql: {said}\n")
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)


@pytest.mark.parametrize("option", ["--output", "--clean", "--report", "--drop-list"])
def test_a_link_to_itself_is_no_file(tmp_path, option):
    (tmp_path / "loop").symlink_to("loop")
    found = run("dedup", write_lines(tmp_path / "a.jsonl", {"a": "some words"}), option, tmp_path / "loop")
    found.failed(2, f"invalid value for '{option}'", "/loop is a link to itself: name something else")
