"""Read the rows of Parquet files, a few at a time.

Rows are numbered from 1, as lines are. Row groups are read on their own: damage to one costs no others.
"""

import io
import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from simsql.documents.content import UnfitError, too_long
from simsql.documents.input_formats import (
    Document,
    Layout,
    Opened,
    Skip,
    check_filled,
    choice,
    find_column,
    name_of,
    printable,
    spell_fingerprint,
)
from simsql.errors import missing_package

_BUFFER = 1 << 18  # bytes of a column that are read at once
# Of a batch. A value of a dictionary takes no room in the file, but each row has a copy of it.
_LEAST_ROWS, _MOST_ROWS = 16, 256
_BATCH = 1 << 21  # bytes of texts in a batch
_WIDEST = 4  # bytes of a character


class RowGroup(NamedTuple):
    """Where a row group is, and the size of what is read of it."""

    number: int
    first: int
    """The number of rows before it in the file."""
    rows: int
    size: int
    """Bytes of all columns before they are compressed."""


class ParquetTable:
    """An open Parquet file, whose rows are documents.

    Raises UnfitError if it is damaged or has no column of texts.
    """

    def __init__(self, file: io.BufferedIOBase, opened: Opened, layout: Layout) -> None:
        arrow, parquet = import_parquet()
        self._arrow = arrow
        self._opened = opened
        self._layout = layout
        try:
            if not file.seek(0, io.SEEK_END):
                raise UnfitError("empty", "the file is empty")
            # Without pre_buffer, a column of a row group is read page by page and not at once.
            self.file = parquet.ParquetFile(
                arrow.PythonFile(file, mode="r"),
                buffer_size=_BUFFER,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            schema = self.file.schema_arrow
        except parquet_errors() as error:
            raise _damaged(error) from None
        text = find_column(schema.names, layout.text_field, "--text-field")
        if text is None:
            raise UnfitError("no field", f"{layout.text_field!r} is missing: {choice('file', schema.names)}")
        if not layout.fingerprints:
            _check_texts(arrow, schema.field(text).type, layout.text_field)
        self.text_field = layout.text_field
        self._identity = find_column(schema.names, layout.id_field, "--id-field")
        self._value = find_column(schema.names, layout.value_field, "--keep-field")
        self._columns = [
            schema.names[position]
            for position in dict.fromkeys((text, self._identity, self._value))
            if position is not None
        ]
        self.groups: list[RowGroup] = []
        """The row groups of the file, in order."""
        self.rows = 0
        """The number of rows in all of them."""
        try:
            for number in range(self.file.metadata.num_row_groups):
                group = self._describe(number, self.rows)
                self.groups.append(group)
                self.rows += group.rows
        except parquet_errors() as error:
            raise _damaged(error) from None

    def _describe(self, number: int, first: int) -> RowGroup:
        group = self.file.metadata.row_group(number)
        # Of all columns. To ask for a single one ends the process if the file is damaged there.
        return RowGroup(number, first, max(group.num_rows, 0), max(group.total_byte_size, 0))

    def documents(self, groups: Sequence[RowGroup]) -> Iterator[Document | Skip]:
        """Yield the documents of some row groups. Skip unfit rows, and the rest of a damaged row group."""
        for group in groups:
            number, end = group.first, group.first + group.rows
            try:
                for batch in self.batches(group, self._columns):
                    if number + batch.num_rows > end:
                        break
                    yield from self._rows(batch, number)
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
            rows = f"{number + 1:,} to {max(end, number + 1):,}"
            yield Skip(printable(self._opened.name), "corrupt", f"rows {rows}: {damage.detail}")

    def batches(self, group: RowGroup, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows of a row group, a few at a time: these columns of them, or all."""
        size = group.rows * _BATCH // max(group.size, 1)
        size = min(max(size, _LEAST_ROWS), _MOST_ROWS)
        return self.file.iter_batches(  # type: ignore[no-any-return]
            size, row_groups=[group.number], columns=columns, use_threads=False
        )

    def _rows(self, batch: Any, number: int) -> Iterator[Document | Skip]:
        layout = self._layout
        name, path, status, *_ = self._opened
        shown = printable(name)
        texts = _texts(self._arrow, batch.column(layout.text_field))
        nothing = [None] * len(texts)
        ids = nothing if self._identity is None else _names(self._arrow, batch.column(layout.id_field))
        values = nothing if self._value is None else _names(self._arrow, batch.column(layout.value_field))
        for found, identity, value in zip(texts, ids, values, strict=True):
            number += 1
            try:
                text = _fit(found, layout)
            except UnfitError as unfit:
                yield Skip(f"{shown}:{number}", unfit.reason, unfit.detail, number)
            else:
                label = identity or f"{name}:{number}"
                yield Document(label, text, f"{shown}:{number}", value or None, number, path, status)


def read_parquet(file: io.BufferedReader, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the text column of each row of a Parquet file, which can be read from any position.

    A row without an id is named after its place. An id that is not a string is written as JSON, or as a string if
    JSON does not have its type.
    """
    try:
        table = ParquetTable(file, opened, layout)
    except UnfitError as unfit:
        yield Skip(printable(opened.name), unfit.reason, unfit.detail)
    else:
        yield from table.documents(table.groups)


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


def _check_texts(arrow: Any, kind: Any, field: str) -> None:
    types = arrow.types
    while types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_null(kind) or _is_string(types, kind) or _is_binary(types, kind):
        return
    raise UnfitError("not a string", f"the column {field!r} is {kind}: choose another with --text-field")


def _is_string(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(types: Any, kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _texts(arrow: Any, column: Any) -> list[Any]:
    """Return texts, and bytes where they may not be UTF-8."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        if arrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        return column.cast(arrow.large_binary()).to_pylist()  # type: ignore[no-any-return]


def _fit(text: Any, layout: Layout) -> str:
    """Return a text. Raise UnfitError for what is none."""
    if text is None:
        raise UnfitError("no text", f"the column {layout.text_field!r} is null")
    if layout.fingerprints:
        return spell_fingerprint(text, layout)
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            where = f"byte {error.start} of the column {layout.text_field!r}"
            raise UnfitError("not utf-8", f"{where} is not UTF-8") from None
    if len(text) * _WIDEST > layout.max_document and len(text.encode()) > layout.max_document:
        raise too_long(layout.max_document)
    check_filled(text)
    return str(text)


def _names(arrow: Any, column: Any) -> list[str]:
    """Return values as names, empty for null."""
    types = arrow.types
    kind = column.type
    if types.is_temporal(kind) or types.is_decimal(kind):
        if types.is_timestamp(kind) and kind.tz:
            column = column.cast(arrow.timestamp(kind.unit))  # UTC
        column = column.cast(arrow.string())
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        values = _texts(arrow, column)
    return [_name(value) for value in values]


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    elif not isinstance(value, str | int | None):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return name_of(value, "")
