"""Read the documents of one file: plain text, its lines, JSON lines and CSV.

Each reader takes an open `Stream`, its `Opened` and a `Layout`. It yields a `Document` for every text and
a `Skip` for everything that it cannot use. The content of a file never makes it raise. Only failures of reading
itself do (`compression.READ_ERRORS`), after the documents before them.
"""

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Literal, NamedTuple

from simsql.documents.content import (
    DETECT,
    MAX_DOCUMENT,
    UNDECODABLE,
    Stream,
    UnfitError,
    count_bytes,
    decode_lines,
    decode_text,
    detect_encoding,
    iter_lines,
    too_long,
    undecodable,
)

# How much of a line that is too long is passed over at a time.
_PASSED_OVER = 1 << 16
_JSON = json.JSONDecoder()
_STRING_OR_BRACKET = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')
_DEEPEST = 500  # arrays and objects within each other


class Document(NamedTuple):
    """A text to compare. `name` and `place` never contain a NUL or a lone surrogate; `text` may."""

    name: str
    """Its id for the user: the path of a text file, or the value of the id field of a record."""
    text: str
    place: str
    """Where it was read, as one printable line: `path` or `path:line`."""
    value: str | None = None
    """The value of the value field of a record, if it has one. Numbers and other types are written as JSON."""
    line: int | None = None
    """The line where a record begins; None for a whole file."""
    path: Path | None = None
    """The file; None for standard input."""
    status: os.stat_result | None = None
    """The status of the file when it was opened; None for standard input."""
    guess: str | None = None
    """The encoding of its file, if that is a guess, for the first document of the file."""


class Opened(NamedTuple):
    """What is open: a file or a stream."""

    name: str
    path: Path | None = None
    """The file; None for standard input."""
    status: os.stat_result | None = None
    """The status of the file when it was opened; None for standard input."""


class Skip(NamedTuple):
    """A skipped document or file, and the reason.

    `reason` is one of: "binary" or another kind of file, "not utf-8" (or another encoding), "empty", "too long",
    "unreadable", "corrupt", "hidden", "excluded", "link", "special file", "not JSON", "not an object", "no field",
    "ambiguous field", "no text", "not a string", "not a fingerprint", "not CSV", "wrong number of fields".
    """

    place: str
    reason: str
    detail: str
    """What is wrong and what to do about it, on one line."""
    line: int | None = None
    """The line of a record; None for a file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields and the encoding of the files, and the limit for a document."""

    text_field: str = "text"
    """The field of a JSON object, or the column of a table, that holds the text."""
    id_field: str = "id"
    """The field or column that names the document. Records without it are named `path:line`."""
    encoding: str = "utf-8"
    """A byte order mark of UTF-8, UTF-16 or UTF-32 takes precedence. `DETECT` guesses where it is not UTF-8."""
    max_document: int = MAX_DOCUMENT
    """Limit in bytes, after decompression, for a text, or the line or row of a record."""
    value_field: str | None = None
    """The field or column whose value is read beside the text, if a record has it."""
    main_content: bool = False
    """Whether the text of a web page is its main content, and not its source."""
    fingerprints: Literal["hex", "decimal"] | None = None
    """How strings are written if the text field holds fingerprints: see `spell_fingerprint`."""
    pictures: bool = False
    """Whether to read pictures, and nothing else."""

    def of_file(self, read_start: Callable[[int], bytes]) -> "Layout":
        """Return the layout with the encoding of a file. `read_start` returns as many bytes as asked for."""
        if self.encoding != DETECT:
            return self
        return replace(self, encoding=detect_encoding(read_start))


def storable(name: str | os.PathLike[str]) -> str:
    r"""Return a name that PostgreSQL and JSON can store: `\xff` for an invalid byte, `\x00` for a NUL."""
    if isinstance(name, os.PathLike):
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def printable(name: str) -> str:
    """Return a name on one line, with line ends and other controls escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def read_text(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield a file as one document, or as a skip. Text is recognised by content, not by name."""
    place = printable(opened.name)
    try:
        text = decode_text(stream, layout.encoding, layout.max_document)
        check_filled(text)
    except UnfitError as unfit:
        yield Skip(place, unfit.reason, unfit.detail)
    else:
        yield Document(opened.name, text, place, path=opened.path, status=opened.status)


def read_lines(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield every line without its line end as a document named after its place, including blank lines."""
    return _read_each_line(stream, opened, layout, record_of_line)


def read_json_lines(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the text field of the JSON object in each line. Ignore blank lines.

    A record is named after its place if its id is missing, null or an empty string. An id that is not a string is
    written as JSON.
    """
    return _read_each_line(stream, opened, layout, record_of_json)


Record = tuple[str, str, str | None]
"""The id, empty without one, the text, and the value."""

ReadLine = Callable[[str, Layout], Record | None]
"""Returns the record in a line; None for a line without one. Raises UnfitError."""


def record_of_line(line: str, layout: Layout) -> Record:  # noqa: ARG001
    """Return a line as a text."""
    return "", line, None


def record_of_json(line: str, layout: Layout) -> Record | None:
    """Return the fields of the JSON object in a line."""
    if not line or line.isspace():
        return None
    record = _parse_object(line)
    text = _text_of(record, layout)
    value = None if layout.value_field is None else _value_of(record.get(layout.value_field))
    return name_of(record.get(layout.id_field), ""), text, value


def _read_each_line(stream: Stream, opened: Opened, layout: Layout, read: ReadLine) -> Iterator[Document | Skip]:
    try:
        # Only \n ends a line: the other line ends of Unicode may stand inside a JSON string.
        lines = decode_lines(stream, layout.encoding, newline="\n")
    except UnfitError as unfit:
        yield Skip(printable(opened.name), unfit.reason, unfit.detail)
        return
    yield from documents_of_lines(iter_lines(lines, layout.max_document), lines.encoding, opened, layout, read)


def documents_of_lines(
    lines: Iterable[str | UnfitError],
    encoding: str,
    opened: Opened,
    layout: Layout,
    read: ReadLine,
    number: int = 0,
) -> Iterator[Document | Skip]:
    """Yield the document in each line. Skip single lines that are unfit. `number` lines come before these."""
    name, path, status = opened
    shown = printable(name)
    for line in lines:
        number += 1
        try:
            if isinstance(line, UnfitError):
                raise line
            if UNDECODABLE in line:
                raise undecodable(encoding, f"column {line.index(UNDECODABLE) + 1}")
            record = read(line, layout)
        except UnfitError as unfit:
            yield Skip(f"{shown}:{number}", unfit.reason, unfit.detail, number)
        else:
            del line  # which may be long, and what is made of it goes on without it
            if record:
                identity, text, value = record
                del record
                yield Document(
                    identity or f"{name}:{number}", text, f"{shown}:{number}", value, number, path, status
                )
                del text


def read_table(
    stream: Stream, opened: Opened, layout: Layout, *, delimiter: str = ","
) -> Iterator[Document | Skip]:
    """Yield the text column of each row of a CSV file. The first row names the columns.

    The place of a row is the line where it begins. Rows without an id are named after their place. Quoting is
    strict, because a stray quote would silently swallow the rows after it.
    """
    try:
        # All line ends are kept as they are: the csv module tells those inside quotes from the others.
        rows = Rows(decode_lines(stream, layout.encoding, newline=""), delimiter, layout.max_document)
        fields = find_fields(rows, layout)
    except UnfitError as unfit:
        yield Skip(printable(opened.name), unfit.reason, unfit.detail)
        return
    yield from documents_of_rows(rows, fields, opened, layout)


class Fields(NamedTuple):
    """The positions of the fields in a row."""

    width: int
    text: int
    identity: int | None
    value: int | None


def find_fields(rows: "Rows", layout: Layout) -> Fields:
    """Read the header of a table. Raise UnfitError without a header, or without the column of texts."""
    header: list[str] = []
    while not header:
        try:
            header = rows.next()
        except StopIteration:
            why = "no header row: the first row of a CSV file must name its columns"
            raise UnfitError("empty", why) from None
    return Fields(
        len(header),
        _text_column(header, layout.text_field),
        find_column(header, layout.id_field, "--id-field"),
        find_column(header, layout.value_field, "--keep-field"),
    )


def documents_of_rows(rows: "Rows", fields: Fields, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the document in each row. Skip single rows that are unfit."""
    name, path, status = opened
    shown = printable(name)
    while True:
        number = rows.number + 1
        try:
            row = rows.next()
            if not row:
                continue
            _check_width(row, fields.width)
            check_filled(row[fields.text])
            if layout.fingerprints:
                row[fields.text] = spell_fingerprint(row[fields.text], layout)
        except StopIteration:
            return
        except UnfitError as unfit:
            yield Skip(f"{shown}:{number}", unfit.reason, unfit.detail, number)
        else:
            identity = None if fields.identity is None else row[fields.identity]
            value = None if fields.value is None else _value_of(row[fields.value])
            label = name_of(identity, f"{name}:{number}")
            yield Document(label, row[fields.text], f"{shown}:{number}", value, number, path, status)
            del row


def check_filled(text: str) -> None:
    """Raise UnfitError for a text of white space."""
    if not text or text.isspace():
        raise UnfitError("empty", "the text is empty" if not text else "the text is only white space")


def _load(line: str) -> Any:
    """Return what `json.loads` returns, in less time for a line without white space around the JSON."""
    if line.count("[") + line.count("{") > _DEEPEST:
        _check_depth(line)
    try:
        found, end = _JSON.raw_decode(line)
    except ValueError:
        end = -1
    return found if end == len(line) else json.loads(line)


def _check_depth(line: str) -> None:
    """Refuse deep nesting. Python's own limit counts the calls in progress, which differ between processes."""
    depth = 0
    for found in _STRING_OR_BRACKET.findall(line):
        depth += 1 if found in "[{" else -1 if found in "]}" else 0
        if depth > _DEEPEST:
            raise UnfitError("not JSON", "nested too deeply")


def _parse_object(line: str) -> dict[str, Any]:
    try:
        record = _load(line)
    except json.JSONDecodeError as error:
        # The error's own column starts anew behind the line end, where a line that is cut short fails.
        column = min(error.pos, len(line.rstrip())) + 1
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
        raise UnfitError("no field", f"{field!r} is missing: {choice('line', list(record))}")
    text = record[field]
    if text is None:
        raise UnfitError("no text", f"the field {field!r} is null")
    if layout.fingerprints:
        return spell_fingerprint(text, layout)
    if not isinstance(text, str):
        raise UnfitError("not a string", f"the field {field!r} is {_json_type(text)}")
    check_filled(text)
    return text


def spell_fingerprint(value: Any, layout: Layout) -> str:
    """Return a fingerprint as 16 hexadecimal digits. Strings have the form that the layout says.

    Raise UnfitError for anything else.
    """
    from simsql.arrays.checks import one_fingerprint  # noqa: PLC0415 - commands start before numpy is there

    is_decimal = layout.fingerprints == "decimal"
    try:
        number = one_fingerprint(int(value) if is_decimal and isinstance(value, str) else value)
    except (TypeError, ValueError):
        strings = "a decimal" if is_decimal else "16 hexadecimal digits, or --fingerprint-field NAME=decimal"
        raise UnfitError(
            "not a fingerprint", f"the field {layout.text_field!r} is {value!r:.40}: expected 64 bits: {strings}"
        ) from None
    return f"{number:016x}"


def name_of(identity: Any, fallback: str) -> str:
    """Return an id, or any other value of a record, as a name; the fallback for null and for an empty string."""
    if identity is None or identity == "":
        return fallback
    if type(identity) is int:  # the common case; JSON would say the same ten times slower
        return str(identity)
    if not isinstance(identity, str):
        identity = json.dumps(identity, ensure_ascii=False)
    return storable(identity)


def _value_of(value: Any) -> str | None:
    return name_of(value, "") or None


def _json_type(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def choice(owner: str, names: Sequence[str], limit: int = 8) -> str:
    """Describe the names that exist instead of the missing one, at most `limit` of them."""
    if not names:
        return f"the {owner} is empty"
    shown = ", ".join(repr(name) if len(name) <= 40 else f"{name[:40]!r}..." for name in names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"the {owner} has {shown}{more}; choose with --text-field"


def _text_column(header: list[str], field: str) -> int:
    column = find_column(header, field, "--text-field")
    if column is None:
        raise UnfitError("no field", f"{field!r} is missing: {choice('header', header)}")
    return column


def find_column(header: Sequence[str], field: str | None, option: str) -> int | None:
    """Return the position of a column; None without it. Raise UnfitError if several have this name."""
    if field is not None and header.count(field) > 1:
        again = f"{header.count(field)} columns are called {field!r}: rename them, or choose another with {option}"
        raise UnfitError("ambiguous field", again)
    return header.index(field) if field is not None and field in header else None


def _check_width(row: list[str], width: int) -> None:
    # An unquoted delimiter cuts a text in two; empty fields at the end of a row do no harm.
    if len(row) < width or any(row[width:]):
        raise UnfitError(
            "wrong number of fields", f"{len(row)} fields, but the header has {width}: check the quoting"
        )


class Rows:
    """The rows of a table. A row that is too long is never held in memory."""

    def __init__(self, lines: TextIOWrapper, delimiter: str, limit: int, number: int = 0) -> None:
        # One limit for the whole process, 128 KB unless raised: documents are longer than that.
        csv.field_size_limit(sys.maxsize)
        self.number = number
        """Number of the last line that was read, starting at 1."""
        self._lines = lines
        self._delimiter = delimiter
        self._limit = self._left = limit
        self._ahead = ""
        self._rows = csv.reader(self._iterate(), delimiter=delimiter, strict=True)

    def next(self) -> list[str]:
        """Return the next row, empty for a blank line. After an unfit row, the next call continues behind it.

        Raises StopIteration after the last row.
        """
        self._left = self._limit
        try:
            row = next(self._rows)
        except csv.Error as error:
            message = str(error)
            if message == "unexpected end of data":
                message = "a quote is never closed"
            raise UnfitError("not CSV", f"{printable(message)}: check the quoting") from None
        except UnfitError:
            self._rows = csv.reader(self._iterate(), delimiter=self._delimiter, strict=True)
            raise
        for number, field in enumerate(row, 1):
            if UNDECODABLE in field:
                raise undecodable(self._lines.encoding, f"field {number}")
        return row

    def _iterate(self) -> Iterator[str]:
        """Yield lines for the csv module. Raise UnfitError at the end of a row that is too long."""
        encoding = self._lines.encoding
        while line := self._read(max(self._left, 0) + 3):
            before = self._left
            self.number += 1
            self._left -= count_bytes(line, encoding)
            # The end of a line does not count where the row ends with it.
            if self._left < 0 and self._left < len(line.rstrip("\r\n")) - len(line):
                # A row that did not end with the line before goes on within quotes.
                self._pass_over(line, IN_QUOTES if before < self._limit else BEFORE_FIELD)
                raise too_long(self._limit)
            yield line

    def _pass_over(self, line: str, state: int) -> None:
        """Skip to the end of a row, given the beginning of a line and the state of the row there."""
        while line:
            state = pass_over_fields(line, self._delimiter, state)
            whole = line.endswith(("\r", "\n"))
            if whole and state != IN_QUOTES:
                return
            line = self._read(_PASSED_OVER)
            self.number += whole and line != ""

    def _read(self, size: int) -> str:
        """Return a line, or about `size` characters of it. Never split a line end."""
        line, self._ahead = self._ahead, ""
        if not line.endswith("\r"):
            line += self._lines.readline(size)
        if line.endswith("\r"):
            self._ahead = self._lines.readline(1)
            if self._ahead == "\n":
                line, self._ahead = line + self._ahead, ""
        return line


# The states of a row: before a field, in an unquoted field, in a quoted field, behind a quote that ends the field
# unless another quote follows, and behind an error, after which the csv module drops the line.
BEFORE_FIELD, _WITHOUT_QUOTES, IN_QUOTES, _BEHIND_QUOTE, _REFUSED = range(5)


def pass_over_fields(text: str, delimiter: str, state: int) -> int:
    """Return the state of a row at the end of a text, as the csv module reads it."""
    place = 0
    while place < len(text):
        if state == IN_QUOTES:
            place = text.find('"', place) + 1
            if not place:
                return state
            state = _BEHIND_QUOTE
        elif text[place] == '"' and state in (BEFORE_FIELD, _BEHIND_QUOTE):
            place += 1
            state = IN_QUOTES
        elif state == _REFUSED or (state == _BEHIND_QUOTE and text[place] not in (delimiter, "\r", "\n")):
            return _REFUSED
        else:
            place = text.find(delimiter + '"', place) + 1
            if not place:
                return BEFORE_FIELD if text.endswith(delimiter) else _WITHOUT_QUOTES
            state = BEFORE_FIELD
    return state
