"""Count the features that documents share, for many pairs at once.

The pairs are within small groups of documents. The features of a group are numbered, and each document becomes a
row of bits, so that a pair costs an AND and a population count for each 64 features of its group.
"""

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.positions import first_of_equals
from simsql.fingerprint.features import sort_runs
from simsql.fingerprint.hashes import I64, U64

# Features that are numbered at once, and words of the rows that are compared at once.
_AT_ONCE = 1 << 20
_WORDS = 1 << 16


def compare_features(hashes: U64, counts: I64, groups: I64, left: I64, right: I64) -> NDArray[np.float64]:
    """Return the Jaccard indexes of pairs of documents: of their sets of features.

    `hashes` are the features of all documents, with repetitions, and `counts` says how many each document has.
    `groups` are the numbers of documents in each group: the documents of a group follow one another, and both
    members of a pair are in one group. Two documents without features have the index 0.
    """
    shared = np.zeros(len(left), dtype=np.int64)
    sizes = np.zeros(len(counts), dtype=np.int64)
    ends = np.cumsum(counts)
    bucket = hashes.view(np.uint16)[::4]  # 16 bits of each hash, which are the same 16 of all
    parts = -(-len(hashes) // _AT_ONCE)
    for part in range(parts):
        some, of_document = hashes, counts
        if parts > 1:
            first, last = (number * (1 << 16) // parts for number in (part, part + 1))
            (chosen,) = np.nonzero((bucket >= first) & (bucket < last))
            some, of_document = hashes[chosen], np.diff(np.searchsorted(chosen, ends), prepend=0)
        numbered = _Numbered(some, of_document, groups)
        sizes += numbered.sizes
        shared += numbered.count_shared(left, right)
    # Features of a single document are not counted, but a document shares them with itself.
    shared = np.where(left == right, sizes[left], shared)
    either = sizes[left] + sizes[right] - shared
    result: NDArray[np.float64] = shared / np.maximum(either, 1)
    return result


class _Numbered:
    """Features of documents, numbered within each group, without those that occur once in their group."""

    def __init__(self, hashes: U64, counts: I64, groups: I64) -> None:
        documents = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self._group = np.repeat(np.arange(len(groups)), groups)
        ends = np.cumsum(counts)[np.cumsum(groups) - 1]
        place, new = _order(hashes, ends)
        single = new.copy()
        single[:-1] &= new[1:]
        (several,) = np.nonzero(~single)
        document, new = documents[place[several]], new[several]
        again = ~new
        again[1:] &= document[1:] == document[:-1]
        self.sizes = counts - np.bincount(document[again], minlength=len(counts))

        self._documents, new = document[~again], new[~again]
        group = self._group[self._documents]
        of_group = np.bincount(group[new], minlength=len(groups))
        self._columns = np.cumsum(new) - 1 - (np.cumsum(of_group) - of_group)[group]
        # Numbers with two binary digits, so that there are few different widths.
        widths = -(-of_group // 64)
        unit = np.maximum(np.frexp(widths.astype(np.float64))[1] - 2, 0)
        self._widths: I64 = -(-widths >> unit) << unit

    def count_shared(self, left: I64, right: I64) -> I64:
        """Return the number of features that both documents of each pair have."""
        # Rows of one width follow one another.
        width = self._widths[self._group]
        by_width = np.argsort(width, kind="stable")
        row = np.empty_like(by_width)
        row[by_width] = np.arange(len(by_width))
        ends = np.cumsum(width[by_width])
        begin = (ends - width[by_width])[row]
        words = np.zeros(int(width.sum()), dtype=np.uint64)
        bits = np.uint64(1) << (self._columns & 63).view(np.uint64)
        np.add.at(words, begin[self._documents] + (self._columns >> 6), bits)

        shared = np.zeros(len(left), dtype=np.int64)
        of_pair = width[left]
        for some in np.unique(of_pair[of_pair > 0]).tolist():
            first, last = np.searchsorted(width[by_width], [some, some + 1])
            rows = words[int(ends[first]) - some : int(ends[last - 1])].reshape(-1, some)
            (pairs,) = np.nonzero(of_pair == some)
            step = max(1, _WORDS // some)
            for start in range(0, len(pairs), step):
                here = pairs[start : start + step]
                both = rows.take(row[left[here]] - first, axis=0)
                both &= rows.take(row[right[here]] - first, axis=0)
                shared[here] = np.add.reduce(np.bitwise_count(both), axis=1, dtype=np.int64)
        return shared


def _order(hashes: U64, ends: I64) -> tuple[I64, NDArray[np.bool_]]:
    """Return the places of the hashes in ascending order within each run, and which begins a new hash or run.

    Places of equal hashes are in ascending order. The lower bits of each hash make room for its place, because
    sorting plain integers is many times faster than sorting places.
    """
    starts = np.concatenate([[0], ends[:-1]])
    starts = starts[starts < ends]
    low = (1 << len(hashes).bit_length()) - 1
    keys = hashes & np.uint64(2**64 - 1 - low)
    keys |= np.arange(len(hashes), dtype=np.uint64)
    sort_runs(keys, ends)
    place = (keys & np.uint64(low)).view(np.int64)
    keys >>= np.uint64(low.bit_length())
    new = first_of_equals(keys)
    new[starts] = True
    ordered = hashes[place]
    if ((ordered[1:] != ordered[:-1]) > new[1:]).any():
        # Different hashes with the same upper bits, which is rare.
        place = np.lexsort((hashes, np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))))
        ordered = hashes[place]
        new = first_of_equals(ordered)
        new[starts] = True
    return place, new
