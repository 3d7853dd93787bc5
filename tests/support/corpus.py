"""Texts with planted near-duplicates, and which of them belong together: plain Python, nothing of simsql."""

import random
from collections.abc import Iterable, Iterator, Mapping

_CONSONANTS = "bcdfghjklmnprstvwz"
_VOWELS = "aeiou"


def make_texts(seed: int, families: int = 100, alone: int = 60) -> dict[str, str]:
    """Texts by id, in any order: families of edited copies, near and less near, and texts that stand alone."""
    chance = random.Random(seed)
    vocabulary = [_make_word(chance) for _ in range(3000)]
    texts = [_make_text(chance, vocabulary) for _ in range(alone)]
    for _ in range(families):
        original = _make_text(chance, vocabulary)
        texts.append(original)
        texts.extend(_edit(chance, vocabulary, original) for _ in range(chance.randrange(1, 5)))
    chance.shuffle(texts)
    return {f"text {number}": text for number, text in enumerate(texts)}


def pairs(fingerprints: Iterable[int], within: int) -> dict[tuple[int, int], int]:
    """The distance of every pair of different fingerprints, unsigned, the smaller first."""
    values = sorted(set(fingerprints))
    found = {}
    for position, a in enumerate(values, 1):
        for b in [b for b in values[position:] if (a ^ b).bit_count() <= within]:
            found[a, b] = (a ^ b).bit_count()
    return found


def groups(fingerprints: Mapping[str, int], near: Iterable[tuple[int, int]]) -> set[frozenset[str]]:
    """The ids of each cluster: texts joined by equal fingerprints and by these pairs of fingerprints."""
    names: dict[int, list[str]] = {}
    for name, fingerprint in fingerprints.items():
        names.setdefault(fingerprint, []).append(name)
    neighbours: dict[int, set[int]] = {fingerprint: set() for fingerprint in names}
    for a, b in near:
        neighbours[a].add(b)
        neighbours[b].add(a)
    found = set()
    left = set(names)
    while left:
        component = set(_reach(neighbours, left.pop()))
        left -= component
        members = frozenset(name for fingerprint in component for name in names[fingerprint])
        if len(members) > 1:
            found.add(members)
    return found


def _reach(neighbours: Mapping[int, set[int]], start: int) -> Iterator[int]:
    seen, ahead = {start}, [start]
    while ahead:
        current = ahead.pop()
        yield current
        ahead.extend(neighbours[current] - seen)
        seen |= neighbours[current]


def _make_word(chance: random.Random) -> str:
    return "".join(chance.choice(_CONSONANTS) + chance.choice(_VOWELS) for _ in range(chance.randrange(1, 5)))


def _make_text(chance: random.Random, vocabulary: list[str]) -> str:
    return " ".join(chance.choices(vocabulary, k=chance.randrange(40, 250)))


def _edit(chance: random.Random, vocabulary: list[str], text: str) -> str:
    words = text.split()
    for _ in range(chance.choice([0, 0, 1, 2, 3, 5, 8, 20])):
        place = chance.randrange(len(words))
        words[place : place + chance.randrange(2)] = chance.choices(vocabulary, k=chance.randrange(3))
    # What is between words does not count, nor does their case.
    return "".join(
        word + chance.choice([" ", " ", " ", ", ", "\n"])
        for word in (word.upper() if chance.random() < 0.02 else word for word in words)
    )
