"""Ranges of files of records, cut at the ends of lines or rows.

A range knows how many lines come before it, so its documents have the places that they have in a file that is read
from its beginning.
"""

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simsql.documents.content import iter_lines, split_lines, wrap_lines
from simsql.documents.files import unreadable
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
)

_HELD = 1 << 22  # bytes: a longer range is not held in memory

LINE_END = re.compile(rb"\r\n|\n|\r")
"""The ends of lines in a table."""


class MovedError(Exception):
    """Raised in another process for a file that is not where it was, or cannot be read there."""


class OpenFile:
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

    def find(self) -> "OpenFile":
        """Return the open file. Raise MovedError if another file has taken its name."""
        if self.descriptor is not None:
            return self
        try:
            found = OpenFile(self.path)
        except OSError:
            raise MovedError from None
        if not os.path.samestat(found.status, self.status):
            raise MovedError
        return found


class Bytes(io.RawIOBase):
    """The bytes of a file from a position to another one; None is its end."""

    def __init__(self, file: OpenFile, position: int, end: int | None) -> None:
        self._file = file
        self._position = position
        self._end = end

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position in the file, and return it."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.status.st_size}
        self._position = bases[whence] + offset
        return self._position

    def seekable(self) -> bool:
        """Return True: `io` asks before it seeks."""
        return True

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

    def find_end(self, file: OpenFile, place: int) -> int | None:
        """Return where a line ends that goes on at this place; None for the end of the file."""
        while data := file.read(place, _HELD):
            if end := data.find(b"\n") + 1:
                return place + end
            place += len(data)
        return None


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
        return documents_of_rows(rows, self.fields, opened, layout)

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
                found = LINE_END.search(data, place)
                if not found:
                    return last
                place = found.start()

    def count_lines(self, data: bytes, end: int) -> int:
        """Return the number of line ends before `end`."""
        returns = data.count(b"\r", 0, end)
        return data.count(b"\n", 0, end) + (returns - data.count(b"\r\n", 0, end) if returns else 0)

    def find_end(self, file: OpenFile, place: int) -> int | None:  # noqa: ARG002 - as in `Lines`
        """Return None, the end of the file: a long row is most likely a quote that is never closed."""
        return None


class Range(NamedTuple):
    """A range of a file of records."""

    file: OpenFile
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
            if self.end is None or self.end - self.start > _HELD:
                data = io.BufferedReader(Bytes(file, self.start, self.end))
                yield from self.form.stream(data, *arguments)
            else:
                yield from self.form.documents(file.read(self.start, self.end - self.start), *arguments)
        except OSError as error:
            if not here:
                raise MovedError from None
            yield unreadable(self.name, error)
