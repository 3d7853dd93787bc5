"""A document that is longer than the limit is skipped alone, and is never held in memory."""

import gzip
import json
import tracemalloc

import pytest
from program import run
from reading import read, write

from simsql.documents import DocumentReader, Layout
from simsql.documents.decoding import too_long


@pytest.mark.parametrize(
    ("limit", "written"),
    [(1000, "1,000 bytes"), (1024, "1 kB"), (100 << 20, "100 MB"), ((1 << 20) + 1, "1,048,577 bytes")],
)
def test_the_limit_is_named(limit, written):
    assert too_long(limit).detail == f"longer than {written} (--max-document)"


def test_what_is_no_text_is_not_called_too_long(tmp_path):
    write(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n\0\0\0\0" * 100)
    write(tmp_path / "b.txt", "\0" * 100)
    write(tmp_path / "c.txt", b"na\xefve" * 100)
    assert [item.reason for item in read(tmp_path, max_document=20)] == ["image", "binary", "not utf-8"]


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("name", ["a.txt", "a.lines", "a.jsonl", "a.json", "lines.json", "a.csv"])
def test_the_rest_of_a_long_document_is_not_held(tmp_path, name, quote):
    """Of 16 MB, and of what would be 16 MB after a quote that nothing closes."""
    line = '{"text": "', '"}\n{"text": "after"}'
    start, end = {
        "a.jsonl": line,
        "a.json": ('[{"text": "', '"}, {"text": "after"}]'),
        "lines.json": line,
        "a.csv": (f"text\n{quote}", f"{quote}\nafter"),
    }.get(name, ("", "\nafter"))
    with gzip.open(tmp_path / f"{name}.gz", "wb", 1) as file:
        file.write(start.encode())
        for _ in range(16):
            file.write(b"a text, " * (1 << 17))
        file.write(end.encode())
    reader = DocumentReader([tmp_path], Layout(max_document=1 << 20, lines=name == "a.lines"))
    tracemalloc.start()
    try:
        found = list(reader)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert found[0].reason == "too long"
    assert [item.text for item in found[1:]] == ([] if name == "a.txt" else ["after"])


@pytest.mark.parametrize("name", ["a.txt", "a.lines", "a.jsonl", "a.json"])
def test_a_long_document_is_held_once(tmp_path, name):
    """And not once more while the next one is read."""
    text = "a text, " * (1 << 20)
    for number in range(3):
        record = json.dumps({"text": text})
        written = {"a.jsonl": record, "a.json": f"[{record}]"}.get(name, text)
        write(tmp_path / str(number) / name, written)
    tracemalloc.start()
    try:
        for item in DocumentReader([tmp_path], Layout(lines=name == "a.lines")):
            assert len(item.text) == len(text)
            del item
        assert tracemalloc.get_traced_memory()[1] < 2.5 * len(text)
    finally:
        tracemalloc.stop()


def test_dedup_skips_and_counts_it(tmp_path, home):
    text = "the same words stand here once more"
    write(tmp_path / "a.txt", text * 2)
    write(
        tmp_path / "b.jsonl", "".join(json.dumps({"id": name, "text": text}) + "\n" for name in "bcd") + "{}" * 70
    )
    found = run("dedup", tmp_path, "--max-document", "64", home=home).done()
    assert found.groups == {frozenset("bcd")}
    assert (found.table["documents"], found.table["skipped"], found.table["too long"]) == ("3", "2", "2")
    assert found.err.splitlines()[:2] == [
        f"skipped {tmp_path}/{place}: too long: longer than 64 bytes (--max-document)"
        for place in ("a.txt", "b.jsonl:4")
    ]
    assert run("dedup", tmp_path, "--max-document", "1kB", home=home).done().table["not JSON"] == "1"
