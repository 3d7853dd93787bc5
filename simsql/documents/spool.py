"""Tokens and texts in temporary files, so that input is read once and memory does not grow with the texts.

Several processes may append to one file: a spool that is among the arguments of a new process is shared with it.
"""

import errno
import fcntl
import os
import tempfile
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from multiprocessing.reduction import DupFd
from typing import IO, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from simsql.errors import naming_temporary_files
from simsql.fingerprint import TokenLists

_DIGEST = 16
_TOKEN = 8  # bytes
_READ = 1 << 20
# A smaller file is in memory. Of a larger one, what is about to be read is asked for first, so that the disk works
# on many places at a time: that is three to four times as fast. macOS has no such call.
_LARGE = 1 << 30


class _Spool:
    """A temporary file without a name, which goes when it is closed or all its processes end in any way."""

    def __init__(self) -> None:
        with naming_temporary_files():
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="simsql-")  # noqa: SIM115 - closed by `close`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        return DupFd(self._file.fileno())

    def __setstate__(self, descriptor: Any) -> None:
        self._file = os.fdopen(descriptor.detach(), "r+b")

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def add(self, data: bytes | memoryview) -> int:
        """Append data, and return where it begins."""
        data = memoryview(data)
        descriptor = self._file.fileno()
        with naming_temporary_files():
            # The system releases the lock of a process that is killed.
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            try:
                place = start = os.fstat(descriptor).st_size
                while data:
                    size = os.pwrite(descriptor, data, place)
                    data, place = data[size:], place + size
            finally:
                fcntl.lockf(descriptor, fcntl.LOCK_UN)
        return start

    def _read_into(self, buffer: memoryview, place: int) -> None:
        while buffer:
            size = os.preadv(self._file.fileno(), [buffer], place)
            if not size:
                raise OSError(errno.EIO, "a temporary file was truncated")
            buffer, place = buffer[size:], place + size


class TokenSpool(_Spool):
    """The hashes of the tokens of documents.

    A token takes eight bytes in the folder of temporary files. If there is no room, OSError names this folder.
    """

    def add_tokens(self, tokens: TokenLists) -> NDArray[np.int64]:
        """Append the tokens of some documents, and return where those of each begin, in tokens."""
        start = self.add(np.ascontiguousarray(tokens.hashes).view(np.uint8).data) // _TOKEN
        return start + np.cumsum(tokens.counts) - tokens.counts

    def read_at(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return as many tokens from each start as the sizes say, one document after the other."""
        places = np.cumsum(sizes) - sizes
        tokens = np.empty(int(sizes.sum()), dtype=np.uint64)
        buffer = tokens.view(np.uint8).data
        # Documents that follow one another in the file are read together, and all in the order of the file.
        (first,) = np.nonzero(np.diff(starts - places, prepend=-1))
        lengths = np.diff(places[first], append=len(tokens))
        runs = np.stack((starts[first], places[first], lengths), axis=1) * _TOKEN
        descriptor = self._file.fileno()
        in_order = runs[np.argsort(starts[first])].tolist()
        if os.fstat(descriptor).st_size >= _LARGE and hasattr(os, "posix_fadvise"):
            for start, _, length in in_order:
                os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_WILLNEED)
        with naming_temporary_files():
            for start, place, length in in_order:
                part = buffer[place : place + length]
                size = os.preadv(descriptor, [part], start)
                if size < length:
                    self._read_into(part[size:], start + size)
        return tokens


class TextSpool(_Spool):
    """Texts. Those that are appended are numbered from 0, and take 16 bytes of memory.

    A text takes its UTF-8 in the folder of temporary files. If there is no room, OSError names this folder.
    """

    def __init__(self) -> None:
        super().__init__()
        self._starts, self._sizes = array("q"), array("q")

    @property
    def count(self) -> int:
        """The number of texts that were appended."""
        return len(self._starts)

    def append(self, text: str) -> None:
        """Append the next text. Halves of surrogate pairs are kept as they are."""
        start, size = self.add_text(text)
        self._starts.append(start)
        self._sizes.append(size)

    def add_text(self, text: str) -> tuple[int, int]:
        """Append a text without a number, and return its start and its size in bytes."""
        data = text.encode("utf-8", "surrogatepass")
        return self.add(data), len(data)

    def read(self, position: int) -> str:
        """Return a text that was appended."""
        return self.read_at(self._starts[position], self._sizes[position])

    def read_at(self, start: int, size: int) -> str:
        """Return the text of this size in bytes at a start."""
        data = bytearray(size)
        with naming_temporary_files():
            self._read_into(memoryview(data), start)
        return data.decode("utf-8", "surrogatepass")


class StreamSpool(_Spool):
    """A stream whose bytes are kept in the folder of temporary files as they are read, to be read again."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream: Any = stream

    def fileno(self) -> int:
        """Return the descriptor of the stream. Raises OSError if it has none."""
        descriptor: int = self._stream.fileno()
        return descriptor

    def read1(self, size: int) -> bytes:
        """Return up to `size` bytes with one read of the stream; b"" at the end."""
        data: bytes = self._stream.read1(size)
        self.add(data)
        return data

    read = read1

    def again(self) -> IO[bytes]:
        """Return all bytes of the stream as a file."""
        while self.read1(_READ):
            pass
        self._file.seek(0)
        return self._file


def digest_tokens(tokens: TokenLists) -> Iterator[bytes]:
    """Yield a digest of 16 bytes for each document: documents with the same sequence of tokens have the same."""
    data = np.ascontiguousarray(tokens.hashes).view(np.uint8).data
    start = 0
    for end in (_TOKEN * np.cumsum(tokens.counts)).tolist():
        yield blake2b(data[start:end], digest_size=_DIGEST).digest()
        start = end
