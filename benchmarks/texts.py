"""A corpus with edits, from a seed: words as frequent as in a language, and copies that were changed a little."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_VOCABULARY, _LONGEST_WORD = 50_000, 12
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
# Zipf's law for words: the n-th is as frequent as 1 / (n + 2.7) to this power (Mandelbrot).
_EXPONENT, _SHIFT = 1.05, 2.7
_MEDIAN_WORDS, _SPREAD = 120, 0.6
# Of the documents, three in ten are copies of others with up to one word in twenty changed.
_COPIED_SHARE, _EDITED_SHARE = 0.3, 0.05
_AT_A_TIME = 10_000

Words = NDArray[np.int32]


@dataclass(frozen=True)
class Corpus:
    """Documents as numbers of words, made when they are asked for: `count` of them from `seed`."""

    count: int
    seed: int

    def texts(self) -> Iterator[str]:
        """Yield the documents."""
        vocabulary = _vocabulary(self.seed)
        for words in self._documents():
            yield " ".join(vocabulary[words])

    def edited(self, count: int) -> Iterator[str]:
        """Yield changed copies of the first `count` documents: none of them is in the corpus."""
        vocabulary = _vocabulary(self.seed)
        chance = np.random.default_rng((self.seed, 3))
        frequencies = _frequencies()
        for _, words in zip(range(count), self._documents(), strict=False):
            yield " ".join(vocabulary[_edit(chance, words, frequencies)])

    def strangers(self, count: int) -> Iterator[str]:
        """Yield documents of the same language that are not in the corpus."""
        vocabulary = _vocabulary(self.seed)
        for _, words in zip(range(count), _originals(np.random.default_rng((self.seed, 4))), strict=False):
            yield " ".join(vocabulary[words])

    def _documents(self) -> Iterator[Words]:
        chance = np.random.default_rng((self.seed, 2))
        frequencies = _frequencies()
        originals = _originals(chance)
        recent: list[Words] = []
        for number in range(self.count):
            if number and chance.random() < _COPIED_SHARE:
                yield _edit(chance, recent[chance.integers(len(recent))], frequencies)
            else:
                words = next(originals)
                # What is copied is one of the last thousand: all would not fit into memory.
                if len(recent) < 1000:
                    recent.append(words)
                else:
                    recent[chance.integers(1000)] = words
                yield words


def _originals(chance: np.random.Generator) -> Iterator[Words]:
    frequencies = _frequencies()
    while True:
        sizes = np.maximum(5, chance.lognormal(np.log(_MEDIAN_WORDS), _SPREAD, _AT_A_TIME)).astype(np.int64)
        words = _draw(chance, frequencies, int(sizes.sum()))
        yield from np.split(words, np.cumsum(sizes)[:-1])


def _edit(chance: np.random.Generator, words: Words, frequencies: NDArray[np.float64]) -> Words:
    """Replace up to a twentieth of the words, and at least one."""
    count = int(chance.integers(1, 2 + int(_EDITED_SHARE * words.size)))
    edited = words.copy()
    edited[chance.integers(0, words.size, count)] = _draw(chance, frequencies, count)
    return edited


def _draw(chance: np.random.Generator, frequencies: NDArray[np.float64], count: int) -> Words:
    return np.searchsorted(frequencies, chance.random(count)).astype(np.int32)


@cache
def _frequencies() -> NDArray[np.float64]:
    """Return the cumulated frequencies of the words, the last being 1."""
    weights = 1 / (np.arange(_VOCABULARY) + _SHIFT) ** _EXPONENT
    cumulated: NDArray[np.float64] = np.cumsum(weights / weights.sum())
    cumulated[-1] = 1
    return cumulated


@cache
def _vocabulary(seed: int) -> NDArray[np.object_]:
    """Return distinct words, the frequent ones short."""
    chance = np.random.default_rng((seed, 5))
    letters = np.array(list(_LETTERS))[chance.integers(0, len(_LETTERS), (2 * _VOCABULARY, _LONGEST_WORD))]
    spare = chance.integers(0, 3, len(letters)).tolist()
    words: dict[str, None] = {}
    for row, more in zip(letters.tolist(), spare, strict=True):
        words["".join(row[: 2 + (len(words) + 2).bit_length() // 2 + more])] = None
        if len(words) == _VOCABULARY:
            return np.array(list(words), dtype=object)
    raise AssertionError("too many words were the same")
