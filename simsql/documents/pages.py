"""Read the main content of web pages, instead of their source."""

from collections.abc import Iterator

from simsql.documents.content import Stream, UnfitError, check_bytes, read_document
from simsql.documents.input_formats import Document, Layout, Opened, Skip, printable

PAGES = {".html", ".htm", ".xhtml"}
"""The endings of web pages."""


def read_page(stream: Stream, opened: Opened, layout: Layout) -> Iterator[Document | Skip]:
    """Yield the title, the headings and the main content of a page as one document, or as a skip.

    The page is decoded as in a browser, whatever the encoding of other files is.
    """
    from simsql.fingerprint import html_parts  # noqa: PLC0415 - it takes longer to import than a short run

    place = printable(opened.name)
    try:
        check_bytes(stream.sample())
        parts = html_parts(bytes(read_document(stream, layout.max_document)))
    except UnfitError as unfit:
        yield Skip(place, unfit.reason, unfit.detail)
        return
    if not parts:
        yield Skip(place, "empty", "the page has no text")
        return
    text = "\n".join(text for text, _ in parts)
    yield Document(opened.name, text, place, path=opened.path, status=opened.status)
