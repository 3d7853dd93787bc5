"""Texts of which it is known which belong together, and how well an answer agrees with that: nothing of simsql.

The texts are generated from a seed, or come from a file of JSON lines with the fields `text` and `label`: texts
with the same label are near-duplicates of each other.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.labelled import find_alike, word_trigrams
from benchmarks.texts import Corpus as Language

SIMILAR = 0.6
# Of the originals, one in five has one to four copies, each with up to one word in twelve edited.
_COPIED, _COPIES, _EDITED = 0.2, 4, 0.08
# Three in ten stand between the words of one of many templates; half of their copies stand in another one.
_TEMPLATED, _DOCUMENTS_A_TEMPLATE, _TEMPLATE_WORDS = 0.3, 100, (20, 150)

Answer = NDArray[np.int64]
"""Pairs of places, of shape (n, 2), or the number of the cluster of each text, of shape (texts,)."""


@dataclass(frozen=True)
class Quality:
    """How an answer agrees with what is known: `right` of `found` belong together, and `wanted` do in all."""

    found: int
    right: int
    wanted: int

    @property
    def precision(self) -> float | None:
        """Share of what was found that is right; None if nothing was found."""
        return self.right / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        """Share of what belongs together that was found; None if nothing does."""
        return self.right / self.wanted if self.wanted else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both."""
        return 2 * self.right / (self.found + self.wanted) if self.found + self.wanted else None


@dataclass(frozen=True)
class Labelled:
    """Texts with a label for each: those with the same label are near-duplicates."""

    name: str
    texts: list[str]
    labels: NDArray[np.int64]

    @cached_property
    def similar(self) -> Answer:
        """All pairs whose sets of word trigrams have a Jaccard index of SIMILAR or more, by brute force."""
        return as_pairs(find_alike(map(word_trigrams, self.texts), SIMILAR))

    @property
    def megabytes(self) -> float:
        """Size of the texts as UTF-8."""
        return sum(len(text.encode()) for text in self.texts) / 1e6

    @property
    def wanted(self) -> int:
        """Number of pairs with the same label."""
        return _count_pairs(self.labels)

    def judge(self, answer: Answer) -> Quality:
        """Compare the pairs of an answer with those that have the same label."""
        if answer.ndim == 1:
            both = answer * (self.labels.max() + 1) + self.labels
            return Quality(_count_pairs(answer), _count_pairs(both), self.wanted)
        right = int((self.labels[answer[:, 0]] == self.labels[answer[:, 1]]).sum())
        return Quality(len(answer), right, self.wanted)

    def found_of_similar(self, answer: Answer) -> float:
        """Return the share of the similar pairs that are in an answer."""
        if not len(self.similar):
            return 1.0
        if answer.ndim == 1:
            return float((answer[self.similar[:, 0]] == answer[self.similar[:, 1]]).mean())
        wanted = set(map(tuple, self.similar.tolist()))
        return len(wanted & set(map(tuple, answer.tolist()))) / len(wanted)

    def queries(self, count: int, seed: int) -> list[int]:
        """Return the places of up to `count` texts that have near-duplicates, in random order."""
        _, places, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        (chosen,) = np.nonzero(sizes[places] > 1)
        np.random.default_rng((seed, 7)).shuffle(chosen)
        found: list[int] = chosen[:count].tolist()
        return found

    def judge_searches(self, queries: Sequence[int], answers: Iterable[Collection[int]]) -> Quality:
        """Compare what searches for some of the texts found, beside the text itself, with the labels."""
        found = right = wanted = 0
        for query, places in zip(queries, answers, strict=True):
            others = set(places) - {query}
            same = set(np.flatnonzero(self.labels == self.labels[query]).tolist()) - {query}
            found, right, wanted = found + len(others), right + len(others & same), wanted + len(same)
        return Quality(found, right, wanted)


def as_pairs(pairs: Iterable[tuple[int, int]]) -> Answer:
    """Return pairs of places, the smaller first, sorted and each once, as an array."""
    ordered = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    return np.array(ordered, dtype=np.int64).reshape(-1, 2)


def by_clusters(count: int, clusters: Iterable[Sequence[int]]) -> Answer:
    """Return the number of the cluster of each of `count` texts: texts in no cluster have one of their own."""
    numbers = np.arange(count, dtype=np.int64)
    for members in clusters:
        numbers[list(members)] = min(members)
    return numbers


def by_components(count: int, pairs: Answer) -> Answer:
    """Return clusters of texts that pairs connect, also through other texts."""
    numbers = list(range(count))

    def root(place: int) -> int:
        while numbers[place] != place:
            numbers[place] = place = numbers[numbers[place]]
        return place

    for one, other in pairs.tolist():
        numbers[root(one)] = root(other)
    return np.array([root(place) for place in range(count)], dtype=np.int64)


def generate(count: int, seed: int) -> Labelled:
    """Return `count` texts in random order: words as frequent as in a language, and templates that texts share."""
    chance = np.random.default_rng((seed, 6))
    originals = Language(0, seed).strangers(2 * count)
    templates = [
        next(originals).split()[: chance.integers(*_TEMPLATE_WORDS)]
        for _ in range(1 + int(count * _TEMPLATED) // _DOCUMENTS_A_TEMPLATE)
    ]
    texts: list[str] = []
    labels: list[int] = []
    spare = templates[0]
    while len(texts) < count:
        original = next(originals).split()
        template = chance.integers(len(templates)) if chance.random() < _TEMPLATED else None
        copies = int(chance.random() < _COPIED) and int(chance.integers(1, _COPIES + 1))
        for copy in range(1 + copies):
            words = _edit(chance, original, spare) if copy else original
            if template is not None:
                around = templates[template if chance.random() < 0.5 else chance.integers(len(templates))]
                words = [*around[: len(around) // 2], *words, *around[len(around) // 2 :]]
            texts.append(" ".join(words))
            labels.append(len(texts) if not copy else labels[-1])
        spare = original
    order = chance.permutation(len(texts))[:count]
    return Labelled("generated", [texts[place] for place in order.tolist()], np.array(labels)[order])


def _edit(chance: np.random.Generator, original: Sequence[str], spare: Sequence[str]) -> list[str]:
    """Replace, remove and insert words, which are those of another text."""
    words = list(original)
    for _ in range(round(chance.uniform(0, _EDITED) * len(original))):
        start = int(chance.integers(len(words)))
        removed, inserted = ((1, 1), (1, 0), (0, 1))[chance.integers(3)]
        if len(words) > removed:
            words[start : start + removed] = [spare[chance.integers(len(spare))]] * inserted
    return words


def read_labelled(path: Path, count: int | None) -> Labelled:
    """Return the first `count` texts of a file, or all. Ends the program if a line has no text and label."""
    texts, labels = [], []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if count is not None and len(texts) == count:
                break
            row = json.loads(line)
            if not isinstance(row.get("text"), str) or "label" not in row:
                raise SystemExit(f'{path}:{number} needs the fields "text" and "label"')
            texts.append(row["text"])
            labels.append(json.dumps(row["label"]))
    if not texts:
        raise SystemExit(f"{path} is empty: each line needs a text and a label")
    return Labelled(path.name, texts, np.unique(labels, return_inverse=True)[1].astype(np.int64))


def exact_pairs(candidates: Iterable[tuple[int, int]], sets: Sequence[Collection[object]]) -> Answer:
    """Return the candidates whose sets have a Jaccard index of SIMILAR or more."""

    def index(one: int, other: int) -> float:
        common = len(sets[one] & sets[other])  # type: ignore[operator]
        return common / max(1, len(sets[one]) + len(sets[other]) - common)

    return as_pairs((one, other) for one, other in candidates if one != other and index(one, other) >= SIMILAR)


def _count_pairs(numbers: NDArray[np.int64]) -> int:
    sizes = np.unique(numbers, return_counts=True)[1]
    return int((sizes * (sizes - 1) // 2).sum())
