"""The kinds of files that are no text, by their first bytes."""

import re
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of files."""

    name: str
    start: re.Pattern[bytes]
    advice: str
    """What to do with such a file."""
    like_text: bool = False
    """Whether a file that begins like this is of this kind, even if it can be decoded as text."""


def _kind(name: str, start: bytes, advice: str, *, like_text: bool = False) -> Kind:
    return Kind(name, re.compile(start, re.DOTALL), advice, like_text)


_UNPACK = "unpack it, and name the folder"
_EXTRACT = "extract its text first"
_EXPORT = "export its texts first, for example as CSV"

_KINDS = (
    _kind("PDF", rb"%PDF-", "extract its text first, for example with pdftotext", like_text=True),
    _kind(
        "office document",
        rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1|PK\x03\x04.{26}(\[Content_Types\]\.xml|_rels/|docProps/|word/|xl/|ppt/"
        rb"|mimetypeapplication/(vnd\.oasis|epub))",
        _EXTRACT,
        like_text=True,
    ),
    _kind("archive", rb"PK(\x03\x04|\x05\x06)|7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|MSCF\0", _UNPACK, like_text=True),
    _kind("archive", rb".{257}ustar", _UNPACK, like_text=True),
    # Compressed twice, or in a way that is not read.
    _kind(
        "archive",
        rb"\x1f[\x8b\x9d\xa0]|\xfd7zXZ\0|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|\x04\x22\x4d\x18|LZIP\x01",
        "decompress it first",
        like_text=True,
    ),
    _kind("Parquet", rb"PAR[1E]", "decompress it, and name it .parquet; it cannot be read from a pipe"),
    _kind("database", rb"SQLite format 3\0|ARROW1\0\0|ORC|Obj\x01|\x89HDF\r\n", _EXPORT),
    _kind(
        "image",
        rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II\*\0|MM\0\*|BM....\0\0\0\0|\0\0\x01\0|8BPS"
        rb"|....ftyp(avif|heic|mif1)",
        "simsql dedup --recipe phash compares pictures; for the texts in them, extract these first",
    ),
    _kind("audio or video", rb"RIFF....(WAVE|AVI )|ID3|\xff\xfb|fLaC|OggS|....ftyp|\x1aE\xdf\xa3", _EXTRACT),
    _kind("program", rb"\x7fELF", "leave it out", like_text=True),
    _kind("program", rb"MZ|\xcf\xfa\xed\xfe|\xca\xfe\xba\xbe|\0asm|!<arch>", "leave it out"),
)
_BINARY = _kind("binary", rb"", "not a text file: extract its text first")


def find_kind(start: bytes) -> Kind:
    """Return the kind of a file that is no text, given its first bytes."""
    return next((kind for kind in _KINDS if kind.start.match(start)), _BINARY)
