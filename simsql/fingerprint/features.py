"""Features of documents: shingles of tokens, each once, how often it occurs, and how rare it is.

Features of long texts and of whole corpora are counted in memory while there is room, and then in sorted runs on
disk, which are merged by ranges of the hashes. So memory grows neither with the number of features nor with the
number of distinct ones.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from hashlib import sha256
from operator import index
from os import PathLike
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.positions import first_of_equals, gather
from simsql.errors import UsageError, naming_temporary_files
from simsql.fingerprint.hashes import I64, SHINGLE, U64

# A longer run of hashes is first spread over buckets by its upper bits. numpy sorts a few hundred values within
# registers at 3 ns each, but thousands at once, on some processors, at 15 to 50 ns.
_SORT_AT_ONCE = 1500
_BUCKET = 192
_BUCKETS = 256
# Features that are sorted together, which takes about 60 MB.
_AT_ONCE = 1 << 20
# Runs on disk are cut into ranges of the upper bits of the hashes, which are evenly distributed.
_RANGE_BITS = 10
_COUNTED = np.dtype([("hash", np.uint64), ("count", np.uint32)])

# Steps of the weights in an idf table, per halving of the document frequency.
_STEPS = 4
# The weight in an idf table of a feature that occurs in one of 2**64 documents. Multiplied by the other weights,
# which stay below 2**53, no sum reaches the 2**62 of a vote. It also makes the bytes that are digested unique.
_AT_MOST = 256

Bools = NDArray[np.bool_]


class Features(NamedTuple):
    """The distinct features of a batch, document after document."""

    hashes: U64
    occurrences: I64
    documents: I64
    """The number of distinct features of each document."""


def shingle(
    tokens: U64, documents: I64, lengths: tuple[int, ...], *, cyclic: bool = False, marked: Bools | None = None
) -> tuple[U64, I64]:
    """Return the hashes of all shingles of these lengths, and how many each document has.

    `tokens` are the hashes of the tokens, document after document; `documents` says how many each has. A
    document with tokens, but fewer than the shortest length, has one shingle: all of them. `cyclic` shingles
    continue at the beginning of their document. With `marked`, only shingles with a marked token count.
    """
    if lengths == (1,) and marked is None:
        return tokens, documents
    ends = np.cumsum(documents)
    starts = ends - documents
    running = tokens.copy()  # Horner's rule over `reached` tokens from each place; garbage past a document's end
    shingles = np.empty((len(tokens), len(lengths)), dtype=np.uint64) if len(lengths) > 1 else running[:, None]
    valid = np.ones(shingles.shape, dtype=bool)

    touched = np.ones(len(tokens), dtype=bool) if marked is None else marked.copy()
    reached = 1
    whole = np.zeros(len(documents), dtype=np.uint64)
    whole_touched = np.zeros(len(documents), dtype=bool)
    for column, length in enumerate(lengths):
        while reached < length:
            if column == 0:
                short = documents == reached
                whole[short] = running[starts[short]]
                whole_touched[short] = touched[starts[short]]
            ahead: I64 | slice = slice(reached, None)
            if cyclic:  # the places in their documents wrap around
                first, size = np.repeat(starts, documents), np.repeat(documents, documents)
                ahead = first + (np.arange(len(first)) - first + reached) % size
            following = tokens[ahead]
            running *= SHINGLE
            running[: len(following)] += following
            if marked is not None:
                touched[: len(following)] |= marked[ahead]
            reached += 1
        shingles[:, column] = running
        if cyclic:
            valid[:, column] = np.repeat(documents >= length, documents)
        else:
            for back in range(1, length):
                place = ends - back
                valid[place[place >= starts], column] = False
        if marked is not None:
            valid[:, column] &= touched

    short = (documents > 0) & (documents < lengths[0])
    shingles[starts[short], 0] = whole[short]
    valid[starts[short], 0] = whole_touched[short]
    found = shingles[valid]
    if cyclic or marked is not None:
        before = np.concatenate([[0], np.cumsum(np.count_nonzero(valid, axis=1))])
        return found, before[ends] - before[starts]
    counts = sum(np.maximum(documents - (length - 1), 0) for length in lengths)
    return found, np.where(short, 1, counts)


def padded_trigrams(tokens: U64, counts: I64) -> tuple[U64, I64]:
    """Return the hashes of the trigrams of each document with two empty tokens before it and two behind it.

    `tokens` are the hashes of the tokens, document after document; `counts` says how many each has. A document of
    n tokens has n + 2 trigrams, one without tokens none. Returns the trigrams and their numbers, in the same form.
    """
    sizes = counts + 2 * (counts > 0)
    # Two zeros precede each document and follow the last one, so each place but the last two begins a trigram.
    padded = np.zeros(int(sizes.sum()) + 2, dtype=np.uint64)
    of_token = np.ones(len(padded), dtype=bool)
    of_token[:2] = False
    ends = np.cumsum(sizes)
    of_token[ends] = of_token[ends + 1] = False
    padded[of_token] = tokens
    trigrams = padded[:-2] * SHINGLE
    trigrams += padded[1:-1]
    trigrams *= SHINGLE
    trigrams += padded[2:]
    return trigrams, sizes


def distinct(hashes: U64, counts: I64) -> Features:
    """Return the distinct hashes of each document, ascending, and their numbers of occurrences.

    Sorts `hashes` in place.
    """
    ends = np.cumsum(counts)
    sort_runs(hashes, ends)
    new = first_of_equals(hashes)
    new[(ends - counts)[counts > 0]] = True
    (first,) = np.nonzero(new)
    of_document = np.diff(np.searchsorted(first, ends), prepend=0)
    return Features(hashes[first], np.diff(first, append=len(hashes)), of_document)


def sort_runs(values: U64, ends: I64) -> None:
    """Sort in place each run of values; the runs follow one another and end at `ends`."""
    start = 0
    for end in ends.tolist():
        run = values[start:end]
        if len(run) <= _SORT_AT_ONCE:
            run.sort()
        else:
            _sort_by_buckets(run)
        start = end


def _sort_by_buckets(run: U64) -> None:
    # 256 buckets, by a radix sort of one pass; of a text so long that they are full, 65,536.
    top = (run >> np.uint64(56)).astype(np.uint8)
    if len(run) > _BUCKET * _BUCKETS:
        top = (run >> np.uint64(48)).astype(np.uint16)
    run[:] = run[np.argsort(top, kind="stable")]
    ends = np.cumsum(np.bincount(top, minlength=_BUCKETS))
    # Buckets that are sorted together have about _BUCKET values.
    step = max(1, len(ends) * _BUCKET // len(run))
    start = 0
    for end in [*ends[step - 1 : -1 : step].tolist(), len(run)]:
        run[start:end].sort()
        start = end


class Counts(NamedTuple):
    """Distinct hashes of features, ascending, and their numbers of occurrences."""

    hashes: U64
    counts: I64


def count_features(batches: Iterable[U64], at_least: int = 1) -> Counts:
    """Count hashes, and keep those that occur at least `at_least` times."""
    kept = [Counts(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))]
    for found in iter_counts(batches):
        often = found.counts >= at_least
        kept.append(Counts(found.hashes[often], found.counts[often]))
    return Counts(*(np.concatenate(column) for column in zip(*kept, strict=True)))


def iter_counts(batches: Iterable[U64]) -> Iterator[Counts]:
    """Yield the counts of hashes, range by range of the hashes in ascending order."""
    with ExitStack() as stack:
        file: IO[bytes] | None = None
        runs: list[I64] = []
        counted: list[Counts] = []
        for together in gather(batches, len, _AT_ONCE):
            hashes = np.concatenate(together)
            counted.append(Counts(*distinct(hashes, np.array([len(hashes)]))[:2]))
            if sum(len(part.hashes) for part in counted) <= _AT_ONCE:
                continue
            counted = [_add_up(counted)]
            # Few distinct features, as in a repetitive text, stay in memory.
            if len(counted[0].hashes) > _AT_ONCE // 2:
                with naming_temporary_files():
                    file = file or stack.enter_context(tempfile.TemporaryFile(prefix="simsql-"))
                    runs.append(_write_run(file, counted.pop()))
        if file is None:
            if counted:
                yield _add_up(counted)
            return
        if counted:
            with naming_temporary_files():
                runs.append(_write_run(file, _add_up(counted)))
            counted = []
        ranges = 1 << _RANGE_BITS
        step = max(1, ranges * _AT_ONCE // int(sum(run[-1] - run[0] for run in runs)))
        for first in range(0, ranges, step):
            last = min(first + step, ranges)
            yield _add_up([_read_run(file, int(run[first]), int(run[last])) for run in runs])


def _write_run(file: IO[bytes], found: Counts) -> I64:
    """Append counted hashes to a file, and return the places where their ranges begin, and where the last ends."""
    entries = np.empty(len(found.hashes), dtype=_COUNTED)
    entries["hash"], entries["count"] = found
    start = file.seek(0, os.SEEK_END) // _COUNTED.itemsize
    file.write(entries.view(np.uint8).data)
    file.flush()
    upper = (found.hashes >> np.uint64(64 - _RANGE_BITS)).view(np.int64)
    return start + np.searchsorted(upper, np.arange((1 << _RANGE_BITS) + 1))


def _read_run(file: IO[bytes], start: int, end: int) -> Counts:
    file.seek(start * _COUNTED.itemsize)
    entries = np.fromfile(file, _COUNTED, end - start)
    return Counts(entries["hash"], entries["count"].astype(np.int64))


def _add_up(parts: list[Counts]) -> Counts:
    if len(parts) == 1:
        return parts[0]
    hashes, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    # The parts are in order: a stable sort merges them.
    order = np.argsort(hashes, kind="stable")
    hashes, counts = hashes[order], counts[order]
    first = np.flatnonzero(first_of_equals(hashes))
    return Counts(hashes[first], np.add.reduceat(counts, first))


class IdfTable:
    """Weights that reflect the rarity of features (inverse document frequency), by their 64-bit hashes.

    A feature that occurs in `df` of `n` documents weighs max(1, round(4 * log2((n + 1) / (df + 1)))); for a
    feature that occurs in none, `df` is 0 (Sparck Jones, Journal of Documentation 1972, smoothed). The table
    contains these integers, so fingerprints are the same on every platform. A table is frozen, and compared and
    hashed by content.

    `count_documents` of `simsql.fingerprint` returns the table of a corpus. `hashes` are distinct and ascending,
    `weights` are integers between 1 and 256, one for each hash, and `other` is the weight of all other features.
    `features` is the `Recipe.features_id` of the recipes that can use the table; if it is empty, all can.
    Raises ValueError for other arrays.
    """

    def __init__(self, hashes: U64, weights: NDArray[np.int32], other: int, features: str = "") -> None:
        # A file may come from a machine with the other byte order.
        hashes = hashes.astype(hashes.dtype.newbyteorder("="))
        weights = weights.astype(weights.dtype.newbyteorder("="))
        if (
            hashes.dtype != np.uint64
            or weights.dtype != np.int32
            or hashes.shape != weights.shape
            or hashes.ndim != 1
        ):
            raise UsageError(
                "an idf table needs a uint64 array and an int32 array, one-dimensional and of equal length"
            )
        if (hashes[1:] <= hashes[:-1]).any():
            raise UsageError("the hashes of an idf table must be distinct and ascending")
        if not 1 <= other <= _AT_MOST or (weights < 1).any() or (weights > _AT_MOST).any():
            raise UsageError(f"the weights of an idf table must be between 1 and {_AT_MOST}")
        self._hashes, self._weights, self.other, self.features = hashes, weights, other, features

    @classmethod
    def of_frequencies(
        cls, hashes: U64, frequencies: I64, documents: int, at_least: int = 2, features: str = ""
    ) -> "IdfTable":
        """Return the table of features with these document frequencies among `documents` documents.

        `hashes` are a uint64 array, distinct and ascending, and `frequencies` integers, one for each hash.
        Features of fewer than `at_least` documents are omitted, which saves most of the table's size, and weigh as
        if no document had them.
        """
        kept = frequencies >= at_least
        weights = np.rint(_STEPS * np.log2((documents + 1) / (frequencies[kept] + 1)))
        other = max(1, round(_STEPS * float(np.log2(documents + 1))))
        return cls(hashes[kept], np.maximum(1, weights).astype(np.int32), other, features)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> "IdfTable":
        """Read a table that `write` has written. Raises ValueError for any other file, OSError for none."""
        with Path(path).open("rb") as file:
            try:
                with np.load(file, allow_pickle=False) as saved:
                    return cls(saved["hashes"], saved["weights"], index(saved["other"]), str(saved["features"]))
            except Exception as error:  # NumPy, zipfile and the decompressors raise many kinds
                raise UsageError(f"{path} is not an idf table written by simsql: {error}") from None

    def write(self, path: str | PathLike[str]) -> None:
        """Write the table to a file in NumPy's npz format. Raises OSError if it cannot be written."""
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file, hashes=self._hashes, weights=self._weights, other=self.other, features=self.features
            )

    def weigh(self, hashes: U64) -> I64:
        """Return the weights of features, an int64 array, by their hashes, a uint64 array of the same shape."""
        if not len(self._hashes):
            return np.full(len(hashes), self.other, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return np.where(self._hashes[place] == hashes, self._weights[place], self.other).astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits that identify the content."""
        summary = sha256(self._hashes.astype("<u8").tobytes())
        summary.update(self._weights.astype("<i4").tobytes())
        summary.update(str(self.other).encode())
        return summary.hexdigest()[:8]

    def __len__(self) -> int:
        return len(self._hashes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdfTable):
            return NotImplemented
        return (
            self.other == other.other
            and np.array_equal(self._hashes, other._hashes)
            and np.array_equal(self._weights, other._weights)
        )

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"IdfTable({len(self)} features, {self.digest})"
