"""Read standard input, pipes and devices, whose names tell no format."""

import csv
from io import StringIO

from simsql.documents.decoding import SAMPLE, Stream
from simsql.documents.document import Layout
from simsql.documents.formats import ByContent, Format
from simsql.documents.formats.csv import FORMATS as TABLES
from simsql.documents.formats.json import JSON_ARRAY, JSON_LINES, decode_start, is_array


class RecordStream(ByContent):
    """JSON lines, an array, or a table, whose header names the column of texts."""

    endings = ()
    is_records = True

    def find(self, stream: Stream, layout: Layout) -> Format:
        """Return the format of a stream by its first record."""
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
