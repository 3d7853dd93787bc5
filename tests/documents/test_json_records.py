"""JSON arrays and lines in files called .json, and streams of any shape."""

import csv
import gzip
import io
import json
import re
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import from_stdin, read, texts, write

from simsql.documents import Document, Skip
from simsql.documents import decoding as content

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text('ab"\\{}[],\n é', max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text('a]"', max_size=2), inner)),
    max_leaves=6,
)
RECORDS = st.lists(st.fixed_dictionaries({"id": VALUES, "text": VALUES}), min_size=1, max_size=8)


def plain(items):
    return [item._replace(path=None, status=None) if isinstance(item, Document) else item for item in items]


@given(
    RECORDS,
    st.sampled_from([None, 1]),
    st.booleans(),
    st.sampled_from([1, 2, 5, 1 << 18]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_an_array_holds_what_lines_hold(tmp_path_factory, records, indent, ascii_only, chunk, encoding):
    folder = tmp_path_factory.getbasetemp()
    options = {"ensure_ascii": ascii_only}
    array = json.dumps(records, indent=indent, **options)
    lines = "\n".join(json.dumps(record, **options) for record in records)
    path = write(folder / "array.json", array.encode(encoding))
    expected = plain(read(write(folder / "array.jsonl", lines.encode(encoding))))
    with mock.patch.object(content, "_CHUNK", chunk):
        found = plain(read(path))
    assert repr(found) == repr(expected).replace("array.jsonl", "array.json")
    streamed = from_stdin(array.encode(encoding))
    assert [getattr(item, "text", None) for item in streamed] == [getattr(item, "text", None) for item in found]


@given(st.text('"\\{}[], a\n1:', max_size=30), st.sampled_from([1, 3, 1 << 18]))
def test_no_text_raises(tmp_path_factory, rest, chunk):
    path = write(tmp_path_factory.getbasetemp() / "any.json", '[{"text": "a"}' + rest)
    with mock.patch.object(content, "_CHUNK", chunk):
        found = read(path)
    try:
        json.loads(re.sub(r",\s*\]\s*$", "]", '[{"text": "a"}' + rest))  # a comma at the end costs nothing
    except ValueError:
        assert any(isinstance(item, Skip) for item in found)


def test_a_bad_element_is_skipped_alone(tmp_path):
    path = write(
        tmp_path / "a.json",
        '[{"text": "a"}, {"text": "b" "c"}, 7, , {"body": "x"}, {"text": "%s"}, {"text": "d"}]' % ("x" * 90),
    )
    found = read(path, max_document=80)
    assert [getattr(item, "text", None) or item.reason for item in found] == (
        ["a", "not JSON", "not an object", "not JSON", "no field", "too long", "d"]
    )
    assert [item.place for item in found] == [f"{path}:{number}" for number in range(1, 8)]


def test_an_array_that_is_cut_off(tmp_path):
    array = json.dumps([{"text": f"text {number}"} for number in range(30_000)], indent=1)
    path = write(tmp_path / "a.json.gz", gzip.compress(array[:-20].encode()))
    *documents, skip = read(path)
    assert [document.text for document in documents] == [f"text {number}" for number in range(29_999)]
    assert (skip.place, skip.reason) == (str(path), "corrupt")
    assert skip.detail.startswith("element 30,000: the array does not end")
    *documents, skip = read(write(path, path.read_bytes()[:-1000]))
    assert (len(documents) > 20_000, skip.reason) == (True, "corrupt")


def test_lines_that_are_called_json(tmp_path):
    lines = '{"id": 1, "text": "a"}\n{"id": 2}\n{"id": 3, "text": "b"}\n'
    path = write(tmp_path / "a.JSON.gz", gzip.compress(lines.encode()))
    assert [getattr(item, "text", None) for item in read(path)] == ["a", None, "b"]
    assert {item.reason for item in read(path, text_fields=("body",))} == {"no field"}


@pytest.mark.parametrize("size", [1, 100_000, 300_000])
def test_a_first_record_of_any_size(tmp_path, size):
    records = [{"more": "x" * size, "text": "a"}, {"text": "b"}]
    assert texts(write(tmp_path / "a.json", json.dumps(records))) == ["a", "b"]
    assert texts(write(tmp_path / "a.json", "\n".join(map(json.dumps, records)))) == ["a", "b"]
    alone = write(tmp_path / "a.json", json.dumps(records[0], indent=2))
    assert read(alone) == [Document(str(alone), "a", str(alone))]


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_table_on_standard_input(delimiter, start):
    table = io.StringIO(newline="")
    csv.writer(table, delimiter=delimiter).writerows([("id", "text"), (1, "a\nb"), (2, "c, d")])
    data = start + table.getvalue().encode()
    expected = [Document("1", "a\nb", "stdin:2"), Document("2", "c, d", "stdin:4")]
    assert from_stdin(data) == expected
    assert from_stdin(gzip.compress(data)) == expected
    assert [item.reason for item in from_stdin(data, text_fields=("body",))][:1] == ["not JSON"]
    assert from_stdin(b"text\n", lines=True)[0].text == "text"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_header_may_have_line_breaks(tmp_path, end):
    """Also the name of the column of texts, and blank lines before it."""
    rows = end.join(["", '"a', 'b",id,"te', 'xt"', "1,2,x", '3,4,"y', 'z"', ""])
    field = f"te{end}xt"
    expected = [("2", "x", 5), ("4", f"y{end}z", 6)]
    for table in (rows, rows.replace(",", "\t")):
        path = write(tmp_path / ("a.csv" if "," in table else "a.tsv"), table.encode())
        for found in (read(path, text_fields=(field,)), from_stdin(table.encode(), text_fields=(field,))):
            assert [(item.name, item.text, int(item.place.rpartition(":")[2])) for item in found] == expected
