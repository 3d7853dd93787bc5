"""A document that is longer than the limit is skipped alone, and is never held in memory."""

import contextlib
import csv
import gzip
import io
import json
import tracemalloc
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from program import run
from reading import COMPRESSORS, from_stdin, read, write

from simsql.documents import Document, DocumentReader, Layout, Skip
from simsql.documents import decoding as content
from simsql.documents.formats import csv as csv_format

LONG = "longer than 20 bytes (--max-document)"


def read_20(path, **options):
    """The texts, and the places of what is too long."""
    found = read(path, max_document=20, **options)
    return [item.text if isinstance(item, Document) else check(item).place for item in found]


def check(skip):
    assert (skip.reason, skip.detail) == ("too long", LONG)
    return skip


def data_of(text, encoding="utf-8"):
    return text.encode(encoding)


class TestWhatCounts:
    """Bytes of one document after decompression, in its own encoding."""

    @pytest.mark.parametrize("ending", ["", *COMPRESSORS])
    @pytest.mark.parametrize("letter", ["x", "é", "字", "𝄞"])
    def test_of_a_text(self, tmp_path, ending, letter):
        pack = COMPRESSORS.get(ending, bytes)
        fits = "ab" * 10
        fits = letter * (20 // len(letter.encode())) + fits[: 20 % len(letter.encode())]
        path = write(tmp_path / f"a.txt{ending}", pack(fits.encode()))
        assert read_20(path) == [fits]
        write(path, pack(fits.encode() + b"."))
        assert read_20(path) == [str(path)]

    @pytest.mark.parametrize("part", [1, 2, 7, 1 << 20])
    @pytest.mark.parametrize("fits", ["x" * 20, "é" * 10, "𝄞" * 5, "字" * 6 + "ab", ""])
    def test_of_a_line(self, tmp_path, part, fits):
        path = tmp_path / "a.txt"
        with mock.patch.object(content, "_CHUNK", part):
            write(path, f"{fits}\n{fits:é<20}.\n\nnext\n{fits}")
            last = [fits] if fits else []
            assert read_20(path, lines=True) == [fits, f"{path}:2", "", "next", *last]
            write(path, f"{fits}\r\n{fits}\r\n{fits:é<20}.\r\nnext\r\n{fits}\r")
            assert read_20(path, lines=True) == [fits, fits, f"{path}:3", "next", fits]

    def test_of_a_line_of_json(self, tmp_path):
        fits, longer = '{"text":"abcdefghi"}', '{"text":"abcdefghi" }'
        path = write(tmp_path / "a.jsonl", f"{longer}\n{fits}\n\n{longer}\n{longer}x\n{fits}")
        assert read_20(path) == [f"{path}:1", "abcdefghi", f"{path}:4", f"{path}:5", "abcdefghi"]
        found = from_stdin(path.read_bytes(), max_document=20)
        assert [item.place for item in found if isinstance(item, Skip)] == ["stdin:1", "stdin:4", "stdin:5"]

    def test_of_a_row(self, tmp_path):
        fits = "abcdefghijklmnopqr"
        path = write(tmp_path / "a.csv", f"id,text\n1,{fits}\n2,{fits}s\n3,x\n")
        assert read_20(path) == [fits, f"{path}:3", "x"]
        fits = "ab\ncde\nfghijk\nlm"
        write(path, f'id,text\n1,"a\nb"\n2,"{fits}"\n3,"{fits}n"\n4,y')
        assert read_20(path) == ["a\nb", fits, f"{path}:8", "y"]

    def test_of_the_header(self, tmp_path):
        path = write(tmp_path / "a.csv", "id,text,and more of it\n1,x,y\n")
        assert read_20(path) == [str(path)]

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "latin-1", "cp1252", "shift_jis"])
    def test_in_other_encodings(self, tmp_path, encoding):
        path = tmp_path / "a"
        mark = 0 if encoding.startswith("utf") else len("".encode(encoding))
        for size in range(1, 24):
            text = "a" * size
            # Lines that cannot be cut in their own encoding are counted in UTF-8.
            bytes_of_text = len(text.encode("utf-8" if encoding.startswith("utf") else encoding)) - mark
            write(path, f"{text}\nb".encode(encoding))
            option = {} if encoding.startswith("utf") else {"encoding": encoding}
            expected = [text if bytes_of_text <= 20 else f"{path}:1", "b"]
            assert read_20(path, lines=True, **option) == expected

    @pytest.mark.parametrize(
        ("limit", "written"),
        [
            (1, "1 bytes"),
            (1000, "1,000 bytes"),
            (1024, "1 kB"),
            (100 << 20, "100 MB"),
            (3 << 30, "3 GB"),
            ((1 << 20) + 1, "1,048,577 bytes"),
        ],
    )
    def test_the_limit_is_named(self, limit, written):
        assert content.too_long(limit).detail == f"longer than {written} (--max-document)"

    def test_what_is_no_text_is_not_called_too_long(self, tmp_path):
        write(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n\0\0\0\0" * 100)
        write(tmp_path / "b.txt", "\0" * 100)
        write(tmp_path / "c.txt", b"na\xefve" * 100)
        assert [item.reason for item in read(tmp_path, max_document=20)] == ["image", "binary", "not utf-8"]


CELLS = st.text(st.sampled_from('ab"é,\n\r'), max_size=8)


def rows_by_csv(table, limit):
    """What csv makes of the rows: the line where one begins, its fields or None for an error, and its bytes."""
    lines = io.StringIO(table, newline="")
    taken = []

    def take():
        for line in lines:
            taken.append(line)
            yield line

    number = 1
    with contextlib.suppress(StopIteration):
        while True:
            taken.clear()
            row = None
            with contextlib.suppress(csv.Error):
                row = next(csv.reader(take(), strict=True))
            *before, last = taken or [""]
            yield number, row, len("".join([*before, last.rstrip("\r\n")]).encode())
            number += len(taken)


def rows_of_simsql(table, limit):
    rows = csv_format.Rows(content.RecordBytes(content.Stream(io.BytesIO(table.encode())), "utf-8"), ",", limit)
    with contextlib.suppress(StopIteration):
        while True:
            number = rows.number + 1
            try:
                yield number, rows.next()
            except content.UnfitError as unfit:
                yield number, unfit.reason


FIELDS = st.one_of(CELLS, CELLS.map(lambda cell: '"' + cell.replace('"', '""') + '"'))
TABLES = st.lists(st.lists(FIELDS, min_size=1, max_size=3).map(",".join), max_size=8).map("\n".join)


@given(TABLES, st.integers(3, 30), st.integers(1, 5))
def test_rows_around_one_that_is_too_long_are_what_they_were(table, limit, passed_over):
    assume(table)
    expected = list(rows_by_csv(table, limit))
    with mock.patch.object(csv_format, "_PIECE", passed_over):
        found = list(rows_of_simsql(table, limit))
    assert [number for number, _ in found] == [number for number, _, _ in expected]
    for (_, row), (_, fields, size) in zip(found, expected, strict=True):
        # Whichever is seen first is said of a row that is both wrong and too long.
        assert row in ((fields,) if size <= limit else ("too long",)) or (fields is None and row == "not CSV")
        assert fields is not None or row in ("not CSV", "too long")


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("name", ["a.txt", "a.lines", "a.jsonl", "a.csv"])
def test_the_rest_of_a_long_document_is_not_held(tmp_path, name, quote):
    """Of 40 MB, and of what would be 40 MB after a quote that nothing closes."""
    start = {"a.jsonl": '{"text": "', "a.csv": f"text\n{quote}"}.get(name, "")
    end = {"a.jsonl": '"}\n{"text": "after"}', "a.csv": f"{quote}\nafter"}.get(name, "\nafter")
    with gzip.open(tmp_path / f"{name}.gz", "wb", 1) as file:
        file.write(start.encode())
        for _ in range(40):
            file.write(b"a text, " * (1 << 17))
        file.write(end.encode())
    reader = DocumentReader([tmp_path], Layout(max_document=1 << 20), lines=name == "a.lines")
    tracemalloc.start()
    try:
        found = list(reader)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert found[0].reason == "too long"
    assert [item.text for item in found[1:]] == ([] if name == "a.txt" else ["after"])


@pytest.mark.parametrize("name", ["a.txt", "a.lines", "a.jsonl"])
def test_a_long_document_is_held_once(tmp_path, name):
    """And not once more while the next one is read."""
    text = "a text, " * (1 << 20)
    for number in range(3):
        written = json.dumps({"text": text}) if name == "a.jsonl" else text
        write(tmp_path / str(number) / name, written)
    tracemalloc.start()
    try:
        for item in DocumentReader([tmp_path], lines=name == "a.lines"):
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
