"""Find words in the UTF-8 of texts that are mostly ASCII, whole batches at a time.

Letters and digits of ASCII are found by comparing bytes. Only the few other characters are decoded and looked up
in the table of normal forms. Letters are replaced where they are: most normal forms have as many bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.positions import consecutive
from simsql.fingerprint.characters import CHARACTER_SHIFT, DROPPED, EMOJI, SEPARATOR, WORD, character_table
from simsql.fingerprint.hashes import I64, U64, hash_spans

# The one frequent letter whose normal form has two: they are "ss", whatever is around it.
_SHARP_S = 0xDF
# The classes of characters that are replaced, with a flag that is set if their form depends on their neighbours.
_REPLACED = np.isin(np.arange(256), [DROPPED, WORD, EMOJI])

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
Bools = NDArray[np.bool_]


class TokenLists(NamedTuple):
    """The hashes of the tokens of texts, text after text."""

    hashes: U64
    counts: I64
    """The number of tokens of each text."""


class Spans(NamedTuple):
    """Tokens as spans of UTF-8: data[start:start + length]. They may overlap. `data` has 8 more bytes."""

    data: bytes | U8
    starts: I64
    lengths: I64
    documents: I64
    """The number of tokens of each document."""

    def hash(self) -> TokenLists:
        """Hash the tokens."""
        return TokenLists(hash_spans(self.data, self.starts, self.lengths), self.documents)


def text_ends(texts: Sequence[str] | Sequence[bytes]) -> I64:
    """Return the end of each text after all are joined, with a separator before each and after the last."""
    return np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)


def count_tokens(starts: I64, ends: I64) -> I64:
    """Return the number of tokens of each text, from the starts of all tokens and the ends of the texts."""
    return np.diff(np.searchsorted(starts, ends), prepend=0)


def runs(inside: Bools) -> tuple[I64, I64]:
    """Return the starts and ends of runs of true values. The first and the last value must be false."""
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    edges += 1
    return edges[0::2], edges[1::2]


def words_of_ascii(data: U8) -> tuple[U8, Bools]:
    """Return ASCII in lower case, and which bytes are letters and digits. Other bytes are changed at will."""
    lower = data | np.uint8(0x20)
    word = lower - np.uint8(ord("a")) < 26
    word |= data - np.uint8(ord("0")) < 10
    return lower, word


def hash_mostly_ascii(encoded: Sequence[bytes], revision: int) -> tuple[TokenLists, Bools]:
    """Return the words and emoji of texts in UTF-8, and which texts have nothing else; the others get no tokens.

    These have characters whose normal form depends on their neighbours or takes more bytes than they do, marks, or
    letters of scripts without spaces.
    """
    data = np.frombuffer(b"\0".join([b"", *encoded, bytes(8)]), dtype=np.uint8)
    ends = text_ends(encoded)
    octets, word = words_of_ascii(data)
    usual = np.ones(len(encoded), dtype=bool)
    (places,) = np.nonzero(data >= 0xC0)
    emoji = emoji_sizes = np.zeros(0, dtype=np.int64)
    if len(places):
        points, sizes = _decode(data, places)
        entries = character_table(revision).take(points)
        classes = entries.astype(np.uint8)
        classes[points == _SHARP_S] = WORD
        (here,) = np.nonzero(classes != SEPARATOR)
        places, points, sizes, classes = places[here], points[here], sizes[here], classes[here]
        forms, form_sizes = utf8_words(entries[here] >> CHARACTER_SHIFT)
        forms[points == _SHARP_S] = int.from_bytes(b"ss")
        form_sizes[classes == DROPPED] = 0
        refused = (form_sizes > sizes) | ~_REPLACED[classes]
        if refused.any():
            usual[np.searchsorted(ends, places[refused])] = False
            for text in np.flatnonzero(~usual).tolist():
                word[ends[text] - len(encoded[text]) : ends[text]] = False
            replaced = usual[np.searchsorted(ends, places)]
            places, sizes, classes = places[replaced], sizes[replaced], classes[replaced]
            forms, form_sizes = forms[replaced], form_sizes[replaced]
        for byte in range(int(form_sizes.max(initial=0))):
            long = form_sizes > byte
            at = places[long] + byte
            octets[at] = forms[long] >> np.uint64(8 * byte)
            word[at] = classes[long] == WORD
        alone = classes == EMOJI
        emoji, emoji_sizes = places[alone], form_sizes[alone]
        if (form_sizes < sizes).any():
            gone = consecutive(places + form_sizes, sizes - form_sizes)
            octets, word = np.delete(octets, gone), np.delete(word, gone)
            ends -= np.searchsorted(gone, ends)
            emoji -= np.searchsorted(gone, emoji)
    starts, stops = runs(word)
    lengths = stops - starts
    if len(emoji):
        starts, lengths = np.append(starts, emoji), np.append(lengths, emoji_sizes)
        order = np.argsort(starts, kind="stable")
        starts, lengths = starts[order], lengths[order]
    return Spans(octets, starts, lengths, count_tokens(starts, ends)).hash(), usual


def _decode(data: U8, places: I64) -> tuple[U32, I64]:
    """Return the characters that begin at these places, none of which is ASCII, and their sizes in bytes."""
    first = data[places]
    sizes = 2 + (first >= 0xE0).astype(np.int64) + (first >= 0xF0)
    points = (first & np.uint8(0x1F)).astype(np.uint32) << np.uint32(6) | data[places + 1] & np.uint8(0x3F)
    for further in (2, 3):
        (longer,) = np.nonzero(sizes > further)
        points[longer] = points[longer] << np.uint32(6) | data[places[longer] + further] & np.uint8(0x3F)
    # The upper bits of the first of four bytes say that there are four.
    points &= np.uint32(0x1FFFFF)
    return points, sizes


def utf8_words(points: U32) -> tuple[U64, I64]:
    """Return the UTF-8 of single characters as little-endian words, and their sizes in bytes."""
    sizes = np.full(len(points), 3, dtype=np.int64)
    words = points >> np.uint32(12)
    words |= np.uint32(0x8080E0)
    words |= (points & np.uint32(0xFC0)) << np.uint32(2)
    words |= (points & np.uint32(0x3F)) << np.uint32(16)
    if points.min(initial=0x800) < 0x800 or points.max(initial=0) > 0xFFFF:
        (others,) = np.nonzero((points < 0x800) | (points > 0xFFFF))
        points = points[others]
        last = points & np.uint32(0x3F)
        middle = points >> np.uint32(6) & np.uint32(0x3F)
        upper = points >> np.uint32(12) & np.uint32(0x3F)
        two = np.uint32(0x80C0) | points >> np.uint32(6) | last << np.uint32(8)
        four = np.uint32(0x808080F0) | points >> np.uint32(18) | upper << np.uint32(8) | middle << np.uint32(16)
        which = [points < 0x80, points < 0x800]
        words[others] = np.select(which, [points, two], four | last << np.uint32(24))
        sizes[others] = np.select(which, [1, 2], 4)
    return words.astype(np.uint64), sizes
