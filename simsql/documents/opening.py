"""Open a file or a stream, decompress it, choose its format, and read or copy it.

The format of a file is decided in this order:

- The user names it.
- The first bytes show compression (gzip, xz, bzip2, Zstandard).
- `-` (standard input), named pipes and devices that the user names are JSON lines, a JSON array or a table.
- The ending of the name, without .gz, .xz, .bz2 or .zst, shows the format: see `simsql.documents.formats`.
- Any other file is one document if its content is text.
"""

import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, BinaryIO

from simsql.documents import formats
from simsql.documents.compression import find_compression, is_named_compressed
from simsql.documents.decoding import Stream, check_plain
from simsql.documents.document import USUAL, Document, Found, Layout, Skip
from simsql.documents.files import FAILURES, check_regular, skip_of
from simsql.documents.formats import Format, Target
from simsql.documents.formats.by_content import STREAM, TEXT
from simsql.documents.formats.lines import LINES
from simsql.errors import SimsqlError

_CHUNK = 1 << 21  # bytes


@cache
def _formats() -> list[Format]:
    """Return all formats. Their modules are imported at the first file: that of pictures needs numpy."""
    modules = pkgutil.iter_modules(formats.__path__, f"{formats.__name__}.")
    return [format_ for module in modules for format_ in import_module(module.name).FORMATS]


def format_of_name(path: Path, layout: Layout = USUAL) -> Format:
    """Return the format that the ending of a name shows."""
    is_compressed = is_named_compressed(path)
    named = path.with_suffix("") if is_compressed else path
    ending = f".{layout.format}" if layout.format else named.suffix.lower()
    suited = (each for each in _formats() if each.suits(ending, layout) and (each.is_stream or not is_compressed))
    return next(suited, TEXT)


def format_of(found: Found, layout: Layout) -> Format:
    """Return the format of a file or a stream."""
    is_stream = found.path is None or found.size is None
    format_ = format_of_name(found.path or Path(), layout)
    if layout.pictures:
        return format_
    if layout.lines and not (format_.is_records and (layout.format or not is_stream)):
        return LINES
    return STREAM if is_stream and not layout.format else format_


class FileReader:
    """Reads files and standard input, one after the other."""

    def __init__(self, layout: Layout, *, stdin: BinaryIO | None = None) -> None:
        self.layout = layout
        self._stdin = stdin
        self.bytes_done = 0
        """Number of bytes of all files so far. Compressed files count by their compressed size."""

    def read(self, found: Found) -> Iterator[Document | Skip]:
        """Yield the documents of a file or of standard input, and what is skipped."""
        before = self.bytes_done
        yield from self._read(found)
        if found.size is not None:  # a binary file counts in full although only its start was looked at
            self.bytes_done = before + found.size

    def _read(self, found: Found) -> Iterator[Document | Skip]:
        format_ = format_of(found, self.layout)
        with ExitStack() as files:
            try:
                file: Any = self._stdin
                if found.path:
                    # Another file may take the name at any moment.
                    is_file = found.size is not None
                    file = open_at_once(found.path) if is_file else found.path.open("rb", buffering=0)
                    status = os.fstat(files.enter_context(file).fileno())
                    if is_file:
                        check_regular(status.st_mode)
                    found = found._replace(status=status)
                stream = Stream(file, self._advance)
                if format_.is_stream and (compression := find_compression(stream.sample())):
                    stream = Stream(compression.read(stream))
                elif found.path and is_named_compressed(found.path):
                    check_plain(stream.sample())
                is_first = True
                for item in format_.read(stream, found, self.layout):
                    if is_first and isinstance(item, Document):
                        is_first = False
                        if stream.guess not in ("", "utf-8"):
                            item = item._replace(guess=stream.guess)  # noqa: PLW2901
                    yield item
                    del item  # a long document is not kept while the next one is read
            except FAILURES as error:
                yield skip_of(found.name, error, self.layout.encoding)

    def _advance(self, size: int) -> None:
        self.bytes_done += size


def open_at_once(path: Path) -> IO[bytes]:
    """Open a file without a buffer, and without waiting for a writer if a pipe has taken its name."""
    flag = getattr(os, "O_NONBLOCK", 0)
    return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | flag))


def copy_file(
    file: IO[bytes],
    target: Target,
    name: str,
    format_: Format,
    layout: Layout,
    removed: Iterable[int],
    advance: Callable[[int], None],
) -> None:
    """Copy a file of records without those in some lines, which ascend.

    What was compressed is compressed in the same way; a file without records to remove is copied as it is.
    `advance` is called with the number of bytes of each read. Raises ChangedError if a record to remove is not
    there, and SimsqlError if the file cannot be copied.
    """
    removed = list(removed)
    stream = source = Stream(file, advance)
    try:
        if removed:
            with ExitStack() as stack:
                if format_.is_stream and (compression := find_compression(stream.sample())):
                    stream = Stream(stack.enter_context(compression.read(stream)))
                    target = stack.enter_context(closing(compression.write(target)))
                format_.copy(stream, target, layout, removed)
        while data := source.read1(_CHUNK):
            if not removed:
                target.write(data)
    except BrokenPipeError:  # of what takes the copy
        raise
    except FAILURES as error:
        skip = skip_of(name, error, layout.encoding)
        raise SimsqlError(f"{skip.place} cannot be copied: {skip.detail}") from error
