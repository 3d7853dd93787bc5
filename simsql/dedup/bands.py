"""Find candidates by bands: texts that share a key of one, and whose sketches and fingerprints are near.

A bucket has the texts with one key of a band. The pairs of most buckets are listed, a bounded number at a time. A
large bucket is a crowd, such as the records of one template: it has too many pairs to list, so `crowds.py` takes
them one kept text at a time. Pairs of a crowd are listed, too, if they share a rare key besides: they are those of
it which are most likely to be similar.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Self

import numpy as np

from simsql.arrays.positions import consecutive, portions
from simsql.decide.documents import I64, U32, U64, Flags
from simsql.fingerprint import BANDS, sketch_distance

# Texts of a bucket whose pairs are all listed, unless there are too many pairs in all.
LISTED = 256
# Texts of a bucket whose pairs are listed even if they share a crowd.
_RARE = 16
# Pairs that are listed at most: these or, of many texts, so many for each.
_PAIRS_AT_MOST, _PAIRS_OF_TEXT = 1 << 29, 1 << 6
# Pairs that are looked at together: their arrays fit the cache.
_TOGETHER = 1 << 18
# Bits in which sketches and fingerprints of similar texts may differ together, beyond their limits.
_BEYOND = 2


class Described(NamedTuple):
    """What finds candidates among texts, one per array position."""

    fingerprints: U64
    sketches: U64
    bands: U32
    """Keys, of shape (BANDS, texts)."""
    scope: I64 | None = None
    """Only texts of one scope are similar."""

    def near(self, left: I64, right: I64, sketch: int, both: int) -> Flags:
        """Return which pairs are candidates, given the bits of `bits_of_candidates`."""
        apart = np.bitwise_count(self.sketches[left] ^ self.sketches[right])
        near: Flags = apart <= sketch
        near &= apart + np.bitwise_count(self.fingerprints[left] ^ self.fingerprints[right]) <= both
        if self.scope is not None:
            near &= self.scope[left] == self.scope[right]
        return near


class Sizes(NamedTuple):
    """Up to how many texts a bucket is not a crowd, and is rare."""

    listed: int
    rare: int

    @classmethod
    def of(cls, buckets: I64, texts: int) -> Self:
        """Return the sizes, given the number of buckets of each size from 0 to LISTED in all bands."""
        size = np.arange(len(buckets))
        pairs = np.cumsum(buckets * (size * (size - 1) // 2))
        listed = LISTED
        while listed > 2 and pairs[listed] > max(_PAIRS_AT_MOST, _PAIRS_OF_TEXT * texts):
            listed //= 2
        return cls(listed, min(_RARE, listed))


class Crowded(NamedTuple):
    """What is known of some texts whose crowds are complete, but not their other buckets."""

    sizes: Sizes
    members: I64
    """The texts in crowds. The bands of others are not looked at."""
    rare: U32
    """For each text, a bit for each band in which its bucket is rare."""


def bits_of_candidates(distance: int, similarity: float) -> tuple[int, int]:
    """Return in how many bits the sketches of candidates differ, and sketches and fingerprints together."""
    sketch = sketch_distance(similarity)
    return sketch, sketch + distance + _BEYOND


class Buckets:
    """The buckets of each band: their texts, and which of them are crowds."""

    def __init__(
        self,
        texts: Described,
        distance: int,
        similarity: float,
        new: Flags | None = None,
        crowded: Crowded | None = None,
    ) -> None:
        self._texts, self._bits = texts, bits_of_candidates(distance, similarity)
        self._old = None if new is None else ~new
        total = len(texts.sketches)
        self._some = np.arange(total) if crowded is None else crowded.members
        self.sizes = Sizes(LISTED, _RARE) if crowded is None else crowded.sizes
        # For each text, a bit for each band in which its bucket is a crowd, or rare.
        self.crowded, buckets = self._mark(lambda sizes: sizes > self.sizes.listed)
        if crowded is None and (sizes := Sizes.of(buckets, total)) != self.sizes:
            self.sizes = sizes
            self.crowded, _ = self._mark(lambda sizes: sizes > self.sizes.listed)
        self._rare = self.crowded if crowded is None else crowded.rare
        if crowded is None and self.crowded.any():
            self._rare, _ = self._mark(lambda sizes: sizes <= self.sizes.rare)

    def _mark(self, wanted: Callable[[I64], Flags]) -> tuple[U32, I64]:
        """Return a bit for each band, of texts in buckets of wanted sizes, and how many buckets have each size."""
        marks, buckets = np.zeros(len(self._texts.sketches), np.uint32), np.zeros(LISTED + 1, np.int64)
        for band in range(BANDS):
            text, begins, sizes = self.sort(band)
            buckets += np.bincount(sizes[sizes <= LISTED], minlength=LISTED + 1)
            chosen = wanted(sizes)
            marks[text[consecutive(begins[chosen], sizes[chosen])]] |= np.uint32(1 << band)
        return marks, buckets

    def pairs(self) -> Iterator[tuple[I64, I64]]:
        """Yield the candidates of the listed buckets, each once; with `new`, those with a new text or two."""
        for band in range(BANDS):
            text, begins, sizes = self.sort(band)
            listed = sizes <= self.sizes.listed
            begins, sizes = begins[listed], sizes[listed]
            some = consecutive(begins, sizes)
            behind = np.repeat(begins + sizes, sizes) - some - 1
            if self._old is not None:
                behind[self._old[text[some]]] = 0  # they are behind the new ones
            for part in portions(behind, _TOGETHER):
                left = text[np.repeat(some[part], behind[part])]
                right = text[consecutive(some[part] + 1, behind[part])]
                near = self.near(left, right)
                left, right = left[near], right[near]
                in_crowds = self.crowded[left] & self.crowded[right] != 0
                a, b = left[~in_crowds], right[~in_crowds]
                for keys in self._texts.bands[:band]:  # without those that share a key of an earlier band
                    new = keys[a] != keys[b]
                    a, b = a[new], b[new]
                yield a, b
                left, right = left[in_crowds], right[in_crowds]
                shared, crowd, rare = self._shared(left, right)
                lists = np.where(crowd != 0, rare, shared)
                first = (lists & -lists) == np.uint32(1 << band)
                yield left[first], right[first]

    def near(self, left: I64, right: I64) -> Flags:
        """Return which pairs are near enough to be candidates."""
        return self._texts.near(left, right, *self._bits)

    def meet(self, left: I64, right: I64) -> Flags:
        """Return which pairs are candidates, listed or in a crowd."""
        met: Flags = self.near(left, right) & (self._shared(left, right)[0] != 0)
        return met

    def first_crowd(self, left: I64, right: I64) -> I64:
        """Return the first band in which pairs share a crowd; -1 without one, and if they are in `pairs`."""
        _, crowd, rare = self._shared(left, right)
        first = np.bitwise_count((crowd & -crowd) - np.uint32(1)).astype(np.int64)
        return np.where((crowd != 0) & (rare == 0), first, -1)

    def _shared(self, left: I64, right: I64) -> tuple[U32, U32, U32]:
        """Return a bit for each band whose key pairs share, those of crowds, and those of rare keys."""
        shared = np.zeros(len(left), dtype=np.uint32)
        for band, keys in enumerate(self._texts.bands):
            shared |= (keys[left] == keys[right]).astype(np.uint32) << np.uint32(band)
        return shared, shared & self.crowded[left], shared & self._rare[left]

    def sort(self, band: int) -> tuple[I64, I64, I64]:
        """Return the texts that share a key in a band, bucket by bucket, and where these begin and their sizes."""
        numbers = self._texts.bands[band][self._some].astype(np.uint64) << np.uint64(32)
        numbers |= self._some.astype(np.uint64)
        if self._old is not None:
            numbers |= self._old[self._some].astype(np.uint64) << np.uint64(31)
        numbers.sort()
        (begins,) = np.nonzero(np.diff(numbers >> np.uint64(32), prepend=np.uint64(1 << 33)))
        sizes = np.diff(begins, append=len(numbers))
        text = (numbers & np.uint64((1 << 31) - 1)).view(np.int64)
        return text, begins[sizes > 1], sizes[sizes > 1]
