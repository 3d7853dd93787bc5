"""How many documents of a corpus have each feature: what an idf table is made of.

Features are counted in memory as far as there is room, and beyond that in sorted runs on disk, which are merged
range by range of the hashes. So the memory does not grow with the corpus, but for the table itself.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import IO, NamedTuple

import numpy as np

from simsql.fingerprint.documents import batches_of
from simsql.fingerprint.extract import extract_features
from simsql.fingerprint.hashes import I64, U64
from simsql.fingerprint.idf import IdfTable
from simsql.fingerprint.processes import map_in_processes
from simsql.fingerprint.recipe import DEFAULT, Recipe, check_recipe

# Characters whose features are found at once, and that a worker is given at once: what it returns takes some ten
# bytes for each of them.
_BATCH_CHARACTERS = 1 << 18
_TASK_CHARACTERS = 1 << 21
# Features that are sorted together: some 300 MB with all that it takes.
_AT_ONCE = 1 << 22
# Of so many features in a run one is looked at to cut the runs into ranges of about the same size.
_SAMPLED = 1 << 10


class Counts(NamedTuple):
    """Distinct hashes of features, ascending, and how often each occurs."""

    hashes: U64
    counts: I64


def count_documents(
    texts: Iterable[str], recipe: Recipe = DEFAULT, workers: int | None = None, *, at_least: int = 2
) -> IdfTable:
    """Return the idf table of a corpus for `Recipe.idf`: how rare each feature of these texts is.

    `texts` may be any iterable, and is read once. The features are those of `recipe`, and its own table does not
    count. Features of fewer texts than `at_least` are left out, and weigh as if no text had them: most features
    of a corpus are in one text alone, and a table takes 12 bytes for each that it holds. Memory grows with the
    table, not with the corpus; what does not fit goes to temporary files, of at most 12 bytes for each feature of
    each text. `workers` as for `simhash_many`; the table depends neither on it nor on the order of the texts.

    Raises TypeError if a text is not a str, ValueError if `workers` or `at_least` is less than 1.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of str, not one str")
    check_recipe(recipe)
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be None or at least 1, not {workers}")
    if at_least < 1:
        raise ValueError(f"at_least must be at least 1, not {at_least}")
    task = partial(_features_of, recipe=replace(recipe, idf=None))
    batches = batches_of(texts, _TASK_CHARACTERS)
    found = map(task, batches) if workers in (None, 1) else map_in_processes(task, batches, workers or 1)
    documents = 0

    def features() -> Iterator[U64]:
        nonlocal documents
        for hashes, count in found:
            documents += count
            yield hashes

    hashes, counts = count_features(features(), at_least)
    return IdfTable.of_frequencies(hashes, counts, documents, at_least, recipe.features_id)


def _features_of(texts: list[str], recipe: Recipe) -> tuple[U64, int]:
    """Return the distinct features of each text, and how many texts that was."""
    batches = batches_of(texts, _BATCH_CHARACTERS)
    return np.concatenate([extract_features(batch, recipe).hashes for batch in batches]), len(texts)


def count_features(batches: Iterable[U64], at_least: int = 1) -> Counts:
    """Count hashes, and keep those that occur so often."""
    with tempfile.TemporaryFile(prefix="simsql-") as file:
        runs: list[_Run] = []
        waiting: list[U64] = []
        size = 0
        for batch in batches:
            waiting.append(batch)
            size += len(batch)
            if size >= _AT_ONCE:
                runs.append(_Run(file, _count(waiting)))
                waiting, size = [], 0
        if not runs:
            return _keep(_count(waiting), at_least)
        if size:
            runs.append(_Run(file, _count(waiting)))
            waiting = []
        merged = [_keep(part, at_least) for part in _merge(runs)]
        return Counts(*(np.concatenate(column) for column in zip(*merged, strict=True)))


def _count(batches: list[U64]) -> Counts:
    return _add_up(np.sort(np.concatenate([*batches, np.zeros(0, dtype=np.uint64)])))


def _add_up(ordered: U64, counts: I64 | None = None) -> Counts:
    """Return each of these ascending hashes once, with the sum of its counts, each 1 if there are none."""
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.flatnonzero(new)
    if counts is None or not len(ordered):
        return Counts(ordered[first], np.diff(first, append=len(ordered)))
    return Counts(ordered[first], np.add.reduceat(counts, first))


def _keep(found: Counts, at_least: int) -> Counts:
    kept = found.counts >= at_least
    return Counts(found.hashes[kept], found.counts[kept])


class _Run:
    """Counted hashes at the end of a file: eight bytes for each, and then four for each count."""

    def __init__(self, file: IO[bytes], found: Counts) -> None:
        self._file = file
        self._place = file.seek(0, os.SEEK_END)
        self._size = len(found.hashes)
        self.sample = found.hashes[::_SAMPLED].copy()
        file.write(found.hashes.data)
        file.write(found.counts.astype(np.uint32).data)
        file.flush()

    def cut(self, bounds: U64) -> list[int]:
        """Return where the ranges between these bounds begin and end."""
        # Mapped no longer than this takes: pages that were read would count as memory of this process.
        hashes = np.memmap(self._file, np.uint64, "r", self._place, (self._size,))
        return [0, *np.searchsorted(hashes, bounds).tolist(), self._size]

    def read(self, start: int, end: int) -> Counts:
        """Return the hashes in these places, and their counts."""
        self._file.seek(self._place + 8 * start)
        hashes = np.fromfile(self._file, np.uint64, end - start)
        self._file.seek(self._place + 8 * self._size + 4 * start)
        return Counts(hashes, np.fromfile(self._file, np.uint32, end - start).astype(np.int64))


def _merge(runs: list[_Run]) -> Iterator[Counts]:
    """Yield the counts of all runs together, range by range of the hashes."""
    samples = np.sort(np.concatenate([run.sample for run in runs]))
    bounds = samples[:: max(1, _AT_ONCE // _SAMPLED)][1:]
    cuts = [run.cut(bounds) for run in runs]
    for number in range(len(bounds) + 1):
        yield _add_range([run.read(*places[number : number + 2]) for run, places in zip(runs, cuts, strict=True)])


def _add_range(parts: list[Counts]) -> Counts:
    hashes, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(hashes)
    return _add_up(hashes[order], counts[order])
