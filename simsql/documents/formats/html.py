"""Read the main content of web pages, instead of their source."""

from simsql.documents.decoding import DETECT, Stream, check_start, read_document
from simsql.documents.document import Found, Layout
from simsql.documents.formats import OneText
from simsql.documents.records import check_filled, main_content


class Html(OneText):
    """Web pages. They are decoded as in a browser, unless their encodings are guessed."""

    endings = (".html", ".htm", ".xhtml")

    def suits(self, ending: str, layout: Layout) -> bool:
        """Return whether the main content of such a file is wanted."""
        return layout.main_content and super().suits(ending, layout)

    def text(self, stream: Stream, found: Found, layout: Layout) -> str:  # noqa: ARG002
        """Return the title, the headings and the main content of a page."""
        # Any bytes will do, and whatever is not guessed is read as browsers do.
        encoding = check_start(stream, DETECT if layout.encoding == DETECT else "latin-1", is_records=True)
        data = bytes(read_document(stream, layout.max_document))
        page = data.decode(encoding, "replace") if stream.guess not in ("", "utf-8") else data
        return check_filled(main_content(page))


FORMATS = [Html()]
