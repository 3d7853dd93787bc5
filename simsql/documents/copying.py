"""Copy files of records without some of their records, and everything else byte for byte.

The ends of records are found in the bytes: what stays is neither decoded nor encoded. The records that a caller
names are read again by the reader of their format.
"""

import codecs
import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simsql.documents.compression import READ_ERRORS, find_compression
from simsql.documents.content import Stream, UnfitError, encoding_of_records
from simsql.documents.files import unreadable
from simsql.documents.input_formats import (
    BEFORE_FIELD,
    IN_QUOTES,
    Document,
    Layout,
    Opened,
    pass_over_fields,
    printable,
    read_json_lines,
)
from simsql.documents.json_records import find_stream_format, read_json_array, read_stream
from simsql.documents.opening import Format
from simsql.errors import SimsqlError

_CHUNK = 1 << 21  # bytes
_LF, _CR = b"\n\r"
_MARKS = {
    1: (codecs.BOM_UTF8,),
    2: (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    4: (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
_ENDS = '\n\r",\t'  # what tells where records end

I64 = NDArray[np.int64]


class Source(Protocol):
    """What bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to that many; b"" at the end."""


class Target(Protocol):
    """What takes bytes."""

    def write(self, data: bytes, /) -> Any:
        """Take them."""


class Chosen(NamedTuple):
    """Records of a file that are read again, and some of which are removed."""

    lines: I64
    """The lines where they begin, ascending."""
    removes: bool
    """Whether any of them is removed."""
    remove: Callable[[int, Sequence[str]], Sequence[bool]]
    """Returns which ones to remove, given the texts of some and the position of the first of these in `lines`."""


class DifferentError(Exception):
    """Raised for a file that does not have the records that it had."""


def can_copy(form: Format) -> bool:
    """Return whether files of this format can be copied without some of their records."""
    return form in (read_json_lines, read_stream) or isinstance(form, partial)


def copy_records(
    file: Source,
    target: Target,
    name: str,
    form: Format,
    layout: Layout,
    chosen: Chosen,
    advance: Callable[[int], None],
) -> None:
    """Copy a file of records without those to remove. What was compressed is compressed in the same way.

    `advance` is called with the number of bytes of each read. Raises DifferentError if a chosen record is gone;
    SimsqlError if the file cannot be read or its encoding has no bytes of their own for line ends.
    """
    # Nothing is compressed again for the sake of records that all stay.
    source = _Source(file, None if chosen.removes else target, advance)
    try:
        stream = Stream(source)
        if len(chosen.lines):
            with ExitStack() as stack:
                output: Target = target if chosen.removes else _Nowhere()
                if compression := find_compression(stream.sample()):
                    stream = Stream(stack.enter_context(compression.read(stream)))
                    if chosen.removes:
                        output = stack.enter_context(closing(compression.write(target)))
                if form is read_stream:
                    form = find_stream_format(stream, layout)
                if form is read_json_array:
                    raise SimsqlError(
                        f"{name} cannot be copied, because it is a JSON array: convert it to JSON lines"
                    )
                _Copy(stream, output, name, form, layout, chosen).run()
        while source.read(_CHUNK):
            pass
    except BrokenPipeError:  # of what takes the copy
        raise
    except READ_ERRORS as error:
        skip = unreadable(name, error)
        raise SimsqlError(f"{skip.place} cannot be copied: {skip.detail}") from error


class _Source:
    """A file that is copied while it is read, if there is a target."""

    def __init__(self, file: Source, target: Target | None, advance: Callable[[int], None]) -> None:
        self._file = file
        self._target = target
        self._advance = advance

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if self._target:
            self._target.write(data)
        self._advance(len(data))
        return data


class _Nowhere:
    def write(self, data: bytes) -> None:
        pass


class _Rows:
    """Finds the ends of records in successive parts of a file: those of lines or, with a delimiter, of rows."""

    def __init__(self, encoding: str, start: bytes, delimiter: str | None) -> None:
        self.line = 1
        """The line in which the next part begins."""
        self._state = BEFORE_FIELD
        self.delimiter = delimiter
        self._width = 4 if encoding.startswith("utf-32") else 2 if encoding.startswith("utf-16") else 1
        mark = next(filter(start.startswith, _MARKS[self._width]), b"")
        self.mark = len(mark)
        """Bytes of the byte order mark."""
        is_big = encoding.endswith("-be") or mark in {codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE}
        self._unit = np.dtype(f"{'>' if is_big else '<'}u{self._width}")
        self.is_possible = self._width > 1 or _ENDS.encode(encoding.removesuffix("-sig")) == _ENDS.encode()
        """Whether line ends, quotes and delimiters have bytes of their own in this encoding."""

    def whole(self, data: bytes) -> int:
        """Return the length of what can be searched: characters, and line ends, that are not cut in two."""
        end = len(data) - len(data) % self._width
        return_ = end >= self._width and self._units(data[end - self._width : end])[0] == _CR
        return end - self._width if return_ else end

    def find_ends(self, data: bytes) -> tuple[I64, I64]:
        """Return the ends of records, and the lines that follow them."""
        units = self._units(data)
        feeds = units == _LF
        if self.delimiter is None:
            (ends,) = np.nonzero(feeds)
            number = self.line + 1 + np.arange(len(ends))
            self.line += len(ends)
            return (ends + 1) * self._width, number
        returns = units == _CR
        returns[:-1] &= ~feeds[1:]
        (lines,) = np.nonzero(feeds | returns)
        lines += 1
        text = (
            (units if self._width == 1 else np.minimum(units, 0x7F)).astype(np.uint8).tobytes().decode("latin-1")
        )
        chosen = self._find_rows(text, lines.tolist(), self.delimiter)
        number = self.line + 1 + chosen
        self.line += len(lines)
        return lines[chosen] * self._width, number

    def _find_rows(self, text: str, lines: list[int], delimiter: str) -> I64:
        """Return which of the line ends in a text end a row."""
        found: list[int] = []
        place = position = 0
        while True:
            quote = text.find('"', place)
            # The lines before the one with the quote.
            last = bisect_right(lines, quote) if quote >= 0 else len(lines)
            if last > position:
                if self._state != IN_QUOTES:
                    found += range(position, last)
                    self._state = BEFORE_FIELD
                position, place = last, lines[last - 1]
            if quote < 0:
                break
            end = lines[position] if position < len(lines) else len(text)
            self._state = pass_over_fields(text[place:end], delimiter, self._state)
            place = end
            if position == len(lines):
                return np.array(found, dtype=np.int64)
            if self._state != IN_QUOTES:
                found.append(position)
                self._state = BEFORE_FIELD
            position += 1
        if place < len(text):
            self._state = pass_over_fields(text[place:], delimiter, self._state)
        return np.array(found, dtype=np.int64)

    def go_back(self, line: int) -> None:
        """Begin the next part with the record that begins in this line."""
        self.line = line
        self._state = BEFORE_FIELD

    def is_blank(self, data: bytes) -> bool:
        """Return whether a row is only a line end."""
        return bool(np.isin(self._units(data), (_LF, _CR)).all())

    def _units(self, data: bytes) -> NDArray[Any]:
        return np.frombuffer(data, dtype=self._unit, count=len(data) // self._width)


class _Copy:
    """Copies the content of a file, decompressed."""

    def __init__(
        self, stream: Stream, output: Target, name: str, form: Format, layout: Layout, chosen: Chosen
    ) -> None:
        self._stream = stream
        self._output = output
        self._name = name
        self._form = form
        self._layout = layout
        self._chosen = chosen
        self._head: bytes | None = None
        """What the reader needs before any record: the byte order mark and the header of a table."""
        self._head_lines = 0
        self._done = 0
        """Number of chosen records that were found."""

    def run(self) -> None:
        """Copy everything."""
        start = self._stream.sample()
        delimiter = self._form.keywords["delimiter"] if isinstance(self._form, partial) else None
        try:
            encoding = encoding_of_records(start, self._layout.encoding)
        except UnfitError:
            raise DifferentError from None
        # That of all of the file, of which the chosen records are a part.
        self._layout = replace(self._layout, encoding=encoding.removesuffix("-sig"))
        rows = _Rows(encoding, start, delimiter)
        if not rows.is_possible:
            raise SimsqlError(
                f"{printable(self._name)} cannot be copied in the encoding {encoding}: convert it to UTF-8"
            )
        mark = _read(self._stream, rows.mark)
        self._output.write(mark)
        if delimiter is None:
            self._head = mark
        lines = self._chosen.lines
        inside = at_end = False  # a record that began in an earlier part, and stays
        rest, line = b"", 1
        while not at_end:
            size = max(_CHUNK, len(rest))
            data = _read(self._stream, size)
            at_end = len(data) < size
            data = rest + data
            end = len(data) if at_end else rows.whole(data)
            data, rest = data[:end], data[end:]
            ends, following = rows.find_ends(data)
            if at_end and len(data) > (ends[-1] if len(ends) else 0):
                ends, following = np.append(ends, len(data)), np.append(following, rows.line + 1)
            if not inside:
                ends, following = np.insert(ends, 0, 0), np.insert(following, 0, line)
            if not len(ends):
                self._output.write(data)
                continue
            line = int(following[-1])
            if self._head is None and not self._find_head(data, mark, rows, ends, following):
                rest, line = data + rest, 1
                rows.go_back(line)
                continue
            self._copy_whole(data, ends, following)
            last = int(ends[-1])
            if self._done < len(lines) and lines[self._done] == line and not at_end:
                rest, inside = data[last:] + rest, False
                rows.go_back(line)
                if len(rest) > self._layout.max_document + 2 * _CHUNK:
                    raise DifferentError
            else:
                self._output.write(data[last:])
                inside = last < len(data)
        if self._done < len(lines):
            raise DifferentError

    def _find_head(self, data: bytes, mark: bytes, rows: _Rows, ends: I64, following: I64) -> bool:
        for start, end, line in zip(ends[:-1].tolist(), ends[1:].tolist(), following[1:].tolist(), strict=True):
            if not rows.is_blank(data[start:end]):
                self._head, self._head_lines = mark + data[:end], line - 1
                return True
        return False

    def _copy_whole(self, data: bytes, bounds: I64, lines: I64) -> None:
        """Copy what comes before the first bound, and the records between the bounds, without those to remove."""
        wanted = self._chosen.lines[self._done : np.searchsorted(self._chosen.lines, lines[-1])]
        positions = np.searchsorted(lines, wanted)
        if not np.array_equal(lines[positions], wanted):
            raise DifferentError
        place = 0
        if len(wanted):
            spans = list(zip(bounds[positions].tolist(), bounds[positions + 1].tolist(), strict=True))
            texts = self._read_again(data, spans, lines[positions + 1] - wanted)
            for (start, end), removed in zip(spans, self._chosen.remove(self._done, texts), strict=True):
                if removed:
                    if start > place:
                        self._output.write(data[place:start])
                    place = end
            self._done += len(wanted)
        self._output.write(data[place : int(bounds[-1])])

    def _read_again(self, data: bytes, spans: Sequence[tuple[int, int]], sizes: I64) -> list[str]:
        """Return the text in each span, which has to be one record with this number of lines."""
        assert self._head is not None  # noqa: S101 - found before the first record
        records = Stream(io.BytesIO(b"".join([self._head, *(data[start:end] for start, end in spans)])))
        found = list(self._form(records, Opened(self._name), self._layout))
        lines = [item.line for item in found if isinstance(item, Document)]
        expected = self._head_lines + 1 + np.cumsum(sizes) - sizes
        if len(found) != len(spans) or lines != expected.tolist():
            raise DifferentError
        return [item.text for item in found if isinstance(item, Document)]


def _read(stream: Stream, size: int) -> bytes:
    """Return this number of bytes, fewer only at the end."""
    parts = []
    while size and (data := stream.read1(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)
