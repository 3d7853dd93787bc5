"""Group the input into parts that any process can turn into documents.

Small files, and large ones that are one document, are grouped, and the process that gets a group reads it. Large
files of records and streams are read by the process that groups, and their documents are handed on.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeGuard

from simsql.documents.document import Document, Found, Layout, Skip
from simsql.documents.opening import FileReader, format_of

PART = 1 << 21
"""Bytes of a part: small beside the memory of a process, large beside the cost of handing it to another one."""

_OBJECT = 1 << 8  # the objects of a document or a skip take as much memory as a text of this many bytes


class Part(NamedTuple):
    """Files to read, documents that have been read, and what is skipped between them."""

    items: list[Found | Document | Skip]
    layout: Layout
    size: int
    """Bytes on disk."""
    weight: int
    """About as many bytes take as long to read, and as much memory."""

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
    items: list[Found | Document | Skip] = []
    weight, before = 0, reader.bytes_done
    for found in files:
        for item in reader.read(found) if _is_read_here(found, reader) else [found]:
            items.append(item)
            if isinstance(item, Found):
                reader.bytes_done += item.size or 0
                weight += item.weight
            else:
                weight += _OBJECT + (2 * len(item.text) if isinstance(item, Document) else 0)
            del item  # a long document is not kept while the next one is read
            if weight >= PART:
                yield Part(items, reader.layout, reader.bytes_done - before, weight)
                items, weight, before = [], 0, reader.bytes_done
    yield Part(items, reader.layout, reader.bytes_done - before, weight)


def _is_read_here(found: Found | Skip, reader: FileReader) -> TypeGuard[Found]:
    """Return whether a file must not, or need not, be read by another process."""
    if isinstance(found, Skip):
        return False
    if found.path is None or found.size is None or str(found.path).startswith(("/dev/", "/proc/")):
        return True  # in another process, it is something else
    return found.weight >= 2 * PART and format_of(found, reader.layout).is_records is not False
