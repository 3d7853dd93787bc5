"""The class of each character, which determines the tokens, and its normal form.

Normalisation is NFKC, casefold, and NFKC again: Unicode's NFKC_Casefold, except that no characters are ignored. So
composed and decomposed forms, full and half width, ligatures and letter case do not matter. Marks with composed
forms do, such as those of é, й, ё and ü, and the tones of Vietnamese.

Every character of the result then has one class:

- **dropped**: optional marks and invisible characters: Arabic, Hebrew and Syriac points, tatweel, U+0300-036F
  without a composed form in NFKC, variation selectors, format characters (category Cf: zero-width joiners, bidi
  marks, soft hyphens).
- **mark**: every other combining mark. It belongs to the character before it: the vowel signs of Indic and
  South-East Asian scripts and the voiced marks of kana distinguish words.
- **word**: letters, digits and other numbers; also private and unassigned characters, so that a script newer than
  this Python's Unicode tables has tokens, too. A run of them is a token.
- **cut**: letters of scripts without spaces between words. A run of them is cut into overlapping runs of two
  characters (Han, kana, Bopomofo, Yi, Tangut, Nushu, Khitan), as in Lucene's CJKAnalyzer, or of four (Thai, Lao,
  Myanmar, Khmer and the Tai scripts, whose characters carry less information). A shorter run is one token. Korean
  has spaces, and Tibetan a tsheg after each syllable, so their letters are in the class word.
- **emoji**: pictographic symbols. Each is a token.
- **separator**: everything else: punctuation, `_`, symbols, spaces, control characters such as NUL, lone
  surrogates.

Fingerprints of assigned characters do not depend on the version of Python: Unicode guarantees stable normal forms,
and categories hardly ever change.

Revision 2 of a recipe then folds letters that have several code points: each character of the normal form becomes
the one in `FOLDED`, and nothing is composed again.

The normal form of most characters is a single character, regardless of their neighbours. A table maps whole arrays
of them. Only texts with other characters are normalised by `unicodedata`.
"""

import itertools
import sys
import unicodedata
from functools import cache

import numpy as np
from numpy.typing import NDArray

# Classes. In EMOJI and those above, every character except a mark starts a token.
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
# Letters there stand for syllables or words. UAX #14 allows line breaks between them.
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
# All other blocks.
_TABLED = [
    range(before.stop, block.start)
    for before, block in itertools.pairwise([range(0), *_UNIFORM, range(sys.maxunicode + 1, sys.maxunicode + 1)])
    if before.stop < block.start
]
# Hangul vowels and finals, which compose with the character before them by rule.
_JAMO = (range(0x1161, 0x1176), range(0x11A8, 0x11C3))

# Flag of a character whose normal form depends on its neighbours or has several characters.
CONTEXT = 0x80
CLASS = 0x7F
CHARACTER_SHIFT = np.uint32(8)

# What revision 2 folds: letters that people type with several code points, which look alike or are taken for one
# another, and the one that stands for all. ASCII does not change. Sources: The Unicode Standard 16, sections 6.2
# (apostrophes), 7.1 (cedilla and comma below) and 9.2 (Arabic); CLDR, collation/fa.xml (alef, yeh, kaf, heh).
FOLDED: dict[int, int] = {
    ord(letter): ord(target)
    for letters, targets in [
        # Romanian with a comma below, or with the cedilla of older keyboards, which is right in Turkish.
        ("\u0218\u0219\u021a\u021b", "\u015e\u015f\u0162\u0163"),
        # Modifier letters beside apostrophes, which separate words: Hawaiian, Ukrainian, Uzbek; the saltillo.
        ("\u02b9\u02bb\u02bc\u02bd\u02be\u02bf\ua78b\ua78c", "'" * 8),
        # Arabic: alef with madda, hamza above, hamza below and wasla is alef; alef maksura and Farsi yeh are yeh.
        ("\u0622\u0623\u0625\u0671\u0649\u06cc", "\u0627\u0627\u0627\u0627\u064a\u064a"),
        # Keheh is kaf; the hehs of Persian and Urdu, with hamza or not, are heh; teh marbuta goal is teh marbuta.
        ("\u06a9\u06c0\u06c1\u06c2\u06c3", "\u0643\u0647\u0647\u0647\u0629"),
        # The digits of Persian and Urdu are those of Arabic.
        (
            "\u06f0\u06f1\u06f2\u06f3\u06f4\u06f5\u06f6\u06f7\u06f8\u06f9",
            "\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669",
        ),
    ]
    for letter, target in zip(letters, targets, strict=True)
}

# Punctuation with an ASCII form that composes with nothing.
_FULL_WIDTH = [("\u3000", " "), *((chr(ord(narrow) + 0xFEE0), narrow) for narrow in "!(),:;?")]


def normalise(text: str) -> str:
    """Return the normal form of a text, which determines its tokens."""
    if not unicodedata.is_normalized("NFKC", text):
        # Nearly every Chinese text contains these, and few contain anything else that NFKC would change.
        for wide, narrow in _FULL_WIDTH:
            text = text.replace(wide, narrow)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@cache
def character_table(revision: int) -> NDArray[np.uint32]:
    """Return, for each code point, its normal form and class, as normal form << 8 | CONTEXT or 0 | class.

    The form of a separator is a space. With CONTEXT, form and class are those of the character itself, which are
    right in a text in normal form. In revision 2, forms are folded. The table is built for the first text that is
    not ASCII.
    """
    if revision > 1:
        table = character_table(1).copy()
        points = table >> CHARACTER_SHIFT
        for letter, target in FOLDED.items():
            table[points == letter] = table[target]
        return table
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
        # Marks that compose with nothing are dropped, in any order.
        return DROPPED
    if alone and starter and classes[ord(form[0])] == SEPARATOR and found <= {SEPARATOR, DROPPED}:
        return ord(" ") << int(CHARACTER_SHIFT) | SEPARATOR
    if alone and starter and len(form) == 1:
        return ord(form) << int(CHARACTER_SHIFT) | int(found.pop())
    kind = int(classes[ord(character)])
    own = " " if kind == SEPARATOR else character
    return ord(own) << int(CHARACTER_SHIFT) | CONTEXT | kind


def _joining() -> frozenset[str]:
    """Return the characters that can compose with the character before them."""
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
    found = (_OF_CATEGORY.get(name, _OF_CATEGORY.get(name[0], SEPARATOR)) for name in map(bytes.decode, names))
    classes[:] = np.array(list(found), dtype=np.uint8)[kind]

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


def spell(points: NDArray[np.uint32]) -> str:
    """Return the text of these code points, which may be halves of characters."""
    return points.astype("<u4", copy=False).tobytes().decode("utf-32-le", "surrogatepass")
