"""Read lines, each of which is a text."""

from collections.abc import Callable, Iterable, Iterator

from simsql.documents.decoding import RecordBytes, Stream
from simsql.documents.document import Document, Found, Layout, Skip
from simsql.documents.formats import Format, Target, leave_out
from simsql.documents.records import Record, read_each


class Lines(Format):
    """Lines without their line ends, also blank ones. A subclass says what is in them."""

    def parser(self, layout: Layout) -> Callable[..., Record | None]:  # noqa: ARG002
        """Return what returns the record in a line, None for a line without one, or raises UnfitError.

        Its argument `has_end` is False for the last line of a file if it has no line end.
        """
        return lambda line, **_: ("", line, (), ())

    def read(self, stream: Stream, found: Found, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the document in each line."""
        data = RecordBytes(stream, layout.encoding)
        lines = enumerate(data.lines(layout.max_document), 1)
        parse = self.parser(layout)
        return read_each(lines, found, layout, lambda line: parse(line, has_end=data.has_end))

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other lines byte for byte."""
        data = RecordBytes(stream, layout.encoding)

        def pieces() -> Iterator[tuple[int, bytes]]:
            number = 1
            while line := data.file.readline(layout.max_document + 2):
                yield number, line
                number += line.endswith(b"\n")

        target = data.copy_to(target)
        for line in leave_out(pieces(), removed):
            target.write(line)


LINES = Lines()
FORMATS = [LINES]
