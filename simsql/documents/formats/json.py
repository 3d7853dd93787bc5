"""Read and copy JSON: lines of objects, and arrays of them."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from simsql.documents.decoding import CORRUPT, RecordBytes, Stream, UnfitError, cut_off, decode_text, too_long
from simsql.documents.document import Document, Found, Layout, Skip, printable
from simsql.documents.fields import Fields, type_of
from simsql.documents.formats import Format, Target, leave_out
from simsql.documents.formats.lines import Lines
from simsql.documents.records import Record, read_each


class _Repeated(dict[str, Any]):
    """An object with several values of some names, of which it has the last. These may be two records."""

    repeated: set[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found = _Repeated(found)
        found.repeated = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}
    return found


# Control characters in strings are read: what tools write into lines by themselves has tabs.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, strict=False)
_BETWEEN_RECORDS = re.compile(r'["\[\]{},]')
_INSIDE_RECORD = re.compile(r'["\[\]{}]')
_INNER_RECORD = re.compile(r"(?:^|[^:\[\s])\s*(?=\{)")  # behind a colon or bracket, it is a value
_TRIED = 1000  # elements inside a damaged one
_REST_OF_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*("?)', re.DOTALL)


class JsonLines(Lines):
    """JSON objects, each in a line. Blank lines are ignored.

    A record is named after its place if its id is missing, null or an empty string. An id that is not a string is
    written as JSON.
    """

    endings = (".jsonl", ".ndjson", ".jsonlines")

    def parser(self, layout: Layout) -> Callable[..., Record | None]:
        """Return what returns the fields of the JSON object in a line."""
        fields = Fields(layout)
        wanted = {*layout.text_fields, layout.id_field, *layout.value_fields}

        def parse(line: str, *, has_end: bool = True) -> Record | None:
            if not line or line.isspace():
                return None
            try:
                record = _parse_object(line, has_end=has_end)
                if isinstance(record, _Repeated) and (twice := wanted & record.repeated):
                    raise UnfitError("ambiguous field", f"the object has several values of {min(twice)!r}")
                return fields.read(record)
            except RecursionError:
                raise UnfitError("not JSON", "nested too deeply") from None

        return parse


class JsonArray(Format):
    """JSON objects in an array. Their numbers, counted from 1, stand for lines."""

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the text field of each object."""
        data = RecordBytes(stream, layout.encoding)
        elements = enumerate(_elements(data, layout), 1)
        parse = JSON_LINES.parser(layout)

        def parse_element(element: str) -> Record:
            try:
                if record := parse(element):
                    return record
            except UnfitError as unfit:
                raise _damage(unfit, element, layout) if unfit.reason == "not JSON" else unfit from None
            raise UnfitError("not JSON", "there is nothing between two commas")

        return read_each(elements, found, layout, parse_element, "element")

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other elements. Their values stay, and the white space between them does not."""
        data = RecordBytes(stream, layout.encoding)
        data.copy_to(target)
        start = b""

        def pieces() -> Iterator[tuple[int, bytes]]:
            for number, element in enumerate(_elements(data, layout), 1):
                if isinstance(element, UnfitError):
                    raise element
                yield number, data.encode(element)

        target.write(data.encode("["))
        for element in leave_out(pieces(), removed):
            target.write(start)
            target.write(element)
            start = data.encode(",\n")
        target.write(data.encode("]\n"))


class JsonObject(Format):
    """One JSON object, which is one document."""

    is_records = False

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the text of the object."""
        parse = JSON_LINES.parser(layout)
        whole = decode_text(stream, layout.encoding, layout.max_document)
        for item in read_each([(1, whole)], found, layout, parse):
            if isinstance(item, Skip):
                yield item._replace(place=printable(found.name), line=None)
            else:
                yield item._replace(name=found.name, place=printable(found.name), line=None)


def first_value(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value at a place of a text, and its end; 0 if there is none."""
    with suppress(ValueError, RecursionError):
        return _DECODER.raw_decode(text, start)
    return None, 0


def _parse_object(line: str, *, has_end: bool) -> dict[str, Any]:
    try:
        # Files put together have byte order marks inside, and lines cut out of an array have commas.
        record = _DECODER.decode(line.lstrip("\ufeff").removesuffix(","))
    except json.JSONDecodeError as error:
        # The error's own column starts anew behind the line end, where a line that is cut short fails.
        column = min(error.pos, len(line.rstrip())) + 1
        is_open = column > len(line.rstrip()) or not line.endswith("}")
        if is_open and not has_end and line.lstrip().startswith("{") and not error.msg.startswith("Extra data"):
            raise cut_off("a record") from None
        raise UnfitError("not JSON", f"column {column}: {error.msg}{_advice(line, error.msg)}") from None
    except ValueError as error:  # Python's limit on the digits of an integer
        raise UnfitError("not JSON", f"a number is too long: {error}") from None
    if not isinstance(record, dict):
        raise UnfitError("not an object", f"a line must be one JSON object, not {type_of(record)}{_advice(line)}")
    return record


def _advice(line: str, error: str = "") -> str:
    if line.lstrip().startswith("["):
        return " (this looks like a JSON array: convert it to JSON lines with jq -c '.[]')"
    if line.strip() == "{" or error == "Extra data":
        return " (each line must be one object: convert the file to JSON lines with jq -c .)"
    return ""


def _elements(data: RecordBytes, layout: Layout) -> Iterator[str | UnfitError]:
    """Yield the JSON of each element of an array; an error in place of one that is too long.

    An element ends at a comma, and need not be valid JSON. Only one of them is in memory.
    """
    parts: list[str] = []
    size, limit = 0, layout.max_document
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
            checked = too_long(limit) if size > limit else data.checked(element)
            yield _damage(checked, element, layout) if isinstance(checked, UnfitError) else element
            del element, checked
        parts.clear()
        size = 0
        if end == "]":
            if lost := sum(len(piece.strip()) for piece, _ in pieces):
                yield UnfitError(CORRUPT, f"the array ends before it: {lost:,} characters are lost")
            return
    more = f"{size:,} characters are lost, and all behind them"
    yield UnfitError(CORRUPT, f"the array does not end: the file is cut off, or a bracket is missing: {more}")


def _damage(unfit: UnfitError, element: str, layout: Layout) -> UnfitError:
    """Return the error of an element: damage if there are other records in it."""
    lost, fields = 1, Fields(layout)
    for start in islice(_INNER_RECORD.finditer(element), _TRIED):
        value, _ = first_value(element, start.end())
        lost += isinstance(value, dict) and fields.has_text(value)
    what = unfit.detail.partition(" (")[0]  # without advice for lines
    return unfit if lost == 1 else UnfitError(CORRUPT, f"{what}: up to {lost:,} elements are lost")


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
JSON_OBJECT = JsonObject()
FORMATS = [JSON_LINES]
