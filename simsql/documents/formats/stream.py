"""Read standard input, pipes and devices, whose names tell no format."""

import csv
from collections.abc import Iterable, Iterator
from io import StringIO

from simsql.documents.decoding import SAMPLE, Stream
from simsql.documents.document import Document, Layout, Opened, Skip
from simsql.documents.formats import Format, Target
from simsql.documents.formats.csv import FORMATS as TABLES
from simsql.documents.formats.json import JSON_ARRAY, JSON_LINES, decode_start, is_array


class RecordStream(Format):
    """JSON lines, an array, or a table, whose header names the column of texts."""

    endings = ()
    is_records = True

    def read(self, stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
        """Yield the records."""
        return self._find(stream, layout).read(stream, opened, layout)

    def copy(self, stream: Stream, target: Target, layout: Layout, removed: Iterable[int]) -> None:
        """Copy all other records."""
        self._find(stream, layout).copy(stream, target, layout, removed)

    def _find(self, stream: Stream, layout: Layout) -> Format:
        start = decode_start(stream, layout, SAMPLE)
        if (found := is_array(start)) is not None:
            return JSON_ARRAY if found else JSON_LINES
        for table in TABLES:
            rows = csv.reader(StringIO(start, newline=""), delimiter=table.delimiter)
            if layout.text_field in next(filter(None, rows), []):
                return table
        return JSON_LINES


STREAM = RecordStream()
FORMATS: list[Format] = []
