"""Features of documents: shingles of tokens, each once, with its weight."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.hashes import I64, SHINGLE, U64

# A longer run of hashes is first spread over buckets by its upper bits. numpy sorts a few hundred values within
# registers at 3 ns each, but thousands at once, on some processors, at 15 to 50 ns.
_SORT_AT_ONCE = 1500
_BUCKET = 192
_BUCKETS = 256


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
    shingles = np.empty((len(tokens), len(lengths)), dtype=np.uint64)
    valid = np.ones(shingles.shape, dtype=bool)

    running = tokens.copy()  # Horner's rule over `reached` tokens from each place; garbage past a document's end
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
            ahead = _places_ahead(documents, starts, reached) if cyclic else slice(reached, None)
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


def _places_ahead(documents: I64, starts: I64, distance: int) -> I64:
    """Return, for each token, the place of the token `distance` ahead in its document, wrapping around."""
    first, size = np.repeat(starts, documents), np.repeat(documents, documents)
    return first + (np.arange(len(first)) - first + distance) % size


def distinct(hashes: U64, counts: I64) -> Features:
    """Return the distinct hashes of each document, ascending, and their numbers of occurrences.

    Sorts `hashes` in place.
    """
    ends = np.cumsum(counts)
    sort_runs(hashes, ends)
    new = np.empty(len(hashes), dtype=bool)
    new[:1] = True
    np.not_equal(hashes[1:], hashes[:-1], out=new[1:])
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
