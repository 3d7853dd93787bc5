"""Read plain texts, which are recognised by content and not by name."""

from simsql.documents.decoding import Stream, UnfitError, decode_text
from simsql.documents.document import Found, Layout
from simsql.documents.formats import OneText
from simsql.documents.formats.csv import has_columns, table_of
from simsql.documents.records import check_filled

_SEEN = 1 << 20  # characters that tell whether a text is one of records


class Text(OneText):
    """Files that are one text. A file whose ending no format has is one, too."""

    endings = ()

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:  # noqa: ARG002
        """Return all of a file."""
        text = decode_text(stream, layout.encoding, layout.max_document)
        check_filled(text)
        if not layout.format and not layout.lines:
            _check_shape(text[:_SEEN], layout)
        return text


def _check_shape(start: str, layout: Layout) -> None:
    """Raise UnfitError for a text that looks like records, given its start: they would count as one document."""
    from simsql.documents.formats.json import format_of_records  # noqa: PLC0415 - which reads texts, too

    format_ = format_of_records(start)
    if not format_ and start.count("\n") > 1:
        if table := table_of(start, layout):
            format_ = table.endings[0].removeprefix(".")
        elif has_columns(start, layout):
            format_ = "csv" if layout.delimiter else "tsv"
    if format_:
        raise UnfitError(
            "records",
            f"it looks like {format_.upper()}: read it with --input-format {format_}, or as one text with"
            " --input-format text",
        )


TEXT = Text()
FORMATS = [TEXT]
