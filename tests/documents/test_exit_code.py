"""A run that has not read what it was asked to read does everything else, and fails."""

import gzip
import json

import pytest
from program import run
from reading import write

RECORDS = "".join(json.dumps({"id": number, "text": f"some text {number}"}) + "\n" for number in range(40))


def incomplete(found):
    assert found.code == 1, found.err
    *_, last = found.err.splitlines()
    start = "simsql: error: the results are incomplete: "
    assert last.startswith(start)
    return last.removeprefix(start)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", RECORDS)
    write(tmp_path / "in/notes.txt", "some notes")
    write(tmp_path / "in/photo.png", b"\x89PNG\r\n" + bytes(50))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.pdf", b"%PDF-1.7 text", "b.pdf was not read (PDF: extract its text first"),
        ("b.jsonl", b'{"body": "a"}\n{"body": "b"}\n', "b.jsonl was not read (no field: 'text' is missing"),
        ("b.jsonl", b"\xff\xfe\xfd\n", "b.jsonl was not read ("),
        ("b.parquet", b"PAR1", "b.parquet was not read (corrupt: "),
        ("b.jsonl.gz", gzip.compress(RECORDS.encode())[:-9], "b.jsonl.gz was not read to its end (corrupt: "),
    ],
)
@pytest.mark.parametrize("command", [["dedup"], ["fingerprint"]])
def test_a_file_that_the_user_names(folder, command, name, content, message):
    write(folder / name, content)
    found = run(*command, "a.jsonl", name, "in")
    assert incomplete(found).startswith(message)
    assert run(*command, "a.jsonl", "in").code == 0
    assert len(found.out.splitlines()) >= (40 if command == ["fingerprint"] else 0)


def test_several_files(folder):
    write(folder / "b.jsonl", '{"body": "a"}\n')
    found = run("dedup", "a.jsonl", "b.jsonl", "in/photo.png", "-o", "clusters")
    assert incomplete(found).startswith("b.jsonl was not read, nor 1 more files (no field")
    assert (folder / "clusters").exists()


def test_no_file_of_records_is_read(folder):
    for number in range(3):
        write(folder / f"in/{number}.parquet", b"PAR1 not really")
    assert incomplete(run("dedup", "in")).startswith("in/0.parquet was not read, nor 2 more files (corrupt")
    write(folder / "in/3.jsonl", RECORDS)
    assert run("dedup", "in").code == 0


def test_nothing_is_missed(folder):
    write(folder / "b.jsonl", '{"text": ""}\n')
    write(folder / "c.txt", "")
    write(folder / "d.jsonl", RECORDS + "not JSON\n")
    assert run("dedup", "a.jsonl", "b.jsonl", "c.txt", "d.jsonl", "in").code == 0
    assert run("dedup", "-", stdin=b'{"text": "a"}\nnot JSON\n').code == 0
