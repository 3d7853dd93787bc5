"""Many searches at once in memory: tables of the queries are built, and the stored fingerprints are read once.

This is the batch mode of Manku, Jain, Das Sarma (WWW 2007, section 4), with the radius of Norouzi, Punjani, Fleet
(CVPR 2012): each table has the queries by their prefix, and by their prefix with some bits flipped. A stored
fingerprint is looked up only by its own prefix. Most have no entry, and need no further work.

A table has slots, about as many as entries. The slot of an entry is computed from these bits by multiplication
with an odd constant and a shift (Dietzfelbinger and others, 1997): equal bits have the same slot, different bits
rarely do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.arrays.checks import FINGERPRINT_BITS, distinct_fingerprints, fingerprint_list, whole_number
from simsql.arrays.columns import Column, Fingerprints
from simsql.arrays.positions import consecutive, portions
from simsql.hamming._tiles import TILE_COLUMNS, TILE_ROWS, Tile, batched
from simsql.hamming.blocks import block_masks, flip_masks
from simsql.hamming.design import TABLES_AT_MOST, Design

Words = NDArray[np.uint64]
Positions = NDArray[np.intp]

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio
# Keys processed at a time, whose arrays fit the cache of a core.
_STEP = 1 << 15
# Entries are sorted as numbers of their slot and these bits.
_ENTRY_BITS = np.uint64(32)
# Bits of the filter for each entry, and the maximum bits of its slot numbers, so that it fits a shared cache.
_BITS_PER_ENTRY, _FILTER_BITS = 16, 26
# Candidates compared at a time, or all candidates of one fingerprint.
_CANDIDATES = 1 << 20

# Finds matches among fingerprints: positions of fingerprints and of queries, each pair once.
_Search = Callable[[Words], Iterator[tuple[Positions, Positions]]]

# Nanoseconds, rounded from measurements. Only their ratios matter for the choices below.
_TILE_PAIR_NS = 1.0  # compare a query with a fingerprint when comparing all with all
_ENTRY_NS = 60.0  # put a query into a table, with some bits flipped
_LOOKUP_NS = 10.0  # look up a fingerprint in a table
_CANDIDATE_NS = 40.0  # compare a fingerprint with a query that has its prefix

# Stored fingerprints looked up at a time, so that the overhead of calls and of building tables is small.
_SLICE = 1 << 20
_SLICE_PER_QUERY = 2
# Maximum entries of a table, unless there are more queries.
_ENTRIES_AT_MOST = 1 << 23
# Maximum entries of tables that are kept between slices. Larger tables are built again for each slice.
_ENTRIES_KEPT = 1 << 24
# Sampled pairs, which show how often prefixes agree.
_SAMPLE = 2048


class Matches(NamedTuple):
    """Queries and stored fingerprints near them: three arrays of the same length.

    `queries` and `fingerprints` are uint64, `distances` are uint8, in bits.
    """

    queries: Words
    fingerprints: Words
    distances: NDArray[np.uint8]


class _Prefix(NamedTuple):
    """The bits of a table: those under `mask`, of which up to `radius` may differ."""

    mask: int
    radius: int

    @property
    def ways(self) -> int:
        """The number of ways to flip up to `radius` of these bits."""
        return sum(comb(self.mask.bit_count(), flips) for flips in range(self.radius + 1))


def find_matches(
    queries: Fingerprints,
    stored: Iterable[Fingerprints],
    distance: int = 3,
) -> Iterator[Matches]:
    """Find, for each query, all stored fingerprints that differ from it in at most `distance` bits (0..64).

    `queries` is an array of unsigned integers, any iterable of ints in [0, 2**64), or a column as for
    `find_pairs`. `stored` is an iterable of these: batches of any size, read one by one. What is missing is
    skipped. Yields arrays of matches in no particular order: each pair of a query and a fingerprint once, even if
    they are repeated. It is exact at every distance.

    Each stored fingerprint is looked up in several tables (10 for a million queries at distance 3); at large
    distances it is compared with all queries. Memory grows with the queries, the largest batch and the number of
    fingerprints with a match, not with the stored fingerprints or the matches.

    Raises ValueError for values or a distance out of range, TypeError for anything but integers.
    """
    distance = whole_number("distance", distance, 0, FINGERPRINT_BITS)
    if isinstance(stored, Column) or (isinstance(stored, np.ndarray) and stored.ndim < 2):
        raise TypeError("stored must be an iterable of batches, not a single array: pass [array]")
    return _matches(distinct_fingerprints(queries), stored, distance)


def _matches(queries: Words, stored: Iterable[Fingerprints], distance: int) -> Iterator[Matches]:
    if not queries.size:
        return
    search: _Search | None = None
    reported = np.empty(0, dtype=np.uint64)
    size = max(_SLICE, _SLICE_PER_QUERY * queries.size)
    words = map(fingerprint_list, stored)
    # Copies: the caller may reuse the memory of a batch.
    pieces = (some[at : at + size].copy() for some in words for at in range(0, some.size, size))
    for fingerprints in batched(pieces, size):
        search = search or cheapest_search(queries, fingerprints, distance)
        # Search twice, so that repeated values are tracked only among fingerprints with a match.
        near = np.zeros(fingerprints.size, dtype=bool)
        for positions, _ in search(fingerprints):
            near[positions] = True
        fresh = distinct_fingerprints(fingerprints[near])
        places = np.searchsorted(reported, fresh)
        known = places < reported.size
        known[known] = reported[places[known]] == fresh[known]
        fresh, places = fresh[~known], places[~known]
        for positions, owners in search(fresh):
            if positions.size:
                pair = queries[owners], fresh[positions]
                yield Matches(*pair, np.bitwise_count(np.bitwise_xor(*pair)))
        reported = np.insert(reported, places, fresh)


def cheapest_search(queries: Words, fingerprints: Words, distance: int) -> _Search:
    """Return the cheapest search for slices like these fingerprints. Queries are distinct, and there are some.

    The bits that vary are cut into blocks. A sample of pairs shows how often prefixes agree. It misses rare
    agreement, so the share for random bits is the minimum.
    """
    random = np.random.default_rng(0)
    sample = random.choice(queries, _SAMPLE) ^ random.choice(fingerprints, _SAMPLE)
    best: list[_Prefix] = []
    cheapest = queries.size * fingerprints.size * _TILE_PAIR_NS
    for prefixes in _designs(_varying_bits(queries, fingerprints), distance):
        cost = fingerprints.size * len(prefixes) * _LOOKUP_NS
        if cost >= cheapest:
            break
        if max(prefix.ways for prefix in prefixes) > max(1, _ENTRIES_AT_MOST // queries.size):
            continue
        for prefix in prefixes:
            agreeing = np.bitwise_count(sample & np.uint64(prefix.mask)) <= prefix.radius
            share = max(prefix.ways / (1 << prefix.mask.bit_count()), float(agreeing.mean()))
            cost += queries.size * (prefix.ways * _ENTRY_NS + share * fingerprints.size * _CANDIDATE_NS)
        if cost < cheapest:
            best, cheapest = prefixes, cost
    if not best:
        return partial(_compare_all, queries, distance)
    kept = queries.size * sum(prefix.ways for prefix in best) <= _ENTRIES_KEPT
    build = lru_cache(maxsize=None if kept else 0)(partial(_Table, queries))
    return partial(_look_up, build, best, distance)


def _varying_bits(queries: Words, fingerprints: Words) -> int:
    set_in_some = np.bitwise_or.reduce(queries) | np.bitwise_or.reduce(fingerprints)
    set_in_all = np.bitwise_and.reduce(queries) & np.bitwise_and.reduce(fingerprints)
    return int(set_in_some ^ set_in_all)


def _designs(varying: int, distance: int) -> Iterator[list[_Prefix]]:
    bits = varying.bit_count()
    if distance >= bits:
        return
    for blocks, lead in _choices(bits):
        leads = map(sum, combinations(block_masks(varying, blocks), lead))
        radii = Design(blocks, lead, width=bits).radii(distance)
        yield [_Prefix(mask, radius) for mask, radius in zip(leads, radii, strict=True) if radius >= 0]


@cache
def _choices(bits: int) -> list[tuple[int, int]]:
    """Return the numbers of blocks and lead blocks for this number of bits, those with fewest tables first."""
    choices = ((blocks, lead) for blocks in range(2, bits + 1) for lead in range(1, blocks))
    return sorted(
        (choice for choice in choices if comb(*choice) <= TABLES_AT_MOST), key=lambda choice: comb(*choice)
    )


def _look_up(
    build: Callable[[int, int], _Table], prefixes: list[_Prefix], distance: int, fingerprints: Words
) -> Iterator[tuple[Positions, Positions]]:
    """Find matches with a table for each prefix; a pair is reported by the first table that finds it."""
    for number, prefix in enumerate(prefixes):
        for positions, owners, differing in build(prefix.mask, prefix.radius).look_up(fingerprints, distance):
            first = np.ones(owners.size, dtype=bool)
            for earlier in prefixes[:number]:
                first &= np.bitwise_count(differing & np.uint64(earlier.mask)) > earlier.radius
            yield positions[first], owners[first]


def _compare_all(queries: Words, distance: int, fingerprints: Words) -> Iterator[tuple[Positions, Positions]]:
    rows = TILE_ROWS // 2  # the pairs of a tile may all match
    tile = Tile(rows * TILE_COLUMNS)
    for left in range(0, fingerprints.size, TILE_COLUMNS):
        columns = fingerprints[left : left + TILE_COLUMNS]
        for top in range(0, queries.size, rows):
            close = tile.compare(queries[None, top : top + rows], columns[None], distance)
            row, column = np.divmod(close, columns.size)
            if row.size:
                yield column + left, row + top


class _Table:
    """Queries by their bits under `mask`, in up to `radius` of which a matching fingerprint may differ.

    An entry is a query with some of these bits flipped. Entries are sorted by their slots, and a fingerprint is
    compared with all entries of its slot. A filter with one bit for each of many more slots rejects most
    fingerprints without an entry.
    """

    def __init__(self, queries: Words, mask: int, radius: int) -> None:
        self._queries, self._mask = queries, mask
        self._flips = flip_masks(mask, radius)
        prefixes = (self._flips[:, None] ^ (queries & np.uint64(mask))).reshape(-1)
        filter_bits = min(_FILTER_BITS, (_BITS_PER_ENTRY * prefixes.size).bit_length())
        taken = np.zeros(1 << filter_bits, dtype=bool)
        slots = 1 << max(1, prefixes.size.bit_length())  # one or two for each entry
        entries = np.empty(prefixes.size, dtype=np.uint64)
        for start in range(0, prefixes.size, _STEP):
            some = prefixes[start : start + _STEP]
            taken[_slots_of(some, mask, taken.size)] = True
            number = np.arange(start, start + some.size, dtype=np.uint64)
            entries[start : start + _STEP] = _slots_of(some, mask, slots).view(np.uint64) << _ENTRY_BITS | number
        self._filter = np.packbits(taken, bitorder="little")
        del prefixes, taken
        entries.sort()
        counts = np.bincount((entries >> _ENTRY_BITS).view(np.intp) + 1, minlength=slots + 1)
        self._starts = np.cumsum(counts, out=counts).astype(np.uint32)
        self._entries = entries.astype(np.uint32)

    def look_up(self, fingerprints: Words, distance: int) -> Iterator[tuple[Positions, Positions, Words]]:
        """Yield each pair within `distance` whose bits under the mask are within the radius, once.

        That is the positions of fingerprints and of queries, and the bits in which they differ.
        """
        passing = self._passing(fingerprints)
        for start in range(0, passing.size, _STEP):
            positions = passing[start : start + _STEP]
            slots = _slots_of(fingerprints[positions], self._mask, self._starts.size - 1)
            first = self._starts[slots].astype(np.intp)
            counts = self._starts[slots + 1] - first
            for some in portions(counts, _CANDIDATES):
                entries = self._entries[consecutive(first[some], counts[some])]
                position = np.repeat(positions[some], counts[some])
                queries = entries % self._queries.size
                differing = fingerprints[position] ^ self._queries[queries]
                near = np.flatnonzero(np.bitwise_count(differing) <= distance)
                flipped = self._flips[entries[near] // self._queries.size]
                near = near[differing[near] & np.uint64(self._mask) == flipped]
                yield position[near], queries[near].astype(np.intp), differing[near]

    def _passing(self, fingerprints: Words) -> Positions:
        """Return the positions of the fingerprints that the filter lets through."""
        passing = [np.empty(0, dtype=np.intp)]
        for start in range(0, fingerprints.size, _STEP):
            slots = _slots_of(fingerprints[start : start + _STEP], self._mask, 8 * self._filter.size)
            places = (slots & 7).astype(np.uint8)
            slots >>= 3
            bits = self._filter[slots]
            bits >>= places
            bits &= 1
            passing.append(np.flatnonzero(bits) + start)
        return np.concatenate(passing)


def _slots_of(keys: NDArray[np.uint64], mask: int, count: int) -> NDArray[np.intp]:
    """Return the slot of each key by its bits under `mask`, below `count`, a power of two of at least 2."""
    slots = keys & np.uint64(mask)
    slots *= _ODD
    slots >>= np.uint64(FINGERPRINT_BITS + 1 - count.bit_length())
    return slots.view(np.intp)
