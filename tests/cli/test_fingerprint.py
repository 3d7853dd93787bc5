"""`simsql fingerprint`: which documents, which recipe, how written."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from oracle import to_bigint
from program import kill_started, run, spawn, write_lines

from simsql import Recipe, simhash, sketch
from simsql.fingerprint import KNOWN_RECIPES, IdfTable, write_recipe

TEXT = "The quick brown fox jumps over the lazy dog"


def test_files(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    lines = write_lines(tmp_path / "b.jsonl", {"x": TEXT + " again", "two\nlines": TEXT})
    found = run("fingerprint", tmp_path / "a.txt", lines).done()
    assert found.lines == [
        f"{simhash(TEXT)}\t{tmp_path / 'a.txt'}",
        f"{simhash(TEXT + ' again')}\tx",
        f"{simhash(TEXT)}\ttwo\\nlines",
    ]
    assert found.err == ""


@pytest.mark.parametrize(
    ("form", "write"),
    [
        ("decimal", str),
        ("hex", lambda number: number.to_bytes(8, "big").hex()),
        ("signed", lambda number: str(to_bigint(number))),
        ("bits", lambda number: "".join("01"[number >> bit & 1] for bit in range(63, -1, -1))),
    ],
)
def test_forms(tmp_path, form, write):
    texts = {str(number): str(number) for number in range(200)}
    lines = write_lines(tmp_path / "a.jsonl", texts)
    found = run("fingerprint", lines, "--encode", form).done()
    numbers = [simhash(text) for text in texts.values()]
    assert min(numbers) < 2**60  # with leading zeros
    assert max(numbers) >= 2**63
    assert found.lines == [f"{write(number)}\t{name}" for number, name in zip(numbers, texts, strict=True)]
    if form == "decimal":
        assert run("fingerprint", lines).done().lines == found.lines


def test_sketches(tmp_path):
    texts = {"x": TEXT, "y": "?!", "z": TEXT + " again"}
    found = run("fingerprint", write_lines(tmp_path / "a.jsonl", texts), "--sketches", "--encode", "hex").done()
    x, z = ((f"{simhash(texts[name]):016x}", f"{sketch(texts[name]):016x}", name) for name in "xz")
    assert [tuple(line.split("\t")) for line in found.lines] == [x, ("", "", "y"), z]


def test_standard_input_with_bad_lines():
    data = (
        b'{"id": 1, "body": "some words"}\noops\n{"id": 2, "body": "..."}\n{"id": 3, "text": "x"}\n{"body": "a"}\n'
    )
    found = run("fingerprint", "-", "--text-field", "body", stdin=data).done()
    assert found.lines == [f"{simhash('some words')}\t1", "\t2", f"{simhash('a')}\tstdin:5"]
    messages = found.err.splitlines()
    assert len(messages) == 2
    assert messages[0].startswith("skipped stdin:2: not JSON")
    assert messages[1].startswith("skipped stdin:4: no field")


def test_lines_of_texts(tmp_path):
    (tmp_path / "a.txt").write_bytes(f"{TEXT}\r\n\nlast".encode())
    write_lines(tmp_path / "b.jsonl", {"x": TEXT})
    found = run("fingerprint", tmp_path, "-", "--lines", stdin=TEXT.encode() + b"\n\xff\nb\n").done()
    assert found.lines == [
        f"{simhash(TEXT)}\t{tmp_path}/a.txt:1",
        f"\t{tmp_path}/a.txt:2",
        f"{simhash('last')}\t{tmp_path}/a.txt:3",
        f"{simhash(TEXT)}\tx",
        f"{simhash(TEXT)}\tstdin:1",
        f"{simhash('b')}\tstdin:3",
    ]
    assert found.err.startswith("skipped stdin:2: not utf-8: column 1")


def test_what_is_expected_in_any_folder_is_counted(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.dat").write_bytes(bytes(range(256)))
    (tmp_path / "c.txt").symlink_to(tmp_path / "a.txt")
    found = run("fingerprint", tmp_path).done()
    assert found.lines == [f"{simhash(TEXT)}\t{tmp_path / 'a.txt'}"]
    assert sorted(found.err.splitlines()) == ["skipped 1: binary", "skipped 1: link"]


def test_a_line_without_a_fingerprint_is_no_failure():
    assert run("fingerprint", "-", "--lines", stdin=b"--\n").done().lines == ["\tstdin:1"]


def test_nothing_to_fingerprint(tmp_path):
    run("fingerprint", tmp_path).failed(1, f"no documents in {tmp_path}: found nothing to read")
    run("fingerprint", "-", stdin=b"oops\n").failed(1, "no documents in -: skipped 1 not JSON", "; use --lines")
    run("fingerprint", tmp_path / "missing").failed(2, "no such file or folder")
    run("fingerprint", tmp_path, "--encoding", "klingon").failed(2, "unknown encoding 'klingon'")


def test_recipes_by_id_and_from_a_file(tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", {"x": TEXT})
    by_id = Recipe(tokens="characters", shingles=(4,), weight="set")
    assert run("fingerprint", lines, "--recipe", by_id.id).done().lines == [f"{simhash(TEXT, by_id)}\tx"]
    table = IdfTable(np.zeros(0, np.uint64), np.zeros(0, np.int32), 5)
    in_file = replace(by_id, weight="tf", idf=table, min_features=3)
    path = tmp_path / "recipe.json"
    write_recipe(in_file, path)
    found = run("fingerprint", "-", "--lines", "--recipe", path, stdin=f"{TEXT}\nabc".encode()).done()
    assert found.lines == [f"{simhash(TEXT, in_file)}\tstdin:1", "\tstdin:2"]
    run("fingerprint", lines, "--recipe", in_file.id).failed(2, "parts that its id does not spell out")
    run("fingerprint", lines, "--recipe", "words12").failed(2, "is not the id of a recipe", "no such file")
    run("fingerprint", lines, "--recipe", tmp_path).failed(2, "is not the id of a recipe", "no such file")
    run("fingerprint", lines, "--recipe", "").failed(2, "invalid value for '--recipe': it is empty")
    path.write_text('{"weigth": "set"}')
    run("fingerprint", lines, "--recipe", path).failed(2, f"{path}: unknown field 'weigth'")


def test_recipes_by_name(tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", {"x": TEXT})
    for name, recipe in KNOWN_RECIPES.items():
        assert run("fingerprint", lines, "--recipe", name).done().lines == [f"{simhash(TEXT, recipe)}\tx"]


def test_a_recipe_whose_package_is_missing(tmp_path, monkeypatch):
    lines = write_lines(tmp_path / "a.jsonl", {"x": TEXT})
    monkeypatch.setitem(sys.modules, "xxhash", None)
    found = run("fingerprint", lines, "--recipe", "words1-set-xxh3-1")
    found.failed(1, "needs the package xxhash: pip install xxhash")


def test_workers_change_nothing(tmp_path):
    texts = {str(number): f"{TEXT} {number} " * 9000 for number in range(20)}  # more than one task
    lines = write_lines(tmp_path / "a.jsonl", texts)
    found = run("fingerprint", lines, "--workers", 2).done()
    assert found.lines == [f"{simhash(text)}\t{name}" for name, text in texts.items()]
    assert run("fingerprint", lines, "--workers", 0).code == 2


@pytest.fixture
def _processes():
    yield
    kill_started()


@pytest.mark.usefixtures("_processes")
def test_output_comes_while_input_goes_on():
    """Documents are printed before the end of what is read, so neither piles up."""
    text = TEXT * 1000
    process = spawn("fingerprint", "-")
    for _ in range(20):
        process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
    process.stdin.flush()
    assert process.stdout.readline().decode() == f"{simhash(text)}\tstdin:1\n"
    process.stdin.close()
    assert process.stdout.read().count(b"\n") == 19
