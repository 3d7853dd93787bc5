"""Split files into parts that processes read on their own.

Small files are grouped, and a large file of records is cut into ranges. What cannot be cut, such as a stream, a
compressed file or an encoding with shifts, is read by the process that splits, and its documents are handed on.
"""

import codecs
import io
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from simsql.documents.compression import find_compression, is_named_compressed
from simsql.documents.content import (
    DETECT,
    SAMPLE,
    UnfitError,
    encoding_of_records,
    has_single_bytes,
    wrap_lines,
)
from simsql.documents.files import Found, unreadable
from simsql.documents.input_formats import (
    Document,
    Layout,
    Opened,
    Rows,
    Skip,
    find_fields,
    read_json_lines,
    read_lines,
    record_of_json,
    record_of_line,
    storable,
)
from simsql.documents.json_records import read_json
from simsql.documents.opening import FileReader, Format
from simsql.documents.parquet import ParquetTable, RowGroups, read_parquet
from simsql.documents.ranges import LINE_END, Bytes, Lines, OpenFile, Range, Table

PART = 1 << 21
"""Bytes of a part: small beside the memory of a process, large beside the cost of handing it to another one."""

_LONGEST = 32  # parts: rows and lines are cut together up to this size
_FILE = 1 << 12  # opening a file takes as long as reading this many bytes
_DOCUMENT = 1 << 7  # the objects of a document take as much memory as a text of this length
_COMPRESSION = 8


class Part(Protocol):
    """Documents that a process can read."""

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def held(self) -> int:
        """Characters in memory."""

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped. Raises MovedError before the first one."""


class Gathered(NamedTuple):
    """Documents that were read where the files were split."""

    items: list[Document | Skip]
    size: int = 0

    @property
    def held(self) -> int:
        """Characters in memory."""
        return sum(len(item.text) for item in self.items if isinstance(item, Document))

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped."""
        return iter(self.items)


class WholeFiles(NamedTuple):
    """Files that are read from their beginning to their end, and skips between them."""

    found: list[Found | Skip]
    layout: Layout
    lines: bool
    size: int
    held: int = 0

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped."""
        reader = FileReader(self.layout, lines=self.lines)
        for found in self.found:
            if isinstance(found, Skip):
                yield found
            else:
                yield from reader.read(found)


def split(files: Iterable[Found | Skip], reader: FileReader) -> Iterator[Part]:
    """Yield parts of files, in the order of the documents."""
    group: list[Found | Skip] = []
    weight = 0
    for found in files:
        pieces = (
            _split_file(found, reader) if isinstance(found, Found) and not _is_read_whole(found, reader) else None
        )
        if group and (pieces or weight > PART):
            yield _group(group, reader)
            group, weight = [], 0
        if pieces:
            yield from pieces
            continue
        group.append(found)
        weight += _FILE
        if isinstance(found, Found) and found.path:
            weight += (found.size or 0) * _expansion(found.path)
    if group:
        yield _group(group, reader)


def _group(found: list[Found | Skip], reader: FileReader) -> WholeFiles:
    size = sum(file.size or 0 for file in found if isinstance(file, Found))
    return WholeFiles(found, reader.layout, reader.lines, size)


def _is_read_whole(found: Found, reader: FileReader) -> bool:
    """Return whether any process can read a file, and as a whole."""
    if found.path is None or found.size is None or str(found.path).startswith(("/dev/", "/proc/")):
        return False  # or it is another file in another process
    return found.size * _expansion(found.path) < 2 * PART or not _holds_records(reader.format_of(found))


def _expansion(path: Path) -> int:
    """Return how many times as large as a file its content may be."""
    return _COMPRESSION if is_named_compressed(path) or path.suffix.lower() == ".parquet" else 1


def _holds_records(read: Format) -> bool:
    return read in (read_json, read_json_lines, read_lines, read_parquet) or isinstance(read, partial)


def _split_file(found: Found, reader: FileReader) -> Iterator[Part]:
    if reader.format_of(found) is read_parquet:
        yield from _split_parquet(found, reader)
        return
    if ranges := _open_ranges(found, reader):
        yield from _split_ranges(found, ranges)
        return
    done = 0
    for items in gather(reader.read(found)):
        consumed = reader.current.consumed if reader.current else 0
        yield Gathered(items, consumed - done)
        done = consumed
        del items
    consumed = reader.current.consumed if reader.current else 0
    reader.current = None
    # A binary file counts in full although only its start was looked at.
    yield Gathered([], (consumed if found.size is None else found.size) - done)


def _split_parquet(found: Found, reader: FileReader) -> Iterator[Part]:
    """Yield the row groups of a Parquet file. Those that take longer than a part should are read here."""
    assert found.path  # noqa: S101 - a stream has no name
    name, total, left = storable(found.path), found.size or 0, found.size or 0
    try:
        file = OpenFile(found.path)
        opened = Opened(name, found.path, file.status)
        table = ParquetTable(io.BufferedReader(Bytes(file, 0, None)), opened, reader.layout)
    except (OSError, UnfitError):
        yield _group([found], reader)  # which is then skipped
        return
    for groups in table.grouped(PART):
        rows = sum(group.rows for group in groups)
        size = min(total * rows // max(table.rows, 1), left)
        left -= size
        if sum(group.size for group in groups) <= _LONGEST * PART:
            yield RowGroups(file, name, groups, reader.layout, size)
            continue
        for items in gather(table.documents(groups)):
            yield Gathered(items, size)
            size = 0
            del items
        left += size
    yield Gathered([], left)


def gather(items: Iterable[Document | Skip]) -> Iterator[list[Document | Skip]]:
    """Yield documents, and what is skipped, in lists that take as much memory as a part."""
    gathered: list[Document | Skip] = []
    held = 0
    for item in items:
        gathered.append(item)
        held += _DOCUMENT + (len(item.text) if isinstance(item, Document) else 0)
        del item  # a long document is not kept while the next one is read
        if held >= PART:
            yield gathered
            gathered, held = [], 0
    if gathered:
        yield gathered


def _open_ranges(found: Found, reader: FileReader) -> Range | None:
    """Return the range of a file that holds its records; None if it cannot be cut."""
    path, read = found.path, reader.format_of(found)
    # A pipe is opened once, or what its writer has written goes to nobody.
    can_be_cut = (
        path
        and read is not read_json
        and found.size is not None
        and not is_named_compressed(path)
        and _holds_records(read)
    )
    if path is None or not can_be_cut or _is_read_whole(found, reader):
        return None
    try:
        file = OpenFile(path)
        start = file.read(0, SAMPLE)
        layout = reader.layout.of_file(partial(file.read, 0))
        encoding = encoding_of_records(start, layout.encoding)
    except (OSError, UnfitError, UnicodeError):
        return None  # which is then skipped
    # A guess is told once, with the first document of the file.
    guessed = reader.layout.encoding == DETECT and layout.encoding != "utf-8"
    cuttable = stat.S_ISREG(file.status.st_mode) and has_single_bytes(encoding) and not guessed
    if not cuttable or find_compression(start):
        return None
    place = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    encoding = encoding.removesuffix("-sig")
    form: Lines | Table = Lines(record_of_line if read is read_lines else record_of_json)
    number = 0
    if isinstance(read, partial):
        delimiter = read.keywords["delimiter"]
        rows = Rows(wrap_lines(io.BytesIO(start[place:]), encoding, ""), delimiter, layout.max_document)
        try:
            form = Table(delimiter, find_fields(rows, layout))
        except UnfitError:
            return None
        number = rows.number
        ends = [end.end() for end in islice(LINE_END.finditer(start, place), number)]
        if len(ends) < number or ends[-1] == len(start):
            return None  # the header may go on
        place = ends[-1]
    return Range(file, storable(path), place, None, number, encoding, layout, form, 0)


def _split_ranges(found: Found, whole: Range) -> Iterator[Part]:
    file, place, number = whole.file, whole.start, whole.number
    done = 0
    while True:
        size, cut, at_end = PART, 0, False
        try:
            while not (cut or at_end) and size <= _LONGEST * PART:
                data = file.read(place, size)
                at_end = len(data) < size
                cut = len(data) if at_end else whole.form.cut(data)
                size *= 2
            end = place + cut if cut or at_end else whole.form.find_end(file, place + len(data))
        except OSError as error:
            yield Gathered([unreadable(whole.name, error)], (found.size or 0) - done)
            return
        if at_end or end is None:
            yield whole._replace(start=place, end=end, number=number, size=max((found.size or 0) - done, 0))
            return
        yield whole._replace(start=place, end=end, number=number, size=end - done)
        number += whole.form.count_lines(data, cut) if cut else 1
        place = done = end
