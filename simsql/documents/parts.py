"""Group the input into parts that any process can turn into documents.

Small files, and large ones that are one document, are grouped, and the process that gets a group reads it. Large
files of records and streams are read by the process that groups, and their documents are handed on.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from simsql.documents.compression import is_named_compressed
from simsql.documents.document import Document, Found, Layout, Skip
from simsql.documents.opening import FileReader, format_of

PART = 1 << 21
"""Bytes of a part: small beside the memory of a process, large beside the cost of handing it to another one."""

_HELD = 1 << 20  # characters of documents that are handed on at once
_FILE = 1 << 12  # opening a file takes as long as reading this many bytes
_DOCUMENT = 1 << 7  # the objects of a document take as much memory as a text of this length
_COMPRESSION = 8


class Part(NamedTuple):
    """Files to read, documents that have been read, and what is skipped between them."""

    items: list[Found | Document | Skip]
    layout: Layout
    size: int
    """Bytes on disk."""

    @property
    def held(self) -> int:
        """Characters in memory."""
        return sum(len(item.text) for item in self.items if isinstance(item, Document))

    def read(self) -> Iterator[Document | Skip]:
        """Yield the documents, and what is skipped."""
        reader = FileReader(self.layout)
        for item in self.items:
            if isinstance(item, Found):
                yield from reader.read(item)
            else:
                yield item


def split(files: Iterable[Found | Skip], reader: FileReader) -> Iterator[Part]:
    """Yield parts of files, in the order of the documents."""
    group: list[Found | Document | Skip] = []
    weight = size = 0
    for found in files:
        is_read_here = isinstance(found, Found) and _is_read_here(found, reader)
        if group and (is_read_here or weight > PART):
            yield Part(group, reader.layout, size)
            group, weight, size = [], 0, 0
        if isinstance(found, Found) and is_read_here:
            yield from _read_here(found, reader)
            continue
        group.append(found)
        weight += _FILE
        if isinstance(found, Found) and found.path:
            size += found.size or 0
            weight += (found.size or 0) * _expansion(found.path)
    if group:
        yield Part(group, reader.layout, size)


def _is_read_here(found: Found, reader: FileReader) -> bool:
    """Return whether a file must not, or need not, be read by another process."""
    if found.path is None or found.size is None or str(found.path).startswith(("/dev/", "/proc/")):
        return True  # in another process, it is something else
    if found.size * _expansion(found.path) < 2 * PART:
        return False
    return format_of(found, reader.layout).is_records is not False


def _expansion(path: Path) -> int:
    """Return how many times as large as a file its content may be."""
    return _COMPRESSION if is_named_compressed(path) or path.suffix.lower() == ".parquet" else 1


def _read_here(found: Found, reader: FileReader) -> Iterator[Part]:
    items: list[Found | Document | Skip] = []
    held, done = 0, reader.bytes_done
    for item in reader.read(found):
        items.append(item)
        held += _DOCUMENT + (len(item.text) if isinstance(item, Document) else 0)
        del item  # a long document is not kept while the next one is read
        if held >= _HELD:
            yield Part(items, reader.layout, reader.bytes_done - done)
            items, held, done = [], 0, reader.bytes_done
    yield Part(items, reader.layout, reader.bytes_done - done)
