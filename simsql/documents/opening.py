"""Open a file or a stream, and read it in its format."""

import io
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from simsql.documents.compression import READ_ERRORS, find_compression, is_named_compressed
from simsql.documents.content import DETECT, Stream
from simsql.documents.files import Found, unreadable
from simsql.documents.input_formats import (
    Document,
    Layout,
    Opened,
    Skip,
    printable,
    read_json_lines,
    read_lines,
    read_table,
    read_text,
    storable,
)
from simsql.documents.json_records import read_json, read_stream
from simsql.documents.output_formats import DELIMITERS
from simsql.documents.pages import PAGES, read_page
from simsql.documents.parquet import read_parquet
from simsql.documents.pictures import read_picture

Format = Callable[[Any, Opened, Layout], Iterator[Document | Skip]]
"""Yields the documents of a `Stream`. `read_parquet` needs the file itself."""

_FORMATS: dict[str, Format] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json,
    **{ending: partial(read_table, delimiter=delimiter) for ending, delimiter in DELIMITERS.items()},
}


class FileReader:
    """Reads files and standard input, one after the other.

    With `lines`, each line of a text, and of standard input, pipes and devices, is a document.
    """

    def __init__(self, layout: Layout, *, lines: bool, stdin: BinaryIO | None = None) -> None:
        self.layout = layout
        self.lines = lines
        self._stdin = stdin
        self.current: Stream | None = None
        """The stream that is read; set it to None when it is finished."""

    def format_of(self, found: Found) -> Format:
        """Return the function that reads the format of a file."""
        if self.layout.pictures:
            return read_picture
        read = read_stream if found.path is None or found.size is None else format_of_name(found.path)
        if self.lines and (found.size is None or read in (read_text, read_json)):
            return read_lines
        if self.layout.main_content and read is read_text and found.path and _ending_of(found.path) in PAGES:
            return read_page
        return read

    def read(self, found: Found) -> Iterator[Document | Skip]:
        """Yield the documents of a file or of standard input, and what is skipped."""
        read = self.format_of(found)
        if found.path is None:
            assert self._stdin is not None  # noqa: S101 - checked when the reader was made
            yield from self._decode(self._stdin, Opened("stdin"), read)
            return
        try:
            # Stream has a buffer of its own.
            file: Any = found.path.open("rb", buffering=-1 if read is read_parquet else 0)
        except OSError as error:
            yield unreadable(storable(found.path), error)
            return
        with file:
            # Before anything is read: another file may take the name at any moment.
            status = os.fstat(file.fileno())
            opened = Opened(storable(found.path), found.path, status)
            if read is not read_parquet:
                yield from self._decode(file, opened, read)
                return
            try:
                yield from read(file, opened, self.layout)
            except OSError as error:
                yield unreadable(opened.name, error)

    def _decode(self, file: BinaryIO | io.FileIO, opened: Opened, read: Format) -> Iterator[Document | Skip]:
        stream = self.current = Stream(file)
        layout, guess = self.layout, None
        try:
            if compression := find_compression(stream.sample()):
                stream = Stream(compression.read(stream))
            if layout.encoding == DETECT and read is not read_page:
                layout = layout.of_file(stream.sample)
                guess = None if layout.encoding == "utf-8" else layout.encoding
            for item in read(stream, opened, layout):
                if guess and isinstance(item, Document):
                    item, guess = item._replace(guess=guess), None  # noqa: PLW2901
                yield item
                del item  # a long document is not kept while the next one is read
        except READ_ERRORS as error:
            yield unreadable(opened.name, error)
        except UnicodeError as error:
            # The codecs of domain names and the like know no error handlers.
            yield Skip(printable(opened.name), f"not {layout.encoding}", printable(str(error)))


def holds_records(path: Path) -> bool:
    """Return whether the ending of a name shows a file of records."""
    return format_of_name(path) not in (read_text, read_json)


def format_of_name(path: Path) -> Format:
    """Return what reads the format that the ending of a name shows."""
    if path.suffix.lower() == ".parquet":
        return read_parquet
    return _FORMATS.get(_ending_of(path), read_text)


def _ending_of(path: Path) -> str:
    """Return the ending of a name, without one of compressed files."""
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    if is_named_compressed(path):
        endings.pop()
    return endings[-1] if endings else ""
