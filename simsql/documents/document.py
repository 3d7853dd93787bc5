"""What is read: documents, what is skipped, and what tells how to read a file."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from simsql.documents.compression import is_named_compressed
from simsql.documents.decoding import MAX_DOCUMENT

_FILE = 1 << 12  # opening a file takes as long as reading this many bytes
_COMPRESSION = 8


class Document(NamedTuple):
    """A text to compare. `name` and `place` never contain a NUL or a lone surrogate; `text` may."""

    name: str
    """Its id for the user: the path of a text file, or the value of the id field of a record."""
    text: str
    place: str
    """Where it was read, as one printable line: `path` or `path:line`."""
    values: tuple[str, ...] = ()
    """Those of the value fields of a record, empty if missing. Numbers and other types are written as JSON."""
    line: int | None = None
    """The line where a record begins; None for a whole file."""
    path: Path | None = None
    """The file; None for standard input."""
    status: os.stat_result | None = None
    """The status of the file when it was opened; None for standard input."""
    guess: str | None = None
    """The encoding of its file, if that is a guess, for the first document of the file."""
    lacks: tuple[str, ...] = ()
    """The fields that its record does not have: the text fields if there are several, and that of the id."""


class Found(NamedTuple):
    """A file to read, or standard input."""

    path: Path | None
    """None for standard input."""
    status: os.stat_result | None = None

    @property
    def name(self) -> str:
        """The path, as it begins the names of records without an id."""
        return storable(self.path) if self.path else "stdin"

    @property
    def size(self) -> int | None:
        """Size on disk in bytes; None for standard input, pipes and devices."""
        return self.status.st_size if self.status and stat.S_ISREG(self.status.st_mode) else None

    @property
    def weight(self) -> int:
        """About how many bytes of text take as long to read, and as much memory. Streams do not count."""
        is_packed = self.path and (is_named_compressed(self.path) or self.path.suffix.lower() == ".parquet")
        return _FILE + (self.size or 0) * (_COMPRESSION if is_packed else 1)


class Skip(NamedTuple):
    """A skipped document or file, and the reason.

    `reason` is one of: "binary" or another kind of file, "not utf-8" (or another encoding), "empty", "too long",
    "unreadable", "corrupt", "hidden", "excluded", "link", "special file", "records" (in a file that is read as one
    text), "not JSON", "not an object", "no field", "ambiguous field", "no text", "not a string", "not a
    fingerprint", "not CSV", "wrong number of fields", "repeated header".
    "corrupt" stands for any number of documents, and a run ends with an error after everything else.
    """

    place: str
    reason: str
    detail: str
    """What is wrong and what to do about it, on one line."""
    line: int | None = None
    """The line of a record; None for a file."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The shape of the files: formats, fields and encoding, and the limit for a document."""

    text_fields: tuple[str, ...] = ("text",)
    """The fields of an object, or the columns of a table, that hold the text, joined by line feeds."""
    id_field: str = "id"
    """The field or column that names the document. Records without it are named `path:line`."""
    encoding: str = "utf-8"
    """A byte order mark of UTF-8, UTF-16 or UTF-32 takes precedence. `DETECT` guesses where it is not UTF-8."""
    max_document: int = MAX_DOCUMENT
    """Limit in bytes, after decompression, for a text, or the line or row of a record."""
    value_fields: tuple[str, ...] = ()
    """The fields or columns whose values are read beside the text, if a record has them."""
    main_content: bool = False
    """Whether the text of a web page, or of a record, is its main content, and not its source."""
    fingerprints: str | None = None
    """How strings are written if the text field holds fingerprints: "padded", "hex" or "decimal"."""
    pictures: bool = False
    """Whether to read pictures, and nothing else."""
    lines: bool = False
    """Whether each line of a text, and of standard input, pipes and devices, is a document."""
    format: str | None = None
    """The format of all files, as the ending of a name without its dot; None if names and contents tell."""
    delimiter: str | None = None
    """The character between the fields of a table; None if the ending of the name and the header tell."""
    header: bool = True
    """Whether the first row of a table names its columns. Otherwise, they are called 1, 2, 3."""
    quoting: str = "double"
    """How a quote is written inside a field of a table: "double" or "backslash"; "none": it means nothing."""


USUAL = Layout()


def storable(name: str | os.PathLike[str]) -> str:
    r"""Return a name that PostgreSQL and JSON can store: `\xff` for an invalid byte, `\x00` for a NUL."""
    if isinstance(name, os.PathLike):
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    return name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def printable(name: str) -> str:
    """Return a name on one line, with line ends and other controls escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
