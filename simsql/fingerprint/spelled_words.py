"""Words as strings, and normalisation by any steps: for features that are spelled out."""

import unicodedata
from collections.abc import Sequence
from itertools import islice

import numpy as np

from simsql.fingerprint.characters import DROPPED, MARK, WORD, class_table
from simsql.fingerprint.recipe import Step, TokenKind
from simsql.fingerprint.tokens import iter_pieces, spans_of_units


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
    left: bytes = points[class_table()[points] != DROPPED].tobytes()
    return left.decode("utf-32-le", "surrogatepass")


def spell_words(texts: Sequence[str], kind: TokenKind, steps: tuple[Step, ...]) -> list[list[str]]:
    """Return the tokens of each text after these steps: of the kind "words" or "characters".

    What the step "marks" would drop belongs to the character before it, like other marks.
    """
    normal = [normalise_by(text, steps) for text in texts]
    if len(normal) == 1:
        return [[token for piece in iter_pieces(normal[0]) for token in _spell([piece], kind)[0]]]
    return _spell(normal, kind)


def _spell(texts: Sequence[str], kind: TokenKind) -> list[list[str]]:
    joined = "\0".join(["", *texts, ""])
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    classes = class_table()[points]
    classes[classes == DROPPED] = MARK
    ends = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)
    data, starts, lengths, documents = spans_of_units(points, classes, classes == MARK, ends, kind)
    encoded = bytes(data)
    places = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    tokens = (encoded[start:end].decode() for start, end in places)
    return [list(islice(tokens, count)) for count in documents.tolist()]


def is_word(token: str) -> bool:
    """Return whether a token holds more than separators and marks."""
    return token.isalnum() or any(class_table()[ord(character)] >= WORD for character in token)
