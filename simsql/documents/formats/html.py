"""Read the main content of web pages, instead of their source."""

from simsql.documents.decoding import Stream, UnfitError, check_start, read_document
from simsql.documents.document import Found, Layout
from simsql.documents.formats import OneText


class Html(OneText):
    """Web pages. They are decoded as in a browser, whatever the encoding of other files is."""

    endings = (".html", ".htm", ".xhtml")

    def suits(self, ending: str, layout: Layout) -> bool:
        """Return whether the main content of such a file is wanted."""
        return layout.main_content and super().suits(ending, layout)

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:  # noqa: ARG002
        """Return the title, the headings and the main content of a page."""
        from simsql.fingerprint import html_parts  # noqa: PLC0415 - it takes longer to import than a short run

        check_start(stream, "latin-1", is_records=True)  # whatever its encoding is
        parts = html_parts(bytes(read_document(stream, layout.max_document)))
        if not parts:
            raise UnfitError("empty", "the page has no text")
        return "\n".join(text for text, _ in parts)


FORMATS = [Html()]
