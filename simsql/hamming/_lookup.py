"""An in-memory table of queries that looks up fingerprints by some of their bits.

A table has slots, a few times as many as entries. The slot of an entry is computed from these bits by
multiplication with an odd constant and a shift (Dietzfelbinger and others, 1997): equal bits have the same slot,
different bits rarely do. Random reads and writes in a table of millions of slots take 5 to 10 ns each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.hamming._checks import FINGERPRINT_BITS
from simsql.hamming._tiles import consecutive
from simsql.hamming.blocks import flip_masks

Words = NDArray[np.uint64]
Positions = NDArray[np.intp]

_EMPTY = np.uint32(2**32 - 1)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
# Keys processed at a time, whose arrays fit the cache of a core.
_STEP = 1 << 15
# Up to this number, entries are sorted, which is faster than another level of slots.
_FEW = 1 << 12
# Bits of the filter for each entry, and the maximum bits of its slot numbers, so that it fits a shared cache.
_BITS_PER_ENTRY, _FILTER_BITS = 16, 26
# Candidates compared at a time among crowded entries, or all candidates of one fingerprint.
_CANDIDATES = 1 << 20


class Near(NamedTuple):
    """Matches: positions of fingerprints and queries, and the bits in which they differ."""

    fingerprints: Positions
    queries: Positions
    differing: Words


class Table:
    """Queries by their bits under `mask`, in up to `radius` of which a matching fingerprint may differ.

    An entry is a query with some of these bits flipped. A slot holds one entry. Entries that lost their slot to
    another one go to a further level of slots, and so on. Crowded entries are sorted. A filter with one bit for
    each of many more slots rejects most fingerprints without an entry.
    """

    def __init__(self, queries: Words, mask: int, radius: int) -> None:
        self._queries, self._mask = queries, mask
        self._flips = flip_masks(mask, radius)
        prefixes = (self._flips[:, None] ^ (queries & np.uint64(mask))).reshape(-1)
        self._bits = min(_FILTER_BITS, (_BITS_PER_ENTRY * prefixes.size).bit_length())
        taken = np.zeros(1 << self._bits, dtype=bool)
        for start in range(0, prefixes.size, _STEP):
            taken[_slots_of(prefixes[start : start + _STEP], mask, taken.size)] = True
        self._filter = np.packbits(taken, bitorder="little")
        del taken
        entries = np.arange(prefixes.size, dtype=np.uint32)
        self._levels: list[NDArray[np.uint32]] = []
        crowded = False
        while prefixes.size > _FEW and not crowded:
            table = np.full(_slots_for(prefixes.size), _EMPTY)
            lost, _ = _fill_slots(table, prefixes, mask)
            held = np.flatnonzero(table != _EMPTY)
            table[held] = entries[table[held]]
            self._levels.append(table)
            crowded = 2 * lost.size > prefixes.size
            prefixes, entries = prefixes[lost], entries[lost]
        order = np.argsort(prefixes)
        self._crowd, self._crowd_entries = prefixes[order], entries[order]
        self._crowd_queries = queries[self._crowd_entries % queries.size]

    def look_up(self, fingerprints: Words, distance: int) -> Iterator[Near]:
        """Yield each pair within `distance` whose bits under the mask are within the radius, once."""
        passing = self._passing(fingerprints)
        for start in range(0, passing.size, _STEP):
            positions = passing[start : start + _STEP]
            here = fingerprints[positions]
            for table in self._levels:
                entries = table[_slots_of(here, self._mask, table.size)]
                hit = np.flatnonzero(entries != _EMPTY)
                here, positions, entries = here[hit], positions[hit], entries[hit]
                queries = entries % self._queries.size
                differing = here ^ self._queries[queries]
                near = np.flatnonzero(np.bitwise_count(differing) <= distance)
                flipped = self._flips[entries[near] // self._queries.size]
                near = near[differing[near] & np.uint64(self._mask) == flipped]
                yield Near(positions[near], queries[near].astype(np.intp), differing[near])
            yield from self._look_up_crowd(here, positions, distance)

    def _look_up_crowd(self, fingerprints: Words, positions: Positions, distance: int) -> Iterator[Near]:
        prefixes = fingerprints & np.uint64(self._mask)
        first = np.searchsorted(self._crowd, prefixes)
        counts = np.searchsorted(self._crowd, prefixes, side="right") - first
        for some in _portions(counts):
            places = consecutive(first[some], counts[some])
            fingerprint = np.repeat(np.arange(some.start, some.stop), counts[some])
            differing = fingerprints[fingerprint] ^ self._crowd_queries[places]
            near = np.flatnonzero(np.bitwise_count(differing) <= distance)
            queries = self._crowd_entries[places[near]] % self._queries.size
            yield Near(positions[fingerprint[near]], queries.astype(np.intp), differing[near])

    def _passing(self, fingerprints: Words) -> Positions:
        """Return the positions of the fingerprints that the filter lets through."""
        passing = [np.empty(0, dtype=np.intp)]
        for start in range(0, fingerprints.size, _STEP):
            slots = _slots_of(fingerprints[start : start + _STEP], self._mask, 1 << self._bits)
            places = (slots & 7).astype(np.uint8)
            slots >>= 3
            bits = self._filter[slots]
            bits >>= places
            bits &= 1
            passing.append(np.flatnonzero(bits) + start)
        return np.concatenate(passing)


def _portions(counts: Positions) -> Iterator[slice]:
    """Cut an array of counts into slices of at most _CANDIDATES, or of one element."""
    upto = np.cumsum(counts)
    begin = done = 0
    while begin < counts.size:
        end = max(begin + 1, int(np.searchsorted(upto, done + _CANDIDATES, side="right")))
        yield slice(begin, end)
        begin, done = end, int(upto[end - 1])


def _slots_for(keys: int) -> int:
    """Return the number of slots for this number of keys: two to four for each, a power of two."""
    return 1 << (2 * keys).bit_length()


def _slots_of(keys: NDArray[np.uint64], mask: int, count: int) -> NDArray[np.intp]:
    """Return the slot of each key by its bits under `mask`, below `count`, a power of two of at least 2."""
    slots = keys & np.uint64(mask)
    slots *= _ODD
    slots >>= np.uint64(FINGERPRINT_BITS + 1 - count.bit_length())
    return slots.view(np.intp)


def _fill_slots(
    table: NDArray[np.uint32], keys: NDArray[np.uint64], mask: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Write the position of each key into its slot of `table`.

    If keys share a slot, one of them holds it in the end. Returns the positions of all others, ascending, and for
    each the position of the key that holds its slot.
    """
    for start in range(0, keys.size, _STEP):
        slots = _slots_of(keys[start : start + _STEP], mask, table.size)
        table[slots] = np.arange(start, start + slots.size, dtype=np.uint32)
    others, holders = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.intp)]
    for start in range(0, keys.size, _STEP):
        found = table[_slots_of(keys[start : start + _STEP], mask, table.size)]
        lost = np.flatnonzero(found != np.arange(start, start + found.size, dtype=np.uint32))
        others.append(lost + start)
        holders.append(found[lost].astype(np.intp))
    return np.concatenate(others), np.concatenate(holders)
