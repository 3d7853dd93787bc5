"""Outputs whose names say that they are compressed."""

import io
import json

import pytest
from program import run
from reading import COMPRESSORS, write

from simsql.documents.compression import COMPRESSIONS

RECORDS = "".join(
    json.dumps({"id": number, "text": f"the same é text {number // 2}"}) + "\n" for number in range(40)
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.jsonl", RECORDS)
    return tmp_path


def unpacked(path):
    return COMPRESSIONS[path.suffix].read(io.BytesIO(path.read_bytes())).read()


@pytest.mark.parametrize("ending", COMPRESSORS)
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_the_content_is_that_of_the_plain_file(folder, form, ending):
    names = [f"clusters.{form}", "drop.txt", "report.html"]
    for end in ("", ending):
        options = zip(("-o", "--drop-list", "--report"), (name + end for name in names), strict=True)
        run("dedup", "a.jsonl", *(part for option in options for part in option), "--similarity", "0.1").done()
    assert (folder / names[0]).read_bytes()
    for name in names[:2]:
        assert unpacked(folder / (name + ending)) == (folder / name).read_bytes()
    assert unpacked(folder / f"report.html{ending}").startswith(b"<!DOCTYPE html>")


def test_a_run_that_fails_leaves_nothing(folder):
    write(folder / "b.jsonl", "not JSON\n")
    run("dedup", "b.jsonl", "-o", "clusters.csv.gz").failed(1)
    assert sorted(path.name for path in folder.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_a_sample_is_evaluated(folder):
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    records = [" ".join([*words[:cut], "x", *words[cut:]]) for cut in range(12)]
    write(folder / "a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in records))
    run("sample", "a.jsonl", "--pairs", "16", "-o", "pairs.csv.zst").done()
    labels = unpacked(folder / "pairs.csv.zst").decode().replace(",,", ",yes,")
    write(folder / "labels.csv.gz", COMPRESSORS[".gz"](labels.encode()))
    run("evaluate", "labels.csv.gz").done()
    write(folder / "labels.csv.gz", COMPRESSORS[".gz"](labels.encode())[:-9])
    run("evaluate", "labels.csv.gz").failed(1, "labels.csv.gz cannot be decompressed: ")
