"""Read standard input, pipes and devices, whose names tell no format."""

from simsql.documents.decoding import SAMPLE, Stream, decode_start
from simsql.documents.document import Layout
from simsql.documents.formats import ByContent, Format
from simsql.documents.formats.csv import CSV, TSV, table_of
from simsql.documents.formats.json import JSON_ARRAY, JSON_LINES, is_array


class RecordStream(ByContent):
    """JSON lines, an array, or a table, whose header names the column of texts."""

    endings = ()
    is_records = True

    def find(self, stream: Stream, layout: Layout) -> Format:
        """Return the format of a stream by its first record."""
        start = decode_start(stream, layout.encoding, SAMPLE)
        if (found := is_array(start)) is not None:
            return JSON_ARRAY if found else JSON_LINES
        if not layout.header:
            return TSV if "\t" in start.partition("\n")[0] else CSV
        return table_of(start, layout, layout.delimiter or ",", "\t") or JSON_LINES


STREAM = RecordStream()
FORMATS: list[Format] = []
