"""The formats of files: each module of this folder has a list `FORMATS`, and a new format is a new module."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import BinaryIO, Protocol

from simsql.documents.decoding import Stream
from simsql.documents.document import Document, Found, Layout, Skip, printable
from simsql.documents.output import Output

Target = Output[bytes] | BinaryIO
"""What takes bytes."""


class ChangedError(Exception):
    """Raised for a file that does not have the records that it had."""


class Format(Protocol):
    """How files of a format are read, and copied without some of their records."""

    endings: Collection[str] = ()
    """How the names of such files end, in lower case. Compressed files have another ending behind it."""
    is_records: bool | None = True
    """Whether a file has records, and not one text; None if only its content tells."""
    is_stream: bool = True
    """Whether a file is read from its beginning to its end, so that it may also be compressed as a whole."""

    def suits(self, ending: str, layout: Layout) -> bool:
        """Return whether files whose names end like this have this format."""
        return ending in self.endings and not layout.pictures

    @abstractmethod
    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield a `Document` for every text and a `Skip` for everything that cannot be used.

        Raises UnfitError if nothing of the file can be used, and failures of reading itself
        (`compression.READ_ERRORS`) after the documents before them.
        """

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:  # noqa: ARG002
        """Copy a file without the records in these lines, which ascend.

        Raises UnfitError if the file cannot be copied, and ChangedError if one of the records is not there: a file
        that is one document has none.
        """
        raise ChangedError


class OneText(Format):
    """A format of files that are one document."""

    is_records = False

    @abstractmethod
    def text(self, stream: Stream, found: Found, layout: Layout) -> str:
        """Return the text of a file. Raise UnfitError if it has none."""

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield a file as one document."""
        text = self.text(stream, found, layout)
        yield Document(found.name, text, printable(found.name), path=found.path, status=found.status)


def leave_out(pieces: Iterable[tuple[int, bytes]], removed: Iterable[int]) -> Iterator[bytes]:
    """Yield the pieces of a file, numbered by the lines where they begin, without those in these lines."""
    left = iter(removed)
    gone = next(left, None)
    for number, data in pieces:
        if number == gone:
            gone = next(left, None)
        else:
            yield data
    if gone is not None:
        raise ChangedError
