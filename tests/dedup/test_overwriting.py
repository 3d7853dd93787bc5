"""What a run reads is never overwritten, whatever leads to it."""

import json
from itertools import chain
from pathlib import Path

import pytest
from program import run, run_at_terminal, run_into, write_lines
from reading import write

from simsql.documents import DocumentReader, Outputs
from simsql.errors import UsageError

OPTIONS = ["--output", "--drop-list", "--report"]
FOX = "The quick brown fox jumps over the lazy dog and runs away from the old barn near the river"


@pytest.fixture
def folder(tmp_path, texts, monkeypatch):
    """A folder with a file of records and a text, and the current one."""
    write_lines(tmp_path / "a.jsonl", texts)
    write(tmp_path / "sub/text.txt", FOX)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["dedup", "sample"])
@pytest.mark.parametrize(
    "spelling", ["a.jsonl", "./a.jsonl", "sub/../a.jsonl", "link", "sub/link/a.jsonl", "hard"]
)
def test_a_file_that_is_named_is_never_overwritten(folder, command, spelling):
    (folder / "link").symlink_to("a.jsonl")
    (folder / "sub/link").symlink_to(folder)
    (folder / "hard").hardlink_to("a.jsonl")
    before = snapshot(folder)
    # Without a home any work would fail otherwise.
    for option in OPTIONS if command == "dedup" else ["--output"]:
        said = f"{option} is the same file as a.jsonl, which is read: write to another file"
        run(command, "sub", "a.jsonl", option, spelling).failed(2, said)
        run(command, "sub", spelling, option, folder / "a.jsonl").failed(2, f"{option} is the same file as")
    assert snapshot(folder) == before


@pytest.mark.parametrize("option", OPTIONS)
def test_a_file_in_a_folder_is_overwritten_only_if_it_is_left_out(folder, home, option):
    (folder / "out").symlink_to("a.jsonl")
    before = snapshot(folder)
    for output in ("a.jsonl", "sub/text.txt", "out"):
        written = {"--output": "new"} | {option: output}
        found = run("dedup", ".", *chain.from_iterable(written.items()))
        found.failed(2, f"{option} would overwrite", "in a folder that is read", "--exclude ")
    assert snapshot(folder) == before
    written = {"--output": "new"} | {option: "sub/text.txt"}
    run("dedup", ".", *chain.from_iterable(written.items()), "--exclude", "text.txt", home=home).done()
    assert snapshot(folder)[folder / "sub/text.txt"] != before[folder / "sub/text.txt"]
    assert snapshot(folder)[folder / "a.jsonl"] == before[folder / "a.jsonl"]


def test_results_in_a_folder_that_is_read_are_replaced_if_they_are_left_out(folder, home):
    (folder / "empty").touch()
    run("dedup", ".", "--output", "empty", "--report", "sub/r.html", home=home).done()
    again = ["dedup", ".", "--output", "empty", "--report", "sub/r.html", "--exclude", "empty"]
    run(*again).failed(2, "--report would overwrite sub/r.html", "--exclude r.html")
    found = run(*again, "--exclude", "*.html", home=home).done()
    assert (found.table["documents"], found.table["skipped"], found.table["excluded"]) == ("7", "2", "2")


def test_recipes(folder):
    write(folder / "recipe.json", json.dumps({"shingles": [3]}))
    before = snapshot(folder)
    for command in ("dedup", "sample"):
        run(command, "sub", "--recipe", "recipe.json", "--output", "recipe.json").failed(
            2, "recipe.json, which is"
        )
    assert snapshot(folder) == before


def test_redirected_streams(folder, texts):
    path = folder / "a.jsonl"
    before = path.read_bytes()
    with path.open("rb") as stdin:
        for source in ("-", f"/dev/fd/{stdin.fileno()}"):
            with pytest.raises(UsageError, match=r"^--output is the same file as .*, which is read"):
                DocumentReader([source], stdin=stdin, outputs=Outputs({"--output": path}))
    with path.open("a") as stdout:
        run_into(stdout, "fingerprint", "sub", path).failed(2, "standard output is the same file as")
        run_into(stdout, "dedup", "sub", "--drop-list", path).failed(2, "--drop-list both write to")
        # In a folder, it is left out.
        run_into(stdout, "fingerprint", ".", "--quiet").done()
    assert path.read_bytes().startswith(before)
    assert path.read_text().removeprefix(before.decode()).count("\n") == 1


def test_fingerprints_do_not_overwrite_each_other(tmp_path):
    path = write(tmp_path / "numbers", "1\n3\n")
    for command in ("find-pairs", "find-clusters"):
        run(command, "--input", path, "--output", path).failed(2, f"--output is the same file as {path}")
    assert path.read_text() == "1\n3\n"


def test_minus_is_standard_output(folder, home):
    alone = run("dedup", "a.jsonl", home=home).done()
    assert run("dedup", "a.jsonl", "-o", "-", home=home).done().stdout == alone.stdout
    drops = run("dedup", "a.jsonl", "-o", "clusters", "--drop-list", "-", "--quiet", home=home).done()
    assert sorted(drops.lines) == ["fox", "fox 3", "ship 2"]
    page = run("dedup", "a.jsonl", "-o", "clusters", "--report", "-", home=home).done()
    assert page.out.startswith("<!DOCTYPE html>")
    assert run("sample", "a.jsonl", "-o", "-").done().lines[0].startswith('{"id_a": ')
    run("dedup", "a.jsonl", "--drop-list", "-").failed(2, "--output and --drop-list both write to standard output")
    run("dedup", "a.jsonl", "-o", "x", "--drop-list", "-", "--report", "-").failed(2, "--drop-list and --report")
    assert not (folder / "-").exists()
    assert run("dedup", "a.jsonl", "-o", "./-", home=home).done().stdout == b""
    assert (folder / "-").read_bytes() == alone.stdout


@pytest.mark.parametrize("command", ["dedup", "sample", "find-pairs"])
def test_a_name_does_not_promise_another_format(folder, command):
    for name in ("x.XLSX", "x.csv.lz4"):
        said = f"--output {name}: this option does not write {Path(name).suffix.lower()} files"
        run(command, *([] if command == "find-pairs" else ["a.jsonl"]), "--output", name).failed(2, said)
        assert not (folder / name).exists()


def test_no_text_commands_a_terminal(folder, home):
    path = write_lines(
        folder / "ids.jsonl", dict.fromkeys(["red \x1b[31m", "csi \x9b31m", "rlo \u202e é\u3000日"], FOX)
    )
    for form in ("csv", "jsonl"):
        dedup = ["dedup", path, "--format", form, "--quiet"]
        shown = run_at_terminal(*dedup, redirected={"stderr"}, SIMSQL_HOME=str(home)).terminal
        for escaped in (r"red \u001b[31m", r"csi \u009b31m", r"rlo \u202e é" + "\u3000日"):
            assert escaped in shown
        assert not {"\x1b", "\x9b", "\u202e"} & set(shown)
        piped = run(*dedup, home=home).done()
        run(*dedup, "--output", "file", home=home).done()
        assert (folder / "file").read_bytes() == piped.stdout
        assert "csi \x9b31m" in piped.out


def test_standard_input_is_not_a_file_that_is_read(folder):
    (folder / "b.jsonl").write_text("")
    for path in (".", "a.jsonl"):
        with (folder / "a.jsonl").open("rb") as stdin:
            with pytest.raises(UsageError, match=r"standard input is the same file as 'a\.jsonl'"):
                DocumentReader(["-", path], stdin=stdin)
            DocumentReader(["-", "b.jsonl"], stdin=stdin)
            DocumentReader([path], stdin=stdin)
