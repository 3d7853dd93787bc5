"""Guess the encoding of a text that is not UTF-8."""

import re
import unicodedata

_ENCODINGS = [
    *("cp1252", "cp1250", "iso8859_2", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
]
_SAMPLE = 1 << 14  # bytes
_BEFORE = 1 << 10  # bytes of the sample that come before the first one that tells an encoding

_PUNCTUATION = frozenset("\u00a0‘’“”„…–—«»、。，：（）；！？「」《》")
_MOST_SYMBOLS = 0.1  # of the other characters beyond ASCII

_ALL_HIGH = bytes(range(128, 256))
_HIGH = re.compile(rb"[\x80-\xff]")
# No character of many bytes has one of these.
_ALONE = re.compile(rb".*[\0-/]", re.DOTALL)


def is_like_utf8(data: bytes) -> bool:
    """Return whether most bytes beyond ASCII are UTF-8, perhaps with damage."""
    damaged = len(data) - len(data.decode("utf-8", "ignore").encode())
    return 5 * damaged <= len(data) - len(data.translate(None, _ALL_HIGH))


def whole_characters(data: bytes) -> bytes:
    """Return the start of a text without a character that is cut at its end."""
    match = _ALONE.match(data)
    return match[0] if match else data


def choose_encoding(data: bytes) -> str | None:
    """Return the most likely encoding of a text; None if letters could become symbols, which are not compared.

    Two different texts without most of their letters could be taken for duplicates. A wrong letter does no harm.
    """
    from charset_normalizer import from_bytes  # noqa: PLC0415 - most runs need it for no file

    first = _HIGH.search(data)
    start = max(first.start() - _BEFORE, 0) if first else 0
    sample = data[start : start + _SAMPLE]
    if start + _SAMPLE < len(data):
        sample = whole_characters(sample)
    best = from_bytes(sample, cp_isolation=_ENCODINGS, enable_fallback=False).best()
    if not best:
        return None
    high = [character for character in str(best) if character > "\x7f" and character not in _PUNCTUATION]
    symbols = sum(not character.isalnum() and unicodedata.category(character)[0] != "M" for character in high)
    return best.encoding if symbols <= _MOST_SYMBOLS * len(high) else None
