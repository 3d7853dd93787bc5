"""Read and copy tables: CSV and TSV."""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator

from simsql.documents.decoding import UNDECODABLE, RecordBytes, Stream, UnfitError, too_long, undecodable
from simsql.documents.document import Document, Found, Layout, Skip, printable
from simsql.documents.formats import Format, Target, leave_out
from simsql.documents.output_formats import DELIMITERS
from simsql.documents.records import (
    VALUE_OPTIONS,
    Record,
    check_filled,
    find_column,
    find_text_column,
    name_of,
    read_each,
    spell_fingerprint,
)

_PIECE = 1 << 16  # bytes of a line that are read at once
_LINE_ENDS = (b"\n", b"\r")


class Table(Format):
    """Rows, the first of which names the columns.

    The place of a row is the line where it begins. Rows without an id are named after their place. Quoting is
    strict, because a stray quote would silently swallow the rows after it.
    """

    is_records = True

    def __init__(self, ending: str, delimiter: str) -> None:
        self.endings = (ending,)
        self.delimiter = delimiter

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the text column of each row. Skip single rows that are unfit."""
        rows = Rows(RecordBytes(stream, layout.encoding), self.delimiter, layout.max_document)
        header = next((row for _, row in rows if row), None)
        if header is None:
            raise UnfitError("empty", "no header row: the first row of a CSV file must name its columns")
        if isinstance(header, UnfitError):
            raise header
        text_column = find_text_column(header, layout.text_field, "header")
        id_column = find_column(header, layout.id_field, "--id-field")
        value_columns = [find_column(header, field, VALUE_OPTIONS) for field in layout.value_fields]

        def parse(row: list[str]) -> Record | None:
            if not row:
                return None
            _check_width(row, len(header))
            text = row[text_column]
            check_filled(text)
            identity = "" if id_column is None else name_of(row[id_column])
            values = ["" if column is None else name_of(row[column]) for column in value_columns]
            return identity, spell_fingerprint(text, layout) if layout.fingerprints else text, values

        return read_each(rows, found, parse)

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other rows byte for byte."""
        data = RecordBytes(stream, layout.encoding)
        target = data.copy_to(target)
        row = bytearray()

        def take(lines: Iterator[bytes]) -> Iterator[bytes]:
            for line in lines:
                row.extend(line)
                if len(row) > layout.max_document + 2:  # with its end; no document, so it stays
                    target.write(bytes(row))
                    row.clear()
                yield line

        rows = Rows(data, self.delimiter, layout.max_document, take)

        def pieces() -> Iterator[tuple[int, bytes]]:
            for number, _ in rows:
                yield number, bytes(row)
                row.clear()

        for each in leave_out(pieces(), removed):
            target.write(each)


def _check_width(row: list[str], width: int) -> None:
    # An unquoted delimiter cuts a text in two; empty fields at the end of a row do no harm.
    if len(row) < width or any(row[width:]):
        raise UnfitError(
            "wrong number of fields", f"{len(row)} fields, but the header has {width}: check the quoting"
        )


class Rows:
    """The rows of a table. A row that is too long is never held in memory."""

    def __init__(
        self,
        data: RecordBytes,
        delimiter: str,
        limit: int,
        take: Callable[[Iterator[bytes]], Iterator[bytes]] = iter,
    ) -> None:
        # One limit for the whole process, 128 KB unless raised: documents are longer than that.
        csv.field_size_limit(sys.maxsize)
        self._number = 0  # of the last line that was read, starting at 1
        self._data = data
        self._lines = take(_iter_lines(data, limit))
        self._delimiter = delimiter
        self._limit = self._left = limit
        self._rows = csv.reader(self._iterate(), delimiter=delimiter, strict=True)

    def __iter__(self) -> Iterator[tuple[int, list[str] | UnfitError]]:
        """Yield rows, or errors, with the numbers of the lines where they begin. Blank lines are empty rows."""
        row: list[str] | UnfitError
        while True:
            number = self._number + 1
            self._left = self._limit
            try:
                row = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                message = str(error).replace("unexpected end of data", "a quote is never closed")
                row = UnfitError("not CSV", f"{printable(message)}: check the quoting")
            except UnfitError as unfit:
                self._rows = csv.reader(self._iterate(), delimiter=self._delimiter, strict=True)
                row = unfit
            else:
                damaged = next((place for place, field in enumerate(row, 1) if UNDECODABLE in field), 0)
                row = undecodable(self._data.encoding, f"field {damaged}") if damaged else row
            yield number, row
            del row  # which may be long

    def _iterate(self) -> Iterator[str]:
        """Yield lines for the csv module. Raise UnfitError at the end of a row that is too long."""
        for line in self._lines:
            before = self._left
            self._number += 1
            self._left -= len(line)
            # The end of a line does not count where the row ends with it.
            if self._left < 0 and self._left < len(line.rstrip(b"\r\n")) - len(line):
                # A row that did not end with the line before goes on within quotes.
                self._pass_over(line, IN_QUOTES if before < self._limit else BEFORE_FIELD)
                raise too_long(self._limit)
            yield self._data.decode(line)
            del line

    def _pass_over(self, line: bytes, state: int) -> None:
        """Skip to the end of a row, given the beginning of a line and the state of the row there."""
        while line:
            # Maybe a part of a line, which ends within a character: what tells the state is ASCII.
            state = pass_over_fields(line.decode("latin-1"), self._delimiter, state)
            has_end = line.endswith(_LINE_ENDS)
            if has_end and state != IN_QUOTES:
                return
            line = next(self._lines, b"")
            self._number += has_end and line != b""


def _iter_lines(data: RecordBytes, limit: int) -> Iterator[bytes]:
    """Yield lines with their ends, which the csv module tells from others. Longer ones come in pieces."""
    rest = bytearray()
    while piece := data.file.read1(_PIECE):
        rest += piece
        if b"\n" in piece or b"\r" in piece or len(rest) > limit:
            *lines, last = bytes(rest).splitlines(keepends=True)
            yield from lines
            rest = bytearray(last)
            # What follows a carriage return may belong to it.
            if last.endswith(b"\n") or (len(last) > limit and not last.endswith(b"\r")):
                yield last
                rest.clear()
    yield from bytes(rest).splitlines(keepends=True)


# The states of a row: before a field, in an unquoted field, in a quoted field, behind a quote that ends the field
# unless another quote follows, and behind an error, after which the csv module drops the line.
BEFORE_FIELD, _WITHOUT_QUOTES, IN_QUOTES, _BEHIND_QUOTE, _REFUSED = range(5)


def pass_over_fields(line: str, delimiter: str, state: int) -> int:
    """Return the state of a row at the end of a line, or of a part of one, as the csv module reads it."""
    for match in re.finditer(f'"|{delimiter}|[^"{delimiter}\r\n]+', line):
        part = match[0]
        if state == IN_QUOTES:
            state = _BEHIND_QUOTE if part == '"' else IN_QUOTES
        elif part == '"' and state in (BEFORE_FIELD, _BEHIND_QUOTE):
            state = IN_QUOTES
        elif state != _REFUSED and part == delimiter:
            state = BEFORE_FIELD
        elif state in (_BEHIND_QUOTE, _REFUSED):
            return _REFUSED
        else:
            state = _WITHOUT_QUOTES
    return state


FORMATS = [Table(ending, delimiter) for ending, delimiter in DELIMITERS.items()]
