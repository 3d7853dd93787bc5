"""The filter by sketches: of near fingerprints, only those of texts that may be similar."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import (
    FINGERPRINT_BITS,
    fingerprint_column,
    first_of_each,
    refuse_too_many,
    whole_number,
)
from simsql.arrays.columns import Fingerprints
from simsql.arrays.positions import consecutive, portions
from simsql.errors import UsageError

# Pairs of sketches compared at a time, or those of one sketch.
_COMPARED = 1 << 18

Words = NDArray[np.uint64]
Pairs = NDArray[np.uint64]
Positions = NDArray[np.intp]


class SketchFilter(NamedTuple):
    """The sketches of distinct sorted fingerprints; a pair passes if two of theirs differ in few enough bits.

    Those of the fingerprint at position i are `sketches[starts[i] : starts[i + 1]]`.
    """

    fingerprints: Words
    starts: Positions
    sketches: Words
    distance: int

    def passing(self, pairs: Pairs) -> Pairs:
        """Return the pairs that pass, in their order. The fingerprints of all pairs are there."""
        left, right = (np.searchsorted(self.fingerprints, pairs[:, side]) for side in (0, 1))
        ones, others = self.starts[left], self.starts[right]
        near = self._near(ones, others)
        if self.sketches.size > self.fingerprints.size:
            sizes, lengths = self.starts[left + 1] - ones, self.starts[right + 1] - others
            (several,) = np.nonzero(~near & ((sizes > 1) | (lengths > 1)))
            for some in portions(sizes[several], _COMPARED):
                pair = np.repeat(several[some], sizes[several[some]])
                one = consecutive(ones[several[some]], sizes[several[some]])
                for part in portions(lengths[pair], _COMPARED):
                    each = lengths[pair[part]]
                    found = self._near(np.repeat(one[part], each), consecutive(others[pair[part]], each))
                    near[np.repeat(pair[part], each)[found]] = True
        return pairs[near]

    def _near(self, ones: Positions, others: Positions) -> NDArray[np.bool_]:
        near: NDArray[np.bool_] = np.bitwise_count(self.sketches[ones] ^ self.sketches[others]) <= self.distance
        return near


def filter_of(fingerprints: Fingerprints, sketches: tuple[Fingerprints, int]) -> SketchFilter:
    """Return the filter for fingerprints and, as many, their sketches, with the largest distance of two sketches.

    What lacks a fingerprint or a sketch is left out. Raises TypeError and ValueError as `distinct_fingerprints`
    does, and UsageError for different numbers of fingerprints and sketches.
    """
    if not isinstance(sketches, tuple) or len(sketches) != 2:
        raise TypeError(
            "sketches must be a tuple of the sketches and the largest distance of two, such as (array, 22)"
        )
    distance = whole_number("the distance of sketches", sketches[1], 0, FINGERPRINT_BITS)
    words, present = fingerprint_column(fingerprints)
    others, known = fingerprint_column(sketches[0])
    if words.size != others.size:
        raise UsageError(f"there must be a sketch for each of the {words.size} fingerprints, not {others.size}")
    if present is not None or known is not None:
        there = (True if present is None else present) & (True if known is None else known)
        words, others = words[there], others[there]
    order = np.lexsort((others, words))
    words, others = words[order], others[order]
    first = first_of_each(words)
    fresh = first | first_of_each(others)
    starts = np.append(np.flatnonzero(first[fresh]), np.count_nonzero(fresh))
    words = words[first]
    refuse_too_many(words)
    return SketchFilter(words, starts, others[fresh], distance)
