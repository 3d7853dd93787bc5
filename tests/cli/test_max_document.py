"""`--max-document`: what is longer is skipped and named, by every command that reads documents."""

import gzip
import json

import pytest
from articles import create_articles
from oracle import to_bigint
from program import run, write_lines

from simsql import simhash

TEXT = "The quick brown fox jumps over the lazy dog"
LONG = f"{TEXT} and on and on"


@pytest.fixture
def folder(tmp_path):
    """Files of every format, with a document of 43 bytes and one that is longer; the long ones in order."""
    (tmp_path / "a.txt").write_text(LONG)
    (tmp_path / "b.txt").write_text(TEXT)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(LONG.encode() * 1000))
    write_lines(tmp_path / "d.jsonl", {"long": LONG, "d": TEXT[:10]})
    (tmp_path / "e.csv").write_text(f'id,text\nlong,"{LONG}\n"\ne,{TEXT[:10]}\n')
    return tmp_path


def skipped(folder, limit="43 bytes"):
    return [
        f"skipped {folder}/{place}: too long: longer than {limit} (--max-document){lines}"
        for place, lines in (("a.txt", ""), ("c.txt.gz", ""), ("d.jsonl:1", ""), ("e.csv:2", " (lines 2 to 3)"))
    ]


def test_a_document_of_more_than_100_megabytes_is_skipped(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wb", 1) as file:
        for _ in range(101):
            file.write(b"a text, " * (1 << 17))
    (tmp_path / "b.txt").write_text(TEXT)
    found = run("fingerprint", tmp_path)
    assert found.lines == [f"{simhash(TEXT)}\t{tmp_path}/b.txt"]
    assert found.err == f"skipped {tmp_path}/a.txt.gz: too long: longer than 100 MB (--max-document)\n"


def test_fingerprint(folder):
    found = run("fingerprint", folder, "--max-document", "43B").done()
    assert [line.split("\t")[1] for line in found.lines] == [f"{folder}/b.txt", "d", "e"]
    assert found.err.splitlines() == skipped(folder)
    assert len(run("fingerprint", folder, "--max-document", "1MB").done().lines) == 7
    lines = run("fingerprint", "-", "--lines", "--max-document", 43, stdin=f"{LONG}\n{TEXT}\r\n".encode()).done()
    assert lines.lines == [f"{simhash(TEXT)}\tstdin:2"]
    assert lines.err == "skipped stdin:1: too long: longer than 43 bytes (--max-document)\n"


def test_nothing_but_long_documents(folder):
    found = run("fingerprint", folder / "a.txt", "--max-document", "43")
    found.failed(1, f"skipped 1 too long; the first was {folder}/a.txt: longer than 43 bytes (--max-document)")


def test_load(folder, connection, database_url):
    connection.execute("CREATE TABLE post (slug text, fp bigint)")
    options = ["--id-column", "slug", "--column", "fp", "--database", database_url]
    found = run("load", "post", folder, "--max-document", "43", *options).done()
    assert found.err.splitlines()[:4] == skipped(folder)
    assert (found.table["skipped"], found.table["too long"], found.table["documents"]) == ("4", "4", "3")
    assert connection.execute("SELECT count(*) FROM post").fetchone() == (3,)


def test_near(connection, database_url):
    create_articles(connection, [to_bigint(simhash(TEXT))])
    options = ["--text", "-", "--database", database_url, "--distance", 0]
    found = run("near", "article", *options, "--max-document", "43", stdin=TEXT.encode()).done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [1]
    found = run("near", "article", *options, "--max-document", "42", stdin=TEXT.encode())
    found.failed(1, "stdin: too long: longer than 42 bytes (--max-document)")


@pytest.mark.parametrize("size", ["0", "-1", "many", "", "1e9", "0.1", "5 parsecs", "4096PB", "9" * 400])
@pytest.mark.parametrize("command", [["fingerprint", "."], ["near", "article", "--fingerprint", "1"]])
def test_sizes_that_cannot_be(command, size):
    run(*command, f"--max-document={size}").failed(2, "size" if size == "many" else "")
