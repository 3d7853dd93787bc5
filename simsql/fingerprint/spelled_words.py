"""Words as strings, and normalisation by any steps: for features that are spelled out."""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np

from simsql.fingerprint.characters import DROPPED, MARK, WORD, class_table, spell
from simsql.fingerprint.hashes import I64
from simsql.fingerprint.recipe import Step, TokenKind
from simsql.fingerprint.tokens import U8, U32, cut_in_pieces, is_long, iter_segments, spans_of_units


def normalise_by(text: str, steps: tuple[Step, ...]) -> str:
    """Return a text after these steps: see `Recipe`. NFKC comes once more after a change of letter case."""
    composed = "nfkc" in steps
    if composed:
        text = unicodedata.normalize("NFKC", text)
    if "casefold" in steps:
        text = text.casefold()
    if "lower" in steps:
        text = text.lower()
    if composed:
        text = unicodedata.normalize("NFKC", text)
    return _drop_marks(text) if "marks" in steps else text


def _drop_marks(text: str) -> str:
    if text.isascii():
        return text
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return spell(points[class_table()[points] != DROPPED])


def iter_normal(text: str, steps: tuple[Step, ...]) -> Iterator[str]:
    """Yield a text of any length after these steps, in pieces of which none but the first begins with a mark."""
    for piece in cut_in_pieces(text, lower="lower" in steps):
        yield normalise_by(piece, steps)


def spell_words(texts: Sequence[str], kind: TokenKind, steps: tuple[Step, ...]) -> list[list[str]]:
    """Return the tokens of each text after these steps: of the kind "words" or "characters".

    What the step "marks" would drop belongs to the character before it, like other marks.
    """
    if len(texts) == 1 and is_long(texts[0]):
        return [list(chain.from_iterable(iter_words(texts[0], kind, steps)))]
    normal = [normalise_by(text, steps) for text in texts]
    points, classes = _characters_of("\0".join(["", *normal, ""]))
    ends = np.cumsum(np.fromiter(map(len, normal), dtype=np.int64, count=len(normal)) + 1)
    tokens, documents = _spell(points, classes, ends, kind)
    return [list(islice(tokens, count)) for count in documents.tolist()]


def iter_words(text: str, kind: TokenKind, steps: tuple[Step, ...]) -> Iterator[list[str]]:
    """Yield the tokens of a text of any length, as `spell_words` finds them, some at a time."""
    long_word: list[str] = []
    for segment in iter_segments(map(_characters_of, iter_normal(text, steps)), kind):
        if segment.of_long_word:
            long_word.append(spell(segment.points))
            continue
        if long_word:
            yield ["".join(long_word)]
            long_word = []
        points, classes = segment.between_separators()
        tokens, _ = _spell(points, classes, np.array([len(points) - 1]), kind)
        yield list(tokens)


def _characters_of(text: str) -> tuple[U32, U8]:
    """Return the characters of a text and their classes, in which all marks are alike."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint32, copy=False)
    classes = class_table()[points]
    classes[classes == DROPPED] = MARK
    return points, classes


def _spell(points: U32, classes: U8, text_ends: I64, kind: TokenKind) -> tuple[Iterator[str], I64]:
    data, starts, lengths, documents = spans_of_units(points, classes, classes == MARK, text_ends, kind)
    encoded = bytes(data)
    places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return (encoded[start:end].decode() for start, end in places), documents


def is_word(token: str) -> bool:
    """Return whether a token holds more than separators and marks."""
    return token.isalnum() or any(class_table()[ord(character)] >= WORD for character in token)
