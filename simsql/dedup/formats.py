"""From the bytes of one file to documents: plain text, its lines, JSON lines and CSV.

Each reader here takes an open `Stream`, the name of the file and the `Layout` that the caller asked for. It
yields a `Document` for every text and a `Skip` for everything that it cannot use. What is inside a file never
makes it raise; only failures of reading itself do (`content.READ_ERRORS`), after the documents before them.
"""

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from simsql.dedup.content import UNDECODABLE, Stream, UnfitError, decode_lines, decode_text, undecodable


class Document(NamedTuple):
    """One text to be compared. `name` and `place` never hold a NUL or a lone surrogate; `text` may."""

    name: str
    """What identifies it to the user: the path of a text file, the value of the id field of a record."""
    text: str
    place: str
    """Where it was found, for people: `path` or `path:line`, on one line."""


class Skip(NamedTuple):
    """Something that is not going to be compared, and why.

    `reason` is one of: "binary", "not utf-8" (or whatever the encoding is), "empty", "unreadable", "corrupt",
    "link", "special file", "not JSON", "not an object", "no field", "no text", "not a string", "not CSV",
    "wrong number of fields".
    """

    place: str
    reason: str
    detail: str
    """What is wrong and what can be done, on one line."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the files are laid out: the fields of records, and the encoding as `codecs.lookup` names it."""

    text_field: str
    id_field: str
    encoding: str


def storable(name: str | os.PathLike[str]) -> str:
    r"""Return a name that PostgreSQL and JSON can hold: `\xff` for a byte that no UTF-8 has, `\x00`."""
    if isinstance(name, os.PathLike):
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def printable(name: str) -> str:
    """Return a name that fits on one line of a terminal, line ends and other controls escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def read_text(stream: Stream, name: str, layout: Layout) -> Iterator[Document | Skip]:
    """Yield a file as one document, or say why it is none: text is recognised by content, not by name."""
    place = printable(name)
    try:
        text = decode_text(stream, layout.encoding)
        _check_filled(text)
    except UnfitError as unfit:
        yield Skip(place, unfit.reason, unfit.detail)
    else:
        yield Document(name, text, place)


def read_lines(stream: Stream, name: str, layout: Layout) -> Iterator[Document | Skip]:
    """Yield every line, without its end, as a document that is named after its place; blank lines too."""
    path = printable(name)
    for item in _numbered_lines(stream, name, layout):
        if isinstance(item, Skip):
            yield item
        else:
            number, line = item
            text = line.removesuffix("\n").removesuffix("\r")
            yield Document(f"{name}:{number}", text, f"{path}:{number}")


def read_json_lines(stream: Stream, name: str, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the text field of every line's JSON object. Blank lines are passed over.

    A record without an id, or with null or an empty string as id, is named after its place. An id that is no
    string becomes its JSON.
    """
    path = printable(name)
    for item in _numbered_lines(stream, name, layout):
        if isinstance(item, Skip):
            yield item
            continue
        number, line = item
        if line.isspace():
            continue
        place = f"{path}:{number}"
        try:
            record = _parse_object(line)
            text = _text_of(record, layout.text_field)
        except UnfitError as unfit:
            yield Skip(place, unfit.reason, unfit.detail)
        else:
            yield Document(_name_of(record.get(layout.id_field), f"{name}:{number}"), text, place)


def _numbered_lines(stream: Stream, name: str, layout: Layout) -> Iterator[tuple[int, str] | Skip]:
    """Yield every line with its number from 1 on; what cannot be decoded is skipped, the file or a line alone."""
    path = printable(name)
    try:
        # Only \n ends a line: the other line ends of Unicode may stand inside a JSON string.
        lines = decode_lines(stream, layout.encoding, newline="\n")
    except UnfitError as unfit:
        yield Skip(path, unfit.reason, unfit.detail)
        return
    for number, line in enumerate(lines, 1):
        if UNDECODABLE in line:
            violation = undecodable(lines.encoding, f"column {line.index(UNDECODABLE) + 1}")
            yield Skip(f"{path}:{number}", violation.reason, violation.detail)
        else:
            yield number, line


def read_table(stream: Stream, name: str, layout: Layout, *, delimiter: str = ",") -> Iterator[Document | Skip]:
    """Yield the text column of every row of a CSV file. Its first row names the columns.

    A row's place is the line it begins on. Rows without an id are named after their place. Quoting is taken
    strictly: a stray quote would otherwise swallow the rows after it without a word.
    """
    # One limit for the whole process, 128 KB unless raised: documents are longer than that.
    csv.field_size_limit(sys.maxsize)
    place = printable(name)
    header: list[str] = []
    try:
        # All line ends are kept as they are: the csv module tells those inside quotes from the others.
        lines = decode_lines(stream, layout.encoding, newline="")
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        while not header:
            header = _next_row(rows, lines.encoding)
        text_column = _text_column(header, layout.text_field)
    except StopIteration:
        yield Skip(place, "empty", "no header row: the first row of a CSV file names its columns")
        return
    except UnfitError as unfit:
        yield Skip(place, unfit.reason, unfit.detail)
        return
    id_column = header.index(layout.id_field) if layout.id_field in header else None
    while True:
        number = rows.line_num + 1
        try:
            row = _next_row(rows, lines.encoding)
            if not row:
                continue
            _check_width(row, len(header))
            _check_filled(row[text_column])
        except StopIteration:
            return
        except UnfitError as unfit:
            yield Skip(f"{place}:{number}", unfit.reason, unfit.detail)
        else:
            identity = None if id_column is None else row[id_column]
            yield Document(_name_of(identity, f"{name}:{number}"), row[text_column], f"{place}:{number}")


def _check_filled(text: str) -> None:
    if not text or text.isspace():
        raise UnfitError("empty", "the text is empty" if not text else "the text is nothing but white space")


def _parse_object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        # The error's own column starts anew behind the line end, where a line that is cut short fails.
        column = min(error.pos, len(line.rstrip())) + 1
        raise UnfitError("not JSON", f"column {column}: {error.msg}{_advice(line)}") from None
    except RecursionError:
        raise UnfitError("not JSON", "nested too deeply to be read") from None
    except ValueError as error:  # Python's limit on the digits of an integer
        raise UnfitError("not JSON", f"a number is too long to be read: {error}") from None
    if not isinstance(record, dict):
        raise UnfitError(
            "not an object", f"a line must be one JSON object, not {_json_type(record)}{_advice(line)}"
        )
    return record


def _advice(line: str) -> str:
    if line.lstrip().startswith("["):
        return " (this looks like a JSON array: jq -c '.[]' makes JSON lines of it)"
    return ""


def _text_of(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise UnfitError("no field", f"no field {field!r}: {_choice('line', list(record))}")
    text = record[field]
    if text is None:
        raise UnfitError("no text", f"the field {field!r} is null")
    if not isinstance(text, str):
        raise UnfitError("not a string", f"the field {field!r} is {_json_type(text)}")
    _check_filled(text)
    return text


def _name_of(identity: Any, fallback: str) -> str:
    if identity is None or identity == "":
        return fallback
    if type(identity) is int:  # the common case; JSON would say the same ten times slower
        return str(identity)
    if not isinstance(identity, str):
        identity = json.dumps(identity, ensure_ascii=False)
    return storable(identity)


def _json_type(value: object) -> str:
    names = {bool: "a boolean", dict: "an object", list: "an array", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def _choice(owner: str, names: Sequence[str], limit: int = 8) -> str:
    """Say which names there are instead of the missing one, in bounded space."""
    if not names:
        return f"the {owner} has none at all"
    shown = ", ".join(repr(name) if len(name) <= 40 else f"{name[:40]!r}..." for name in names[:limit])
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"the {owner} has {shown}{more}; choose with --text-field"


def _text_column(header: list[str], field: str) -> int:
    if field not in header:
        raise UnfitError("no field", f"no column {field!r}: {_choice('header', header)}")
    return header.index(field)


def _check_width(row: list[str], width: int) -> None:
    # An unquoted delimiter cuts a text in two; empty fields at the end of a row do no harm.
    if len(row) < width or any(row[width:]):
        raise UnfitError(
            "wrong number of fields", f"{len(row)} fields, but the header has {width}: check the quoting"
        )


def _next_row(rows: Any, encoding: str) -> list[str]:
    """Return the next row, empty for a blank line; after an unfit one the next call goes on behind it."""
    try:
        row: list[str] = next(rows)
    except csv.Error as error:
        message = str(error)
        if message == "unexpected end of data":
            message = "a quote is opened and never closed"
        raise UnfitError("not CSV", f"{message}: check the quoting") from None
    for number, field in enumerate(row, 1):
        if UNDECODABLE in field:
            raise undecodable(encoding, f"field {number}")
    return row
