"""Copy files of records without some of their records, and everything else byte for byte.

The ends of records are found in the bytes: what stays is neither decoded nor encoded. The records that a caller
names are read again by the reader of their format.
"""

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from simsql.documents.compression import READ_ERRORS, find_compression
from simsql.documents.content import Stream, UnfitError, encoding_of_records
from simsql.documents.files import unreadable
from simsql.documents.input_formats import Document, Layout, Opened, printable
from simsql.documents.json_records import (
    find_json_format,
    find_stream_format,
    read_json,
    read_json_array,
    read_stream,
)
from simsql.documents.opening import Format
from simsql.documents.record_bounds import I64, Bounds, Elements, Rows
from simsql.errors import SimsqlError

_CHUNK = 1 << 21  # bytes


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
                layout = layout.of_file(stream.sample)
                if form is read_stream:
                    form = find_stream_format(stream, layout)
                elif form is read_json:
                    form = find_json_format(stream, layout)
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
        """What the reader needs before any record, such as the header of a table."""
        self._head_lines = 0
        self._done = 0
        """Number of chosen records that were found."""
        self._first_is_gone = False

    def run(self) -> None:
        """Copy everything."""
        start = self._stream.sample()
        try:
            encoding = encoding_of_records(start, self._layout.encoding)
        except UnfitError:
            raise DifferentError from None
        # That of all of the file, of which the chosen records are a part.
        self._layout = replace(self._layout, encoding=encoding.removesuffix("-sig"))
        bounds = self._bounds = self._make_bounds(encoding, start)
        if not bounds.is_possible:
            raise SimsqlError(
                f"{printable(self._name)} cannot be copied in the encoding {encoding}: convert it to UTF-8"
            )
        self._output.write(_read(self._stream, len(bounds.mark)))
        self._head = bounds.head()
        lines = self._chosen.lines
        inside, at_end = bounds.inside, False  # a record that began in an earlier part, and stays
        rest, line = b"", 1
        while not at_end:
            size = max(_CHUNK, len(rest))
            data = _read(self._stream, size)
            at_end = len(data) < size
            data = rest + data
            end = len(data) if at_end else bounds.whole(data)
            data, rest = data[:end], data[end:]
            ends, following = bounds.find(data)
            if at_end and len(data) > (ends[-1] if len(ends) else 0):
                ends, following = np.append(ends, len(data)), np.append(following, bounds.line + 1)
            if not inside:
                ends, following = np.insert(ends, 0, 0), np.insert(following, 0, line)
            if not len(ends):
                self._write(data)
                continue
            line = int(following[-1])
            if self._head is None and not self._find_head(data, ends, following):
                rest, line = data + rest, 1
                bounds.go_back(line)
                continue
            self._copy_whole(data, ends, following)
            last = int(ends[-1])
            if self._done < len(lines) and lines[self._done] == line and not at_end:
                rest, inside = data[last:] + rest, False
                bounds.go_back(line)
                if len(rest) > self._layout.max_document + 2 * _CHUNK:
                    raise DifferentError
            else:
                self._write(data[last:])
                inside = last < len(data)
        if self._done < len(lines):
            raise DifferentError

    def _make_bounds(self, encoding: str, start: bytes) -> Bounds:
        if self._form is read_json_array:
            return Elements(encoding, start)
        return Rows(encoding, start, self._form.keywords["delimiter"] if isinstance(self._form, partial) else None)

    def _find_head(self, data: bytes, ends: I64, following: I64) -> bool:
        for start, end, line in zip(ends[:-1].tolist(), ends[1:].tolist(), following[1:].tolist(), strict=True):
            if not self._bounds.is_blank(data[start:end]):
                self._head, self._head_lines = self._bounds.mark + data[:end], line - 1
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
            removed = self._chosen.remove(self._done, texts)
            for (start, end), line, goes in zip(spans, wanted.tolist(), removed, strict=True):
                if goes:
                    self._write(data[place:start])
                    place = end
                    self._first_is_gone |= line == 1
            self._done += len(wanted)
        self._write(data[place : int(bounds[-1])])

    def _write(self, data: bytes) -> None:
        if self._first_is_gone and data:
            self._first_is_gone = False
            data = self._bounds.without_first(data)
        self._output.write(data)

    def _read_again(self, data: bytes, spans: Sequence[tuple[int, int]], sizes: I64) -> list[str]:
        """Return the text in each span, which has to be one record with this number of lines."""
        assert self._head is not None  # noqa: S101 - found before the first record
        records = [data[start:end] for start, end in spans]
        stream = Stream(io.BytesIO(self._bounds.join(self._head, records)))
        found = list(self._form(stream, Opened(self._name), self._layout))
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
