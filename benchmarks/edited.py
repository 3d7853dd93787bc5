"""Pairs of texts with a given similarity: parts of real texts in three scripts, and edited copies of them.

An edit is of one kind and of a size, a number of words. The size is found by bisection, so that the similarity
of the pair, as `SearchIndex.similar` compares texts of a recipe, falls into the wanted range.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.labelled import find_folder, read_lines
from benchmarks.similarities import similarities
from simsql import DEFAULT_RECIPE, Recipe

WIDTH = 0.02
LENGTHS = ((20, 39), (40, 79), (80, 199), (200, 600))
_FILES = {"Latin": ("civil_codes", "text"), "Chinese": ("cn_laws", "text"), "Arabic": ("hadith_darimi", "plain")}
# A Chinese character, or a word of another script, with what separates it from the next one.
_WORD = re.compile(r"[\u3400-\u9fff]\W*|[^\W\u3400-\u9fff]+\W*")
_AT_ONCE, _ROUNDS = 1000, 40

Words = list[str]


@dataclass(frozen=True)
class Draft:
    """A text, words of another one, and what chance decides: an order of the text's words, and a place."""

    words: Words
    others: Words
    order: list[int]
    place: float


def _scatter(draft: Draft, size: int) -> Words:
    """Replace, remove or insert a word in `size` places."""
    edited = list(draft.words)
    for place in draft.order[:size]:
        other = draft.others[place]
        edited[place] = (other, "", other + edited[place])[draft.order[place] % 3]
    return edited


def _append(draft: Draft, size: int) -> Words:
    return draft.words + draft.others[:size]


def _replace(draft: Draft, size: int, new: int = 1) -> Words:
    """Replace one block by as many words, or with `new` of 0 by none."""
    start = round(draft.place * (len(draft.words) - size))
    return draft.words[:start] + draft.others[: size * new] + draft.words[start + size :]


def _move(draft: Draft, size: int) -> Words:
    """Cut the text in `size` places, and put its parts in the opposite order."""
    cuts = sorted(draft.order[:size])
    parts = [draft.words[start:end] for start, end in zip([0, *cuts], [*cuts, len(draft.words)], strict=True)]
    return [word for part in reversed(parts) for word in part]


# Kinds of edits: how, and the largest size, for each word of the text.
KINDS: dict[str, tuple[Callable[[Draft, int], Words], int]] = {
    "scattered": (_scatter, 1),
    "appended": (_append, 3),
    "replaced": (_replace, 1),
    "removed": (partial(_replace, new=0), 1),
    "moved": (_move, 1),
}


@dataclass(frozen=True)
class Pairs:
    """Queries, and for each the row that it should find."""

    queries: list[str]
    rows: list[str]

    def first(self, count: int) -> "Pairs":
        """Return the first `count` of them."""
        return Pairs(self.queries[:count], self.rows[:count])


class Source:
    """Texts of one script, to take parts of."""

    def __init__(self, texts: Sequence[str], seed: int, recipe: Recipe = DEFAULT_RECIPE) -> None:
        self._recipe = recipe
        self._texts = [_WORD.findall(text) for text in texts]
        self._all = [word for text in self._texts for word in text]
        self._sizes = np.array(list(map(len, self._texts)))
        self._chance = np.random.default_rng(seed)

    def pairs(self, kind: str, shortest: int, longest: int, least: float, count: int) -> Pairs:
        """Return `count` pairs with a similarity in [least, least + WIDTH), whose rows have so many words.

        There are fewer where hardly any edit of the kind leaves such a similarity: a moved part of a short text.
        """
        found = Pairs([], [])
        for _ in range(_ROUNDS):
            if len(found.rows) >= count:
                break
            drafts = list(self._drafts(shortest, longest, min(_AT_ONCE, 2 * count)))
            for draft, edited in _bisect(drafts, kind, least, self._recipe):
                found.queries.append(edited)
                found.rows.append("".join(draft.words))
        return found.first(count)

    def _drafts(self, shortest: int, longest: int, count: int) -> Iterator[Draft]:
        (enough,) = np.nonzero(self._sizes >= shortest)
        for place in self._chance.choice(enough, count).tolist():
            size = int(self._chance.integers(shortest, min(longest, self._sizes[place]) + 1))
            start = int(self._chance.integers(self._sizes[place] - size + 1))
            other = int(self._chance.integers(len(self._all) - 3 * size))
            yield Draft(
                self._texts[place][start : start + size],
                self._all[other : other + 3 * size],
                self._chance.permutation(size).tolist(),
                float(self._chance.random()),
            )


def read_sources(seed: int, recipe: Recipe = DEFAULT_RECIPE) -> dict[str, Source]:
    """Return the shared texts of each script."""
    folder = find_folder()
    return {
        script: Source([row[field] for row in read_lines(folder / f"{name}.jsonl.xz")], seed, recipe)
        for script, (name, field) in _FILES.items()
    }


def _bisect(drafts: list[Draft], kind: str, least: float, recipe: Recipe) -> Iterator[tuple[Draft, str]]:
    """Yield the drafts that an edit of some size brings into the range, with the edited text."""
    edit, largest = KINDS[kind]
    waiting = [(draft, 0, largest * len(draft.words)) for draft in drafts]
    while waiting:
        edited = ["".join(edit(draft, (low + high) // 2)) for draft, low, high in waiting]
        similar = similarities(edited, ["".join(draft.words) for draft, _, _ in waiting], recipe)
        undecided = []
        for (draft, low, high), text, value in zip(waiting, edited, similar.tolist(), strict=True):
            middle = (low + high) // 2
            if least <= value < least + WIDTH:
                yield draft, text
            elif high - low > 1:
                undecided.append((draft, middle, high) if value >= least else (draft, low, middle))
        waiting = undecided
