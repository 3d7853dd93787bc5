"""Read the records of JSON of any shape: an array of objects, or lines of them.

The name of a file does not tell the shape: `.json` has both, and so has a stream, which may be a table as well.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import StringIO

from simsql.documents.content import (
    SAMPLE,
    Stream,
    UnfitError,
    count_bytes,
    decode_chunks,
    encoding_of_records,
    too_long,
)
from simsql.documents.input_formats import (
    Document,
    Layout,
    Opened,
    Record,
    Skip,
    documents_of_lines,
    printable,
    read_json_lines,
    read_table,
    read_text,
    record_of_json,
)

Reader = Callable[[Stream, Opened, Layout], Iterator[Document | Skip]]

_JSON = json.JSONDecoder()
_START = re.compile(r"\s*(\[\s*)?(?=\{)")
_NEXT_LINE = re.compile(r"[ \t]*\r?\n\s*\{")
_BETWEEN_RECORDS = re.compile(r'["\[\]{},]')
_INSIDE_RECORD = re.compile(r'["\[\]{}]')
_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)


def read_json(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the records of a JSON file whose first record has the text field, or else the file as one document.

    Without the field, it may as well be settings or translations, which are texts.
    """
    return find_json_format(stream, layout)(stream, opened, layout)


def read_stream(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the records of standard input, a pipe or a device."""
    return find_stream_format(stream, layout)(stream, opened, layout)


def find_stream_format(stream: Stream, layout: Layout) -> Reader:
    """Return what reads a stream: JSON lines, an array, or a table, whose header names the column of texts."""
    start = _decode_start(stream, layout, SAMPLE)
    match = _START.match(start)
    if match and match[1]:
        return read_json_array
    if not match:
        for delimiter in (",", "\t"):
            rows = csv.reader(StringIO(start, newline=""), delimiter=delimiter)
            header = next(filter(None, rows), [])
            if layout.text_field in header:
                return partial(read_table, delimiter=delimiter)
    return read_json_lines


def read_json_array(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the text field of each object in a JSON array. Its number, counted from 1, stands for the line."""
    try:
        encoding = encoding_of_records(stream.sample(), layout.encoding)
    except UnfitError as unfit:
        yield Skip(printable(opened.name), unfit.reason, unfit.detail)
        return
    elements = iter_elements(decode_chunks(stream, encoding), encoding, layout.max_document)
    yield from documents_of_lines(elements, encoding, opened, layout, _record_of_element)


def _record_of_element(element: str, layout: Layout) -> Record:
    if record := record_of_json(element, layout):
        return record
    raise UnfitError("not JSON", "there is nothing between two commas")


def _decode_start(stream: Stream, layout: Layout, size: int) -> str:
    """Return the text at the start of a file of records; nothing if it is none."""
    sample = stream.sample(size)
    try:
        return sample.decode(encoding_of_records(sample[:SAMPLE], layout.encoding), "ignore")
    except (UnfitError, UnicodeError):
        return ""


def find_json_format(stream: Stream, layout: Layout) -> Reader:
    """Return what reads a JSON file: an array of records, lines of them, or a text."""
    size = SAMPLE
    record, end = None, 0
    while True:
        text = _decode_start(stream, layout, size)
        start = _START.match(text)
        if not start:
            return read_text
        is_whole = len(stream.sample(size)) < size
        with suppress(ValueError, RecursionError):
            record, end = _JSON.raw_decode(text, start.end())
        # What follows the first record tells whether there are lines.
        if is_whole or (record is not None and text[end:].strip()) or size > layout.max_document:
            break
        size *= 4
    if not isinstance(record, dict) or layout.text_field not in record:
        return read_text
    if start[1]:
        return read_json_array
    has_lines = "\n" not in text[start.end() : end] and _NEXT_LINE.match(text, end)
    return read_json_lines if has_lines else read_text


class ArrayMarks:
    """Finds what separates the elements of an array, in successive parts of a text.

    An element ends at a comma, and need not be valid JSON.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self.inside = inside
        """Whether the array has begun and has not ended: at first, whether it began before the first part."""
        self._has_ended = False
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def find(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the bracket that begins the array, each comma between elements, and the bracket that ends it."""
        place = 0
        if not (self.inside or self._has_ended) and (place := text.find("[") + 1):
            self.inside = True
            yield place - 1, "["
        while self.inside and place < len(text):
            if self._in_string:
                # The character behind a backslash may be in the next part.
                rest = _STRING.match(text, place + self._is_escaped)
                assert rest  # noqa: S101 - it may match nothing
                self._in_string = not rest[1]
                self._is_escaped = self._in_string and rest.end() < len(text)
                place = len(text) if self._in_string else rest.end()
                continue
            found = (_INSIDE_RECORD if self._depth else _BETWEEN_RECORDS).search(text, place)
            if not found:
                break
            place, mark = found.end(), found[0]
            if mark == '"':
                self._in_string = True
            elif mark in "[{":
                self._depth += 1
            elif self._depth and mark in "]}":
                self._depth -= 1
            elif mark in ",]":
                self._has_ended = mark == "]"
                self.inside = not self._has_ended
                yield place - 1, mark


def iter_elements(chunks: Iterator[str], encoding: str, limit: int) -> Iterator[str | UnfitError]:
    """Yield the JSON of each element of an array; an error in place of one that exceeds `limit` bytes.

    Only one of them is in memory.
    """
    element = _Element(encoding, limit)
    marks = ArrayMarks()
    for text in chunks:
        first = 0
        for place, mark in marks.find(text):
            if mark != "[":
                element.add(text[first:place])
                if mark == "," or element.is_filled:
                    yield element.take()
            first = place + 1
            if mark == "]":
                if text[first:].strip() or any(chunk.strip() for chunk in chunks):
                    yield UnfitError("not JSON", "there is more text after the end of the array")
                return
        if marks.inside:
            element.add(text[first:])
    yield UnfitError("not JSON", "the array does not end: the file is cut off, or a bracket is missing")


class _Element:
    """An element of an array, whose parts arrive one after the other."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._encoding = encoding
        self._limit = limit
        self._parts: list[str] = []
        self._size = 0

    @property
    def is_filled(self) -> bool:
        """Whether there is anything but white space."""
        return self._size > self._limit or any(part.strip() for part in self._parts)

    def add(self, part: str) -> None:
        """Append a part."""
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
        else:
            self._parts.append(part)

    def take(self) -> str | UnfitError:
        """Return the element, and begin the next one."""
        text, size = "".join(self._parts).strip(), self._size
        self._parts, self._size = [], 0
        if size > self._limit or count_bytes(text, self._encoding) > self._limit:
            return too_long(self._limit)
        return text
