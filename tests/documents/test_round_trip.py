"""Every format, in every compression and encoding: what is written is read, and copied without some records."""

import codecs
import csv
import io
import json
import re
from contextlib import suppress
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet as pq
from reading import COMPRESSORS, DECOMPRESSORS, copy, write
from record_files import JSON_LINES, TABLES

from simsql.documents import Document, DocumentReader, Layout, Skip, decoding
from simsql.documents.formats import ChangedError, parquet
from simsql.documents.formats import csv as tables
from simsql.errors import SimsqlError

# How an encoding is called, whether its files begin with a mark, and whether its lines can be copied.
ENCODINGS = st.sampled_from(
    [
        ("utf-8", b"", True),
        ("utf-8", codecs.BOM_UTF8, True),
        ("cp1252", b"", True),
        ("gbk", b"", True),
        ("shift_jis", b"", True),
        ("utf-16-le", codecs.BOM_UTF16_LE, True),
        ("utf-16-be", codecs.BOM_UTF16_BE, True),
        ("utf-16-be", b"", True),
        ("utf-32-le", codecs.BOM_UTF32_LE, True),
        ("iso2022_jp", b"", False),
        ("cp500", b"", False),
        ("utf-7", b"", False),
    ]
)
COMPRESSIONS = st.sampled_from(["", *COMPRESSORS])
CHUNKS = st.sampled_from([1, 2, 3, 7, 40, 1 << 18])
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["", "1", "a b", "é", "n\0", None, 7, 1.5, {"$oid": 5}]),
        st.text('ab"\\{}[],\t\r\n é語\u2028', max_size=12),
    ),
    max_size=8,
)
DELIMITERS = {".csv": ",", ".tsv": "\t"}


def spell(id_):
    """The name of a document with this id, empty for one without."""
    if id_ is None:
        return ""
    return id_.replace("\0", "\\x00") if isinstance(id_, str) else json.dumps(id_)


def json_lines(draw, records):
    lines = [
        json.dumps({"id": id_, "text": text}, ensure_ascii=draw(st.booleans())).replace("\u2028", "\\u2028")
        for id_, text in records
    ]
    for noise in draw(st.lists(st.sampled_from(["", " ", "{", '{"id": 1}', "[1]"]), max_size=2)):
        lines.insert(draw(st.integers(0, len(lines))), noise)
    return draw(st.sampled_from(["\n", "\r\n"])).join([*lines, *([""] * draw(st.booleans()))])


def table(draw, records, delimiter):
    text = io.StringIO(newline="")
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    minimal, quoted = (
        csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=quoting)
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
    )
    quoted.writerow(["te\nxt", "id", "text"])
    for id_, content in records:
        # Python 3.11 quotes only the line end that it writes.
        must_be_quoted = "\r" in content or "\n" in content
        (quoted if must_be_quoted or draw(st.booleans()) else minimal).writerow(["", spell(id_), content])
    return text.getvalue()


def array(draw, records):
    content = [{"id": id_, "text": text} for id_, text in records]
    return json.dumps(content, indent=draw(st.sampled_from([None, 1])), ensure_ascii=draw(st.booleans()))


FORMATS = {
    ".jsonl": json_lines,
    ".csv": lambda draw, records: table(draw, records, ","),
    ".tsv": lambda draw, records: table(draw, records, "\t"),
    ".json": array,
}


def pieces_of(ending, text):
    """The records of a file with their line ends, "" for lines in which none begins, as Python's csv sees them."""
    if ending not in DELIMITERS:
        return re.findall(r"[^\n]*\n|[^\n]+", text)
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(iter(lines), delimiter=DELIMITERS[ending], strict=True)
    found = []
    while (begin := reader.line_num) < len(lines):
        with suppress(csv.Error):
            next(reader)
        found += ["".join(lines[begin : reader.line_num]), *[""] * (reader.line_num - begin - 1)]
    return found


def check_copy(path, ending, text, encoding, layout, draw):
    """Copy a file of this text without some of its records, and read what is left."""
    name, mark, can_be_copied = encoding
    compression = path.suffix if path.suffix in COMPRESSORS else ""
    documents = [item for item in DocumentReader([path], layout) if isinstance(item, Document)]
    removed = [document.line for document in documents if draw(st.booleans())]
    if removed and not can_be_copied:
        with pytest.raises(SimsqlError, match=f"cannot be copied: convert it from {name} to UTF-8"):
            copy(path, removed, layout)
        return
    data = copy(path, removed, layout)
    if not removed:
        assert data == path.read_bytes()
        return
    found = DECOMPRESSORS[compression](data)
    if ending == ".json":
        assert found.startswith(mark)
        stay = [each for number, each in enumerate(json.loads(text), 1) if number not in removed]
        assert json.loads(found.removeprefix(mark).decode(name)) == stay
        if not stay:  # which is a text
            return
    else:
        stay = [piece for number, piece in enumerate(pieces_of(ending, text), 1) if number not in removed]
        assert found == mark + "".join(stay).encode(name)
    left = [item for item in DocumentReader([write(path, data)], layout) if isinstance(item, Document)]
    assert [item.text for item in left] == [item.text for item in documents if item.line not in removed]


@settings(max_examples=150)
@given(st.sampled_from(sorted(FORMATS)), RECORDS, ENCODINGS, COMPRESSIONS, CHUNKS, st.data())
def test_what_is_written_is_read_and_copied(tmp_path_factory, ending, records, encoding, compression, chunk, data):
    name, mark, _ = encoding
    if ending == ".json":  # or it is a text
        records = [("the first", "record"), *records]
    records = [
        tuple(each.encode(name, "replace").decode(name) if isinstance(each, str) else each for each in record)
        for record in records
    ]
    text = FORMATS[ending](data.draw, records).encode(name, "replace").decode(name)
    path = tmp_path_factory.getbasetemp() / f"a{ending}{compression}"
    write(path, COMPRESSORS.get(compression, bytes)(mark + text.encode(name)))
    layout = Layout(encoding=data.draw(st.sampled_from([name, "latin-1"])) if mark else name)
    with mock.patch.object(decoding, "_CHUNK", chunk), mock.patch.object(tables, "_PIECE", chunk):
        documents = [item for item in DocumentReader([path], layout) if isinstance(item, Document)]
        expected = [(spell(id_), content) for id_, content in records if content.strip()]
        assert [(item.name if item.name != item.place else "", item.text) for item in documents] == expected
        check_copy(path, ending, text, encoding, layout, data.draw)


@given(RECORDS, ENCODINGS, COMPRESSIONS, CHUNKS, st.booleans(), st.sampled_from([1 << 20, 9, 4]))
def test_a_text_is_read_as_it_is(tmp_path_factory, records, encoding, compression, chunk, lines, limit):
    """Or each of its lines, of which only a line feed is the end. What is too long is skipped alone.

    Lines that cannot be cut in their own encoding are counted in UTF-8.
    """
    name, mark, _ = encoding
    text = "".join(content for _, content in records).encode(name, "replace").decode(name)
    path = tmp_path_factory.getbasetemp() / f"a{compression}"
    write(path, COMPRESSORS.get(compression, bytes)(mark + text.encode(name)))
    long = len(mark + text.encode(name)) > limit
    expected = [("too long", str(path)) if long else text if text.strip() else ("empty", str(path))]
    if lines:
        counted = name if name in ("utf-8", "cp1252", "gbk", "shift_jis") else "utf-8"
        expected = [line.removesuffix("\n").removesuffix("\r") for line in re.findall(r"[^\n]*\n|[^\n]+", text)]
        expected = [
            ("too long", f"{path}:{number}") if len(line.encode(counted)) > limit else line
            for number, line in enumerate(expected, 1)
        ] or ([] if mark else [("empty", str(path))])
    with mock.patch.object(decoding, "_CHUNK", chunk):
        found = list(DocumentReader([path], Layout(encoding=name, max_document=limit, lines=lines)))
    assert [item.text if isinstance(item, Document) else (item.reason, item.place) for item in found] == expected


def texts_of(ending, pieces, limit):
    """The texts in the pieces of a file, by the lines where they begin, as Python's json and csv read them."""
    found, header = {}, None
    for number, piece in enumerate(pieces, 1):
        line = piece.rstrip("\r\n") if ending in DELIMITERS else piece.removesuffix("\n").removesuffix("\r")
        row = None
        with suppress(ValueError, csv.Error):
            line.encode()
            if ending in DELIMITERS:
                row = next(csv.reader(io.StringIO(piece, newline=""), strict=True), None)
            else:
                row = json.loads(line.lstrip("\ufeff").removesuffix(","), strict=False)
        if len(line.encode("utf-8", "surrogateescape")) > limit:
            row = None
        if ending in DELIMITERS:
            if header is None:
                if not line:
                    continue
                header = row
                if header is None or "text" not in header:
                    return {}
                continue
            is_header = bool(row and row[1:]) and [row[0].lstrip("\ufeff"), *row[1:]] == header
            is_fit = row and not is_header and len(row) >= len(header) and not any(row[len(header) :])
            row = {"text": row[header.index("text")]} if is_fit else None
        if isinstance(row, dict) and isinstance(row.get("text"), str) and row["text"].strip():
            found[number] = row["text"]
    return found


def line_of(item):
    """The line of an item, also of damage, whose detail begins with it."""
    found = re.match(r"line ([0-9]+): ", getattr(item, "detail", ""))
    return int(found[1]) if found else item.line


@settings(max_examples=400)
@given(st.sampled_from([".jsonl", ".csv", ".csv"]), st.data(), CHUNKS, st.booleans())
def test_bad_records_are_skipped_alone_and_stay_as_they_are(tmp_path_factory, ending, data, chunk, damaged):
    """Also bytes that are not UTF-8, quotes in wrong places, and records that are too long."""
    content = data.draw(JSON_LINES if ending == ".jsonl" else TABLES)
    content = content.replace("é".encode(), b"\xe9") if damaged else content
    path = write(tmp_path_factory.getbasetemp() / f"bad{ending}", content)
    mark = codecs.BOM_UTF8 if content.startswith(codecs.BOM_UTF8) else b""
    pieces = pieces_of(ending, content.removeprefix(mark).decode("utf-8", "surrogateescape"))
    # Some records are just as long as they may be, and others a byte longer.
    sizes = sorted({len(piece.rstrip("\r\n").encode("utf-8", "surrogateescape")) for piece in pieces} - {0})
    limits = [size - less for size in sizes for less in (0, 1) if size > less]
    limit = data.draw(st.sampled_from([1 << 20] * (len(limits) + 1) + limits))
    layout = Layout(max_document=limit)
    with mock.patch.object(decoding, "_CHUNK", chunk), mock.patch.object(tables, "_PIECE", chunk):
        found = list(DocumentReader([path], layout))
        documents = {item.line: item.text for item in found if isinstance(item, Document)}
        removed = [line for line in documents if data.draw(st.booleans())]
        copied = copy(path, removed, layout)
    if ending == ".csv" or all(isinstance(item, Document) or item.line for item in found):  # or it is no text
        assert documents == texts_of(ending, pieces, limit)
        if lines := [line_of(item) for item in found]:  # every other record is skipped
            blank = "\r\n" if ending == ".csv" else None
            filled = [number for number, piece in enumerate(pieces, 1) if piece.strip(blank)]
            assert lines in (filled[ending == ".csv" :], [None])
    stay = "".join(piece for number, piece in enumerate(pieces, 1) if number not in removed)
    assert copied == mark + stay.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("chunk", range(1, 30))
def test_records_that_are_just_short_enough(tmp_path, chunk):
    """Wherever a file is cut, also between the two characters of a line end."""
    fits, longer = '{"text": "a"}\r\n', '{"text": "longer than that"}\r\n'
    for name, head in (("a.jsonl", ""), ("a.csv", "text\r\n")):
        rows = [row.replace('"', "") if head else row for row in (fits, longer, fits)]
        path = write(tmp_path / name, head + "".join(rows))
        layout = Layout(max_document=len(rows[0]) - 2)
        with mock.patch.object(decoding, "_CHUNK", chunk), mock.patch.object(tables, "_PIECE", chunk):
            first, long, last = DocumentReader([path], layout)
            assert (long.line - first.line, last.line - first.line, long.reason) == (1, 2, "too long")
            assert copy(path, [last.line], layout).decode() == head + rows[0] + rows[1]


@given(st.data())
def test_no_damage_raises(tmp_path_factory, data):
    """What is read of a damaged file is read or skipped; it is copied, or the error says why not."""
    ending = data.draw(st.sampled_from([*sorted(FORMATS), ".parquet"]))
    records = [("1", "some text"), *data.draw(RECORDS)]
    if ending == ".parquet":
        file = io.BytesIO()
        pq.write_table(pa.table({"id": ["1"] * 20, "text": ["some text"] * 20}), file, row_group_size=7)
        content = bytearray(file.getvalue())
    else:
        pack = COMPRESSORS.get(data.draw(COMPRESSIONS), bytes)
        encoding = data.draw(st.sampled_from(["utf-8", "utf-16"]))
        content = bytearray(pack(FORMATS[ending](data.draw, records).encode(encoding)))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = write(tmp_path_factory.getbasetemp() / f"damaged{ending}", bytes(content))
    found = list(DocumentReader([path]))
    assert all(isinstance(item, Document) or item.detail.isprintable() for item in found)
    with suppress(SimsqlError, ChangedError):
        copy(path, [item.line for item in found if isinstance(item, Document) and item.line], Layout())


def test_arrays_that_are_not_quite_json(tmp_path):
    for content, copied in [
        ('[{"text": "a"}, {"text": "b"},\n]\n', '[{"text": "b"}]\n'),
        ('[{"text": "a"},, {"te": 1}, 7]', '[,\n{"te": 1},\n7]\n'),
        ('[{"text": "a"}, {"text": "x" "y"}]', '[{"text": "x" "y"}]\n'),
        ('[{"text": "a"}]', "[]\n"),
        ('{"text": "a"}\n{"text": "b"}\n', '{"text": "b"}\n'),
    ]:
        assert copy(write(tmp_path / "a.json", content), [1]).decode() == copied
    for content, said in [
        ('[{"text": "a"}', "the array does not end"),
        ('[{"text": "a"}] x', "the array ends before it: 1 characters are lost"),
        ('[{"text": "a"}, {"text": "%s"}]' % ("x" * 99), "longer than 50 bytes"),
    ]:
        with pytest.raises(SimsqlError, match=f"a.json cannot be copied: {said}"):
            copy(write(tmp_path / "a.json", content), [1], Layout(max_document=50))
    with pytest.raises(SimsqlError, match="cannot be copied: column 2 is not utf-8"):
        copy(write(tmp_path / "a.json", b'[{"text": "a"}, "\xff"]'), [1])


def test_what_is_not_there_is_not_removed(tmp_path):
    table = 'id,text\n1,"a\nb"\n2,c\n'
    for name, content, line in [
        ("a.jsonl", '{"text": "a"}\n', 2),
        ("a.csv", table, 3),
        ("a.csv", table, 9),
        ("a.json", '[{"text": "a"}]', 2),
        ("a.json", '{"key": "a"}', 1),
    ]:
        with pytest.raises(ChangedError):
            copy(write(tmp_path / name, content), [line])
    assert copy(write(tmp_path / "a.csv", table), [2]) == b"id,text\n2,c\n"


ROWS = 300
COLUMNS = {
    "id": pa.array(range(ROWS), pa.uint32()),
    "text": pa.array([f"text {n}" for n in range(ROWS)], pa.large_string()),
    "kind": pa.array([f"kind {n % 7}" for n in range(ROWS)]).dictionary_encode(),
    "list": pa.array([[n] if n % 3 else None for n in range(ROWS)], pa.list_(pa.field("x", pa.int16(), False))),
    "nested": pa.array([{"a": [{"b": n}], "c": None} for n in range(ROWS)]),
    "map": pa.array([[("k", n)] for n in range(ROWS)], pa.map_(pa.string(), pa.int64())),
    "time": pa.array(range(ROWS), pa.timestamp("us", tz="UTC")),
    "amount": pa.array([None if n % 2 else n for n in range(ROWS)]).cast(pa.decimal128(25, 3)),
    "data": pa.array([b"\0\xff"] * ROWS),
    "null": pa.nulls(ROWS),
    "view": pa.array([f"a view {n}" * 2 for n in range(ROWS)], pa.string_view()),
}


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd", "row_group_size": 70},
        {"compression": "none", "store_schema": False},
        {"version": "1.0", "compression": "gzip"},
        {"use_deprecated_int96_timestamps": True, "store_schema": False},
        {"use_compliant_nested_type": False, "data_page_version": "2.0"},
    ],
)
def test_rows_of_parquet_keep_their_values_schema_and_metadata(tmp_path, options):
    made = pa.table(COLUMNS)
    fields = [field.with_metadata({"PARQUET:field_id": str(n + 9)}) for n, field in enumerate(made.schema)]
    fields[1] = fields[1].with_nullable(False)
    path = tmp_path / "a.parquet"
    pq.write_table(made.cast(pa.schema(fields, {"license": "CC0", "pandas": "{}"})), path, **options)
    removed = [n + 1 for n in range(ROWS) if n % 6 == 0 or 70 <= n < 140]
    before = pq.ParquetFile(path)
    for held in (parquet._HELD, 1):
        with mock.patch.object(parquet, "_HELD", held):
            after = pq.ParquetFile(io.BytesIO(copy(path, removed)))
        rows = before.read()
        assert after.read().equals(pa.concat_tables(rows.slice(n, 1) for n in range(ROWS) if n + 1 not in removed))
        assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
        assert after.schema.equals(before.schema)
        used = [file.metadata.row_group(0).column(1).compression for file in (before, after)]
        assert used[0] == used[1]
    assert copy(path, []) == path.read_bytes()
    with pytest.raises(ChangedError):
        copy(path, [1, ROWS + 1])


@given(RECORDS, st.sampled_from(["string", "binary", "dictionary"]), st.integers(1, 7), st.data())
def test_rows_of_parquet_are_read_and_copied(tmp_path_factory, records, kind, rows, data):
    """Of each type of texts, and row groups of any size."""
    types = {"string": pa.string(), "binary": pa.binary(), "dictionary": pa.dictionary(pa.int32(), pa.string())}
    ids, texts = zip(*((spell(id_), text) for id_, text in records), ("", None), strict=True)
    path = tmp_path_factory.getbasetemp() / "a.parquet"
    columns = {"id": ids, "text": pa.array(texts, pa.string()).cast(types[kind])}
    pq.write_table(pa.table(columns), path, row_group_size=rows)
    found = list(DocumentReader([path]))
    names = [None if isinstance(item, Skip) else item.name.replace(item.place, "") for item in found]
    assert names == [id_ if text and text.strip() else None for id_, text in zip(ids, texts, strict=True)]
    documents = [item for item in found if isinstance(item, Document)]
    removed = [item.line for item in documents if data.draw(st.booleans())]
    left = pq.read_table(io.BytesIO(copy(path, removed)))
    assert left.equals(pq.read_table(path).filter(pa.array([n + 1 not in removed for n in range(len(texts))])))
