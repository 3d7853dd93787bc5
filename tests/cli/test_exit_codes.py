"""The exit codes are those of the table in the documentation."""

import json
import signal
import subprocess

import pytest
from documentation import REPOSITORY, rows_of_table
from program import run, spawn, write_lines

TEXT = "The quick brown fox jumps over the lazy dog and runs away from it"
TABLE = rows_of_table(REPOSITORY / "docs/reference/command-line.md", "code", "what happened", "commands")
SIGNALS = {"SIGHUP": signal.SIGHUP, "Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}
RECORDS = [{"id": str(number), "text": f"{TEXT} {number}"} for number in range(4)]
LINES = [json.dumps(record) + "\n" for record in RECORDS]
INPUTS = {  # of commands that read files, by how the row begins
    "damage": ("a.jsonl", "".join(LINES)[:-9]),
    "at least two": ("a.jsonl", "".join(LINES[:2]) + "x\n{}}\n"),
    "a file that you": ("a.jsonl", "\0\1\2\3" * 99),
    "there are no": ("a.jsonl", ""),
    "records without": ("a.jsonl", "".join(LINES).replace("text", "body")),
}


@pytest.fixture
def folder(tmp_path, monkeypatch, connection):
    monkeypatch.chdir(tmp_path)
    connection.execute("CREATE TABLE post (slug text PRIMARY KEY, body text, fp bigint)")
    connection.execute("SELECT simsql.create_index('post', 'fp', recipe => 'words12-log-1')")
    write_lines(tmp_path / "good.jsonl", RECORDS)
    pair = {"id_a": "0", "id_b": "1", "label": "near-duplicate"}
    write_lines(tmp_path / "labels.jsonl", [pair])
    return tmp_path


def of_all(start, url):
    """Calls that stand for all commands, by how the row begins."""
    broken = ["--database", "postgresql://localhost:1/none"]
    return {
        "success": [["dedup", "good.jsonl"], ["near", "post", "--text", "nothing like it", "--database", url]],
        "no connection": [["status", *broken], ["load", "post", "good.jsonl", *broken]],
        "an unknown option": [
            ["dedup", "good.jsonl", "--none"],
            ["near", "post", "--text", TEXT, "--distance", "65", "--database", url],
            ["load", "post", "good.jsonl", "--column", "fp", "--column", "fp", "--database", url],
        ],
        "a file, table": [
            ["dedup", "none"],
            ["near", "none", "--text", TEXT, "--database", url],
            ["near", "post", "--text", TEXT, "--column", "body", "--database", url],
        ],
    }[start]


def of_files(name, path, url):
    """The call of a command that reads a file."""
    return {
        "dedup": ["dedup", path],
        "evaluate": ["evaluate", "labels.jsonl", path],
        "fingerprint": ["fingerprint", path],
        "load": ["load", "post", path, "--id-column", "slug", "--database", url],
        "sample": ["sample", path],
    }[name]


def of_one(name, connection, url):
    """The call of the only command of a row."""
    options = ["--id-column", "slug", "--text-column", "body", "--database", url]
    if name == "index verify":
        connection.execute("ALTER TABLE post DISABLE TRIGGER USER")
        connection.execute("INSERT INTO post VALUES ('x', '', 7)")
    if name in ("index verify", "status --check"):
        connection.execute("ALTER TABLE post DISABLE TRIGGER USER")
    return {
        "index verify": ["index", "verify", "post", "--database", url],
        "status --check": ["status", "--check", "--database", url],
        "dedup --against": ["dedup", "good.jsonl", "--against", "old.jsonl"],
        "load --unique --dry-run": ["load", "post", "good.jsonl", "old.jsonl", "--unique", "--dry-run", *options],
    }[name]


@pytest.mark.parametrize(("code", "what", "commands"), TABLE)
def test_the_exit_code_is_that_of_the_table(folder, connection, database_url, code, what, commands):
    write_lines(folder / "old.jsonl", [{"id": "old", "text": f"{TEXT} 0"}])
    by_signal = [number for name, number in SIGNALS.items() if name in what]
    if by_signal or "reader" in what:
        process = spawn("install", "--sql", stdin=subprocess.DEVNULL, bufsize=0)
        process.stdout.read(1)
        for number in by_signal:
            process.send_signal(number)
        process.stdout.close()
        assert process.wait(60) == int(code)
        return
    names = [name.strip("`") for name in commands.split(", ")]
    start = next((start for start in INPUTS if what.startswith(start)), None)
    if start:
        file, content = INPUTS[start]
        (folder / file).write_text(content)
        calls = [of_files(name, file, database_url) for name in names]
    elif names == ["all"]:
        first = next(
            each
            for each in ("success", "no connection", "an unknown option", "a file, table")
            if what.startswith(each)
        )
        calls = of_all(first, database_url)
    else:
        calls = [of_one(name, connection, database_url) for name in names]
    assert calls
    for call in calls:
        found = run(*call)
        assert found.code == int(code), (call, found.err)
        if start == "damage" and call[0] == "load":
            assert connection.execute("SELECT count(*) FROM post").fetchone() == (0,)
