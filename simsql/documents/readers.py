"""Read the documents of the files that a user names, in any format.

The format of a file is decided in this order:

- The first bytes show compression (gzip, xz, bzip2).
- The ending of the name, without .gz, .xz or .bz2, shows files of records: .jsonl and .ndjson are JSON lines,
  .csv and .tsv are tables.
- `-` (standard input), named pipes and devices that the user names are JSON lines.
- Any other file is one document if its content is text, but not a .json file of records.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from simsql.documents.content import READ_ERRORS, Stream, UnfitError, decode_text
from simsql.documents.files import VISIBLE, Found, InputFiles, Selection, unreadable
from simsql.documents.input_formats import (
    Document,
    Layout,
    Skip,
    printable,
    read_json,
    read_json_lines,
    read_lines,
    read_table,
    read_text,
    storable,
)
from simsql.documents.output import Outputs
from simsql.documents.output_formats import DELIMITERS
from simsql.documents.reports import Report, SkipCount, name_paths
from simsql.errors import SimsqlError, UsageError

_COMPRESSED: tuple[tuple[re.Pattern[bytes], Callable[[Any], Any]], ...] = (
    (re.compile(rb"\x1f\x8b\x08"), gzip.open),
    (re.compile(rb"\xfd7zXZ\0"), lzma.open),
    # The second alternative is what an empty file becomes.
    (re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.open),
)

_ENDINGS_OF_COMPRESSED = {".gz", ".xz", ".bz2"}

_Format = Callable[[Stream, str, Layout], Iterator[Document | Skip]]

_FORMATS: dict[str, _Format] = {
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json,
    **{ending: partial(read_table, delimiter=delimiter) for ending, delimiter in DELIMITERS.items()},
}


_USUAL = Layout()


class DocumentReader:
    """The documents in files, folders and standard input; iterate over it.

    Yield a `Document` for every text and a `Skip` for everything that cannot be used. A bad document or an
    unreadable file never ends the iteration. Only one document at a time is held in memory.

    Args:
        paths: Files and folders; `-` is standard input (a file of that name is `./-`, as a string).
        layout: The fields and the encoding of the files. A document above its limit is skipped, and never held in
            memory.
        stdin: The stream for `-`. It is not closed.
        lines: Whether each line of a text, and of standard input, pipes and devices, is a document.
        selection: The files to read inside folders; by default, all that are not hidden.
        outputs: The files that the run writes. They are left out of folders.
        leave_out: Other files and folders to leave out of folders.

    Raises:
        UsageError: If a path is empty or does not exist, the encoding is unknown, the run would overwrite a file
            that it reads, or standard input is one of the files. Folders have been walked, but nothing has been
            read.

    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        layout: Layout = _USUAL,
        *,
        selection: Selection = VISIBLE,
        lines: bool = False,
        stdin: BinaryIO | None = None,
        outputs: Outputs | None = None,
        leave_out: Iterable[Path] = (),
    ) -> None:
        if "" in paths:  # of a variable that is not set: Path would take it for this folder
            raise UsageError("a path is empty: name a file or a folder")
        self._layout = replace(layout, encoding=_known_encoding(layout.encoding))
        self.skips = SkipCount()
        """What `documents` has skipped; more may be added."""
        self._paths = paths
        self._lines = lines
        self._stdin = stdin
        arguments = [None if str(path) == "-" else Path(path) for path in paths]
        if stdin is None and None in arguments:
            raise UsageError("'-' means standard input, but there is none")
        self._files = InputFiles(
            arguments, selection=selection, outputs=outputs or Outputs({}), leave_out=leave_out, stdin=stdin
        )
        self._finished = 0
        self._current: Stream | None = None

    @property
    def bytes_done(self) -> int:
        """Number of bytes read so far. Compressed files count by their compressed size."""
        return self._finished + (self._current.consumed if self._current else 0)

    @property
    def bytes_total(self) -> int | None:
        """The final value of `bytes_done`; None if the paths include standard input, a pipe or a device."""
        return self._files.bytes_total

    def __iter__(self) -> Iterator[Document | Skip]:
        self._finished = 0
        for found in self._files:
            if isinstance(found, Skip):
                yield found
                continue
            for item in self._read(found):
                yield item
                del item  # a long document is not kept while the next one is read
            # A binary file counts in full although only its start was looked at.
            self._finished = self.bytes_done if found.size is None else self._finished + found.size
            self._current = None

    def documents(self, report: Report) -> Iterator[Document]:
        """Yield the documents, count the skips, and report the bytes read."""
        for item in self:
            report(self.bytes_done)
            if isinstance(item, Document):
                yield item
            else:
                self.skips.add(item)
            del item  # a long document is not kept while the next one is read

    def nothing_found(self) -> str:
        """Return the error message for files without documents."""
        where = name_paths(self._paths)
        if not self.skips.by_reason:
            return f"no documents in {where}: found nothing to read"
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.skips.by_reason.most_common())
        first = self.skips.examples[0]
        return f"no documents in {where}: skipped {reasons}; the first was {first.place}: {first.detail}"

    def _read(self, found: Found) -> Iterator[Document | Skip]:
        read = read_json_lines if found.path is None or found.size is None else _format_of(found.path)
        if self._lines and (found.size is None or read in (read_text, read_json)):
            read = read_lines
        if found.path is None:
            assert self._stdin is not None  # noqa: S101 - checked when the reader was made
            yield from self._decode(self._stdin, "stdin", read)
            return
        try:
            # Stream has a buffer of its own.
            file = found.path.open("rb", buffering=0)
        except OSError as error:
            yield unreadable(storable(found.path), error)
            return
        with file:
            # Before anything is read: another file may take the name at any moment.
            status = os.fstat(file.fileno())
            for item in self._decode(file, storable(found.path), read):
                yield item._replace(path=found.path, status=status) if isinstance(item, Document) else item
                del item

    def _decode(self, file: BinaryIO | io.FileIO, name: str, read: _Format) -> Iterator[Document | Skip]:
        stream = self._current = Stream(file)
        try:
            start = stream.sample()
            for magic, decompressor in _COMPRESSED:
                if magic.match(start):
                    stream = Stream(decompressor(stream))
                    break
            yield from read(stream, name, self._layout)
        except READ_ERRORS as error:
            yield unreadable(name, error)
        except UnicodeError as error:
            # The codecs of domain names and the like know no error handlers.
            yield Skip(printable(name), f"not {self._layout.encoding}", printable(str(error)))


def _known_encoding(encoding: str) -> str:
    """Return Python's name for an encoding: utf8 and UTF-8 are the same."""
    try:
        name = codecs.lookup(encoding).name
        "a".encode(name)  # refuses codecs that are not between text and bytes, such as base64
    except (LookupError, ValueError):
        raise UsageError(
            f"unknown encoding {encoding!r}: name one that Python knows, such as utf-8, cp1252, gbk or shift_jis"
        ) from None
    return name


def _format_of(path: Path) -> _Format:
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    if endings and endings[-1] in _ENDINGS_OF_COMPRESSED:
        endings.pop()
    return _FORMATS.get(endings[-1], read_text) if endings else read_text


def read_single_text(path: str, *, encoding: str, max_document: int, stdin: BinaryIO) -> str:
    """Return the only text in a file, in any format that the commands read; `-` is all of standard input.

    Raises UsageError if the file is missing or contains several documents, and SimsqlError if it contains no text
    or more than `max_document` bytes.
    """
    if path == "-":
        try:
            return decode_text(Stream(stdin), encoding, max_document)
        except UnfitError as unfit:
            raise SimsqlError(f"stdin: {unfit.reason}: {unfit.detail}") from None
    layout = Layout(encoding=encoding, max_document=max_document)
    match list(islice(DocumentReader([path], layout), 2)):
        case [Document(text=text)]:
            return text
        case [Skip(place=place, reason=reason, detail=detail)]:
            raise SimsqlError(f"{place}: {reason}: {detail}")
        case []:
            raise UsageError(f"{printable(path)} contains no document: name a file with one text")
    raise UsageError(f"{printable(path)} contains several documents: name a file with one text")
