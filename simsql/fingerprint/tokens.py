"""Normalise texts of any script and find their tokens, whole batches at a time.

Normalisation is Unicode's NFKC_Casefold but for what it ignores: NFKC, casefold, NFKC again. Composed and
decomposed forms, full and half width, ligatures and letter case do not count; é, й, ё, ü and the tones of
Vietnamese, which have composed forms, do.

Every character of the result then has one class:

- **dropped**: marks that writers may leave out, and what cannot be seen: Arabic, Hebrew and Syriac points,
  tatweel, U+0300-036F where NFKC found no composed form, variation selectors, format characters (category Cf:
  zero-width joiners, bidi marks, soft hyphens).
- **mark**: every other combining mark. It belongs to the character before it: the vowel signs of Indic and
  South-East Asian scripts and the voiced marks of kana tell words apart.
- **word**: letters, digits and other numbers; also private and unassigned characters, so that a script newer
  than this Python's Unicode tables has tokens all the same. A run of them is a token.
- **cut**: letters of scripts that put no spaces between words. A run of them is cut into overlapping runs of
  two characters (Han, kana, Bopomofo, Yi, Tangut, Nushu, Khitan), as Lucene's CJKAnalyzer does, or of four
  (Thai, Lao, Myanmar, Khmer and the Tai scripts, whose characters say less); a shorter run is one token.
  Korean has spaces, Tibetan a tsheg after each syllable: words.
- **emoji**: pictographic symbols, a token each.
- **separator**: all else: punctuation, `_`, symbols, spaces, control characters such as NUL, lone surrogates.

Fingerprints of assigned characters do not depend on the version of Python: their normal forms are stable by
Unicode's policy, and a category hardly ever changes.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.hashes import I64, U64, hash_spans
from simsql.fingerprint.recipe import TokenKind

# Classes. EMOJI and those above start a token of their own with every character that is no mark.
SEPARATOR, DROPPED, MARK, WORD, EMOJI, SINGLE, CUT_2, CUT_4 = range(8)
# How many characters a token of each class has; a run of WORD counts as one.
_WIDTH = np.array([0, 0, 0, 1, 1, 1, 2, 4])

_OF_CATEGORY = {"L": WORD, "N": WORD, "M": MARK, "Z": SEPARATOR, "P": SEPARATOR, "S": SEPARATOR} | {
    "Cc": SEPARATOR,
    "Cs": SEPARATOR,
    "Cf": DROPPED,
    "Co": WORD,
    "Cn": WORD,
}

# (first, last) code points. Combining marks (category Mn) there are optional.
_OPTIONAL_MARKS = [
    (0x0300, 0x036F),
    (0x0591, 0x05C7),  # Hebrew
    (0x0610, 0x06ED),  # Arabic
    (0x0711, 0x074A),  # Syriac
    (0x0898, 0x08FF),  # Arabic Extended-A and -B
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0xFE00, 0xFE0F),  # variation selectors
    (0x10EFD, 0x10EFF),  # Arabic Extended-C
    (0xE0100, 0xE01EF),  # variation selectors
]
_TATWEEL = 0x0640
# Symbols (categories So and Sk, or not yet assigned) there are pictographs.
_PICTOGRAPHS = [(0x2300, 0x23FF), (0x2600, 0x27BF), (0x2B00, 0x2BFF), (0x1F000, 0x1FAFF)]
# Letters there, which UAX #14 lets a line break between, carry syllables or words.
_SYLLABLES = [
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x303C),
    (0x3041, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0xA48F),  # Han, Yi
    (0xF900, 0xFAFF),
    (0x16FE0, 0x18DFF),  # Tangut, Khitan
    (0x1AFF0, 0x1B2FF),  # kana, Nushu
    (0x20000, 0x3FFFF),
]
# Letters there (UAX #14: class SA, complex context) are parts of syllables.
_PHONEMES = [
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x1950, 0x19DF),  # Tai Le, New Tai Lue
    (0x1A20, 0x1AAF),  # Tai Tham
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAADF),  # Myanmar, Tai Viet
    (0x11700, 0x1174F),  # Ahom
]
# All characters outside these ranges are unassigned or private: words.
_TABLED = (range(0x33480), range(0xE0000, 0xE0200))

# Punctuation with an ASCII form that composes with nothing.
_FULL_WIDTH = [("\u3000", " "), *((chr(ord(narrow) + 0xFEE0), narrow) for narrow in "!(),:;?")]
# ASCII letters in lower case, digits, and NUL for all else.
_ASCII_WORDS = bytes(ord(chr(byte).lower()) if byte < 128 and chr(byte).isalnum() else 0 for byte in range(256))
# Some characters that separate tokens: where a long text may be cut without a look at its classes.
_SURE_SEPARATOR = re.compile("[\\0-/:-@[-`{-\\x7f\u3001\u3002]")
# Texts of more characters than this are tokenised in pieces, cut at separators, to bound the memory.
_PIECE = 1 << 20


class Spans(NamedTuple):
    """Tokens as spans of UTF-8: data[start:start + length]. They may overlap. `data` has a tail of zeros."""

    data: bytes
    starts: I64
    lengths: I64
    documents: I64
    """The number of tokens of each document."""


_Finder = Callable[[Sequence[str], TokenKind], Spans]


def normalise(text: str) -> str:
    """Return the normal form of a text, whose class and bytes make the tokens."""
    if not unicodedata.is_normalized("NFKC", text):
        # Nearly every Chinese text has these, and few anything else for which NFKC would have to work.
        for wide, narrow in _FULL_WIDTH:
            text = text.replace(wide, narrow)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def hash_tokens(texts: Sequence[str], kind: TokenKind) -> tuple[U64, I64]:
    """Return the hashes of the tokens of all texts, in order, and how many tokens each text has."""
    ascii_only = np.fromiter(map(str.isascii, texts), dtype=bool, count=len(texts))
    plain = [text for text in texts if text.isascii()]
    plain_hashes, plain_counts = _hash_all(plain, kind, spans_of_ascii)
    if len(plain) == len(texts):
        return plain_hashes, plain_counts
    other = [normalise(text) for text in texts if not text.isascii()]
    other_hashes, other_counts = _hash_all(other, kind, spans_of_normalised)
    # Put the two halves together in the order of the texts.
    counts = np.empty(len(texts), dtype=np.int64)
    counts[ascii_only], counts[~ascii_only] = plain_counts, other_counts
    from_plain = np.repeat(ascii_only, counts)
    hashes = np.empty(len(from_plain), dtype=np.uint64)
    hashes[from_plain], hashes[~from_plain] = plain_hashes, other_hashes
    return hashes, counts


def _hash_all(texts: Sequence[str], kind: TokenKind, find: _Finder) -> tuple[U64, I64]:
    if len(texts) == 1 and len(texts[0]) > _PIECE:
        hashes = np.concatenate([_hash(find([piece], kind)) for piece in _pieces(texts[0])])
        return hashes, np.array([len(hashes)])
    spans = find(texts, kind)
    return _hash(spans), spans.documents


def _hash(spans: Spans) -> U64:
    return hash_spans(spans.data, spans.starts, spans.lengths)


def _pieces(text: str) -> Iterator[str]:
    """Cut a text at separators, so that no token is cut, in pieces of at least _PIECE characters."""
    start = 0
    while start < len(text):
        cut = _SURE_SEPARATOR.search(text, start + _PIECE)
        end = cut.start() if cut else len(text)
        yield text[start:end]
        start = end


def spans_of_ascii(texts: Sequence[str], kind: TokenKind) -> Spans:
    """Find the tokens of ASCII texts: the bytes of runs of letters and digits, in lower case."""
    data = b"".join([b"\0", "\0".join(texts).encode("ascii").translate(_ASCII_WORDS), bytes(8)])
    word = np.frombuffer(data, dtype=np.uint8) != 0
    if kind == "characters":
        starts = np.flatnonzero(word)
        lengths = np.ones_like(starts)
    else:
        # Runs begin and end where neighbours differ: starts and ends take turns.
        edges = np.flatnonzero(word[1:] != word[:-1]) + 1
        starts = edges[0::2]
        lengths = edges[1::2] - starts
    return Spans(data, starts, lengths, np.diff(np.searchsorted(starts, _text_ends(texts)), prepend=0))


def spans_of_normalised(texts: Sequence[str], kind: TokenKind) -> Spans:
    """Find the tokens of texts in normal form, of any script."""
    joined = "\0" + "\0".join(texts) + "\0"
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    classes = _classes()[points]
    text_ends = _text_ends(texts)
    kept = classes != DROPPED
    if not kept.all():
        text_ends = np.cumsum(kept)[text_ends] - 1
        points, classes = points[kept], classes[kept]
    marks = classes == MARK
    if marks.any():
        classes = _class_with_marks(classes, marks)
    if kind == "characters":
        classes[classes >= WORD] = SINGLE

    # Cut into units: runs of one class, and within EMOJI and above single characters with their marks.
    edge = classes[1:] != classes[:-1]
    edge |= (classes[1:] >= EMOJI) & ~marks[1:]
    starts = np.flatnonzero(edge) + 1
    units = classes[starts[:-1]]
    first, last = _group_units(units)

    # From places in `points` to places in its UTF-8.
    size = np.ones(len(points), dtype=np.uint8)
    for limit in (0x80, 0x800, 0x10000):
        size += points >= limit
    byte = np.cumsum(size, dtype=np.int64) - size
    data = points.tobytes().decode("utf-32-le", "surrogatepass").encode("utf-8", "surrogatepass") + bytes(8)
    token_starts = byte[starts[first]]
    token_ends = byte[starts[last + 1]]
    counts = np.diff(np.searchsorted(starts[first], text_ends), prepend=0)
    return Spans(data, token_starts, token_ends - token_starts, counts)


def _class_with_marks(classes: NDArray[np.uint8], marks: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Give each mark the class of the character before it, or of a word where that is none."""
    before = np.maximum.accumulate(np.where(marks, 0, np.arange(len(classes))))
    classes = classes[before]
    classes[marks & (classes == SEPARATOR)] = WORD
    return classes


def _group_units(units: NDArray[np.uint8]) -> tuple[I64, I64]:
    """Return the first and the last unit of each token: as many as its class has, within one run."""
    run_starts = np.flatnonzero(units[1:] != units[:-1]) + 1
    run_starts = np.concatenate([[0], run_starts]) if len(units) else run_starts
    run_lengths = np.diff(run_starts, append=len(units))
    here = np.arange(len(units))
    run_last = np.repeat(run_starts + run_lengths - 1, run_lengths)
    last = here + _WIDTH[units] - 1
    whole = last <= run_last
    whole[run_starts] = True  # a run shorter than a token is one token
    whole &= units != SEPARATOR
    first = np.flatnonzero(whole)
    return first, np.minimum(last, run_last)[first]


def _text_ends(texts: Sequence[str]) -> I64:
    """Return where each text ends when all are joined, with one separator before each and after the last."""
    return np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)


@cache
def _classes() -> NDArray[np.uint8]:
    """Return the class of every code point. Built at the first text that is not ASCII."""
    category = np.full(sys.maxunicode + 1, b"Cn")
    for block in _TABLED:
        joined = "".join(map(unicodedata.category, map(chr, block)))
        category[block.start : block.stop] = np.frombuffer(joined.encode(), dtype="S2")
    classes = np.empty(len(category), dtype=np.uint8)
    names, kind = np.unique(category, return_inverse=True)
    classes[:] = np.array([_class_of_category(name.decode()) for name in names], dtype=np.uint8)[kind]

    def assign(blocks: list[tuple[int, int]], wanted: list[bytes], new: int) -> None:
        for first, last in blocks:
            part = slice(first, last + 1)
            classes[part][np.isin(category[part], wanted)] = new

    letters = [b"Lo", b"Lm", b"Ll", b"Lu", b"Nl"]
    assign(_OPTIONAL_MARKS, [b"Mn"], DROPPED)
    assign([(_TATWEEL, _TATWEEL)], [b"Lm"], DROPPED)
    assign(_PICTOGRAPHS, [b"So", b"Sk", b"Cn"], EMOJI)
    assign(_SYLLABLES, [*letters, b"Cn"], CUT_2)
    assign(_PHONEMES, letters, CUT_4)
    return classes


def _class_of_category(category: str) -> int:
    return _OF_CATEGORY.get(category, _OF_CATEGORY.get(category[0], SEPARATOR))
