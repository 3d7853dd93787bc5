"""Read and copy tables: CSV and TSV."""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import StringIO
from itertools import chain
from typing import NamedTuple

from simsql.documents.decoding import (
    CORRUPT,
    SAMPLE,
    UNDECODABLE,
    RecordBytes,
    Stream,
    UnfitError,
    cut_off,
    decode_start,
    too_long,
    undecodable,
)
from simsql.documents.document import Document, Found, Layout, Skip, printable
from simsql.documents.fields import Fields
from simsql.documents.formats import Format, Target, leave_out
from simsql.documents.records import Record, check_unique, missing_field, read_each

_DELIMITERS = ",\t;|"
_HINT = "sep="
_NULL = r"\N"  # of MySQL, PostgreSQL and Hive
_ESCAPE = re.compile(r"\\.")
_ESCAPES = {r"\n": "\\\n", r"\r": "\\\r", r"\t": "\\\t", _NULL: rf"\{_NULL}"}
_PIECE = 1 << 16  # bytes of a line that are read at once
_LINE_ENDS = (b"\n", b"\r")
_OPEN = "a quote is never closed"

_Lines = Iterator[bytes | bytearray]


class Dialect(NamedTuple):
    """How the fields of a table are separated, and how quotes are written inside them."""

    delimiter: str
    quoting: str = "double"

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Return the rows in lines. Quoting is strict, because a stray quote would silently swallow other rows."""
        escaped = self.quoting == "backslash"
        return csv.reader(
            (_ESCAPE.sub(_unescape, line) for line in lines) if escaped else lines,
            delimiter=self.delimiter,
            quoting=csv.QUOTE_NONE if self.quoting == "none" else csv.QUOTE_MINIMAL,
            doublequote=self.quoting == "double",
            escapechar="\\" if escaped else None,
            strict=True,
        )


def _unescape(found: re.Match[str]) -> str:
    """Return an escape as the csv module reads it: a line end behind a backslash, which ends no row, or NULL."""
    # At the end of a file, it would look for another line.
    return found[0] if found.end() == len(found.string) else _ESCAPES.get(found[0], found[0])


def find_dialect(start: str, layout: Layout, *delimiters: str) -> Dialect | None:
    """Return the dialect of a table whose first row is a hint of Excel, or has a text field; None otherwise."""
    if hint := re.match(r"sep=([^\s\w\"]|\t)\r?\n", start):
        return Dialect(hint[1], layout.quoting)
    for delimiter in dict.fromkeys([*delimiters, *_DELIMITERS]):
        dialect = Dialect(delimiter, layout.quoting)
        with suppress(csv.Error):
            names = next(filter(None, dialect.rows(StringIO(start, newline=""))), [])
            if len(names) > (delimiter not in delimiters) and set(layout.text_fields) & set(names):
                return dialect
    return None


class Table(Format):
    """Rows, the first of which names the columns.

    The place of a row is the line where it begins. Rows without an id are named after their place.
    """

    def __init__(self, *endings: str, delimiter: str) -> None:
        self.endings = endings
        self.delimiter = delimiter

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the text column of each row. Skip single rows that are unfit."""
        dialect = self._dialect(stream, layout)
        table = Rows(RecordBytes(stream, layout.encoding), dialect, layout.max_document)
        rows = iter(table)
        # A hint of Excel, not a row.
        first = next(((number, row) for number, row in rows if row not in ([], [_HINT, ""])), None)
        if first is None:
            raise UnfitError("empty", "no header row: the first row of a CSV file must name its columns")
        header = first[1]
        if isinstance(header, UnfitError):
            raise UnfitError(header.reason, f"{header.detail}; without the header, no row can be read")
        if not layout.header:
            header = [str(number) for number, _ in enumerate(header, 1)]
            rows = chain([first], rows)
        check_unique(header, layout)
        fields = Fields(layout)
        wanted = {*layout.text_fields, layout.id_field, *layout.value_fields}
        columns = [(name, column) for column, name in enumerate(header) if name in wanted]
        if not set(layout.text_fields) & set(header):
            raise missing_field(layout.text_fields, header)

        def parse(row: list[str]) -> Record | None:
            if not row:
                return None
            table.check_width(row, len(header))
            # A byte order mark may stand before it.
            if layout.header and row[0].lstrip("\ufeff") == header[0] and row[1:] == header[1:] != []:
                raise UnfitError("repeated header", "the row names the columns again")
            cells = ((name, row[column]) for name, column in columns)
            return fields.read({name: None if cell == _NULL else cell for name, cell in cells})

        return read_each(rows, found, layout, parse)

    def _dialect(self, stream: Stream, layout: Layout) -> Dialect:
        """Return how the fields of a table are separated, by its first row if the layout does not say it."""
        if layout.delimiter:
            return Dialect(layout.delimiter, layout.quoting)
        start = decode_start(stream, layout.encoding, SAMPLE)
        return find_dialect(start, layout, self.delimiter) or Dialect(self.delimiter, layout.quoting)

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other rows byte for byte."""
        dialect = self._dialect(stream, layout)
        data = RecordBytes(stream, layout.encoding)
        target = data.copy_to(target)
        row = bytearray()

        def take(lines: _Lines) -> _Lines:
            for line in lines:
                row.extend(line)
                if len(row) > layout.max_document + 2:  # with its end; no document, so it stays
                    target.write(bytes(row))
                    row.clear()
                yield line

        rows = Rows(data, dialect, layout.max_document, take)

        def pieces() -> Iterator[tuple[int, bytes]]:
            for number, _ in rows:
                yield number, bytes(row)
                row.clear()

        for each in leave_out(pieces(), removed):
            target.write(each)


class Rows:
    """The rows of a table. A row that is too long is never held in memory."""

    def __init__(
        self,
        data: RecordBytes,
        dialect: Dialect,
        limit: int,
        take: Callable[[_Lines], _Lines] = iter,
    ) -> None:
        # One limit for the whole process, 128 KB unless raised: documents are longer than that.
        csv.field_size_limit(sys.maxsize)
        self._number = self._first = 0  # of the last line that was read, starting at 1, and of that of its row
        self._has_end = True
        self._data = data
        self._lines = take(_iter_lines(data, limit))
        self._dialect = dialect
        self._limit = self._left = limit
        self._rows = dialect.rows(self._iterate())

    def __iter__(self) -> Iterator[tuple[int, list[str] | UnfitError]]:
        """Yield rows, or errors, with the numbers of the lines where they begin. Blank lines are empty rows."""
        row: list[str] | UnfitError
        while True:
            number = self._first = self._number + 1
            self._left = self._limit
            try:
                row = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                is_open = "unexpected end" in str(error)
                row = self._unfit("not CSV", _OPEN if is_open else printable(str(error)), is_open=is_open)
            except UnfitError as unfit:
                self._rows = self._dialect.rows(self._iterate())
                row = unfit
            else:
                damaged = next((place for place, field in enumerate(row, 1) if UNDECODABLE in field), 0)
                if damaged and row[-1].endswith(UNDECODABLE) and not self._has_end:
                    row = cut_off("a character")
                elif damaged:
                    row = undecodable(self._data.encoding, f"field {damaged}{self._of_lines()}")
            yield number, row
            del row  # which may be long

    def check_width(self, row: list[str], width: int) -> None:
        """Raise UnfitError if the last row has a wrong number of fields.

        An unquoted delimiter cuts a text in two; empty fields at the end of a row do no harm.
        """
        if len(row) < width or any(row[width:]):
            if len(row) < width and not self._has_end and self._first == self._number:
                raise cut_off("a row")
            raise self._unfit("wrong number of fields", f"{len(row)} fields, but the header has {width}")

    def _unfit(self, reason: str, what: str, *, is_open: bool = False) -> UnfitError:
        """Return the error of the last row: damage if it never ends, or has several lines because of a quote."""
        lines = self._number - self._first + 1
        if lines == 1 and not is_open:
            return UnfitError(reason, f"{what}: check the quoting, or choose with --quoting")
        lost = "1 line is" if lines == 1 else f"{lines:,} lines are"
        return UnfitError(CORRUPT, f"{what}: {lost} lost; check the quoting, or choose with --quoting")

    def _iterate(self) -> Iterator[str]:
        """Yield lines for the csv module. Raise UnfitError at the end of a row that is too long."""
        for line in self._lines:
            before = self._left
            self._number += 1
            self._has_end = line.endswith(_LINE_ENDS)
            self._left -= len(line)
            # The end of a line does not count where the row ends with it.
            if self._left < 0 and self._left < len((end := line[-2:]).rstrip(b"\r\n")) - len(end):
                # A row that did not end with the line before goes on within quotes.
                state = self._pass_over(line, IN_QUOTES if before < self._limit else BEFORE_FIELD)
                raise self._end_of_long_row(state)
            yield self._data.decode(line)
            del line

    def _end_of_long_row(self, state: int) -> UnfitError:
        """Return the error of a row that is too long, which ends in a state: with one of these, it is damage."""
        reason, detail = too_long(self._limit).args
        if state == IN_QUOTES:
            return self._unfit(reason, _OPEN, is_open=True)
        return self._unfit(reason, detail) if state == _REFUSED else UnfitError(reason, detail + self._of_lines())

    def _of_lines(self) -> str:
        return f" (lines {self._first:,} to {self._number:,})" if self._first < self._number else ""

    def _pass_over(self, line: bytes | bytearray, state: int) -> int:
        """Skip to the end of a row, given the beginning of a line and the state there. Return that at the end."""
        while line:
            # Maybe a part of a line, which ends within a character: what tells the state is ASCII.
            for start in range(0, len(line), _PIECE):
                state = pass_over_fields(line[start : start + _PIECE].decode("latin-1"), self._dialect, state)
            has_end = line.endswith(_LINE_ENDS)
            if has_end and state != IN_QUOTES:
                break
            line = next(self._lines, b"")
            self._number += has_end and line != b""
        return state


def _iter_lines(data: RecordBytes, limit: int) -> _Lines:
    """Yield lines with their ends, which the csv module tells from others. A longer one comes in pieces."""
    line = bytearray()
    is_long = False
    while piece := data.file.read1(_PIECE):
        # What follows a carriage return may belong to it.
        if piece.endswith(b"\r") and data.file.peek(1).startswith(b"\n"):
            piece += data.file.read(1)
        for part in piece.splitlines(keepends=True):
            has_end = part.endswith(_LINE_ENDS)
            if line or not (has_end or is_long):
                line += part
            if has_end or is_long or len(line) > limit:
                is_long = not has_end
                yield line or part
                line = bytearray()
    if line:
        yield line


# The states of a row: before a field, in an unquoted field, in a quoted field, behind a quote that ends the field
# unless another quote follows, and behind an error, after which the csv module drops the line.
BEFORE_FIELD, _WITHOUT_QUOTES, IN_QUOTES, _BEHIND_QUOTE, _REFUSED = range(5)
# What leads to them.
_LEADING = {BEFORE_FIELD: "", _WITHOUT_QUOTES: "x", IN_QUOTES: '"', _BEHIND_QUOTE: '""'}


def pass_over_fields(line: str, dialect: Dialect, state: int) -> int:
    """Return the state of a row at the end of a line, or of a part of one, as the csv module reads it."""
    if dialect.quoting == "none":
        return _WITHOUT_QUOTES
    fields = line.rstrip("\r\n")
    if state == _REFUSED or not fields:
        return state
    fields = _LEADING[state] + fields
    ends = _WITHOUT_QUOTES
    try:
        (row,) = dialect.rows([fields])
        if fields.endswith('"'):
            ends = _BEHIND_QUOTE  # if another quote opens the field again
            list(dialect.rows([f'{fields}"']))
            return _WITHOUT_QUOTES
    except csv.Error as error:
        open_ = IN_QUOTES if ends == _WITHOUT_QUOTES else ends
        return open_ if "unexpected end" in str(error) else _REFUSED
    return ends if row[-1] else BEFORE_FIELD


CSV, TSV = Table(".csv", delimiter=","), Table(".tsv", ".tab", delimiter="\t")
FORMATS = [CSV, TSV]
