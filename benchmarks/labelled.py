"""Texts in three scripts, and which of them are near-duplicates by definition: nothing of simsql.

The texts are public-domain data that are not part of the project: the folder `data` in SIMSQL_SHARED, else in the
folder `shared` beside the checkout. What is alike is found by brute force: the Jaccard index of the sets of what
texts are made of (runs of three words, or of five characters), for every pair of texts.
"""

import json
import lzma
import os
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LEAST = 0.5
_FILES = ("civil_codes.jsonl.xz", "cn_laws.jsonl.xz", "hadith_darimi.jsonl.xz")
_WORD = re.compile(r"\w+")

Pairs = dict[tuple[int, int], float]


class MissingDataError(SystemExit):
    """The data are not there: the message says what is missing, and what to do. Ends a program that needs them."""


@dataclass(frozen=True)
class Labelled:
    """Texts, and the Jaccard index of every pair of them (smaller place first) where it is LEAST or more."""

    language: str
    name: str
    texts: list[str]
    alike: Pairs
    again: list[str] | None = None
    """The same texts, written in another way."""


def find_folder() -> Path:
    """Return the folder of the data. Raises MissingDataError."""
    shared = os.environ.get("SIMSQL_SHARED", Path(__file__).resolve().parents[2] / "shared")
    folder = Path(shared) / "data"
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise MissingDataError(
            f"{folder} lacks {', '.join(missing)}: set SIMSQL_SHARED to the folder that holds data/ with these"
        )
    return folder


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the objects of a .jsonl.xz file."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def read_civil_codes(folder: Path) -> Labelled:
    """Return sections of civil codes of American states in the 19th century, which copied from one another."""
    texts = [row["text"] for row in read_lines(folder / "civil_codes.jsonl.xz")]
    return Labelled("English", "civil codes", texts, find_alike(map(word_trigrams, texts)))


def read_laws(folder: Path) -> Labelled:
    """Return Chinese laws, some in several versions."""
    texts = [row["text"] for row in read_lines(folder / "cn_laws.jsonl.xz")]
    return Labelled("Chinese", "laws", texts, find_alike(map(character_5_grams, texts)))


def read_hadiths(folder: Path) -> Labelled:
    """Return Arabic reports, many with the same chain of witnesses, and again with vowel signs."""
    rows = read_lines(folder / "hadith_darimi.jsonl.xz")
    texts = [row["plain"] for row in rows]
    again = [row["diacritised"] for row in rows]
    return Labelled("Arabic", "hadiths", texts, find_alike(map(character_5_grams, texts)), again)


READERS: tuple[Callable[[Path], Labelled], ...] = (read_civil_codes, read_laws, read_hadiths)


def word_trigrams(text: str) -> set[Hashable]:
    """Return the runs of three words, in lower case."""
    words = _WORD.findall(text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def padded_trigrams(words: Sequence[str]) -> set[Hashable]:
    """Return the runs of three words, with two empty words before the first and two behind the last."""
    padded = ["", "", *words, "", ""] if words else []
    return set(zip(padded, padded[1:], padded[2:], strict=False))


def character_5_grams(text: str) -> set[Hashable]:
    """Return the runs of five characters."""
    return {text[start : start + 5] for start in range(len(text) - 4)}


def find_alike(sets: Iterable[set[Hashable]], least: float = LEAST) -> Pairs:
    """Return the Jaccard index of all pairs of sets, by their places, where it is `least` or more.

    `least` is above 0: pairs that share nothing are never looked at.
    """
    numbers: dict[Hashable, int] = {}
    members = [np.fromiter((numbers.setdefault(one, len(numbers)) for one in own), dtype=np.int64) for own in sets]
    sizes = np.array([len(own) for own in members], dtype=np.int64)
    # For each element the sets that hold it, one element after the other.
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *members])
    holders = np.repeat(np.arange(len(sizes)), sizes)[np.argsort(flat, kind="stable")]
    counts = np.bincount(flat, minlength=len(numbers))
    first = np.cumsum(counts) - counts
    alike = {}
    for place, own in enumerate(members):
        runs = counts[own]
        begin = np.repeat(first[own] - (np.cumsum(runs) - runs), runs)
        common = np.bincount(holders[begin + np.arange(len(begin))], minlength=len(sizes))[place + 1 :]
        index = common / np.maximum(sizes[place] + sizes[place + 1 :] - common, 1)
        for later in np.flatnonzero(index >= least).tolist():
            alike[place, place + 1 + later] = float(index[later])
    return alike
