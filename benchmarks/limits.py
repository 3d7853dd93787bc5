"""Measure where fingerprints are the wrong tool: python -m benchmarks.limits, which prints Markdown.

Texts of made-up words, with frequencies as in natural languages, and the same texts after a change: how similar
they are, and how many of them the defaults find.
"""

from collections.abc import Callable

import numpy as np

from benchmarks.figures import markdown_line
from simsql.fingerprint import simhash_many, similarity_many

DISTANCE, SIMILARITY = 12, 0.6
_TEXTS = 400
_LENGTH = 200
_VOCABULARY = 20_000
_SENTENCE = 10
_SEED = 1

Words = list[str]
Change = Callable[[Words, np.random.Generator], Words]


def make_texts(chance: np.random.Generator, length: int) -> list[Words]:
    """Return texts of words of which the one of rank n is 1 / n as frequent as the first."""
    weights = 1 / np.arange(1, _VOCABULARY + 1)
    numbers = chance.choice(_VOCABULARY, (_TEXTS, length), p=weights / weights.sum())
    return [[f"word{number}" for number in text] for text in numbers.tolist()]


def replace(share: float) -> Change:
    """Return a change of this share of the words, at least one, for other words."""

    def change(words: Words, chance: np.random.Generator) -> Words:
        count = max(1, round(share * len(words)))
        changed = words.copy()
        for place in chance.choice(len(words), count, replace=False).tolist():
            changed[place] = f"other{chance.integers(_VOCABULARY)}"
        return changed

    return change


def fill_in(share: float) -> Change:
    """Return a change of this share of the words for others, in one run: a form with other entries."""

    def change(words: Words, chance: np.random.Generator) -> Words:
        count = round(share * len(words))
        start = int(chance.integers(len(words) - count))
        entries = [f"other{number}" for number in chance.integers(_VOCABULARY, size=count)]
        return words[:start] + entries + words[start + count :]

    return change


def cut(share: float) -> Change:
    """Return a change that leaves only this share of the words, from the beginning."""
    return lambda words, _: words[: round(share * len(words))]


def reorder(words: Words, chance: np.random.Generator) -> Words:
    """Return the sentences in another order."""
    sentences = [words[start : start + _SENTENCE] for start in range(0, len(words), _SENTENCE)]
    chance.shuffle(sentences)
    return [word for sentence in sentences for word in sentence]


CASES: tuple[tuple[str, int, Change], ...] = (
    ("a copy, 2% of the words replaced", _LENGTH, replace(0.02)),
    ("a copy, 5% of the words replaced", _LENGTH, replace(0.05)),
    ("a copy, the sentences in another order", _LENGTH, reorder),
    ("a form with other entries, 5% of the words", _LENGTH, fill_in(0.05)),
    ("a paraphrase, 30% of the words replaced", _LENGTH, replace(0.3)),
    ("a paraphrase, 60% of the words replaced", _LENGTH, replace(0.6)),
    ("an excerpt, 75% of the text", _LENGTH, cut(0.75)),
    ("an excerpt, 50% of the text", _LENGTH, cut(0.5)),
    ("an excerpt, 25% of the text", _LENGTH, cut(0.25)),
    ("5 words, one replaced", 5, replace(0)),
    ("10 words, one replaced", 10, replace(0)),
    ("20 words, one replaced", 20, replace(0)),
    ("40 words, one replaced", 40, replace(0)),
)


def measure(length: int, change: Change) -> tuple[float, float, float, float]:
    """Return the median distance and similarity, and the shares within DISTANCE, without and with the check."""
    chance = np.random.default_rng(_SEED)
    before = make_texts(chance, length)
    after = [change(words, chance) for words in before]
    one, other = ([" ".join(words) for words in side] for side in (before, after))
    distance = np.bitwise_count(simhash_many(one).data ^ simhash_many(other).data)
    similarity = similarity_many(one, other).data
    near = distance <= DISTANCE
    return (
        float(np.median(distance)),
        float(np.median(similarity)),
        float(near.mean()),
        float((near & (similarity >= SIMILARITY)).mean()),
    )


def limits_table() -> list[str]:
    """Return the lines of the table."""
    titles = ["distance", "similarity", f"within {DISTANCE}", f"and at least {SIMILARITY} similar"]
    lines = [markdown_line(["the other text", *titles]), markdown_line(["---", *["---:"] * len(titles)])]
    return lines + [table_row(*case) for case in CASES]


def table_row(name: str, length: int, change: Change) -> str:
    """Return the line of a case."""
    distance, *shares = measure(length, change)
    return markdown_line([name, f"{distance:.0f}", *(f"{share:.2f}" for share in shares)])


if __name__ == "__main__":
    print("\n".join(limits_table()))
