"""Find candidates by bands: texts that share a key of one, and whose sketches and fingerprints are near.

A bucket has the texts with one key of a band. The pairs of most buckets are listed, a bounded number at a time. A
large bucket is a crowd, such as the records of one template: it has too many pairs to list, so `crowds.py` takes
them one kept text at a time.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from simsql.arrays.positions import consecutive, portions
from simsql.decide.documents import I64, U32, U64, Flags
from simsql.fingerprint import BANDS, sketch_distance

# Texts of a bucket whose pairs are all listed, unless there are too many pairs in all.
_LISTED = 256
_PAIRS_AT_MOST = 1 << 29
# Pairs that are looked at together: their arrays fit the cache.
_TOGETHER = 1 << 18
# Bits in which sketches and fingerprints of similar texts may differ together, beyond their limits.
_BEYOND = 2


class Described(NamedTuple):
    """What finds candidates among texts, one per array position."""

    fingerprints: U64
    sketches: U64
    bands: U32
    """Keys, of shape (texts, BANDS)."""
    scope: I64 | None = None
    """Only texts of one scope are similar."""


class Limits:
    """How near the sketches and fingerprints of candidates are."""

    def __init__(self, texts: Described, distance: int, similarity: float) -> None:
        self._texts = texts
        self._sketch = sketch_distance(similarity)
        self._both = self._sketch + distance + _BEYOND

    def near(self, left: I64, right: I64) -> Flags:
        """Return which pairs are candidates."""
        fingerprints, sketches, _, scope = self._texts
        apart = np.bitwise_count(sketches[left] ^ sketches[right])
        near: Flags = apart <= self._sketch
        near &= apart + np.bitwise_count(fingerprints[left] ^ fingerprints[right]) <= self._both
        if scope is not None:
            near &= scope[left] == scope[right]
        return near


class Buckets:
    """The buckets of each band: their texts, and which of them are crowds."""

    def __init__(self, texts: Described, distance: int, similarity: float, new: Flags | None = None) -> None:
        self._texts, self.limits = texts, Limits(texts, distance, similarity)
        self._old = None if new is None else ~new
        sizes = [np.unique(band, return_counts=True)[1] for band in texts.bands.T]
        self.listed = _LISTED
        while self.listed > 2 and sum(_pairs_of(some, self.listed) for some in sizes) > _PAIRS_AT_MOST:
            self.listed //= 2
        self.crowded = np.zeros(len(texts.sketches), dtype=np.uint32)
        """For each text, a bit for each band in which its bucket is a crowd."""

    def pairs(self) -> Iterator[tuple[I64, I64]]:
        """Yield the candidates of the listed buckets, each once; with `new`, those with a new text or two."""
        for band in range(BANDS):
            text, begins, sizes = self.sort(band)
            crowd = sizes > self.listed
            self.crowded[text[consecutive(begins[crowd], sizes[crowd])]] |= np.uint32(1 << band)
            begins, sizes = begins[~crowd], sizes[~crowd]
            some = consecutive(begins, sizes)
            behind = np.repeat(begins + sizes, sizes) - some - 1
            if self._old is not None:
                behind[self._old[text[some]]] = 0  # they are behind the new ones
            for part in portions(behind, _TOGETHER):
                left = text[np.repeat(some[part], behind[part])]
                right = text[consecutive(some[part] + 1, behind[part])]
                near = self.limits.near(left, right)
                left, right = left[near], right[near]
                first = ~self._met(left, right, band)
                yield left[first], right[first]

    def sort(self, band: int) -> tuple[I64, I64, I64]:
        """Return the texts that share a key in a band, bucket by bucket, and where these begin and their sizes."""
        numbers = self._texts.bands[:, band].astype(np.uint64) << np.uint64(32)
        numbers |= np.arange(len(numbers), dtype=np.uint64)
        if self._old is not None:
            numbers |= self._old.astype(np.uint64) << np.uint64(31)
        numbers.sort()
        (begins,) = np.nonzero(np.diff(numbers >> np.uint64(32), prepend=np.uint64(1 << 33)))
        sizes = np.diff(begins, append=len(numbers))
        text = (numbers & np.uint64((1 << 31) - 1)).view(np.int64)
        return text, begins[sizes > 1], sizes[sizes > 1]

    def first_shared(self, left: I64, right: I64) -> I64:
        """Return the first band in which pairs share a crowd; -1 without one, and if they are in `pairs`."""
        same = self._texts.bands[left] == self._texts.bands[right]
        crowded = (self.crowded[left, None] >> np.arange(BANDS, dtype=np.uint32) & np.uint32(1)) != 0
        return np.where(same.any(axis=1) & ~(same & ~crowded).any(axis=1), same.argmax(axis=1), -1)

    def _met(self, left: I64, right: I64, band: int) -> Flags:
        """Return which pairs have been listed in an earlier band."""
        same = self._texts.bands[left, :band] == self._texts.bands[right, :band]
        crowded = (self.crowded[left, None] >> np.arange(band, dtype=np.uint32) & np.uint32(1)) != 0
        met: Flags = (same & ~crowded).any(axis=1)
        return met


def _pairs_of(sizes: I64, listed: int) -> int:
    some = sizes[sizes <= listed]
    return int((some * (some - 1) // 2).sum())
