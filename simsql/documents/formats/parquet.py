"""Read, copy and write Parquet files, a few rows at a time.

Rows are numbered from 1, as lines are. Row groups are read on their own: damage to one costs no others.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from simsql.documents.decoding import Stream, UnfitError, too_long
from simsql.documents.document import Document, Found, Layout, Skip, printable
from simsql.documents.fields import Fields, advice, leaves, root_of
from simsql.documents.formats import ChangedError, Format, Target
from simsql.documents.output import open_binary_output
from simsql.documents.records import Record, check_unique, missing_field, read_each
from simsql.errors import UsageError, missing_package

_BUFFER = 1 << 18  # bytes of a column that are read at once
_ROWS = 16  # of a batch at most, as each may be as long as a document can be
_BATCH = 1 << 22  # bytes of a batch of several rows
_PER_ROW = 1 << 12  # bytes of a dictionary that are copied with a batch, for each of its rows
_TEXTS = {"null", "string", "large_string", "string_view", "binary", "large_binary", "binary_view"}
_WIDEST = 4  # bytes of a character
_HELD = 1 << 26  # bytes of rows that are copied at once
_GROUP = 1 << 15  # rows that are written at once


class Parquet(Format):
    """Rows of Parquet files, which have to be files: they are not read from their beginning to their end.

    A row without an id is named after its place. An id that is not a string is written as JSON, or as a string if
    JSON does not have its type.
    """

    endings = (".parquet",)
    is_stream = False

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the text column of each row. Skip unfit rows, and the rest of a damaged row group."""
        shown = printable(found.name)
        table = _Table(stream, layout)
        whole = table.file.metadata.num_rows
        # If the numbers of rows contradict each other, any row behind damage may be lost.
        last = 0 if whole == sum(table.groups) else whole
        end = 0
        for group, rows in enumerate(table.groups):
            number, end = end, end + rows
            try:
                for batch in table.batches(group, table.columns):
                    if number + batch.num_rows > end:
                        break
                    yield from table.documents(batch, number, found)
                    number += batch.num_rows
                    del batch
                else:
                    # Of a damaged page that holds another number of values, Arrow says nothing.
                    if number == end:
                        continue
                damage = _damaged(ValueError("its pages hold more or fewer rows than its metadata says"))
            except parquet_errors() as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                damage = _damaged(error)
            yield Skip(shown, "corrupt", f"rows {number + 1:,} to {max(end, number + 1, last):,}: {damage.detail}")

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other rows: values, order, schema and metadata stay, and row groups that are not large."""
        table = _Table(stream, layout)
        left = iter(removed)
        gone = next(left, None)
        number = last = 0
        try:
            with table.writing(target) as writer:
                for group, rows in enumerate(table.groups):
                    kept: list[Any] = []
                    held = 0
                    last += rows
                    for batch in table.batches(group):
                        start, end = number, number + batch.num_rows
                        # pyarrow cannot filter all types, but it can cut all.
                        while gone is not None and gone <= end:
                            kept.append(batch.slice(number - start, gone - 1 - number))
                            number, gone = gone, next(left, None)
                        kept.append(batch.slice(number - start, end - number))
                        number = end
                        held += batch.nbytes
                        if held > _HELD:
                            table.write(writer, kept)
                            kept, held = [], 0
                    if number != last:
                        raise ChangedError
                    table.write(writer, kept)
        except parquet_errors() as error:
            raise _damaged(error) from None
        if gone is not None:
            raise ChangedError


class _Table:
    """An open Parquet file. Raises UnfitError if it is damaged or has no column of texts."""

    def __init__(self, stream: Stream, layout: Layout) -> None:
        self._arrow, parquet = import_parquet()
        self._layout = layout
        self._fields = Fields(layout)
        file = stream.source
        try:
            if not file.seekable():
                raise UnfitError("Parquet", "it cannot be read from a pipe: write it to a file first")
            if not file.seek(0, io.SEEK_END):
                raise UnfitError("empty", "the file is empty")
            # Without pre_buffer, a column of a row group is read page by page and not at once.
            self.file = parquet.ParquetFile(
                self._arrow.PythonFile(file, mode="r"),
                buffer_size=_BUFFER,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            schema = self.file.schema_arrow
            names = schema.names
            check_unique(names, layout)
            self._texts = {root_of(field, names) for field in layout.text_fields} - {None}
            if not self._texts:
                paths = [
                    path for field in schema for path, _ in leaves(field.name, _example(self._arrow, field.type))
                ]
                raise missing_field(layout.text_fields, paths)
            for field in {*layout.text_fields} & {*names}:
                kind = schema.field(field).type
                while self._arrow.types.is_dictionary(kind):
                    kind = kind.value_type
                if not layout.fingerprints and str(kind) not in _TEXTS:
                    other = advice(field, _example(self._arrow, kind)) or ": choose another with --text-field"
                    raise UnfitError("not a string", f"the column {field!r} is {kind}{other}")
            others = {root_of(field, names) for field in (layout.id_field, *layout.value_fields)}
            self.columns = [name for name in names if name in self._texts | others]
            groups = map(self.file.metadata.row_group, range(self.file.metadata.num_row_groups))
            self.groups = [max(group.num_rows, 0) for group in groups]
            """The number of rows of each row group."""
        except parquet_errors() as error:
            raise _damaged(error) from None

    def batches(self, group: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows of a row group, a few at a time: these columns of them, or all.

        Arrow copies a value for each row, also one that the file has once, so long rows come one by one. It copies
        a column that is a dictionary with each batch, so large ones need large batches.
        """
        rows = 1
        for batch in self.file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
            dictionaries = sum(
                column.dictionary.nbytes for column in batch.columns if hasattr(column, "dictionary")
            )
            size = (batch.nbytes - dictionaries) // max(batch.num_rows, 1)
            yield batch
            del batch
            rows = max(1, min(2 * rows, _BATCH // max(size, 1), max(_ROWS, dictionaries // _PER_ROW)))
            self.file.reader.set_batch_size(rows)

    def documents(self, batch: Any, number: int, found: Found) -> Iterator[Document | Skip]:
        """Yield the documents in a batch, which has so many rows before it."""
        limit, named = self._layout.max_document, [(name, batch.column(name)) for name in self.columns]
        columns = [
            _texts(self._arrow, column, limit) if name in self._texts else _names(self._arrow, column)
            for name, column in named
        ]
        rows = enumerate(zip(*columns, strict=True), number + 1)
        return read_each(rows, found, self._layout, self._parse)

    def _parse(self, row: Sequence[Any]) -> Record:
        if unfit := next((value for value in row if isinstance(value, UnfitError)), None):
            raise unfit
        record = self._fields.read(dict(zip(self.columns, row, strict=True)))
        text, limit = record[1], self._layout.max_document
        if len(text) * _WIDEST > limit:
            # Without a copy of the text.
            parts = (text[start : start + _BUFFER] for start in range(0, len(text), _BUFFER))
            if sum(len(part.encode()) for part in parts) > limit:
                raise too_long(limit)
        return record

    def writing(self, target: Target) -> AbstractContextManager[Any]:
        """Return a writer for the same columns, in a context."""
        file = self.file
        columns = [file.schema.column(position) for position in range(len(file.schema))]
        # The compression of the texts, which are most of a corpus.
        position = next(n for n, column in enumerate(columns) if column.path.split(".")[0] in self._texts)
        used: str = file.metadata.row_group(0).column(position).compression
        return _writing(
            target,
            file.schema_arrow,
            compression={"UNCOMPRESSED": "none", "LZ4_RAW": "lz4"}.get(used, used.lower()),
            use_deprecated_int96_timestamps="INT96" in {column.physical_type for column in columns},
            use_compliant_nested_type=False,  # the names of the file
            store_schema=b"ARROW:schema" in (file.metadata.metadata or {}),
        )

    def write(self, writer: Any, batches: Sequence[Any]) -> None:
        """Write rows as a row group."""
        if rows := sum(batch.num_rows for batch in batches):
            writer.write_table(self._arrow.Table.from_batches(batches), row_group_size=rows)


class ParquetOutput:
    """A file of rows, which are written in row groups."""

    def __init__(self, writer: Any, file: Any) -> None:
        self._writer = writer
        self._file = file
        self._rows: list[Mapping[str, Any]] = []

    def write(self, rows: list[Mapping[str, Any]]) -> None:
        """Write rows. Raises SimsqlError if that fails."""
        self._rows += rows
        if len(self._rows) >= _GROUP:
            self._write_group()

    def flush(self) -> None:
        """Write what is left, and the end of the file. Raises SimsqlError if that fails."""
        self._write_group()
        self._writer.close()
        self._file.flush()

    def _write_group(self) -> None:
        arrow, _ = import_parquet()
        self._writer.write_table(arrow.Table.from_pylist(self._rows, self._writer.schema))
        self._rows = []


def check_parquet() -> None:
    """Raise UsageError if pyarrow is not installed."""
    try:
        import_parquet()
    except UnfitError as missing:
        raise UsageError(missing.detail) from None


@contextmanager
def open_parquet_output(path: Path, columns: Mapping[str, str]) -> Iterator[ParquetOutput]:
    """Open a file for rows, as `open_output`, given the name and the type of each column."""
    arrow, _ = import_parquet()
    schema = arrow.schema(columns.items())
    with open_binary_output(path) as file, _writing(file, schema, store_schema=False) as writer:
        yield ParquetOutput(writer, file)


@contextmanager
def _writing(target: Target, schema: Any, **options: Any) -> Iterator[Any]:
    """Yield a `ParquetWriter` for a target. After an error, it writes nothing more."""
    _, parquet = import_parquet()
    file = _Target(target)
    writer = parquet.ParquetWriter(file, schema, **options)
    try:
        yield writer
    except BaseException:
        # Otherwise it would write the end whenever it is collected, to a target that is closed by then.
        file.target = None
        with suppress(Exception):
            writer.close()
        raise
    writer.close()


class _Target(io.RawIOBase):
    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target: Target | None = target

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self.target:
            self.target.write(bytes(data))
        return len(data)


@cache
def import_parquet() -> tuple[Any, Any]:
    """Return pyarrow and its module for Parquet. Raise UnfitError if it is not installed."""
    try:
        import pyarrow  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError:
        raise UnfitError("Parquet", str(missing_package("Parquet", "pyarrow"))) from None
    return pyarrow, parquet


def parquet_errors() -> tuple[type[Exception], ...]:
    """Return the errors of pyarrow for files that are damaged, or that it cannot read."""
    arrow, _ = import_parquet()
    # A damaged length asks for more memory than there is, and a damaged name is not UTF-8.
    return (OSError, MemoryError, UnicodeDecodeError, arrow.ArrowException)


def _damaged(error: Exception) -> UnfitError:
    said = printable(" ".join(str(error).split()))
    return UnfitError("corrupt", f"the file is damaged, truncated, or of a kind that cannot be read: {said}")


def _example(arrow: Any, kind: Any) -> Any:
    """Return a value of a type, to name the paths in it."""
    if arrow.types.is_nested(kind) and not arrow.types.is_map(kind):
        fields = [kind.field(position) for position in range(kind.num_fields)]
        if arrow.types.is_struct(kind):
            return {field.name: _example(arrow, field.type) for field in fields}
        return [_example(arrow, fields[0].type)]
    return "text" if str(kind) in _TEXTS else None


def _texts(arrow: Any, column: Any, limit: int) -> Iterator[Any]:
    """Yield texts, bytes where they are not UTF-8, and errors in place of those that exceed `limit` bytes."""
    for value in column:
        while isinstance(value, arrow.DictionaryScalar):
            value = value.value  # noqa: PLW2901
        buffer = value.as_buffer() if isinstance(value, arrow.BinaryScalar) else None
        if buffer is None:
            yield value.as_py()
        elif buffer.size > limit:
            yield too_long(limit)
        else:
            try:
                yield str(buffer, "utf-8")
            except UnicodeDecodeError:
                yield buffer.to_pybytes()


def _names(arrow: Any, column: Any) -> list[Any]:
    """Return values that JSON has, or strings."""
    types = arrow.types
    kind = column.type
    if types.is_temporal(kind) or types.is_decimal(kind):
        if types.is_timestamp(kind) and kind.tz:
            column = column.cast(arrow.timestamp(kind.unit))  # UTC
        column = column.cast(arrow.string())
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        values = list(_texts(arrow, column, column.nbytes))
    return [value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value for value in values]


FORMATS = [Parquet()]
