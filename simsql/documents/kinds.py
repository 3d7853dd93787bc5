"""The kinds of files that are no text, by their first bytes."""

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of files."""

    name: str
    start: bytes
    """A regular expression."""
    advice: str
    """What to do with such a file."""
    like_text: bool = True
    """Whether a file that begins like this is of this kind, even if it can be decoded as text."""


_KINDS = (
    Kind("PDF", rb"%PDF-", "extract its text first, for example with pdftotext"),
    Kind(
        "office document",
        rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1|PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|docProps/|word/|xl/|ppt/"
        rb"|mimetypeapplication/(vnd\.oasis|epub))",
        "extract its text first",
    ),
    # Also what is compressed twice, or in a way that is not read.
    Kind(
        "archive",
        rb"PK(\x03\x04|\x05\x06)|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|MSCF\0|.{257}ustar(\0|  \0)|\x1f[\x8b\x9d\xa0]"
        rb"|\xfd7zXZ\0|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|LZIP\x01",
        "unpack it first",
    ),
    Kind(
        "Parquet",
        rb"PAR[1E]",
        "read it with --input-format parquet, decompressed; it cannot be read from a pipe",
        like_text=False,
    ),
    Kind(
        "Arrow",
        rb"ARROW1\0\0|\xff\xff\xff\xff...\0[\x10\x14]\0\0\0",
        "write it as Parquet, as with Dataset.to_parquet of Hugging Face",
        like_text=False,
    ),
    Kind(
        "image",
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II\*\0|MM\0\*|BM....\0\0\0\0"
        rb"|....ftyp(avi[fs]|he[iv][cmsx]|m[is]f1|crx )|\0\0\0\x0c(JXL |jP  )\r\n|8BPS\0",
        "simsql dedup --recipe phash compares pictures; for the texts in them, extract these first",
        like_text=False,
    ),
    Kind("binary", rb"\x7fELF", "a program: leave it out"),
    Kind("binary", rb"", "not a text file: extract its text first", like_text=False),
)


def find_kind(start: bytes) -> Kind:
    """Return the kind of a file that is no text, given its first bytes."""
    return next(kind for kind in _KINDS if re.compile(kind.start, re.DOTALL).match(start))
