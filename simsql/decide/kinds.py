"""Kinds of drops: in what a dropped text differs from the one that is kept in its favour."""

import re
from collections.abc import Collection
from enum import StrEnum
from hashlib import blake2b
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from simsql.decide.documents import I64
from simsql.decide.rules import Protected


class Kind(StrEnum):
    """What a dropped text has in common with the kept one; the first of these that is true."""

    IDENTICAL = "identical"
    """The text."""
    SAME_WORDS = "same words"
    """The words: signs, case, punctuation or white space differ."""
    NUMBERS = "numbers"
    """All but digits."""
    SIMILAR = "similar"
    """Most words."""


DIGESTS = 3
"""How many digests a text has: see `digests_of`."""

_ASCII_DIGITS, _DIGITS = b"0123456789", re.compile(r"\d")
# The first bytes in UTF-8 of the digits of other scripts.
_OTHERS = b"\xd9\xdb\xdf\xe0\xe1\xea\xef\xf0"
_PROTECTED = {
    Protected.NUMBERS: r"\d+",
    Protected.SYMBOLS: r"""[^\w\s.,;:!?'"()\[\]\u2010-\u201f\u2026\xab\xbb]""",
}


def digests_of(text: str, protected: Collection[Protected] = ()) -> tuple[int, int, int]:
    """Return digests of a text, of the text without digits, and of what is protected in it.

    They are in [-2 ** 63, 2 ** 63). The first two, of 32 bits, only name the kind of a drop.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) == len(data.translate(None, _OTHERS)):
        others = data.translate(None, _ASCII_DIGITS)
    else:
        others = _DIGITS.sub("", text).encode("utf-8", "surrogatepass")
    if not protected:
        return crc32(data), crc32(others), 0
    kept = "\n".join(re.findall("|".join(_PROTECTED[each] for each in sorted(protected)), text))
    digest = blake2b(kept.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return crc32(data), crc32(others), int.from_bytes(digest, "big", signed=True)


def kinds_of(digests: I64, kept: I64, same_words: NDArray[np.bool_]) -> NDArray[np.object_]:
    """Return the kind of each document that is dropped, and None for the others.

    `digests` has a row of `digests_of` for each document, `kept` is as in `Verdicts`, and `same_words` is whether
    both have the same words.
    """
    same_text, same_others = (digests[:, at] == digests[kept, at] for at in (0, 1))
    found = np.full(len(kept), Kind.SIMILAR, dtype=object)
    found[same_others] = Kind.NUMBERS
    found[same_words] = Kind.SAME_WORDS
    found[same_text & same_others] = Kind.IDENTICAL
    found[kept == np.arange(len(kept))] = None
    return found
