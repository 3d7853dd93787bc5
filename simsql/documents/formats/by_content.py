"""Tell what is in a file by its start where its name does not tell it: records, in which shape, or one text.

Records in a shape that is not read raise UnfitError: they would count as one text.
"""

import csv
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

from simsql.documents.decoding import CORRUPT, SAMPLE, Stream, UnfitError, decode_start, decode_text
from simsql.documents.document import USUAL, Document, Found, Layout, Skip
from simsql.documents.fields import Fields
from simsql.documents.formats import Format, OneText, Target
from simsql.documents.formats.csv import CSV, TSV, Dialect, Table, find_dialect
from simsql.documents.formats.json import JSON_ARRAY, JSON_LINES, JSON_OBJECT, first_value
from simsql.documents.records import check_filled

_SEEN = 1 << 20  # characters that tell whether a text is one of records
_START = re.compile(r"\s*(\[\s*)?(?=\{)")
_NEXT_OBJECT = re.compile(r"\s*\{")
_BEHIND_ELEMENT = re.compile(r"\s*[,\]]")
_TWO_LINES = re.compile(r"\s*\{[^\n]*\n\s*\{")
_WRAPPED = re.compile(r'\s*\{[^\[\]{}]*"\s*:\s*\[\s*\{')
_TEXTS = re.compile(r'\s*\[\s*"(?:[^"\\]|\\.)*"\s*,\s*"')
_AS_TEXT = "--input-format text compares the file as one text"


class Text(OneText):
    """Files that are one text. A file whose ending no format has is one, too."""

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:  # noqa: ARG002
        """Return all of a file. Raise UnfitError if it looks like records."""
        text = check_filled(decode_text(stream, layout.encoding, layout.max_document))
        if not layout.format and not layout.lines and (format_ := _looks_like(text[:_SEEN], layout)):
            raise _records(f"it looks like {format_.upper()}", f"read it with --input-format {format_}")
        return text


class ByContent(Format):
    """A format that is one of several others, which the content tells."""

    @abstractmethod
    def find(self, stream: Stream, layout: Layout) -> Format:
        """Return the format of a file."""

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield what is in the file."""
        return self.find(stream, layout).read(stream, found, layout)

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy the other records."""
        self.find(stream, layout).copy(stream, target, layout, removed)


class RecordStream(ByContent):
    """Standard input, pipes and devices: JSON lines, an array, or a table whose header names the texts."""

    def find(self, stream: Stream, layout: Layout) -> Format:
        """Return the format of a stream by its first record."""
        text = decode_start(stream, layout.encoding, SAMPLE)
        if start := _START.match(text):
            return JSON_ARRAY if start[1] else JSON_LINES
        if not layout.header:
            return TSV if "\t" in text.partition("\n")[0] else CSV
        return _table_of(text, layout, layout.delimiter or ",", "\t") or JSON_LINES


class Json(ByContent):
    """An array or lines of objects, an object with the text field, or else one text: settings, for example."""

    endings = (".json",)
    is_records = None

    def find(self, stream: Stream, layout: Layout) -> Format:
        """Return the format of a file by its start."""
        size, limit = SAMPLE, layout.max_document
        while True:
            text = decode_start(stream, layout.encoding, size)
            start = _START.match(text)
            if _TEXTS.match(text):
                raise _other_shape("an array of texts, not of objects", "jq -c '.[] | {text: .}' FILE")
            if not start:
                return _one_text(text, layout)
            # Whether an object ends with its line, and another follows. Nothing is parsed.
            end = text.find("\n", start.end())
            before = text[max(start.end(), end - SAMPLE) : end].rstrip()[-1:]
            if start[1] or (end > 0 and _NEXT_OBJECT.match(text, end) and before not in "{[,:"):
                return JSON_ARRAY if start[1] else JSON_LINES
            is_whole = len(stream.sample(size)) < size
            record, end = first_value(text, start.end())
            if is_whole or size > limit or (end and text[end:].strip()):
                break
            size = min(4 * size, limit + SAMPLE)
        if not is_whole and not end:
            if _WRAPPED.match(text):
                raise _other_shape("its records are in an array inside an object", "jq -c '.NAME[]' FILE")
            # The lines behind one that is too long are read.
            return TEXT if "\n" in text[start.end() :] else JSON_LINES
        if not end:
            # The first of several lines may be damaged.
            return JSON_LINES if _TWO_LINES.match(text) else _one_text(text, layout)
        if _NEXT_OBJECT.match(text, end):
            if "\n" in text[start.end() : end]:
                raise _other_shape("its objects take several lines each", "jq -c . FILE")
            return JSON_LINES
        _check_shape(record, end)
        # Fields that the user names are meant for such files, too.
        is_record = layout.text_fields != USUAL.text_fields or Fields(layout).has_text(record)
        if is_record and text[end:].strip():
            raise UnfitError(
                CORRUPT, "its first object has an end, but no bracket before it: all behind it is lost"
            )
        return JSON_OBJECT if is_record else TEXT


def _one_text(text: str, layout: Layout) -> Format:
    """Return the format of one text. Raise UnfitError if JSON is cut off in it, or does not begin like that."""
    try:
        json.loads(text)
    except RecursionError:
        pass
    except ValueError as error:
        at = getattr(error, "pos", 0)
        is_cut = (
            text[:1] in ("{", "[")
            and len(text) < SAMPLE
            and (at >= len(text.rstrip()) or "Unterminated" in str(error))
        )
        if is_cut or any(re.search(rf'"{re.escape(name)}"\s*:', text) for name in layout.text_fields):
            raise UnfitError(CORRUPT, f"it is not JSON, but has its marks: {error}; {_AS_TEXT}") from None
    return TEXT


def _check_shape(record: dict[str, Any], size: int) -> None:
    """Raise UnfitError for an object that holds records, given its size in characters."""
    values = list(record.values())
    for name, value in record.items():
        if isinstance(value, list) and value and isinstance(value[0], dict) and 2 * len(json.dumps(value)) > size:
            raise _other_shape(
                f"its records are in an array called {name!r}", f"jq -c '.[{json.dumps(name)}][]' FILE"
            )
    lengths = {len(value) if isinstance(value, list) else 0 for value in values}
    are_columns = len(values) > 1 and len(lengths) == 1 and lengths.isdisjoint({0, 1})
    # As pandas writes a table.
    are_numbered = all(isinstance(value, dict) and [*value][:2] == ["0", "1"] for value in values)
    if are_columns or (values and are_numbered):
        raise _other_shape(
            "each of its columns is one value", "pandas.DataFrame.to_json(orient='records', lines=True)"
        )


def _looks_like(start: str, layout: Layout) -> str | None:
    """Return the format that a text seems to have, given its start: several records, or None for one text."""
    if begin := _START.match(start):
        _, end = first_value(start, begin.end())
        if end and (_BEHIND_ELEMENT if begin[1] else _NEXT_OBJECT).match(start, end):
            return "json" if begin[1] else "jsonl"
    if start.count("\n") < 2:
        return None
    if table := _table_of(start, layout):
        return "tsv" if table is TSV else "csv"
    widths: list[int] = []
    with suppress(csv.Error):
        for row in Dialect(layout.delimiter or "\t", layout.quoting).rows(StringIO(start, newline="")):
            widths += [len(row)] * bool(row)
    # The last row may be cut.
    is_table = len(widths) > 2 and set(widths[:-1]) == {widths[0]} and widths[0] > 1
    return ("csv" if layout.delimiter else "tsv") if is_table else None


def _table_of(start: str, layout: Layout, *delimiters: str) -> Table | None:
    """Return the format of a text whose first row is that of a table with a text field; None for any other text.

    A single column is enough with one of these delimiters.
    """
    dialect = find_dialect(start, layout, *delimiters)
    return (TSV if dialect.delimiter == "\t" else CSV) if dialect else None


def _other_shape(what: str, remedy: str) -> UnfitError:
    return _records(what, f"write JSON lines, as with {remedy}")


def _records(what: str, remedy: str) -> UnfitError:
    """Return the error for records that are not read as they are."""
    return UnfitError("records", f"{what}: {remedy}; {_AS_TEXT}")


TEXT = Text()
STREAM = RecordStream()
FORMATS = [Json(), TEXT]
