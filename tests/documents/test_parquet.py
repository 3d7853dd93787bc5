"""Parquet files: types, damage and memory."""

import datetime
import decimal

import pyarrow as pa
import pytest
from pyarrow import parquet as pq
from reading import one_skip, read, skips, texts, write

from simsql.documents import Document, DocumentReader, Layout
from simsql.documents.decoding import Stream
from simsql.documents.formats import parquet


def write_table(path, columns, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def plain(items):
    return [item._replace(status=None) if isinstance(item, Document) else item for item in items]


def test_ids_of_any_type(tmp_path):
    day = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC)
    for name, column in {
        "7": pa.array([7], pa.uint64()),
        "1.5": pa.array([1.5]),
        "true": pa.array([True]),
        "2024-02-29": pa.array([day.date()]),
        "2024-02-29 12:30:00.000000000": pa.array([day], pa.timestamp("ns", "UTC")),
        "1.10": pa.array([decimal.Decimal("1.10")]),
        "key": pa.array([b"key"]),
        '["a", 1]': pa.array([{"0": "a", "1": 1}]),
        "x": pa.array(["x"]).dictionary_encode(),
    }.items():
        path = write_table(tmp_path / "a.parquet", {"id": column, "text": ["a"]})
        expected = '{"0": "a", "1": 1}' if name.startswith("[") else name
        assert read(path) == [Document(expected, "a", f"{path}:1")]


def test_other_columns_and_types(tmp_path):
    columns = {"a.b": ["dotted"], "a": [{"b": "nested"}], "number": [1], "key": ["k"]}
    path = write_table(tmp_path / "A.PARQUET", columns)
    assert read(path, text_fields=("a.b",), id_field="key") == [Document("k", "dotted", f"{path}:1")]
    for field, reason, detail in (
        ("text", "no field", "'text' is missing: the record has 'a.b', 'a.b', 'number', 'key'"),
        ("number", "not a string", "the column 'number' is int64"),
        ("a", "not a string", "the column 'a' is struct"),
    ):
        skip = one_skip(path, text_fields=(field,))
        assert (skip.place, skip.reason) == (str(path), reason)
        assert skip.detail.startswith(detail)
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, ["text", "text"]), path)
    assert one_skip(path).reason == "ambiguous field"
    write_table(path, {"text": pa.nulls(2)})
    assert [(skip.place, skip.reason) for skip in skips(path)] == [
        (f"{path}:1", "no text"),
        (f"{path}:2", "no text"),
    ]
    assert read(write_table(path, {"text": pa.array([], pa.string())})) == []


def test_bytes_that_are_not_utf8_and_long_texts(tmp_path):
    column = pa.array([b"one", b"na\xefve", "é".encode(), b"x" * 11], pa.binary())
    for kind in (pa.binary(), pa.string()):
        unchecked = pa.Array.from_buffers(kind, 4, column.buffers())
        path = write_table(tmp_path / "a.parquet", {"text": unchecked})
        one, bad, two, long = read(path, max_document=10)
        assert (one.text, two.text) == ("one", "é")
        assert (bad.place, bad.reason, long.place, long.reason) == (
            f"{path}:2",
            "not utf-8",
            f"{path}:4",
            "too long",
        )


def test_damaged_and_truncated_files(tmp_path):
    rows = [f"some text {number} {number * 7919 % 1000}" for number in range(300)]
    path = write_table(
        tmp_path / "a.parquet", {"text": rows}, row_group_size=100, write_page_checksum=True, compression="zstd"
    )
    data = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(1).column(0)
    middle = group.dictionary_page_offset + group.total_compressed_size // 2
    write(path, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    reader = DocumentReader([path])
    found = plain(reader)
    assert [item.line for item in found if isinstance(item, Document)] == [*range(1, 101), *range(201, 301)]
    [skip] = [item for item in found if not isinstance(item, Document)]
    assert (skip.place, skip.reason) == (str(path), "corrupt")
    assert skip.detail.startswith("rows 101 to 200: ")
    for broken in (data[:-1], data[:1000], data[:3], data[4:], b"PAR1" * 3, b"some text", data[:-8] + b"\xff" * 8):
        found = read(write(path, broken))
        assert {(skip.place, skip.reason) for skip in found} == {(str(path), "corrupt")}
        assert all(skip.detail.isprintable() for skip in found)
    assert one_skip(write(path, b"")).reason == "empty"


def test_a_page_that_holds_no_values(tmp_path):
    """Arrow yields no rows, and says nothing."""
    columns = {"id": list(range(21)), "text": [f"text {number}" for number in range(21)]}
    path = write_table(tmp_path / "a.parquet", columns, row_group_size=7, use_dictionary=False, compression="none")
    data = path.read_bytes()
    page = data.index(b"\x2c\x15\x0e\x15", data.index(b"text 6"))  # that of ids in the second row group
    write(path, data[:page] + b"\x2c\x15\x00\x15" + data[page + 4 :])
    reader = DocumentReader([path])
    found = plain(reader)
    assert [item.line for item in found if isinstance(item, Document)] == [*range(1, 8), *range(15, 22)]
    [skip] = [item for item in found if not isinstance(item, Document)]
    assert (skip.reason, skip.detail.split(":")[0]) == ("corrupt", "rows 8 to 14")


def test_without_pyarrow(tmp_path, monkeypatch):
    path = write_table(tmp_path / "a.parquet", {"text": ["a"]})
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    parquet.import_parquet.cache_clear()
    try:
        skip = one_skip(path)
    finally:
        monkeypatch.undo()
    assert (skip.reason, skip.detail) == ("Parquet", "Parquet needs the package pyarrow: pip install pyarrow")
    assert texts(path) == ["a"]


@pytest.mark.parametrize("has_dictionary", [True, False])
def test_long_rows_are_held_one_by_one(tmp_path, has_dictionary):
    """Also texts of a dictionary, which take no room in the file."""
    size, path = 1 << 22, tmp_path / "a.parquet"
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 50, pa.int32()), pa.array(["a" * size, "b" * size]))
    options = {"dictionary_pagesize_limit": 1 << 30} if has_dictionary else {"use_dictionary": False}
    texts = column if has_dictionary else column.dictionary_decode()
    write_table(path, {"text": texts}, store_schema=False, write_batch_size=1, **options)
    del column, texts
    before = pa.total_allocated_bytes()
    for item in DocumentReader([path]):
        assert len(item.text) == size
        assert pa.total_allocated_bytes() - before < 6 * size


def test_a_large_dictionary_is_not_copied_for_a_few_rows(tmp_path):
    """Arrow copies it with each batch."""
    values = pa.array([f"{number} " + "x" * 1000 for number in range(5000)])
    column = pa.DictionaryArray.from_arrays(pa.array([n % 5000 for n in range(100_000)], pa.int32()), values)
    path = write_table(tmp_path / "a.parquet", {"text": column}, dictionary_pagesize_limit=1 << 30)
    with path.open("rb") as file:
        batches = list(parquet._Table(Stream(file), Layout()).batches(0))
    assert sum(batch.num_rows for batch in batches) == 100_000
    assert len(batches) < 100
    assert len(list(DocumentReader([path]))) == 100_000
