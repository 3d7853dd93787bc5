"""Read plain texts, which are recognised by content and not by name."""

from simsql.documents.decoding import Stream, decode_text
from simsql.documents.document import Found, Layout
from simsql.documents.formats import OneText
from simsql.documents.records import check_filled


class Text(OneText):
    """Files that are one text. A file whose ending no format has is one, too."""

    endings = ()

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:  # noqa: ARG002
        """Return all of a file."""
        text = decode_text(stream, layout.encoding, layout.max_document)
        check_filled(text)
        return text


TEXT = Text()
FORMATS = [TEXT]
