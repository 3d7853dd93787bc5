"""Texts and edited copies of them, and which are similar by brute force."""

import random

from simsql import similarity

VOCABULARY = [f"word{number}" for number in range(2_000)]


def edited_texts(texts: int = 60, copies: int = 4, words: int = 40, seed: int = 1) -> list[str]:
    """Each text, followed by copies in which 1, 2, 3 ... words are others."""
    random_ = random.Random(seed)
    found = []
    for _ in range(texts):
        text = random_.choices(VOCABULARY, k=words)
        for changed in range(copies + 1):
            copy = list(text)
            for place in random_.sample(range(words), changed):
                copy[place] = random_.choice(VOCABULARY)
            found.append(" ".join(copy))
    return found


def most_similar(text: str, others: list[str], least: float) -> list[tuple[str, float]]:
    """(text, similarity) of those at least this similar, most similar first."""
    values = ((other, similarity(text, other)) for other in others)
    return sorted(((other, value) for other, value in values if value >= least), key=lambda each: -each[1])
