"""One text from one file or from standard input."""

from itertools import islice
from typing import BinaryIO

from simsql.documents.content import Stream, UnfitError, decode_text
from simsql.documents.formats import Document, Skip, printable
from simsql.documents.readers import DocumentReader
from simsql.errors import SimsqlError, UsageError


def read_single_text(path: str, *, encoding: str, max_document: int, stdin: BinaryIO) -> str:
    """Return the only text in a file, read as every command reads it; `-` is all of standard input.

    Raises UsageError if there is no such file or it holds several documents, and SimsqlError if it holds no text
    or more than `max_document` bytes.
    """
    if path == "-":
        try:
            return decode_text(Stream(stdin), encoding, max_document)
        except UnfitError as unfit:
            raise SimsqlError(f"stdin: {unfit.reason}: {unfit.detail}") from None
    match list(islice(DocumentReader([path], encoding=encoding, max_document=max_document), 2)):
        case [Document(text=text)]:
            return text
        case [Skip(place=place, reason=reason, detail=detail)]:
            raise SimsqlError(f"{place}: {reason}: {detail}")
        case []:
            raise UsageError(f"{printable(path)} holds no document: name a file with one text")
    raise UsageError(f"{printable(path)} holds several documents: name a file with one text")
