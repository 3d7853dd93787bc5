"""Find where records begin and end in the bytes of a file."""

import codecs
from bisect import bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsql.documents.content import has_single_bytes
from simsql.documents.input_formats import BEFORE_FIELD, IN_QUOTES, pass_over_fields
from simsql.documents.json_records import ArrayMarks

_LF, _CR = b"\n\r"
_MARKS = {
    1: (codecs.BOM_UTF8,),
    2: (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    4: (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}
_ENDS = '\n\r",\t'  # what tells where rows end

_SPACE = " \t\r\n"  # of JSON; a byte of a character may look like other white space

I64 = NDArray[np.int64]


class Bounds:
    """Finds the bounds of records in successive parts of a file, which is in this encoding and has this start."""

    inside = False
    """Whether something else comes before the first record."""

    def __init__(self, encoding: str, start: bytes) -> None:
        self.line = 1
        """The line in which the next part begins, or the number of the element."""
        self._width = 4 if encoding.startswith("utf-32") else 2 if encoding.startswith("utf-16") else 1
        self.mark = next(filter(start.startswith, _MARKS[self._width]), b"")
        """The byte order mark."""
        is_big = encoding.endswith("-be") or self.mark in {codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE}
        self._unit = np.dtype(f"{'>' if is_big else '<'}u{self._width}")
        self.is_possible = self._width > 1 or self._has_bytes(encoding.removesuffix("-sig"))
        """Whether what tells the bounds has bytes of its own in this encoding."""

    def _has_bytes(self, encoding: str) -> bool:
        raise NotImplementedError

    def whole(self, data: bytes) -> int:
        """Return the length of what can be searched: characters, and line ends, that are not cut in two."""
        end = len(data) - len(data) % self._width
        return_ = end >= self._width and self._units(data[end - self._width : end])[0] == _CR
        return end - self._width if return_ else end

    def find(self, data: bytes) -> tuple[I64, I64]:
        """Return the bounds in a part, and the line or the number of the record that follows each."""
        raise NotImplementedError

    def go_back(self, line: int) -> None:
        """Begin the next part with this record."""
        self.line = line

    def head(self) -> bytes | None:
        """Return what a reader needs before any record; None if it has to be found."""
        return self.mark

    def join(self, head: bytes, records: list[bytes]) -> bytes:
        """Return a file of some records."""
        return b"".join([head, *records])

    def without_first(self, data: bytes) -> bytes:
        """Return what follows the first record as the beginning of the records."""
        return data

    def is_blank(self, data: bytes) -> bool:
        """Return whether a row is only a line end."""
        return bool(np.isin(self._units(data), (_LF, _CR)).all())

    def _units(self, data: bytes) -> NDArray[Any]:
        return np.frombuffer(data, dtype=self._unit, count=len(data) // self._width)

    def _text(self, units: NDArray[Any]) -> str:
        """Return a text with a character for each unit: the same if it is ASCII."""
        units = units if self._width == 1 else np.minimum(units, 0x7F)
        return units.astype(np.uint8).tobytes().decode("latin-1")


class Rows(Bounds):
    """Finds the ends of lines or, with a delimiter, of rows."""

    def __init__(self, encoding: str, start: bytes, delimiter: str | None) -> None:
        super().__init__(encoding, start)
        self._state = BEFORE_FIELD
        self._delimiter = delimiter

    def _has_bytes(self, encoding: str) -> bool:
        return _ENDS.encode(encoding) == _ENDS.encode()

    def head(self) -> bytes | None:
        """Return the byte order mark; None for a table, which has a header."""
        return None if self._delimiter else self.mark

    def find(self, data: bytes) -> tuple[I64, I64]:
        """Return the ends of rows, and the lines that follow them."""
        units = self._units(data)
        feeds = units == _LF
        if self._delimiter is None:
            (ends,) = np.nonzero(feeds)
            number = self.line + 1 + np.arange(len(ends))
            self.line += len(ends)
            return (ends + 1) * self._width, number
        returns = units == _CR
        returns[:-1] &= ~feeds[1:]
        (lines,) = np.nonzero(feeds | returns)
        lines += 1
        chosen = self._find_rows(self._text(units), lines.tolist(), self._delimiter)
        number = self.line + 1 + chosen
        self.line += len(lines)
        return lines[chosen] * self._width, number

    def _find_rows(self, text: str, lines: list[int], delimiter: str) -> I64:
        """Return which of the line ends in a text end a row."""
        found: list[int] = []
        place = position = 0
        while True:
            quote = text.find('"', place)
            # The lines before the one with the quote.
            last = bisect_right(lines, quote) if quote >= 0 else len(lines)
            if last > position:
                if self._state != IN_QUOTES:
                    found += range(position, last)
                    self._state = BEFORE_FIELD
                position, place = last, lines[last - 1]
            if quote < 0:
                break
            end = lines[position] if position < len(lines) else len(text)
            self._state = pass_over_fields(text[place:end], delimiter, self._state)
            place = end
            if position == len(lines):
                return np.array(found, dtype=np.int64)
            if self._state != IN_QUOTES:
                found.append(position)
                self._state = BEFORE_FIELD
            position += 1
        if place < len(text):
            self._state = pass_over_fields(text[place:], delimiter, self._state)
        return np.array(found, dtype=np.int64)

    def go_back(self, line: int) -> None:
        """Begin the next part with the record that begins in this line."""
        super().go_back(line)
        self._state = BEFORE_FIELD


class Elements(Bounds):
    """Finds the elements of a JSON array. All but the first begin with the comma before them."""

    inside = True

    def __init__(self, encoding: str, start: bytes) -> None:
        super().__init__(encoding, start)
        self._marks = ArrayMarks()
        self._left_out = -1
        """The position of a comma that is no bound, because the record that it begins has been found."""
        self._open, self._comma, self._close = (np.array([ord(mark)], self._unit).tobytes() for mark in "[,]")

    def _has_bytes(self, encoding: str) -> bool:
        return has_single_bytes(encoding)

    def head(self) -> bytes:
        """Return the beginning of an array."""
        return self.mark + self._open

    def find(self, data: bytes) -> tuple[I64, I64]:
        """Return the bounds of elements, and their numbers."""
        text = self._text(self._units(data))
        bounds: list[int] = []
        first = self.line
        for place, mark in self._marks.find(text):
            if mark == "[":
                bounds.append(place + 1)
                first -= 1
            elif mark == ",":
                if place != self._left_out:
                    bounds.append(place)
            else:
                # White space stays in front of the bracket.
                start = bounds[-1] if bounds else 0
                bounds.append(start + len(text[start:place].rstrip(_SPACE)))
        self._left_out = -1
        numbers = first + 1 + np.arange(len(bounds))
        self.line = first + len(bounds)
        return np.array(bounds, dtype=np.int64) * self._width, numbers

    def go_back(self, line: int) -> None:
        """Begin the next part with the element of this number."""
        super().go_back(line)
        self._marks = ArrayMarks(inside=True)
        self._left_out = 0 if line > 1 else -1

    def join(self, head: bytes, records: list[bytes]) -> bytes:
        """Return an array of some elements."""
        return head + b"".join(records).removeprefix(self._comma) + self._close

    def without_first(self, data: bytes) -> bytes:
        """Return what follows the first element without its comma."""
        return data.removeprefix(self._comma)
