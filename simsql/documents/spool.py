"""Tokens and texts in temporary files, so that input is read once and memory does not grow with the texts."""

import contextlib
import errno
import os
import tempfile
from array import array
from hashlib import blake2b
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from simsql.errors import naming_temporary_files
from simsql.fingerprint import TokenLists

_DIGEST = 16
_TOKEN = 8  # bytes


class _Spool:
    """A temporary file without a name, which goes when it is closed or the process ends in any way."""

    def __init__(self) -> None:
        with naming_temporary_files():
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="simsql-")  # noqa: SIM115 - closed by `close`

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file."""
        # A full disk, which has failed already, has no room for the end of the file either. It is closed anyway.
        with contextlib.suppress(OSError):
            self._file.close()

    def _write(self, data: bytes | memoryview) -> None:
        with naming_temporary_files():
            self._file.write(data)

    def _read_into(self, buffer: memoryview, place: int) -> None:
        with naming_temporary_files():
            while buffer:
                size = os.preadv(self._file.fileno(), [buffer], place)
                if not size:
                    raise OSError(errno.EIO, "a temporary file has lost its end")
                buffer, place = buffer[size:], place + size

    def _flush(self) -> None:
        with naming_temporary_files():
            self._file.flush()


class TokenSpool(_Spool):
    """The hashes of the tokens of documents, which are numbered from 0 in the order in which they are appended.

    A document takes 24 bytes of memory, and eight bytes per token in the folder of temporary files. If there is no
    room, `append` raises OSError, which names this folder.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ends = array("q", [0])
        self._digests = bytearray()

    @property
    def end(self) -> int:
        """The number of tokens."""
        return self._ends[-1]

    def append(self, tokens: TokenLists) -> NDArray[np.void]:
        """Append the tokens of some documents, and return their digests, as in `digests`."""
        before = len(self._digests)
        data = np.ascontiguousarray(tokens.hashes).view(np.uint8).data
        self._write(data)
        ends = np.cumsum(tokens.counts)
        self._ends.frombytes((self._ends[-1] + ends).astype(np.int64).tobytes())
        start = 0
        for end in (_TOKEN * ends).tolist():
            self._digests += blake2b(data[start:end], digest_size=_DIGEST).digest()
            start = end
        return np.frombuffer(bytes(self._digests[before:]), dtype=f"V{_DIGEST}")

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of tokens of each document."""
        ends = np.frombuffer(self._ends, dtype=np.int64)
        return ends[1:] - ends[:-1]

    @property
    def digests(self) -> NDArray[np.void]:
        """A digest of 16 bytes for each document: documents with the same sequence of tokens have the same."""
        return np.frombuffer(bytes(self._digests), dtype=f"V{_DIGEST}")

    def read(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the tokens of these documents, one document after the other."""
        ends = np.frombuffer(self._ends, dtype=np.int64)
        starts = ends[positions]
        return self.read_at(starts, ends[positions + 1] - starts)

    def read_at(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return as many tokens from each start as the sizes say, one document after the other."""
        self._flush()
        places = np.cumsum(sizes) - sizes
        tokens = np.empty(int(sizes.sum()), dtype=np.uint64)
        buffer = tokens.view(np.uint8).data
        # Documents that follow one another in the file are read together, and all in the order of the file.
        (first,) = np.nonzero(np.diff(starts - places, prepend=-1))
        lengths = np.diff(places[first], append=len(tokens))
        runs = np.stack((starts[first], places[first], lengths), axis=1) * _TOKEN
        for start, place, length in runs[np.argsort(starts[first])].tolist():
            self._read_into(buffer[place : place + length], start)
        return tokens


class TextSpool(_Spool):
    """Texts, which are numbered from 0 in the order in which they are appended.

    A text takes eight bytes of memory, and its UTF-8 in the folder of temporary files. If there is no room,
    `append` raises OSError, which names this folder.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ends = array("q", [0])

    def append(self, text: str) -> tuple[int, int]:
        """Append a text, and return its start and size in bytes. Halves of surrogate pairs stay as they are."""
        data = text.encode("utf-8", "surrogatepass")
        self._write(data)
        self._ends.append(self._ends[-1] + len(data))
        return self._ends[-2], len(data)

    def read(self, position: int) -> str:
        """Return a text."""
        start, end = self._ends[position : position + 2]
        return self.read_at(start, end - start)

    def read_at(self, start: int, size: int) -> str:
        """Return the text of this size at a start."""
        self._flush()
        data = bytearray(size)
        self._read_into(memoryview(data), start)
        return data.decode("utf-8", "surrogatepass")
