"""Read the main content of web pages, instead of their source."""

from simsql.documents.decoding import Stream, check_start, read_document
from simsql.documents.document import Found, Layout
from simsql.documents.formats import OneText
from simsql.documents.records import main_content


class Html(OneText):
    """Web pages. They are decoded as in a browser, whatever the encoding of other files is."""

    endings = (".html", ".htm", ".xhtml")

    def suits(self, ending: str, layout: Layout) -> bool:
        """Return whether the main content of such a file is wanted."""
        return layout.main_content and super().suits(ending, layout)

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:  # noqa: ARG002
        """Return the title, the headings and the main content of a page."""
        check_start(stream, "latin-1", is_records=True)  # whatever its encoding is
        return main_content(bytes(read_document(stream, layout.max_document)))


FORMATS = [Html()]
