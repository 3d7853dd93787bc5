"""CSV and TSV: the delimiter for each ending of a file, and rows as lines."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

DELIMITERS = {".csv": ",", ".tsv": "\t"}


def format_rows(rows: Iterable[Sequence[object]], delimiter: str) -> Iterator[str]:
    r"""Yield the text of each row, which `\n` ends.

    Cells with a carriage return are quoted: a reader would take it for the end of the row.
    """
    text = StringIO()
    # Python 3.11 quotes only the characters of the line end, so it has to be this one.
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")
    for row in rows:
        writer.writerow(row)
        yield text.getvalue().removesuffix("\r\n") + "\n"
        text.seek(0)
        text.truncate()
