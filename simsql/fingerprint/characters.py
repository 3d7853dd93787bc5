"""What each character is: its class, which makes the tokens, and its normal form.

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

Most characters have a normal form of one character whatever stands beside them, so that a table gives it to whole
arrays; only texts with other ones are normalised by `unicodedata`.
"""

import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from string import ascii_letters, digits

import numpy as np
from numpy.typing import NDArray

# Classes. EMOJI and those above start a token of their own with every character that is no mark.
SEPARATOR, DROPPED, MARK, WORD, EMOJI, SINGLE, CUT_2, CUT_4 = range(8)
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
# Blocks of characters of one category, or not assigned, that are their own normal forms.
_UNIFORM = {
    range(0x3400, 0x4DC0): b"Lo",  # Han
    range(0x4E00, 0xA000): b"Lo",
    range(0xAC00, 0xD7A4): b"Lo",  # Hangul syllables
    range(0xD800, 0xE000): b"Cs",
    range(0xE000, 0xF900): b"Co",
    range(0x20000, 0x2F800): b"Lo",
    range(0x2FA20, 0xE0000): b"Lo",
    range(0xE0200, 0x110000): b"Co",
}
# All the other blocks.
_TABLED = (
    range(0x3400),
    range(0x4DC0, 0x4E00),
    range(0xA000, 0xAC00),
    range(0xD7A4, 0xD800),
    range(0xF900, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE0200),
)
# Hangul vowels and finals, which compose with what is before them by rule.
_JAMO = (range(0x1161, 0x1176), range(0x11A8, 0x11C3))

# A character of the table whose normal form depends on its neighbours, or is of several characters.
CONTEXT = 0x80
CLASS = 0x7F
CHARACTER_SHIFT = np.uint32(8)

# Characters that are looked at together in search of a place to cut.
_WINDOW = 1 << 10
# Some characters that a sigma does not look past: letters and digits of ASCII, Han.
_FIRM = np.concatenate([np.frombuffer((digits + ascii_letters).encode(), "u1"), np.arange(0x4E00, 0x9FFF)])

# Punctuation with an ASCII form that composes with nothing.
_FULL_WIDTH = [("\u3000", " "), *((chr(ord(narrow) + 0xFEE0), narrow) for narrow in "!(),:;?")]


def normalise(text: str) -> str:
    """Return the normal form of a text, whose class and bytes make the tokens."""
    if not unicodedata.is_normalized("NFKC", text):
        # Nearly every Chinese text has these, and few anything else for which NFKC would have to work.
        for wide, narrow in _FULL_WIDTH:
            text = text.replace(wide, narrow)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@cache
def character_table() -> NDArray[np.uint32]:
    """Return, for each code point, its normal form and class, as normal form << 8 | CONTEXT or 0 | class.

    The form of a separator is a space. With CONTEXT, form and class are those of the character itself: what holds
    for it in a text that is in normal form. Built at the first text that is not ASCII.
    """
    classes = class_table()
    points = np.arange(len(classes), dtype=np.uint32)
    points[classes == SEPARATOR] = ord(" ")
    table = points << CHARACTER_SHIFT | classes

    tabled = [chr(point) for block in _TABLED for point in block]
    joined = "\0".join(tabled[1:])
    normal = ["\0", *normalise(joined).split("\0")]
    decomposed = ["\0", *unicodedata.normalize("NFKD", joined).split("\0")]
    joins = _joining()
    for character, form, parts in zip(tabled, normal, decomposed, strict=True):
        if form == character == parts and character not in joins and not unicodedata.combining(character):
            continue
        table[ord(character)] = _entry(character, form, parts, joins, classes)
    return table


def _entry(character: str, form: str, parts: str, joins: frozenset[str], classes: NDArray[np.uint8]) -> int:
    """Return the entry of a character with this normal form and this compatibility decomposition."""
    found = set(classes[[ord(part) for part in form]].tolist())
    alone = character not in joins and parts[0] not in joins and form[0] not in joins
    starter = not (unicodedata.combining(parts[0]) or unicodedata.combining(form[0]))
    if alone and found == {DROPPED}:
        # Marks that compose with nothing are dropped, in whatever order they stand.
        return DROPPED
    if alone and starter and classes[ord(form[0])] == SEPARATOR and found <= {SEPARATOR, DROPPED}:
        return ord(" ") << int(CHARACTER_SHIFT) | SEPARATOR
    if alone and starter and len(form) == 1:
        return ord(form) << int(CHARACTER_SHIFT) | int(found.pop())
    kind = int(classes[ord(character)])
    own = " " if kind == SEPARATOR else character
    return ord(own) << int(CHARACTER_SHIFT) | CONTEXT | kind


def _joining() -> frozenset[str]:
    """Return the characters that may compose with the one before them."""
    second = {chr(point) for block in _JAMO for point in block}
    for block in _TABLED:
        for character in map(chr, block):
            parts = unicodedata.decomposition(character).split()
            if len(parts) == 2 and not parts[0].startswith("<"):
                second.add(chr(int(parts[1], 16)))
    return frozenset(second)


@cache
def class_table() -> NDArray[np.uint8]:
    """Return the class of every code point."""
    category = np.empty(sys.maxunicode + 1, dtype="S2")
    for block, uniform in _UNIFORM.items():
        category[block.start : block.stop] = uniform
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


# Cutting a text


def spell(points: NDArray[np.uint32]) -> str:
    """Return the text of these code points, which may be halves of characters."""
    return points.astype("<u4", copy=False).tobytes().decode("utf-32-le", "surrogatepass")


def cut_text(text: str, start: int, end: int, size: int, *, lower: bool = False) -> Iterator[str]:
    """Cut what stands between two places of a text, in pieces of at most so many characters where that can be.

    The normal forms of the pieces, one after the other, are the normal form of the whole, and no piece but the
    first begins with a mark or with what is dropped: before such characters and those whose form depends on their
    neighbours nothing is cut, however many they are. With `lower`, so are the pieces in lower case.
    """
    while end - start > size:
        cut = _find_cut(text, start, start + size, end, lower=lower)
        yield text[start:cut]
        start = cut
    yield text[start:end]


def _find_cut(text: str, start: int, about: int, end: int, *, lower: bool) -> int:
    """Return the last place up to `about` where a text can be cut, or the first one after it, or the end."""
    high = about + 1
    while high > start + 1:
        low = max(start + 1, high - _WINDOW)
        places = _cuts_in(text, low, high, lower=lower)
        if len(places):
            return int(places[-1])
        high = low
    for low in range(about + 1, end, _WINDOW):
        places = _cuts_in(text, low, min(low + _WINDOW, end), lower=lower)
        if len(places):
            return int(places[0])
    return end


def _cuts_in(text: str, low: int, high: int, *, lower: bool) -> NDArray[np.intp]:
    """Return the places from `low` to before `high` in front of which a text can be cut; `low` is at least 1."""
    window = text[low - 1 : high]
    points = np.frombuffer(window.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    entries = character_table()[points]
    can = entries & np.uint32(CONTEXT) == 0
    for classes in (entries & np.uint32(CLASS), class_table()[points]):
        can &= (classes != DROPPED) & (classes != MARK)
    if lower:
        # A sigma at the end of a word has another lower case than one with a letter before and after it, and
        # apostrophes, points and marks in between do not count.
        space = np.fromiter(map(str.isspace, window), dtype=bool, count=len(window))
        firm = space | np.isin(points, _FIRM)
        can[1:] &= space[1:] | firm[1:] & firm[:-1]
    return np.flatnonzero(can[1:]) + low
