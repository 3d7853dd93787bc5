"""The compressions of files: gzip, xz, bzip2 and Zstandard."""

import bz2
import gzip
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


def _open_to_the_end(open_file: Callable[[Any], Any], file: Any) -> Any:
    # Without an attribute that is not public, both take a file for complete where a stream begins with damage.
    opened = open_file(file)
    opened._buffer.raw._trailing_error = ()
    return opened


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
        re.compile(rb"\xfd7zXZ\0"), partial(_open_to_the_end, lzma.LZMAFile), partial(lzma.LZMAFile, mode="wb")
    ),
    # The second alternative is what an empty file becomes.
    ".bz2": Compression(
        re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
        partial(_open_to_the_end, bz2.BZ2File),
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
