"""From the bytes of one file to documents: plain text, JSON lines and CSV.

Each reader here takes an open `Stream`, the name of the file and the `Layout` that the caller asked for. It
yields a `Document` for every text and a `Skip` for everything that it cannot use. What is inside a file never
makes it raise; only failures of reading itself do (see `READ_ERRORS`), after the documents before them.
"""

import codecs
import csv
import io
import json
import lzma
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""What reading a file can raise: the system's refusals, and compressed data that is damaged or cut short."""

SAMPLE = 1 << 16
"""How many bytes at the start of a file decide what it holds."""

_CHUNK = 1 << 18

# The C0 controls that occur in real texts are left out: \b \t \n \v \f \r and escape (colours of a terminal).
_CONTROLS = bytes({*range(32), 0x7F} - set(b"\b\t\n\v\f\r\x1b"))

# Decoding as UTF-8, -16 or -32 succeeds by chance so rarely that many controls are forgiven afterwards. Every
# other encoding accepts (nearly) any bytes, and a failure to decode says nothing either way: controls decide.
_MANY_CONTROLS = 0.30
_FEW_CONTROLS = 0.05

# Formats that can begin like a text, and whose text is not the text of a document: PDF, tar, programs.
_SIGNATURES = ((0, b"%PDF-"), (257, b"ustar"), (0, b"\x7fELF"))

# UTF-32 before UTF-16: the little-endian mark of the first begins with the mark of the second.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

# What stands for undecodable bytes in a line, until the record they belong to is known and skipped. No
# decoder of a real encoding produces a lone surrogate by itself, so finding one is proof.
_UNDECODABLE = "\udcff"
_MARK_UNDECODABLE = "simsql.undecodable"
codecs.register_error(_MARK_UNDECODABLE, lambda error: (_UNDECODABLE, error.end))  # type: ignore[attr-defined]


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


class Stream(io.BufferedIOBase):
    """Bytes whose start can be looked at before they are read.

    An error that the source raises is handed on only when all bytes before it have been read, so that looking
    ahead loses nothing of a file that is damaged further on.
    """

    def __init__(self, source: Any) -> None:
        # `read` of a decompressor gathers many reads, and loses what it has gathered when a later one fails.
        self._fetch = getattr(source, "read1", source.read)
        self._head = b""
        self._error: Exception | None = None
        self.consumed = 0
        """How many bytes have been taken from the source."""

    def sample(self) -> bytes:
        """Return the first `SAMPLE` bytes, or all if there are fewer, without consuming them."""
        while len(self._head) < SAMPLE and self._error is None:
            try:
                data = self._take(SAMPLE - len(self._head))
            except READ_ERRORS as error:
                self._error = error
                break
            if not data:
                break
            self._head += data
        if not self._head and self._error is not None:
            raise self._error
        return self._head

    def readable(self) -> bool:
        """Return True, as `io` wants to know before it reads."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes with one read of the source; nothing means the end."""
        if size < 0:
            size = _CHUNK
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        if self._error is not None:
            raise self._error
        return self._take(size)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return everything that is left, or up to `size` bytes."""
        if size is None or size < 0:
            return b"".join(iter(self.read1, b""))
        return self.read1(size)

    def _take(self, size: int) -> bytes:
        data: bytes = self._fetch(size)
        self.consumed += len(data)
        return data


class _Unfit(Exception):  # noqa: N818 - never leaves this module: it carries the last two fields of a Skip
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


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
    sample = stream.sample()
    encoding = _actual_encoding(sample, layout.encoding)
    try:
        _check_text(sample, encoding)
        data = stream.read()
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            raise _undecodable(encoding, f"byte {_offset(data, error)}") from None
        _check_filled(text)
    except _Unfit as unfit:
        yield Skip(place, unfit.reason, unfit.detail)
    else:
        yield Document(name, text, place)


def read_json_lines(stream: Stream, name: str, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the text field of every line's JSON object. Blank lines are passed over.

    A record without an id, or with null or an empty string as id, is named after its place. An id that is no
    string becomes its JSON.
    """
    try:
        # Only \n ends a line: the other line ends of Unicode may stand inside a JSON string.
        lines = _lines(stream, layout.encoding, newline="\n")
    except _Unfit as unfit:
        yield Skip(printable(name), unfit.reason, unfit.detail)
        return
    encoding = lines.encoding
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        place = f"{printable(name)}:{number}"
        try:
            if _UNDECODABLE in line:
                raise _undecodable(encoding, f"column {line.index(_UNDECODABLE) + 1}")
            record = _parse_object(line)
            text = _text_of(record, layout.text_field)
        except _Unfit as unfit:
            yield Skip(place, unfit.reason, unfit.detail)
        else:
            yield Document(_name_of(record.get(layout.id_field), f"{name}:{number}"), text, place)


def read_table(
    stream: Stream, name: str, layout: Layout, *, delimiter: str = ","
) -> Iterator[Document | Skip]:
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
        lines = _lines(stream, layout.encoding, newline="")
        rows = csv.reader(lines, delimiter=delimiter, strict=True)
        while not header:
            header = _next_row(rows, lines.encoding)
        text_column = _text_column(header, layout.text_field)
    except StopIteration:
        yield Skip(place, "empty", "no header row: the first row of a CSV file names its columns")
        return
    except _Unfit as unfit:
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
        except _Unfit as unfit:
            yield Skip(f"{place}:{number}", unfit.reason, unfit.detail)
        else:
            identity = None if id_column is None else row[id_column]
            yield Document(_name_of(identity, f"{name}:{number}"), row[text_column], f"{place}:{number}")


def _actual_encoding(sample: bytes, encoding: str) -> str:
    """Return the encoding that a byte order mark announces, unless the user asked for another than UTF-8."""
    if encoding == "utf-8":
        for mark, name in _BYTE_ORDER_MARKS:
            if sample.startswith(mark):
                return name
    return encoding


def _decode_sample(sample: bytes, encoding: str) -> str:
    """Decode the start of a file, which may end in the middle of a character."""
    decoder = codecs.getincrementaldecoder(encoding)()
    return decoder.decode(sample, final=len(sample) < SAMPLE)


def _control_share(data: bytes, characters: int) -> float:
    return (len(data) - len(data.translate(None, _CONTROLS))) / max(characters, 1)


def _check_text(sample: bytes, encoding: str) -> None:
    """Raise unless this is the start of a text in the given encoding."""
    if not sample:
        raise _Unfit("empty", "the file is empty")
    try:
        text = _decode_sample(sample, encoding)
    except UnicodeDecodeError as error:
        _check_not_binary(sample)
        if b"\0" in sample:
            raise _binary() from None
        raise _undecodable(encoding, f"byte {_offset(sample, error)}") from None
    # In UTF-8 every control is one byte, whatever the file's own encoding is.
    share = _control_share(text.encode("utf-8", "surrogatepass"), len(text))
    if share > (_MANY_CONTROLS if encoding.startswith("utf") else _FEW_CONTROLS):
        raise _binary()
    if any(sample.startswith(signature, offset) for offset, signature in _SIGNATURES):
        raise _binary()


def _check_not_binary(sample: bytes) -> None:
    """Raise if bytes that do not decode cannot be text in any other encoding either."""
    if _control_share(sample, len(sample)) > _FEW_CONTROLS:
        raise _binary()


def _check_filled(text: str) -> None:
    if not text or text.isspace():
        raise _Unfit("empty", "the text is empty" if not text else "the text is nothing but white space")


def _binary() -> _Unfit:
    return _Unfit("binary", "not a text file: extract its text first if it is a document")


def _undecodable(encoding: str, position: str) -> _Unfit:
    encoding = encoding.removesuffix("-sig")
    advice = "name the encoding, for example --encoding latin-1"
    return _Unfit(f"not {encoding}", f"{position} is not {encoding}: {advice}")


def _offset(data: bytes, error: UnicodeDecodeError) -> int:
    """Return where decoding failed; the error's own count leaves out a byte order mark that was dropped."""
    return len(data) - len(error.object) + error.start


def _lines(stream: Stream, encoding: str, newline: str) -> io.TextIOWrapper:
    """Return the lines of a file of records, with `_UNDECODABLE` wherever the encoding is violated."""
    sample = stream.sample()
    if not sample:
        raise _Unfit("empty", "the file is empty")
    encoding = _actual_encoding(sample, encoding)
    try:
        _decode_sample(sample, encoding)
    except UnicodeDecodeError:
        # A few bad lines in a file of records are skipped one by one, but not an image that is called .csv.
        _check_not_binary(sample)
    return io.TextIOWrapper(stream, encoding, _MARK_UNDECODABLE, newline)  # type: ignore[arg-type]  # no name


def _parse_object(line: str) -> dict[str, Any]:
    advice = ""
    if line.lstrip().startswith("["):
        advice = " (this looks like a JSON array: jq -c '.[]' makes JSON lines of it)"
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        # The error's own column starts anew behind the line end, where a line that is cut short fails.
        column = min(error.pos, len(line.rstrip())) + 1
        raise _Unfit("not JSON", f"column {column}: {error.msg}{advice}") from None
    except RecursionError:
        raise _Unfit("not JSON", "nested too deeply to be read") from None
    except ValueError as error:  # Python's limit on the digits of an integer
        raise _Unfit("not JSON", f"a number is too long to be read: {error}") from None
    if not isinstance(record, dict):
        raise _Unfit("not an object", f"a line must be one JSON object, not {_json_type(record)}{advice}")
    return record


def _text_of(record: dict[str, Any], field: str) -> str:
    if field not in record:
        raise _Unfit("no field", f"no field {field!r}: {_choice('line', list(record))}")
    text = record[field]
    if text is None:
        raise _Unfit("no text", f"the field {field!r} is null")
    if not isinstance(text, str):
        raise _Unfit("not a string", f"the field {field!r} is {_json_type(text)}")
    _check_filled(text)
    return text


def _name_of(identity: Any, fallback: str) -> str:
    if identity is None or identity == "":
        return fallback
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
        raise _Unfit("no field", f"no column {field!r}: {_choice('header', header)}")
    return header.index(field)


def _check_width(row: list[str], width: int) -> None:
    # An unquoted delimiter cuts a text in two; empty fields at the end of a row do no harm.
    if len(row) < width or any(row[width:]):
        raise _Unfit(
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
        raise _Unfit("not CSV", f"{message}: check the quoting") from None
    for number, field in enumerate(row, 1):
        if _UNDECODABLE in field:
            raise _undecodable(encoding, f"field {number}")
    return row
