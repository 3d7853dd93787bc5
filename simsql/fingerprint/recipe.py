"""Recipe: one frozen description of how a text becomes a fingerprint.

The default was chosen by measuring (`benchmarks/quality.py`) on 9,107 sections of civil codes, joined into
clusters of texts within distance 7. Recall is the share of the pairs with a Jaccard index of word trigrams of
at least 0.9 (0.7) that one cluster holds, precision the share of the pairs in one cluster with at least 0.5:

    recipe             recall 0.9   0.7    precision   largest cluster
    words12-log-1          0.993   0.783       0.917         13         the default
    words12-set-1          0.969   0.718       0.953         10
    words12-count-1        0.995   0.922       0.006      1,495
    words1-log-1           0.995   0.901       0.701         21
    words2-log-1           0.978   0.672       0.970         10
    words3-log-1           0.936   0.499       0.990          9
    words123-log-1         0.962   0.671       0.950         11
    characters5-log-1      0.986   0.824       0.922         13         a third of the speed

It joined 35 pairs of 1,042 Chinese laws, all with a Jaccard index of character 5-grams above 0.5, where
weights by count joined pairs that share 4%; and it gave 3,367 Arabic texts the same fingerprint with vowel
signs as without, 3,363 different ones. The logarithm starts at 2 because with weights of 1 + log2 n precision
fell to 0.87 (mean of four hash functions; 0.92 with the default's weights).
"""

import re
from dataclasses import dataclass
from typing import Literal, Self, get_args

TokenKind = Literal["words", "characters"]
WeightKind = Literal["set", "log", "count"]

# The last part of every id. It counts the definitions that the fields do not name: normalisation, character
# classes, hashes and the logarithm. A change to any of them that changes a fingerprint raises it.
REVISION = 1

_ID = re.compile(rf"({'|'.join(get_args(TokenKind))})([1-9]+)-({'|'.join(get_args(WeightKind))})-{REVISION}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a text becomes features and weights. Fingerprints of different recipes cannot be compared.

    tokens
        "words" or "characters". Words are runs of letters, digits and vowel signs; scripts that put no spaces
        between words are cut into short runs of characters; an emoji is a word (see
        `simsql.fingerprint.tokens`). Characters are the characters of those words, without what stands
        between the words.
    shingles
        The lengths, in tokens, of the runs of tokens that are features: one to nine, ascending. A text that
        is shorter than the shortest has one feature, all of it.
    weight
        What a feature that occurs n times in the text weighs: "set" 1, "log" 2 + floor(log2 n), "count" n.

    Raises ValueError for any other argument.
    """

    tokens: TokenKind = "words"
    shingles: tuple[int, ...] = (1, 2)
    weight: WeightKind = "log"

    def __post_init__(self) -> None:
        _check_choice("tokens", self.tokens, get_args(TokenKind))
        _check_choice("weight", self.weight, get_args(WeightKind))
        lengths = self.shingles
        if (
            not isinstance(lengths, tuple)
            or not lengths
            or not all(type(length) is int and 1 <= length <= 9 for length in lengths)
            or list(lengths) != sorted(set(lengths))
        ):
            raise ValueError(f"shingles must be a tuple of ascending lengths from 1 to 9, not {lengths!r}")

    @property
    def id(self) -> str:
        """A short name, such as "words12-log-1", that no recipe with other fingerprints shares."""
        return f"{self.tokens}{''.join(map(str, self.shingles))}-{self.weight}-{REVISION}"

    @classmethod
    def from_id(cls, id: str) -> Self:  # noqa: A002 - the name of the property it inverts
        """Return the recipe of this id; ValueError for a name that is no id in this version."""
        match = _ID.fullmatch(id)
        if match is None:
            raise ValueError(f"{id!r} is not the id of a recipe: expected one such as {cls().id!r}")
        tokens, lengths, weight = match.groups()
        return cls(tokens=tokens, shingles=tuple(map(int, lengths)), weight=weight)  # type: ignore[arg-type]


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


DEFAULT = Recipe()
