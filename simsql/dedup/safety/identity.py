"""The identity of documents in all runs, and their digests.

A file is identified by its real path. A record is identified by its file and its id or, without one, its line: an
id is a label, which records of other files may have, too. What came from standard input or a pipe is identified by
its text as well, because another stream is another source.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from simsql.documents import Document, printable

_ESCAPED_BYTE = re.compile(rb"\\x([89a-f][0-9a-f])")  # by simsql.documents.storable
_DIGESTED = 1 << 20  # characters of a text that are digested at once


class FileStatus(NamedTuple):
    """What changes when somebody writes to a file or replaces it."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class RecordFile(NamedTuple):
    """A file of records, and its status when it was read."""

    path: Path
    status: FileStatus


class Identities:
    """The identities of documents, which come in the order of reading."""

    def __init__(self) -> None:
        self.status: FileStatus | None = None
        """The status of the current file when it was opened; None for streams."""
        self._path: Path | None = None
        self._file = b""
        """The real path of the current file; empty for streams."""
        self._taken: set[int] = set()
        """The identities of records with an id: those of the current file, or of all streams."""
        self._taken_in_streams: set[int] = set()

    def identify(self, document: Document) -> str:
        """Return the identity of a document: 32 hexadecimal digits."""
        if document.path is None or document.path is not self._path:
            self._open(document)
        if document.line is None and document.path:
            return hash_key(self._file or real_path(document.path))
        assert document.line is not None  # noqa: S101 - standard input has records only
        label = None if printable(document.name) == document.place else document.name
        text_digest = "" if self._file else digest_text(document.text)
        identities = identities_of_record(self._file, label, document.line, text_digest)
        if self._file and label is None:
            return next(identities)
        return next(identity for identity in identities if self._take(identity))

    def _open(self, document: Document) -> None:
        self._path, self._file, self._taken = document.path, b"", self._taken_in_streams
        self.status = document.status and status_of_file(document.status)
        if document.path and self.status:
            self._file, self._taken = real_path(document.path), set()

    def _take(self, identity: str) -> bool:
        number = int(identity[:16], 16)  # an int takes a third of the memory
        if number in self._taken:
            return False
        self._taken.add(number)
        return True


def first_identity(file: bytes, label: str | None, line: int, text_digest: str) -> str:
    """Return the first of `identities_of_record`, which a record has unless an earlier one has taken it."""
    key = b"%b\0line\0%d" % (file, line) if label is None else b"%b\0id\0%b" % (file, label.encode())
    return hash_key(key) if file else hash_key(key, text_digest.encode())


def identities_of_record(file: bytes, label: str | None, line: int, text_digest: str) -> Iterator[str]:
    """Yield the identity of a record, then those that it takes if an earlier record has the same label.

    `file` is a real path. For streams, it is empty, and the text counts.
    """
    key = [file, b"line", b"%d" % line] if label is None else [file, b"id", label.encode()]
    if not file:
        key.append(text_digest.encode())
    yield first_identity(file, label, line, text_digest)
    for number in count():
        yield hash_key(*key, b"%d" % line, b"%d" % number)


def file_of(place: str, line: int | None) -> str:
    """Return the file of a place, given the line of its record."""
    return place if line is None else place.removesuffix(f":{line}")


def paths_named(name: str) -> dict[str, None]:
    """Return the paths that a storable name may stand for: bytes in it that are not UTF-8 may be escaped."""
    return dict.fromkeys((name, os.fsdecode(_ESCAPED_BYTE.sub(_byte, os.fsencode(name)))))


def path_of(name: str, identity: str) -> str | None:
    """Return the path of a file that is one document; None if it is gone, or several paths lead there."""
    paths = [path for path in paths_named(name) if os.path.lexists(path) and hash_key(real_path(path)) == identity]
    return paths[0] if len(paths) == 1 else None


def real_path(path: str | Path) -> bytes:
    """Return the path of a file without links."""
    return os.fsencode(os.path.realpath(path))


def read_status(path: str | Path) -> FileStatus | None:
    """Return the status of a regular file, also behind a link; None if there is none."""
    try:
        return status_of_file(os.stat(path))  # noqa: PTH116
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def status_of_file(found: os.stat_result) -> FileStatus | None:
    """Return the status of a regular file; None for pipes and devices."""
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileStatus(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def digest_text(text: str) -> str:
    """Return the digest of a text: 32 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(text), _DIGESTED):
        digest.update(text[start : start + _DIGESTED].encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def hash_key(*parts: bytes) -> str:
    """Return the digest of an identity: a B-tree cannot store names of more than 2.7 kB."""
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])
