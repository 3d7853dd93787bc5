"""Count features in bounded memory.

Features are counted in memory while there is room, and then in sorted runs on disk, which are merged by ranges of
the hashes. So memory grows neither with the number of features nor with the number of distinct ones.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, NamedTuple

import numpy as np

from simsql.fingerprint.features import distinct
from simsql.fingerprint.hashes import I64, U64

# Features that are sorted together, which takes about 60 MB.
_AT_ONCE = 1 << 20
# One feature in this many is sampled to cut runs into ranges of similar size.
_SAMPLED = 1 << 10


class Counts(NamedTuple):
    """Distinct hashes of features, ascending, and their numbers of occurrences."""

    hashes: U64
    counts: I64


def count_features(batches: Iterable[U64], at_least: int = 1) -> Counts:
    """Count hashes, and keep those that occur at least `at_least` times."""
    kept = [_keep(part, at_least) for part in iter_counts(batches)]
    kept.append(Counts(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)))
    return Counts(*(np.concatenate(column) for column in zip(*kept, strict=True)))


def iter_counts(batches: Iterable[U64]) -> Iterator[Counts]:
    """Yield the counts of hashes, range by range of the hashes in ascending order."""
    with ExitStack() as stack:
        file: IO[bytes] | None = None
        runs: list[_Run] = []
        counted: list[Counts] = []
        for together in _gather(batches):
            counted.append(_count(together))
            if sum(len(part.hashes) for part in counted) <= _AT_ONCE:
                continue
            counted = [_add_range(counted)]
            # Few distinct features, as in a repetitive text, stay in memory.
            if len(counted[0].hashes) > _AT_ONCE // 2:
                with _naming_the_folder():
                    file = file or stack.enter_context(tempfile.TemporaryFile(prefix="simsql-"))
                    runs.append(_Run(file, counted.pop()))
        if file is None:
            if counted:
                yield _add_range(counted)
            return
        if counted:
            with _naming_the_folder():
                runs.append(_Run(file, _add_range(counted)))
            counted = []
        yield from _merge(runs)


def _gather(batches: Iterable[U64]) -> Iterator[U64]:
    """Yield arrays of about _AT_ONCE hashes."""
    waiting: list[U64] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += len(batch)
        if size >= _AT_ONCE:
            together, waiting, size = np.concatenate(waiting), [], 0
            yield together
            del together
    if size:
        yield np.concatenate(waiting)


def _count(hashes: U64) -> Counts:
    found = distinct(hashes, np.array([len(hashes)]))
    return Counts(found.hashes, found.occurrences)


def _add_up(ordered: U64, counts: I64) -> Counts:
    """Return each of these ascending hashes once, with the sum of its counts."""
    if not len(ordered):
        return Counts(ordered, counts)
    new = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    first = np.flatnonzero(new)
    return Counts(ordered[first], np.add.reduceat(counts, first))


def _keep(found: Counts, at_least: int) -> Counts:
    kept = found.counts >= at_least
    return Counts(found.hashes[kept], found.counts[kept])


@contextmanager
def _naming_the_folder() -> Iterator[None]:
    """Add the folder of temporary files to errors of the system, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, tempfile.tempdir or "temporary files") from error


class _Run:
    """Counted hashes at the end of a file: eight bytes for each hash, then four for each count."""

    def __init__(self, file: IO[bytes], found: Counts) -> None:
        self._file = file
        self._place = file.seek(0, os.SEEK_END)
        self._size = len(found.hashes)
        self.sample = found.hashes[::_SAMPLED].copy()
        file.write(found.hashes.data)
        file.write(found.counts.astype(np.uint32).data)
        file.flush()

    def cut(self, bounds: U64) -> list[int]:
        """Return the positions at which the ranges between these bounds begin and end."""
        # Mapped only for this search: pages that were read count as memory of this process.
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
    if len(parts) == 1:
        return parts[0]
    hashes, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    # The parts are in order: a stable sort merges them.
    order = np.argsort(hashes, kind="stable")
    return _add_up(hashes[order], counts[order])
