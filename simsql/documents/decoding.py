"""Detect whether bytes are text, and decode them.

`decode_text` decodes a whole file, and `RecordBytes` a file of records line by line.
"""

import codecs
import io
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from simsql.documents.compression import READ_ERRORS
from simsql.documents.guessing import choose_encoding, find_utf16, is_like_utf8, whole_characters
from simsql.documents.kinds import find_kind

SAMPLE = 1 << 16
"""Number of bytes at the start of a file that decide its type."""

DETECT = "detect"
"""In place of an encoding: guess that of a file that is not UTF-8."""

MAX_DOCUMENT = 100 << 20
"""Default limit for the size of a document, in bytes."""

_CHUNK = 1 << 18
_LONGEST_MAGIC = 10  # bytes at the start of compressed data
# How far to look for bytes that tell an encoding.
_LOOKED_AT = 1 << 20

# The C0 controls that occur in real texts are left out: \b \t \n \v \f \r and escape (colours of a terminal).
_CONTROLS = bytes({*range(32), 0x7F} - set(b"\b\t\n\v\f\r\x1b"))

# Decoding as UTF-8, -16 or -32 succeeds by chance so rarely that many controls are forgiven afterwards. Every
# other encoding accepts (nearly) any bytes, and a failure to decode says nothing either way: controls decide.
_MANY_CONTROLS = 0.30
_FEW_CONTROLS = 0.05

# UTF-32 before UTF-16: the little-endian mark of the first begins with the mark of the second.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

# In ASCII, it makes the bytes after it characters of two bytes each.
_ISO_2022 = b"\x1b$"

_BIG_ENDIAN = (codecs.BOM_UTF32_BE, codecs.BOM_UTF16_BE)

# Replaces undecodable bytes in a line until their record is known and skipped. No decoder of a real encoding
# produces a lone surrogate by itself, so finding one is proof.
UNDECODABLE = "\udcff"
_MARK_UNDECODABLE = "simsql.undecodable"
codecs.register_error(_MARK_UNDECODABLE, lambda error: (UNDECODABLE, error.end))  # type: ignore[attr-defined]


CORRUPT = "corrupt"
"""The reason to skip a file, or a part of it, because of damage that may cost any number of records."""


class UnfitError(Exception):
    """Raised for data that is not a document, with the reason and the detail of a `Skip`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class Stream(io.BufferedIOBase):
    """Bytes whose start can be inspected before they are read.

    An error of the source is raised only after all bytes before it have been read, so looking ahead loses nothing
    of a file that is damaged further on.
    """

    def __init__(self, source: Any, advance: Callable[[int], None] | None = None) -> None:
        # `read` of a decompressor gathers many reads, and loses what it has gathered when a later one fails.
        self._fetch = getattr(source, "read1", source.read)
        self.source = source
        self._advance = advance or (lambda _: None)
        self._head: deque[bytes] = deque()  # read, but not consumed
        self._error: Exception | None = None
        self.guess = ""
        """The encoding that `check_start` has chosen for `DETECT`."""
        self._has_ended = False

    def ahead(self) -> Iterator[bytes]:
        """Yield all bytes piece by piece, as they are read, without consuming them."""
        place = 0
        while True:
            if place == len(self._head):
                try:
                    data = b"" if self._error else self._take(SAMPLE)
                except READ_ERRORS as error:
                    self._error = error
                    return
                if not data:
                    return
                self._head.append(data)
            yield self._head[place]
            place += 1

    def sample(self, size: int = SAMPLE) -> bytes:
        """Return the first `size` bytes, or all if there are fewer, without consuming them."""
        parts: list[bytes] = []
        left = size
        for part in self.ahead():
            parts.append(part[:left])
            left -= len(parts[-1])
            if not left:
                break
        if not parts and self._error is not None:
            raise self._error
        return b"".join(parts)

    def readable(self) -> bool:
        """Return True: `io` asks before it reads."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes with one read of the source; b"" at the end."""
        if size < 0:
            size = _CHUNK
        if self._head:
            data = self._head.popleft()
            if len(data) > size:
                self._head.appendleft(data[size:])
            return data[:size]
        if self._error is not None:
            raise self._error
        return self._take(size)

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the rest, or up to `size` bytes."""
        if size is None or size < 0:
            return b"".join(iter(self.read1, b""))
        return self.read1(size)

    def _take(self, size: int) -> bytes:
        data: bytes = b"" if self._has_ended else self._fetch(size)
        self._has_ended = self._has_ended or (not data and size > 0)
        self._advance(len(data))
        return data


def decode_text(stream: Stream, encoding: str, limit: int) -> str:
    """Return the text of a whole file. Raise UnfitError if it is not text or exceeds `limit` bytes."""
    encoding = check_start(stream, encoding)
    data = read_document(stream, limit)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise undecodable(encoding, f"byte {_offset(data, error)}", bytes(data[:_LOOKED_AT])) from None


def read_document(source: Any, limit: int) -> bytearray:
    """Return the rest of a source. Raise UnfitError if it exceeds `limit` bytes."""
    data = bytearray()
    while part := source.read(_CHUNK):
        data += part
        if len(data) > limit:
            raise too_long(limit)
    return data


def too_long(limit: int) -> UnfitError:
    """Return the error for a document of more than `limit` bytes."""
    size, units = limit, ["bytes", "kB", "MB", "GB", "TB"]
    while size % 1024 == 0 and len(units) > 1:
        size //= 1024
        del units[0]
    return UnfitError("too long", f"longer than {size:,} {units[0]} (--max-document)")


def cut_off(inside: str) -> UnfitError:
    """Return the error for the last line of a file, which ends inside something."""
    return UnfitError(CORRUPT, f"the file ends within {inside}: it is cut off; 1 line is lost, and all behind it")


def check_plain(sample: bytes) -> None:
    """Raise UnfitError for a file that is not compressed, although its name says so, unless it begins as UTF-8."""
    if sample and (len(sample) < _LONGEST_MAGIC or _control_share(sample, 1) or not is_like_utf8(sample)):
        raise UnfitError(CORRUPT, "its name says that it is compressed, but it does not begin like that")


def check_start(stream: Stream, encoding: str, *, is_records: bool = False) -> str:
    """Return the encoding of a file, a guess for `DETECT`. Raise UnfitError if it does not begin as text."""
    sample = stream.sample()
    if not sample:
        raise UnfitError("empty", "the file is empty")
    if encoding == DETECT:
        if not stream.guess:
            data = stream.sample(_LOOKED_AT)
            stream.guess = _detect(data if len(data) < _LOOKED_AT else whole_characters(data))
        encoding = stream.guess
    encoding = _mark_of(sample)[1] or encoding
    if find_kind(sample).like_text:
        raise not_text(sample)
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        # It may end inside a character.
        text = decoder.decode(sample, final=len(sample) < SAMPLE)
    except UnicodeDecodeError as error:
        # Legacy texts hold no NUL. Half of the bytes of UTF-16 may be controls, which prove nothing.
        odd = _control_share(sample, len(sample)) > _FEW_CONTROLS or (b"\0" in sample and not is_records)
        if odd and not _is_wide(encoding):
            raise not_text(sample) from None
        if not is_records:  # a few bad lines of records are skipped one by one
            raise undecodable(encoding, f"byte {_offset(sample, error)}", sample) from None
        return encoding
    # In UTF-8 every control is one byte, whatever the file's own encoding is.
    share = _control_share(text.encode("utf-8", "surrogatepass"), len(text))
    if share > (_MANY_CONTROLS if encoding.startswith("utf") else _FEW_CONTROLS):
        raise not_text(sample)
    return encoding


def decode_start(stream: Stream, encoding: str, size: int) -> str:
    """Return the text at the start of a file of records; nothing if it is none."""
    sample = stream.sample(size)
    try:
        return sample.decode(check_start(stream, encoding, is_records=True), "ignore")
    except (UnfitError, UnicodeError):
        return ""


class _AsUtf8(io.RawIOBase):
    """Text as UTF-8."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while not self._left and (text := next(self._pieces, "")):
            self._left = text.encode("utf-8", "surrogatepass")
        size = min(len(target), len(self._left))
        target[:size], self._left = self._left[:size], self._left[size:]
        return size


class RecordBytes:
    """The bytes of a file of records in an encoding in which lines can be cut: its own, or else UTF-8.

    Raises UnfitError if the file is not text.
    """

    def __init__(self, stream: Stream, encoding: str) -> None:
        self.encoding = check_start(stream, encoding, is_records=True)
        """As the user knows it."""
        self._mark = _mark_of(stream.sample())[0]
        stream.read1(len(self._mark))
        self._stream = stream
        self._own = self.encoding.removesuffix("-sig")
        if self._own in ("utf-16", "utf-32"):
            is_big = self._mark in _BIG_ENDIAN if self._mark else sys.byteorder == "big"
            self._own += "-be" if is_big else "-le"
        self._can_be_cut = _extends_ascii(self._own)
        source: Any = stream if self._can_be_cut else _AsUtf8(self.chunks())
        self.file = io.BufferedReader(source, _CHUNK)
        self._decoding = (self._own, _MARK_UNDECODABLE) if self._can_be_cut else ("utf-8", "surrogatepass")
        self.has_end = True
        """Whether the last line of `lines` has a line end."""

    def decode(self, line: bytes | bytearray) -> str:
        """Return a line of `file` as text, with `UNDECODABLE` in place of invalid bytes."""
        return line.decode(*self._decoding)

    def lines(self, limit: int) -> Iterator[str | UnfitError]:
        """Yield lines without their line ends; an error for one that is damaged or exceeds `limit` bytes.

        Only a line feed ends a line: the other line ends of Unicode may stand inside a JSON string.
        """
        encoding, errors = self._decoding
        readline = self.file.readline
        while line := readline(limit + 2):
            self.has_end = line.endswith(b"\n")
            line = line[: -1 - line.endswith(b"\r\n")] if self.has_end else line.removesuffix(b"\r")
            if len(line) <= limit:
                text = line.decode(encoding, errors)
                del line  # which may be long
                yield self.checked(text, has_end=self.has_end)
                del text
                continue
            while not self.has_end and (more := self.file.readline(_CHUNK)):
                line, self.has_end = line[-4:] + more, more.endswith(b"\n")
            is_cut = not self.has_end and line.endswith(UNDECODABLE.encode("utf-8", "surrogatepass"))
            yield cut_off("a character") if is_cut else too_long(limit)

    def chunks(self) -> Iterator[str]:
        """Yield the text piece by piece instead, with `UNDECODABLE` in place of invalid bytes."""
        return codecs.iterdecode(iter(self._stream.read1, b""), self._own, _MARK_UNDECODABLE)

    def checked(self, text: str, *, has_end: bool = True) -> str | UnfitError:
        """Return a text, or the error for one with invalid bytes."""
        if not has_end and text.endswith(UNDECODABLE):
            # If bytes of UTF-16 are missing anywhere, all that follows is in the last line.
            return cut_off("a character")
        if UNDECODABLE in text:
            return undecodable(self.encoding, f"column {text.index(UNDECODABLE) + 1}")
        return text

    def size_of(self, text: str) -> int:
        """Return the size of a text in bytes."""
        return len(text.encode(self._own, "replace"))

    def copy_to(self, target: Any) -> Any:
        """Write the byte order mark, and return what takes the bytes of `file` that are copied.

        Raises UnfitError for an encoding that may have several bytes for the same text, now or later for damage.
        """
        if not self._can_be_cut and not _is_wide(self._own):
            raise UnfitError("encoding", f"convert it from {self.encoding} to UTF-8 first")
        target.write(self._mark)
        return target if self._can_be_cut else _Encoder(target, self._own)

    def encode(self, text: str) -> bytes:
        """Return a text in the encoding of the file."""
        return text.encode(self._own)


class _Encoder:
    def __init__(self, target: Any, encoding: str) -> None:
        self._target = target
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def write(self, data: bytes) -> None:
        try:
            self._target.write(self._decoder.decode(data).encode(self._encoding))
        except UnicodeDecodeError:  # of what stands for invalid bytes
            detail = f"it is damaged, or not all of it is {self._encoding}"
            raise UnfitError(f"not {self._encoding}", detail) from None


@cache
def _extends_ascii(encoding: str) -> bool:
    """Return whether bytes below 128 are ASCII, and nothing is shifted: line ends have bytes of their own."""
    plain = bytes(range(128)).replace(b"\\", b"")
    try:
        return plain.decode(encoding) == plain.decode("ascii") and not encoding.startswith("iso2022")
    except UnicodeError:
        return False


def undecodable(encoding: str, position: str, data: bytes | None = None) -> UnfitError:
    """Return the error for bytes that the encoding does not allow. `data` tells whether it can be guessed."""
    encoding = encoding.removesuffix("-sig")
    advice = "if you know which, name it with --encoding"
    if data and encoding == "utf-8" and _detect(data) != encoding:
        advice = f"--encoding {DETECT} guesses it, --encoding NAME sets it"
    what = f"{position} is not {encoding}: the file is damaged or in another encoding; {advice}"
    return UnfitError(f"not {encoding}", what)


def _detect(data: bytes) -> str:
    """Return UTF-8 or a guess: UTF-8, too, if no guess is safe, or if this is not a text."""
    share = _control_share(data, len(data))
    if _mark_of(data)[0] or (share <= _MANY_CONTROLS and is_like_utf8(data) and _ISO_2022 not in data):
        return "utf-8"
    if b"\0" in data:  # other legacy texts hold none
        return find_utf16(data) or "utf-8"
    return (share <= _FEW_CONTROLS and choose_encoding(data)) or "utf-8"


def _mark_of(sample: bytes) -> tuple[bytes, str]:
    """Return the byte order mark at the start of a file and its encoding; nothing without one."""
    # No text in another encoding begins with the characters that these bytes would be.
    return next((found for found in _BYTE_ORDER_MARKS if sample.startswith(found[0])), (b"", ""))


def _is_wide(encoding: str) -> bool:
    """Return whether half of the bytes of any text are controls, so that they prove nothing."""
    return encoding.startswith(("utf-16", "utf-32"))


def _control_share(data: bytes, characters: int) -> float:
    return (len(data) - len(data.translate(None, _CONTROLS))) / max(characters, 1)


def not_text(sample: bytes) -> UnfitError:
    """Return the error for a file of another kind, given its start."""
    kind = find_kind(sample)
    if kind.name == "binary" and (encoding := find_utf16(sample)):
        return UnfitError("UTF-16", f"without a byte order mark: read it with --encoding {encoding} or {DETECT}")
    return UnfitError(kind.name, kind.advice)


def _offset(data: bytes | bytearray, error: UnicodeDecodeError) -> int:
    """Return the offset where decoding failed, including a byte order mark that the error does not count."""
    return len(data) - len(error.object) + error.start
