"""Split files into parts that processes read on their own.

Small files are grouped. A large file of records is cut at the ends of lines or rows, and each range knows how
many lines come before it. What cannot be cut, such as a stream, a compressed file or an encoding with shifts, is
read by the process that splits, and its documents are handed on.
"""

import codecs
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from simsql.documents.content import (
    SAMPLE,
    UnfitError,
    encoding_of_records,
    iter_lines,
    split_lines,
    wrap_lines,
)
from simsql.documents.files import Found, unreadable
from simsql.documents.input_formats import (
    Document,
    Fields,
    Layout,
    Opened,
    ReadLine,
    Rows,
    Skip,
    documents_of_lines,
    documents_of_rows,
    find_fields,
    read_json_lines,
    read_lines,
    record_of_json,
    record_of_line,
    storable,
)
from simsql.documents.opening import FileReader, Format, find_decompressor, is_named_compressed

PART = 1 << 21
"""Bytes of a part: small beside the memory of a process, large beside the cost of handing it to another one."""

_LONGEST = 32  # parts: what has no line end for longer is not cut
_FILE = 1 << 12  # opening a file takes as long as reading this many bytes
_DOCUMENT = 1 << 7  # the objects of a document take as much memory as a text of this length
_COMPRESSION = 8

# In these encodings, a byte below 128 always stands for the character with this number, and nothing is shifted.
_CAN_BE_CUT = re.compile(r"utf-8(-sig)?|ascii|iso8859-\d+|cp125\d|koi8-[rtu]")

_LINE_END = re.compile(rb"\r\n|\n|\r")


class MovedError(Exception):
    """Raised in another process for a file that is not where it was, or cannot be read there."""


class Part(Protocol):
    """Documents that a process can read."""

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def held(self) -> int:
        """Characters in memory."""

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped. Raises MovedError before the first one."""


class Gathered(NamedTuple):
    """Documents that were read where the files were split."""

    items: list[Document | Skip]
    size: int = 0

    @property
    def held(self) -> int:
        """Characters in memory."""
        return sum(len(item.text) for item in self.items if isinstance(item, Document))

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped."""
        return iter(self.items)


class WholeFiles(NamedTuple):
    """Files that are read from their beginning to their end, and skips between them."""

    found: list[Found | Skip]
    layout: Layout
    lines: bool
    size: int
    held: int = 0

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped."""
        reader = FileReader(self.layout, lines=self.lines)
        for found in self.found:
            if isinstance(found, Skip):
                yield found
            else:
                yield from reader.read(found)


class _OpenFile:
    """A file descriptor, which is closed with the last part that needs it; elsewhere, the name of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.descriptor = os.open(path, os.O_RDONLY)
        self.status = os.fstat(self.descriptor)

    def __getstate__(self) -> tuple[Path, os.stat_result]:
        return self.path, self.status

    def __setstate__(self, state: tuple[Path, os.stat_result]) -> None:
        self.path, self.status = state
        self.descriptor = None

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)

    def read(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes, fewer only at the end of the file."""
        assert self.descriptor is not None  # noqa: S101
        data = os.pread(self.descriptor, size, start)
        while len(data) < size and (more := os.pread(self.descriptor, size - len(data), start + len(data))):
            data += more
        return data

    def find(self) -> "_OpenFile":
        """Return the open file. Raise MovedError if another file has taken its name."""
        if self.descriptor is not None:
            return self
        try:
            found = _OpenFile(self.path)
        except OSError:
            raise MovedError from None
        if not os.path.samestat(found.status, self.status):
            raise MovedError
        return found


class _Bytes(io.RawIOBase):
    """The bytes of a file between two positions; None is its end."""

    def __init__(self, file: _OpenFile, position: int, end: int | None) -> None:
        self._file = file
        self._position = position
        self._end = end

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer, and return the number of bytes."""
        left = len(buffer) if self._end is None else self._end - self._position
        data = self._file.read(self._position, min(len(buffer), left))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def readable(self) -> bool:
        """Return True: `io` asks before it reads."""
        return True


class Lines(NamedTuple):
    """How the lines of a file are read."""

    record: ReadLine

    def documents(
        self, data: bytes, number: int, encoding: str, opened: Opened, layout: Layout
    ) -> Iterator[Document | Skip]:
        """Yield the documents in whole lines; `number` lines come before them."""
        lines = split_lines(data, encoding, layout.max_document)
        return documents_of_lines(lines, encoding, opened, layout, self.record, number)

    def stream(
        self, stream: io.BufferedIOBase, number: int, encoding: str, opened: Opened, layout: Layout
    ) -> Iterator[Document | Skip]:
        """Yield the documents in lines of any length."""
        lines = iter_lines(wrap_lines(stream, encoding, "\n"), layout.max_document)
        return documents_of_lines(lines, encoding, opened, layout, self.record, number)

    def cut(self, data: bytes) -> int:
        """Return where the last line ends in data that begins with a line; 0 without a line end."""
        return data.rfind(b"\n") + 1

    def count_lines(self, data: bytes, end: int) -> int:
        """Return the number of line ends before `end`."""
        return data.count(b"\n", 0, end)


class Table(NamedTuple):
    """How the rows of a table are read."""

    delimiter: str
    fields: Fields

    def documents(
        self, data: bytes, number: int, encoding: str, opened: Opened, layout: Layout
    ) -> Iterator[Document | Skip]:
        """Yield the documents in whole rows; `number` lines come before them."""
        return self.stream(io.BytesIO(data), number, encoding, opened, layout)

    def stream(
        self, stream: io.BufferedIOBase, number: int, encoding: str, opened: Opened, layout: Layout
    ) -> Iterator[Document | Skip]:
        """Yield the documents in rows of any length."""
        rows = Rows(wrap_lines(stream, encoding, ""), self.delimiter, layout.max_document, number)
        return documents_of_rows(rows, self.fields, opened)

    def cut(self, data: bytes) -> int:
        """Return where the last row ends with a line feed in data that begins with a row; 0 if none does."""
        before_fields = (self.delimiter.encode(), b"\r", b"\n", b"")
        last = place = 0
        while True:
            # Outside quotes. A quote that does not begin a field is a character like others.
            quote = data.find(b'"', place)
            while quote >= 0 and data[max(quote - 1, 0) : quote] not in before_fields:
                quote = data.find(b'"', quote + 1)
            last = data.rfind(b"\n", place, quote if quote >= 0 else len(data)) + 1 or last
            if quote < 0:
                return last
            place = quote + 1
            while True:
                end = data.find(b'"', place)
                if end < 0:
                    return last
                place = end + 1
                if data[place : place + 1] != b'"':
                    break
                place += 1
            if data[place : place + 1] not in before_fields:
                # The csv module refuses this row, and goes on with the next line.
                found = _LINE_END.search(data, place)
                if not found:
                    return last
                place = found.start()

    def count_lines(self, data: bytes, end: int) -> int:
        """Return the number of line ends before `end`."""
        returns = data.count(b"\r", 0, end)
        return data.count(b"\n", 0, end) + (returns - data.count(b"\r\n", 0, end) if returns else 0)


class Range(NamedTuple):
    """A range of a file of records."""

    file: _OpenFile
    name: str
    start: int
    end: int | None
    """None for the end of the file."""
    number: int
    """The number of lines before it."""
    encoding: str
    layout: Layout
    form: Lines | Table
    size: int
    held: int = 0

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped. Raises MovedError before the first one."""
        here = self.file.descriptor is not None
        file = self.file.find()
        opened = Opened(self.name, file.path, self.file.status)
        arguments = (self.number, self.encoding, opened, self.layout)
        try:
            if self.end is None or self.end - self.start > PART:  # too long to be held in memory
                data = io.BufferedReader(_Bytes(file, self.start, self.end))
                yield from self.form.stream(data, *arguments)
            else:
                yield from self.form.documents(file.read(self.start, self.end - self.start), *arguments)
        except OSError as error:
            if not here:
                raise MovedError from None
            yield unreadable(self.name, error)


def split(files: Iterable[Found | Skip], reader: FileReader) -> Iterator[Part]:
    """Yield parts of files, in the order of the documents."""
    group: list[Found | Skip] = []
    weight = 0
    for found in files:
        pieces = (
            _split_file(found, reader) if isinstance(found, Found) and not _is_read_whole(found, reader) else None
        )
        if group and (pieces or weight > PART):
            yield _group(group, reader)
            group, weight = [], 0
        if pieces:
            yield from pieces
            continue
        group.append(found)
        weight += _FILE
        if isinstance(found, Found) and found.path:
            weight += (found.size or 0) * (_COMPRESSION if is_named_compressed(found.path) else 1)
    if group:
        yield _group(group, reader)


def _group(found: list[Found | Skip], reader: FileReader) -> WholeFiles:
    size = sum(file.size or 0 for file in found if isinstance(file, Found))
    return WholeFiles(found, reader.layout, reader.lines, size)


def _is_read_whole(found: Found, reader: FileReader) -> bool:
    """Return whether any process can read a file, and as a whole."""
    if found.path is None or found.size is None or str(found.path).startswith(("/dev/", "/proc/")):
        return False  # or it is another file in another process
    weight = _COMPRESSION if is_named_compressed(found.path) else 1
    return found.size * weight < 2 * PART or not _holds_records(reader.format_of(found))


def _holds_records(read: Format) -> bool:
    return read in (read_json_lines, read_lines) or isinstance(read, partial)


def _split_file(found: Found, reader: FileReader) -> Iterator[Part]:
    if ranges := _open_ranges(found, reader):
        yield from _split_ranges(found, ranges)
        return
    done = 0
    for items in gather(reader.read(found)):
        consumed = reader.current.consumed if reader.current else 0
        yield Gathered(items, consumed - done)
        done = consumed
        del items
    consumed = reader.current.consumed if reader.current else 0
    reader.current = None
    # A binary file counts in full although only its start was looked at.
    yield Gathered([], (consumed if found.size is None else found.size) - done)


def gather(items: Iterable[Document | Skip]) -> Iterator[list[Document | Skip]]:
    """Yield documents, and what is skipped, in lists that take as much memory as a part."""
    gathered: list[Document | Skip] = []
    held = 0
    for item in items:
        gathered.append(item)
        held += _DOCUMENT + (len(item.text) if isinstance(item, Document) else 0)
        del item  # a long document is not kept while the next one is read
        if held >= PART:
            yield gathered
            gathered, held = [], 0
    if gathered:
        yield gathered


def _open_ranges(found: Found, reader: FileReader) -> Range | None:
    """Return the range of a file that holds its records; None if it cannot be cut."""
    path, layout, read = found.path, reader.layout, reader.format_of(found)
    if path is None or _is_read_whole(found, reader) or is_named_compressed(path) or not _holds_records(read):
        return None
    try:
        file = _OpenFile(path)
        start = file.read(0, SAMPLE)
        encoding = encoding_of_records(start, layout.encoding)
    except (OSError, UnfitError, UnicodeError):
        return None  # which is then skipped
    if not stat.S_ISREG(file.status.st_mode) or find_decompressor(start) or not _CAN_BE_CUT.fullmatch(encoding):
        return None
    place = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    encoding = encoding.removesuffix("-sig")
    form: Lines | Table = Lines(record_of_line if read is read_lines else record_of_json)
    number = 0
    if isinstance(read, partial):
        delimiter = read.keywords["delimiter"]
        rows = Rows(wrap_lines(io.BytesIO(start[place:]), encoding, ""), delimiter, layout.max_document)
        try:
            form = Table(delimiter, find_fields(rows, layout))
        except UnfitError:
            return None
        number = rows.number
        ends = [end.end() for end in islice(_LINE_END.finditer(start, place), number)]
        if len(ends) < number or ends[-1] == len(start):
            return None  # the header may go on
        place = ends[-1]
    return Range(file, storable(path), place, None, number, encoding, layout, form, 0)


def _split_ranges(found: Found, whole: Range) -> Iterator[Part]:
    file, place, number = whole.file, whole.start, whole.number
    done = 0
    while True:
        size, cut = PART, 0
        try:
            while not cut and size <= _LONGEST * PART:
                data = file.read(place, size)
                at_end = len(data) < size
                cut = len(data) if at_end else whole.form.cut(data)
                size *= 2
                if at_end:
                    break
        except OSError as error:
            yield Gathered([unreadable(whole.name, error)], (found.size or 0) - done)
            return
        if at_end or not cut:
            end = place + len(data) if at_end else None
            yield whole._replace(start=place, end=end, number=number, size=max((found.size or 0) - done, 0))
            return
        yield whole._replace(start=place, end=place + cut, number=number, size=place + cut - done)
        number += whole.form.count_lines(data, cut)
        place = done = place + cut
