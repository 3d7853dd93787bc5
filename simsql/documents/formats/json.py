"""Read and copy JSON: lines of objects, and arrays of them."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from simsql.documents.decoding import (
    CORRUPT,
    SAMPLE,
    RecordBytes,
    Stream,
    UnfitError,
    check_start,
    cut_off,
    too_long,
)
from simsql.documents.document import Document, Found, Layout, Skip
from simsql.documents.formats import ByContent, Format, Target, leave_out
from simsql.documents.formats.lines import Lines
from simsql.documents.formats.text import TEXT
from simsql.documents.records import Record, check_filled, missing_field, name_of, read_each, spell_fingerprint

_DECODER = json.JSONDecoder()
_START = re.compile(r"\s*(\[\s*)?(?=\{)")
_NEXT_LINE = re.compile(r"[ \t]*\r?\n\s*\{")
_BETWEEN_RECORDS = re.compile(r'["\[\]{},]')
_INSIDE_RECORD = re.compile(r'["\[\]{}]')
_REST_OF_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)


class JsonLines(Lines):
    """JSON objects, each in a line. Blank lines are ignored.

    A record is named after its place if its id is missing, null or an empty string. An id that is not a string is
    written as JSON.
    """

    endings = (".jsonl", ".ndjson")

    def parse(self, layout: Layout, line: str, *, has_end: bool = True) -> Record | None:
        """Return the fields of the JSON object in a line."""
        if not line or line.isspace():
            return None
        try:
            record = _parse_object(line, has_end=has_end)
            text = _text_of(record, layout)
            values = [name_of(record.get(field)) for field in layout.value_fields]
            return name_of(record.get(layout.id_field)), text, values
        except RecursionError:
            raise UnfitError("not JSON", "nested too deeply") from None


class JsonArray(Format):
    """JSON objects in an array. Their numbers, counted from 1, stand for lines."""

    endings = ()
    is_records = True

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the text field of each object."""
        data = RecordBytes(stream, layout.encoding)
        elements = enumerate(_elements(data, layout.max_document), 1)
        return read_each(elements, found, partial(self._parse, layout), "element")

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other elements. Their values stay, and the white space between them does not."""
        data = RecordBytes(stream, layout.encoding)
        data.copy_to(target)
        start = b""

        def pieces() -> Iterator[tuple[int, bytes]]:
            for number, element in enumerate(_elements(data, layout.max_document), 1):
                if isinstance(element, UnfitError):
                    raise element
                yield number, data.encode(element)

        target.write(data.encode("["))
        for element in leave_out(pieces(), removed):
            target.write(start)
            target.write(element)
            start = data.encode(",\n")
        target.write(data.encode("]\n"))

    def _parse(self, layout: Layout, element: str) -> Record:
        if record := JSON_LINES.parse(layout, element):
            return record
        raise UnfitError("not JSON", "there is nothing between two commas")


class Json(ByContent):
    """An array of records or lines of them if the first record has the text field, or else one text.

    Without the field, it may as well be settings or translations, which are texts.
    """

    endings = (".json",)
    is_records = None

    def find(self, stream: Stream, layout: Layout) -> Format:
        """Return the format of a file by its first record."""
        size = SAMPLE
        record, end = None, 0
        while True:
            text = decode_start(stream, layout, size)
            start = _START.match(text)
            if not start:
                return TEXT
            is_whole = len(stream.sample(size)) < size
            with suppress(ValueError, RecursionError):
                record, end = _DECODER.raw_decode(text, start.end())
            # What follows the first record tells whether there are lines.
            if is_whole or (record is not None and text[end:].strip()) or size > layout.max_document:
                break
            size *= 4
        if not isinstance(record, dict) or layout.text_field not in record:
            return TEXT
        if start[1]:
            return JSON_ARRAY
        has_lines = "\n" not in text[start.end() : end] and _NEXT_LINE.match(text, end)
        return JSON_LINES if has_lines else TEXT


def decode_start(stream: Stream, layout: Layout, size: int) -> str:
    """Return the text at the start of a file of records; nothing if it is none."""
    sample = stream.sample(size)
    try:
        return sample.decode(check_start(stream, layout.encoding, is_records=True), "ignore")
    except (UnfitError, UnicodeError):
        return ""


def is_array(start: str) -> bool | None:
    """Return whether a text begins like an array of objects; None if it does not begin like objects at all."""
    match = _START.match(start)
    return match and match[1] is not None


def _parse_object(line: str, *, has_end: bool) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        # The error's own column starts anew behind the line end, where a line that is cut short fails.
        column = min(error.pos, len(line.rstrip())) + 1
        is_open = column > len(line.rstrip()) or not line.endswith("}")
        if is_open and not has_end and line.lstrip().startswith("{") and not error.msg.startswith("Extra data"):
            raise cut_off("a record") from None
        raise UnfitError("not JSON", f"column {column}: {error.msg}{_advice(line)}") from None
    except ValueError as error:  # Python's limit on the digits of an integer
        raise UnfitError("not JSON", f"a number is too long: {error}") from None
    if not isinstance(record, dict):
        raise UnfitError(
            "not an object", f"a line must be one JSON object, not {_json_type(record)}{_advice(line)}"
        )
    return record


def _advice(line: str) -> str:
    if line.lstrip().startswith("["):
        return " (this looks like a JSON array: convert it to JSON lines with jq -c '.[]')"
    return ""


def _text_of(record: dict[str, Any], layout: Layout) -> str:
    field = layout.text_field
    if field not in record:
        raise missing_field(field, "line", list(record))
    text = record[field]
    if text is None:
        raise UnfitError("no text", f"the field {field!r} is null")
    if layout.fingerprints:
        return spell_fingerprint(text, layout)
    if not isinstance(text, str):
        raise UnfitError("not a string", f"the field {field!r} is {_json_type(text)}")
    check_filled(text)
    return text


def _json_type(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def _elements(data: RecordBytes, limit: int) -> Iterator[str | UnfitError]:
    """Yield the JSON of each element of an array; an error in place of one that exceeds `limit` bytes.

    An element ends at a comma, and need not be valid JSON. Only one of them is in memory.
    """
    parts: list[str] = []
    size = 0
    pieces = _cut_array(data.chunks())
    for piece, end in pieces:
        part = piece if size else piece.lstrip()
        size += data.size_of(part)
        if size > limit:
            parts.clear()
        else:
            parts.append(part)
        if not end:
            continue
        if end == "," or size:
            element = "".join(parts)
            parts.clear()
            element = element.rstrip()
            yield too_long(limit) if size > limit else data.checked(element)
            del element
        parts.clear()
        size = 0
        if end == "]":
            if lost := sum(len(piece.strip()) for piece, _ in pieces):
                yield UnfitError(CORRUPT, f"the array ends before it: {lost:,} characters are lost")
            return
    more = f"{size:,} characters are lost, and all behind them"
    yield UnfitError(CORRUPT, f"the array does not end: the file is cut off, or a bracket is missing: {more}")


def _cut_array(chunks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the text behind the first bracket in pieces, each with the comma or bracket that ends it."""
    is_inside: bool | None = None  # before the array
    in_string = is_escaped = False
    depth = 0
    for text in chunks:
        first = place = 0
        if is_inside is None:
            first = place = text.find("[") + 1
            is_inside = True if place else None
        while is_inside and place < len(text):
            if in_string:
                # The character behind a backslash may be in the next part.
                rest = _REST_OF_STRING.match(text, place + is_escaped)
                assert rest  # noqa: S101 - it may match nothing
                in_string = not rest[1]
                is_escaped = in_string and rest.end() < len(text)
                place = len(text) if in_string else rest.end()
                continue
            found = (_INSIDE_RECORD if depth else _BETWEEN_RECORDS).search(text, place)
            if not found:
                break
            place, mark = found.end(), found[0]
            if mark == '"':
                in_string = True
            elif mark in "[{":
                depth += 1
            elif depth:
                depth -= 1
            elif mark != "}":
                yield text[first : place - 1], mark
                first, is_inside = place, mark == ","
        if is_inside is not None:
            yield text[first:], ""


JSON_LINES = JsonLines()
JSON_ARRAY = JsonArray()
FORMATS = [JSON_LINES, Json()]
