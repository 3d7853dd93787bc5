"""The compressions of files: gzip, xz, bzip2 and Zstandard."""

import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# A frame of `zstd --long=31`, as large corpora have, asks for a window of 2 GB.
_LONG = {zstd.DecompressionParameter.window_log_max: zstd.DecompressionParameter.window_log_max.bounds()[1]}

READ_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError)
"""Errors of reading a file: from the system, or from damaged or truncated compressed data."""


class _Streams(io.RawIOBase):
    """What the compressed streams of a file hold, one after another.

    bz2.open and lzma.open take a file for complete where something else follows a stream: what is behind a damaged
    beginning would be missing without an error.
    """

    def __init__(self, decompressor: Callable[[], Any], file: Any) -> None:
        self._new = decompressor
        self._file = file
        self._stream = decompressor()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        data = b""
        while not data:
            packed = b""
            if self._stream.eof:
                packed = self._stream.unused_data or self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not packed:
                    return 0
                self._stream = self._new()
            elif self._stream.needs_input:
                packed = self._file.read(io.DEFAULT_BUFFER_SIZE)
                if not packed:
                    raise EOFError("the file ends within a compressed stream")
            data = self._stream.decompress(packed, len(target))
        target[: len(data)] = data
        return len(data)


def _read_streams(decompressor: Callable[[], Any], file: Any) -> io.BufferedReader:
    return io.BufferedReader(_Streams(decompressor, file))


class Compression(NamedTuple):
    """A compression: how its files begin, and how to read and write them."""

    magic: re.Pattern[bytes]
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


COMPRESSIONS: dict[str, Compression] = {
    ".gz": Compression(
        # Without the time, the same results are the same file.
        re.compile(rb"\x1f\x8b\x08"),
        gzip.open,
        lambda file: gzip.GzipFile("", "wb", 6, file, mtime=0),
    ),
    ".xz": Compression(
        re.compile(rb"\xfd7zXZ\0"),
        partial(_read_streams, lzma.LZMADecompressor),
        partial(lzma.LZMAFile, mode="wb"),
    ),
    # The second alternative is what an empty file becomes.
    ".bz2": Compression(
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
        partial(_read_streams, bz2.BZ2Decompressor),
        partial(bz2.BZ2File, mode="wb"),
    ),
    # The second alternative is a frame to pass over, which some programs begin with.
    ".zst": Compression(
        re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"),
        partial(zstd.ZstdFile, options=_LONG),
        partial(zstd.ZstdFile, mode="wb", options={zstd.CompressionParameter.checksum_flag: 1}),
    ),
}
"""The compressions by the endings of names."""


def find_compression(start: bytes) -> Compression | None:
    """Return the compression of a file, given its first bytes; None for any other file."""
    return next((each for each in COMPRESSIONS.values() if each.magic.match(start)), None)


def is_named_compressed(path: Path) -> bool:
    """Return whether the ending of a name shows a compressed file."""
    return path.suffix.lower() in COMPRESSIONS
