"""Find the tokens of texts of any script and hash them, whole batches at a time.

What a token is follows from the classes of `simsql.fingerprint.characters`. A token is known by its UTF-8 alone,
whose hash is that of `simsql.fingerprint.hashes`.

There are three ways to the same tokens. ASCII stays bytes. Other texts become arrays of code points, which a table
maps to normal forms and classes; those that turn out to be ASCII, but for quotation marks and dashes, join the
first. Where no character is a mark or of South-East Asia, tokens are runs and pairs of characters; else they are
cut out of units of one character and its marks.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.characters import (
    CHARACTER_SHIFT,
    CLASS,
    CONTEXT,
    CUT_2,
    CUT_4,
    DROPPED,
    EMOJI,
    MARK,
    SEPARATOR,
    SINGLE,
    WORD,
    character_table,
    cut_text,
    normalise,
    spell,
)
from simsql.fingerprint.hashes import I64, U64, RunningHash, hash_short, hash_spans
from simsql.fingerprint.recipe import TokenKind

# How many characters a token of each class has; a run of WORD counts as one.
_WIDTH = np.array([0, 0, 0, 1, 1, 1, 2, 4])
# Some characters that separate tokens and compose with nothing before them: where a long text may be cut.
_SURE_SEPARATOR = re.compile("[\\0-/:-@[-`{-\\x7f\u3001\u3002]")
# Texts that are not ASCII, whose arrays are larger, are tokenised so many characters at a time, in the cache.
_GROUP = 1 << 16
# Texts of more characters than this are tokenised in pieces, cut at separators where there are some, to bound the
# memory.
_PIECE = 1 << 17

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
Bools = NDArray[np.bool_]

# The hashes of the tokens of all texts, in order, and how many tokens each text has.
TokenHashes = tuple[U64, I64]


class Spans(NamedTuple):
    """Tokens as spans of UTF-8: data[start:start + length]. They may overlap. `data` goes on for 8 bytes more."""

    data: bytes | U8
    starts: I64
    lengths: I64
    documents: I64
    """The number of tokens of each document."""


def hash_tokens(texts: Sequence[str], kind: TokenKind) -> TokenHashes:
    """Return the hashes of the tokens of all texts, in order, and how many tokens each text has."""
    ascii_only = np.fromiter(map(str.isascii, texts), dtype=bool, count=len(texts))
    if ascii_only.all():
        return _hash_all(texts, kind, _hash_ascii)
    plain = _hash_all([text for text in texts if text.isascii()], kind, _hash_ascii)
    others = [text for text in texts if not text.isascii()]
    found = [_hash_all(group, kind, _hash_other) for group in _groups(others)]
    other = np.concatenate([hashes for hashes, _ in found]), np.concatenate([counts for _, counts in found])
    return _interleave(ascii_only, plain, other)


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of texts into lists of few characters each."""
    start = size = 0
    for end, text in enumerate(texts):
        if end > start and size + len(text) > _GROUP:
            yield texts[start:end]
            start, size = end, 0
        size += len(text)
    yield texts[start:]


def _hash_all(
    texts: Sequence[str], kind: TokenKind, find: Callable[[Sequence[str], TokenKind], TokenHashes]
) -> TokenHashes:
    if len(texts) == 1 and is_long(texts[0]):
        hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *iter_token_hashes(texts[0], kind)])
        return hashes, np.array([len(hashes)])
    return find(texts, kind)


def _interleave(chosen: Bools, ones: TokenHashes, others: TokenHashes) -> TokenHashes:
    """Put the tokens of two halves of the texts together, in the order of the texts."""
    counts = np.empty(len(chosen), dtype=np.int64)
    counts[chosen], counts[~chosen] = ones[1], others[1]
    from_ones = np.repeat(chosen, counts)
    hashes = np.empty(len(from_ones), dtype=np.uint64)
    hashes[from_ones], hashes[~from_ones] = ones[0], others[0]
    return hashes, counts


def is_long(text: str) -> bool:
    """Return whether a text is tokenised in pieces."""
    return len(text) > _PIECE


def iter_token_hashes(text: str, kind: TokenKind) -> Iterator[U64]:
    """Yield the hashes of the tokens of a text of any length, in order, some at a time."""
    start = 0
    while start < len(text):
        end = min(start + 2 * _PIECE, len(text))
        if end < len(text):
            cut = _SURE_SEPARATOR.search(text, start + _PIECE, end)
            if cut is None:
                cut = _SURE_SEPARATOR.search(text, end)
                end = cut.start() if cut else len(text)
                yield from _iter_unbroken(text, start, end, kind)
                start = end
                continue
            end = cut.start()
        piece = text[start:end]
        yield (_hash_ascii if piece.isascii() else _hash_other)([piece], kind)[0]
        start = end


def _iter_unbroken(text: str, start: int, end: int, kind: TokenKind) -> Iterator[U64]:
    """Yield the hashes of the tokens between two places of a text: from one sure separator to the next."""
    word: RunningHash | None = None
    for segment in iter_segments(map(_characters_of, cut_in_pieces(text, start, end)), kind):
        if segment.of_long_word:
            word = word or RunningHash()
            word.add(spell(segment.points).encode("utf-8", "surrogatepass"))
            continue
        if word:
            yield word.finish()
            word = None
        if len(segment.points):
            points, classes = segment.between_separators()
            yield _hash_points(points, classes, np.array([len(points) - 1]), kind)[0]
    if word:
        yield word.finish()


def _characters_of(piece: str) -> tuple[U32, U8]:
    points, classes, _ = _look_up([piece])
    return points[1:-1], classes[1:-1]


def _text_ends(texts: Sequence[str]) -> I64:
    """Return where each text ends when all are joined, with one separator before each and after the last."""
    return np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)


def _count(starts: I64, text_ends: I64) -> I64:
    """Return how many of the tokens that start there each text has."""
    return np.diff(np.searchsorted(starts, text_ends), prepend=0)


# ASCII


def _hash_ascii(texts: Sequence[str], kind: TokenKind) -> TokenHashes:
    joined = "\0".join(["", *texts, "\0" * 8]).encode("ascii")
    spans = spans_of_ascii(np.frombuffer(joined, dtype=np.uint8), _text_ends(texts), kind)
    return hash_spans(spans.data, spans.starts, spans.lengths), spans.documents


def spans_of_ascii(data: U8, text_ends: I64, kind: TokenKind) -> Spans:
    """Find the tokens of ASCII: runs of letters and digits. `data` begins and ends with NUL, eight at the end.

    The spans are of the same bytes in lower case.
    """
    lower = data | np.uint8(0x20)
    word = lower - np.uint8(ord("a")) < 26
    word |= data - np.uint8(ord("0")) < 10
    if kind == "characters":
        starts = np.flatnonzero(word)
        return Spans(lower, starts, np.ones_like(starts), _count(starts, text_ends))
    starts, ends = _runs(word)
    return Spans(lower, starts, ends - starts, _count(starts, text_ends))


def _runs(inside: Bools) -> tuple[I64, I64]:
    """Return where runs of true values start and end; the first and the last value are false."""
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    edges += 1
    return edges[0::2], edges[1::2]


# Other texts


def _hash_other(texts: Sequence[str], kind: TokenKind) -> TokenHashes:
    points, classes, text_ends = _look_up(texts)
    # Places of the separators around each text.
    starts = np.concatenate([[0], text_ends[:-1]])
    highest = np.maximum.reduceat(points, starts) if len(texts) else points
    plain = highest < 0x80
    if plain.all():
        return _hash_mapped(points, text_ends, kind)
    if not plain.any():
        return _hash_points(points, classes, text_ends, kind)
    of_plain = np.repeat(plain, text_ends - starts)
    # The last separator ends either half.
    of_plain, of_other = np.append(of_plain, True), np.append(~of_plain, True)
    sizes = text_ends - starts
    return _interleave(
        plain,
        _hash_mapped(points[of_plain], np.cumsum(sizes[plain]), kind),
        _hash_points(points[of_other], classes[of_other], np.cumsum(sizes[~plain]), kind),
    )


def _hash_mapped(points: U32, text_ends: I64, kind: TokenKind) -> TokenHashes:
    """Hash the tokens of texts whose normal form is ASCII."""
    data = np.zeros(len(points) + 8, dtype=np.uint8)
    data[: len(points)] = points
    spans = spans_of_ascii(data, text_ends, kind)
    return hash_spans(spans.data, spans.starts, spans.lengths), spans.documents


def _look_up(texts: Sequence[str]) -> tuple[U32, U8, I64]:
    """Return the normal forms and classes of the characters of texts, and where the texts end.

    There is a separator before each text and after the last. What is dropped is left out.
    """
    text_ends = _text_ends(texts)
    found = _entries(texts)
    in_context = np.flatnonzero(found & np.uint32(CONTEXT))
    if len(in_context):
        texts = list(texts)
        for text in np.unique(np.searchsorted(text_ends, in_context)).tolist():
            texts[text] = normalise(texts[text])
        text_ends = _text_ends(texts)
        found = _entries(texts)
    classes = found.astype(np.uint8)
    classes &= CLASS
    points = found >> CHARACTER_SHIFT
    kept = classes != DROPPED
    if not kept.all():
        places = np.flatnonzero(kept)
        text_ends = np.searchsorted(places, text_ends)
        points, classes = points.take(places), classes.take(places)
    return points, classes, text_ends


def _entries(texts: Sequence[str]) -> U32:
    joined = "\0".join(["", *texts, ""]).encode("utf-32-le", "surrogatepass")
    return character_table().take(np.frombuffer(joined, dtype="<u4"))


def _hash_points(points: U32, classes: U8, text_ends: I64, kind: TokenKind) -> TokenHashes:
    marks = classes == MARK
    if marks.any() or (kind == "words" and (classes == CUT_4).any()):
        spans = spans_of_units(points, classes, marks, text_ends, kind)
        return hash_spans(spans.data, spans.starts, spans.lengths), spans.documents
    if kind == "characters":
        starts = np.flatnonzero(classes)
        return hash_short(*utf8_words(points[starts])), _count(starts, text_ends)
    word = classes == WORD
    starts_token = word.copy()
    starts_token[1:] &= ~word[:-1]
    cut = classes == CUT_2
    cut_any = bool(cut.any())
    letters, of_run = points, word
    if cut_any:
        # Words are few where words have no spaces: each, and what ends it.
        near = word.copy()
        near[1:] |= word[:-1]
        near[0] = True
        places = np.flatnonzero(near)
        letters, of_run = points.take(places), word.take(places)
        pair = cut[:-1] & cut[1:]
        # A character between two that are not cut is a token alone.
        alone = cut[1:-1] & ~pair[:-1] & ~pair[1:]
        starts_token[:-1] |= pair
        starts_token[1:-1] |= alone
    emoji = classes == EMOJI
    if emoji.any():
        starts_token |= emoji
    starts = np.flatnonzero(starts_token)
    hashes = np.empty(len(starts), dtype=np.uint64)
    of_word = word[starts]
    if of_word.any():
        hashes[of_word] = _hash_runs(letters, of_run)
    if not of_word.all():
        places = starts[~of_word]
        words, sizes = utf8_words(points[places])
        if cut_any:
            paired = pair[places]
            seconds, more = utf8_words(points[places + 1])
            seconds *= paired
            seconds <<= (8 * sizes).view(np.uint64)
            words |= seconds
            sizes = sizes + more * paired
        hashes[~of_word] = hash_short(words, sizes)
    return hashes, _count(starts, text_ends)


def _hash_runs(points: U32, inside: Bools) -> U64:
    """Hash the UTF-8 of runs of characters; the first character is outside."""
    starts, ends = _runs(inside)
    data, before = _to_utf8(points)
    begin = before[starts]
    return hash_spans(data, begin, before[ends] - begin)


def _to_utf8(points: U32) -> tuple[bytes, I64]:
    """Return UTF-8 with a tail of eight bytes, and how many bytes are before each character and the tail."""
    size = np.ones(len(points), dtype=np.uint8)
    for limit in (0x80, 0x800, 0x10000):
        size += points >= limit
    before = np.zeros(len(points) + 1, dtype=np.int64)
    np.cumsum(size, out=before[1:])
    return spell(points).encode("utf-8", "surrogatepass") + bytes(8), before


def utf8_words(points: U32) -> tuple[U64, I64]:
    """Return the UTF-8 of single characters as little-endian words, and their sizes in bytes."""
    sizes = np.full(len(points), 3, dtype=np.int64)
    words = points >> np.uint32(12)
    words |= np.uint32(0x8080E0)
    words |= (points & np.uint32(0xFC0)) << np.uint32(2)
    words |= (points & np.uint32(0x3F)) << np.uint32(16)
    if points.min(initial=0x800) < 0x800 or points.max(initial=0) > 0xFFFF:
        (others,) = np.nonzero((points < 0x800) | (points > 0xFFFF))
        words[others], sizes[others] = _utf8_of_any(points[others])
    return words.astype(np.uint64), sizes


def _utf8_of_any(points: U32) -> tuple[U32, I64]:
    """Return the same as `utf8_words` for characters of one, two and four bytes."""
    last = points & np.uint32(0x3F)
    middle = points >> np.uint32(6) & np.uint32(0x3F)
    upper = points >> np.uint32(12) & np.uint32(0x3F)
    two = np.uint32(0x80C0) | points >> np.uint32(6) | last << np.uint32(8)
    four = np.uint32(0x808080F0) | points >> np.uint32(18) | upper << np.uint32(8) | middle << np.uint32(16)
    which = [points < 0x80, points < 0x800]
    return np.select(which, [points, two], four | last << np.uint32(24)), np.select(which, [1, 2], 4)


def spans_of_units(points: U32, classes: U8, marks: Bools, text_ends: I64, kind: TokenKind) -> Spans:
    """Find the tokens of normal forms of any script, of which none is dropped, with the marks in them."""
    if marks.any():
        classes = _class_with_marks(classes, marks)
    if kind == "characters":
        classes = np.where(classes >= WORD, np.uint8(SINGLE), classes)

    # Cut into units: runs of one class, and within EMOJI and above single characters with their marks.
    edge = classes[1:] != classes[:-1]
    edge |= (classes[1:] >= EMOJI) & ~marks[1:]
    starts = np.flatnonzero(edge) + 1
    units = classes[starts[:-1]]
    first, last = _group_units(units)

    data, before = _to_utf8(points)
    token_starts = before[starts[first]]
    return Spans(data, token_starts, before[starts[last + 1]] - token_starts, _count(starts[first], text_ends))


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


# Texts in pieces


def cut_in_pieces(text: str, start: int = 0, end: int | None = None, *, lower: bool = False) -> Iterator[str]:
    """Cut what stands between two places of a text in pieces: see `cut_text`."""
    return cut_text(text, start, len(text) if end is None else end, _PIECE, lower=lower)


class Segment(NamedTuple):
    """Characters of a text, in normal form and without those that are dropped, and their classes."""

    points: U32
    classes: U8
    of_long_word: bool
    """Whether they are a part of one token, which goes on in the next segment if that is one as well."""

    def between_separators(self) -> tuple[U32, U8]:
        """Return them with a separator before and after."""
        points = np.full(len(self.points) + 2, ord(" "), dtype=np.uint32)
        classes = np.full(len(points), SEPARATOR, dtype=np.uint8)
        points[1:-1], classes[1:-1] = self.points, self.classes
        return points, classes


def iter_segments(pieces: Iterable[tuple[U32, U8]], kind: TokenKind) -> Iterator[Segment]:
    """Put the pieces of a text together anew, so that the tokens of all segments are those of the text.

    Only words of more than some million characters are cut: their segments follow one another, and then one that
    is not of a long word, though perhaps empty. No piece but the first begins with a mark.
    """
    points, classes = np.zeros(0, dtype=np.uint32), np.zeros(0, dtype=np.uint8)
    in_long_word = False
    for more, classes_of_more in pieces:
        start = 0
        if in_long_word:
            others = np.flatnonzero((classes_of_more != WORD) & (classes_of_more != MARK))
            start = int(others[0]) if len(others) else len(more)
            yield Segment(more[:start], classes_of_more[:start], of_long_word=True)
            in_long_word = not len(others)
        points = np.concatenate([points, more[start:]])
        classes = np.concatenate([classes, classes_of_more[start:]])
        if in_long_word or not len(points):
            continue
        end, begin = _last_cut(classes, kind)
        yield Segment(points[:end], classes[:end], of_long_word=False)
        points, classes = points[begin:], classes[begin:]
        if len(points) > _PIECE and end == begin and (classes[0] in (WORD, MARK)):
            yield Segment(points, classes, of_long_word=True)
            points, classes = points[:0], classes[:0]
            in_long_word = True
    yield Segment(points, classes, of_long_word=False)


def _last_cut(classes: U8, kind: TokenKind) -> tuple[int, int]:
    """Return where the characters end whose tokens are complete, and where those begin that the others need.

    The next character is no mark.
    """
    size = len(classes)
    after_separator = np.concatenate([[np.uint8(SEPARATOR)], classes])
    own = _class_with_marks(after_separator, after_separator == MARK)[1:]
    last = own[-1]
    if kind == "characters" or last in (SEPARATOR, EMOJI):
        return size, size
    others = np.flatnonzero(own != last)
    start = int(others[-1]) + 1 if len(others) else 0
    if last != WORD:
        units = start + np.flatnonzero(classes[start:] != MARK)
        width = int(_WIDTH[last])
        # A token more than the rest needs, so that this is never taken for a run that is shorter than a token.
        if len(units) > width:
            return int(units[-1]), int(units[-width])
    return start, start
