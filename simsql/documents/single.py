"""Read one text from a file or from standard input."""

from itertools import islice
from typing import BinaryIO

from simsql.documents.content import Stream, UnfitError, decode_text
from simsql.documents.formats import Document, Skip, printable
from simsql.documents.readers import DocumentReader
from simsql.errors import SimsqlError, UsageError


def read_single_text(path: str, *, encoding: str, max_document: int, stdin: BinaryIO) -> str:
    """Return the only text in a file, in any format that the commands read; `-` is all of standard input.

    Raises UsageError if the file is missing or contains several documents, and SimsqlError if it contains no text
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
            raise UsageError(f"{printable(path)} contains no document: name a file with one text")
    raise UsageError(f"{printable(path)} contains several documents: name a file with one text")
