"""Find the tokens of texts of any script and hash them, whole batches at a time.

Character classes (`simsql.fingerprint.characters`) define the tokens, and `simsql.fingerprint.hashes` defines the
hash of their UTF-8.

Three ways lead to the same tokens. Texts that are ASCII, or mostly, stay bytes (`simsql.fingerprint.utf8`). Other
texts become arrays of code points, which a table maps to normal forms and classes. If all are letters and
separators, the UTF-8 of the normal forms is cut into words. Otherwise tokens are units of one character and its
marks, or several.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.characters import (
    CHARACTER_SHIFT,
    CLASS,
    CONTEXT,
    DROPPED,
    EMOJI,
    MARK,
    SEPARATOR,
    SINGLE,
    WORD,
    character_table,
    normalise,
    spell,
)
from simsql.fingerprint.hashes import I64, U64, hash_short
from simsql.fingerprint.recipe import TokenKind
from simsql.fingerprint.utf8 import (
    U8,
    U32,
    Bools,
    Spans,
    TokenLists,
    count_tokens,
    hash_mostly_ascii,
    runs,
    text_ends,
    utf8_words,
    words_of_ascii,
)

# The number of characters in a token of each class. A run of WORD counts as one.
_WIDTH = np.array([0, 0, 0, 1, 1, 1, 2, 4])
# Characters that separate tokens and do not compose with the character before them, so a text can be cut there.
_SURE_SEPARATOR = re.compile("[\\0-/:-@[-`{-\\x7f\u3001\u3002]")
# Those that decide about a sigma before and after them: the lower case of one looks past apostrophes and points.
_SPACE = re.compile("[\\t\\n\\r ]")
# A text is processed as bytes if its first 64 characters have at most one more byte in 12.
_SAMPLE, _FEW = 64, 12
# Texts that are not ASCII have larger arrays. This many characters are tokenised at a time, to stay in the cache.
_GROUP = 1 << 16
# Longer texts are tokenised in pieces, to bound the memory.
_PIECE = 1 << 17


def hash_tokens(texts: Sequence[str], kind: TokenKind, revision: int = 1) -> TokenLists:
    """Return the hashes of the tokens of all texts."""
    if len(texts) == 1 and is_long(texts[0]):
        hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *iter_token_hashes(texts[0], kind, revision)])
        return TokenLists(hashes, np.array([len(hashes)]))
    return _hash_all(texts, kind, revision)


def _hash_all(texts: Sequence[str], kind: TokenKind, revision: int) -> TokenLists:
    """Return the hashes of the tokens of all texts, the characters of each of which are looked at together."""
    chosen = np.fromiter(map(str.isascii, texts), dtype=bool, count=len(texts))
    if chosen.all():
        return _hash_ascii(texts, kind)
    if kind == "words":
        # The beginning of a text tells whether it has few characters beyond ASCII.
        for place in np.flatnonzero(~chosen).tolist():
            sample = texts[place][:_SAMPLE]
            chosen[place] = _FEW * len(sample.encode("utf-8", "surrogatepass")) <= (_FEW + 1) * len(sample)
        encoded = [text.encode("utf-8", "surrogatepass") for text in _choose(texts, chosen)]
        found, usual = hash_mostly_ascii(encoded, revision)
        found = found._replace(counts=found.counts[usual])
        chosen[np.flatnonzero(chosen)] = usual
    else:
        found = _hash_ascii(_choose(texts, chosen), kind)
    if chosen.all():
        return found
    groups = [_hash_points(*_look_up(group, revision), kind) for group in _groups(_choose(texts, ~chosen))]
    others = TokenLists(*map(np.concatenate, zip(*groups, strict=True)))
    return _interleave(chosen, found, others) if chosen.any() else others


def _choose(texts: Sequence[str], chosen: Bools) -> list[str]:
    return [texts[place] for place in np.flatnonzero(chosen).tolist()]


def _groups(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    start = size = 0
    for end, text in enumerate(texts):
        if end > start and size + len(text) > _GROUP:
            yield texts[start:end]
            start, size = end, 0
        size += len(text)
    yield texts[start:]


def _interleave(chosen: Bools, ones: TokenLists, others: TokenLists) -> TokenLists:
    counts = np.empty(len(chosen), dtype=np.int64)
    counts[chosen], counts[~chosen] = ones.counts, others.counts
    from_ones = np.repeat(chosen, counts)
    hashes = np.empty(len(from_ones), dtype=np.uint64)
    hashes[from_ones], hashes[~from_ones] = ones.hashes, others.hashes
    return TokenLists(hashes, counts)


def is_long(text: str) -> bool:
    """Return whether a text is tokenised in pieces."""
    return len(text) > _PIECE


def iter_token_hashes(text: str, kind: TokenKind, revision: int = 1) -> Iterator[U64]:
    """Yield the hashes of the tokens of a text of any length, in order, in portions."""
    return (_hash_all([piece], kind, revision).hashes for piece in cut_text(text))


def cut_text(text: str, *, lower: bool = False) -> Iterator[str]:
    """Cut a text into pieces whose joined normal forms are that of the whole, none of them inside a token.

    A piece ends at the first separator after some 100,000 characters. Nearly every text has one; where there is
    none, each character takes up to 90 bytes of memory. With `lower`, the joined lower-case forms of the pieces
    are also the lower-case form of the whole.
    """
    separator = _SPACE if lower else _SURE_SEPARATOR
    start = 0
    while cut := separator.search(text, start + _PIECE):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


# ASCII


def _hash_ascii(texts: Sequence[str], kind: TokenKind) -> TokenLists:
    joined = "\0".join(["", *texts, "\0" * 8]).encode("ascii")
    lower, word = words_of_ascii(np.frombuffer(joined, dtype=np.uint8))
    if kind == "characters":
        starts = np.flatnonzero(word)
        stops = starts + 1
    else:
        starts, stops = runs(word)
    return Spans(lower, starts, stops - starts, count_tokens(starts, text_ends(texts))).hash()


# Other texts


def _look_up(texts: Sequence[str], revision: int) -> tuple[U32, U8, I64]:
    """Return the normal forms and classes of the characters of texts, and the ends of the texts.

    There is a separator before each text and after the last. Dropped characters are omitted.
    """
    ends = text_ends(texts)
    found = _entries(texts, revision)
    in_context = np.flatnonzero(found & np.uint32(CONTEXT))
    if len(in_context):
        texts = list(texts)
        for text in np.unique(np.searchsorted(ends, in_context)).tolist():
            texts[text] = normalise(texts[text])
        ends = text_ends(texts)
        found = _entries(texts, revision)
    classes = found.astype(np.uint8)
    classes &= CLASS
    points = found >> CHARACTER_SHIFT
    kept = classes != DROPPED
    if not kept.all():
        places = np.flatnonzero(kept)
        ends = np.searchsorted(places, ends)
        points, classes = points.take(places), classes.take(places)
    return points, classes, ends


def _entries(texts: Sequence[str], revision: int) -> U32:
    joined = "\0".join(["", *texts, ""]).encode("utf-32-le", "surrogatepass")
    return character_table(revision).take(np.frombuffer(joined, dtype="<u4"))


def _hash_points(points: U32, classes: U8, ends: I64, kind: TokenKind) -> TokenLists:
    marks = classes == MARK
    if not marks.any():
        if kind == "characters":
            starts = np.flatnonzero(classes)
            return TokenLists(hash_short(*utf8_words(points[starts])), count_tokens(starts, ends))
        if classes.max(initial=0) <= WORD:
            points[ends] = 0
            data = np.frombuffer(_to_utf8(points), dtype=np.uint8)
            starts, stops = runs(data > ord(" "))
            (ends,) = np.nonzero(data[:-8] == 0)
            return Spans(data, starts, stops - starts, count_tokens(starts, ends)).hash()
    return spans_of_units(points, classes, marks, ends, kind).hash()


def _to_utf8(points: U32) -> bytes:
    return spell(points).encode("utf-8", "surrogatepass") + bytes(8)


def spans_of_units(points: U32, classes: U8, marks: Bools, ends: I64, kind: TokenKind) -> Spans:
    """Find the tokens, with their marks, of normal forms of any script without dropped characters."""
    if marks.any():
        # Each mark has the class of the character before it, or WORD after a separator.
        classes = classes[np.maximum.accumulate(np.where(marks, 0, np.arange(len(classes))))]
        classes[marks & (classes == SEPARATOR)] = WORD
    if kind == "characters":
        classes = np.where(classes >= WORD, np.uint8(SINGLE), classes)

    # Cut into units: runs of one class, but single characters with their marks for EMOJI and above.
    edge = classes[1:] != classes[:-1]
    edge |= (classes[1:] >= EMOJI) & ~marks[1:]
    starts = np.flatnonzero(edge) + 1
    units = classes[starts[:-1]]
    first, last = _group_units(units)

    size = np.ones(len(points), dtype=np.uint8)
    for limit in (0x80, 0x800, 0x10000):
        size += points >= limit
    before = np.append(0, np.cumsum(size, dtype=np.int64))
    token_starts = before[starts[first]]
    lengths = before[starts[last + 1]] - token_starts
    return Spans(_to_utf8(points), token_starts, lengths, count_tokens(starts[first], ends))


def _group_units(units: NDArray[np.uint8]) -> tuple[I64, I64]:
    """Return the first and the last unit of each token: units of one run, as many as its class requires."""
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
