"""Designs (blocks, lead blocks and inner blocks, hence tables), and the costs of searches with them.

The paper's search (Manku, Jain, Das Sarma, WWW 2007) reads the keys whose prefix equals that of the query.
Multi-index hashing also flips bits of the prefix (Norouzi, Punjani, Fleet, CVPR 2012), so that one design answers
every distance, each at a cost that is known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import comb, inf

from simsql.arrays.checks import FINGERPRINT_BITS, whole_number
from simsql.errors import UsageError
from simsql.hamming.blocks import Permutation, block_sizes, permutations
from simsql.hamming.skew import PrefixSample

TABLES_AT_MOST = 128

# Microseconds inside PostgreSQL 18 with all data in memory: between the measurements of two machines for tables of
# 100,000 to 10 million rows, so that neither is off by more than a factor of two. simsql._costs() in SQL returns
# the same numbers.
CALL_US = 60.0  # for each search
PROBE_US = 1.1  # for each range of keys
CANDIDATE_US = 0.1  # for each key in a range
SCAN_ROW_US = 0.06  # for each row of a scan
WRITE_TABLE_US = 12.0  # for the key of a new row in one table


@dataclass(frozen=True)
class Design:
    """`blocks` contiguous blocks, `lead` of them leading each key: comb(blocks, lead) permutation tables.

    If `inner_blocks` is not 0, the bits outside the lead are divided again into this number of blocks, one of
    which joins the lead: `inner_blocks` times as many tables, with longer prefixes (the paper's nested designs).
    `width` is the size of a fingerprint in bits, 64 except in tests and experiments.

    The methods take a `distance` from 0 to `width` and `rows` from 0 to 2**64, and raise ValueError for
    others. They expect random bits, or fingerprints like those of a `sample`.

    Raises ValueError unless 2 <= blocks <= width <= 64, 1 <= lead < blocks, `inner_blocks` is 0 or from 2 to the
    number of bits outside the lead, and there are at most 128 tables; TypeError for values that are not integers.
    """

    blocks: int = 4
    lead: int = 1
    inner_blocks: int = 0
    width: int = FINGERPRINT_BITS

    def __post_init__(self) -> None:
        width = whole_number("width", self.width, 2, FINGERPRINT_BITS)
        blocks = whole_number("blocks", self.blocks, 2, width)
        lead = whole_number("lead", self.lead, 1, blocks - 1)
        others = width - sum(block_sizes(blocks, width)[:lead])
        inner_blocks = whole_number("inner_blocks", self.inner_blocks, 0, others)
        if inner_blocks == 1:
            raise UsageError(
                f"inner_blocks must be 0 or between 2 and {others}, the number of bits outside the lead, not 1"
            )
        # NumPy integers are accepted, and stored as int.
        for name, value in (("blocks", blocks), ("lead", lead), ("inner_blocks", inner_blocks), ("width", width)):
            object.__setattr__(self, name, value)
        if self.tables > TABLES_AT_MOST:
            nested = f" and {inner_blocks} inner ones" if inner_blocks else ""
            raise UsageError(
                f"a design of {blocks} blocks with {lead} leading{nested} needs {self.tables} tables, "
                f"more than the limit of {TABLES_AT_MOST}"
            )

    @property
    def tables(self) -> int:
        """The number of permutation tables."""
        return comb(self.blocks, self.lead) * max(1, self.inner_blocks)

    @cached_property
    def permutations(self) -> tuple[Permutation, ...]:
        """The permutation of each table, by lead blocks in lexicographic order, then by inner block."""
        return permutations(self.blocks, self.lead, self.inner_blocks, self.width)

    @cached_property
    def prefix_bits(self) -> tuple[int, ...]:
        """The prefix length of each table in bits; lengths differ if `blocks` does not divide `width`."""
        return tuple(permutation.prefix_bits for permutation in self.permutations)

    def radii(self, distance: int) -> tuple[int, ...]:
        """Return the number of prefix bits to flip in each table to find every fingerprint within `distance`.

        A table with -1 need not be read.

        With one lead block and no inner ones, table t of m flips floor((distance - t) / m) bits: a fingerprint
        that every table misses would differ in at least one more bit in each block, which adds up to at least
        distance + 1 (Norouzi, Punjani, Fleet, section 3). None can be lowered below distance = width without
        missing a fingerprint.

        Otherwise every table flips the same number of bits, unless its prefix has fewer. In the worst case the
        differing bits are spread evenly over the blocks. Then the `lead` blocks with the fewest, which lead one of
        the tables, contain r = lead * (distance // m) + max(0, lead - (m - distance % m)) of them. Of the other
        bits, at least one inner block contains no more than (distance - r) // inner_blocks.
        """
        distance = whole_number("distance", distance, 0, self.width)
        if self.lead == 1 and not self.inner_blocks:
            return tuple((distance - table) // self.blocks for table in range(self.blocks))
        each, left_over = divmod(distance, self.blocks)
        radius = self.lead * each + max(0, self.lead - (self.blocks - left_over))
        if self.inner_blocks:
            radius += (distance - radius) // self.inner_blocks
        return tuple(min(radius, bits) for bits in self.prefix_bits)

    def radius(self, distance: int) -> int:
        """Return the largest of `radii(distance)`, the most bits of a prefix that a search flips."""
        return max(self.radii(distance))

    def probes(self, distance: int) -> int:
        """Return the number of prefix range scans of a search at `distance`, over all tables."""
        return _reads(self, distance)[0]

    def candidates(self, distance: int, rows: int, sample: PrefixSample | None = None) -> float:
        """Return the expected number of keys that a search at `distance` reads from `rows` fingerprints.

        This is the total over all tables: a fingerprint
        found in several tables counts once for each.
        """
        rows = whole_number("rows", rows, 0, 1 << FINGERPRINT_BITS)
        return rows * self._share(distance, sample)

    def search_us(self, distance: int, rows: int, sample: PrefixSample | None = None) -> float:
        """Return the expected microseconds of one search at `distance` over `rows` fingerprints.

        Like `simsql.near`, it uses probes or a scan, whichever is expected to be faster.
        """
        candidates = self.candidates(distance, rows, sample)
        probing = PROBE_US * self.probes(distance) + CANDIDATE_US * candidates
        return CALL_US + min(probing, SCAN_ROW_US * rows)

    def write_us(self) -> float:
        """Return the expected microseconds that the keys of a new row add to its insert."""
        return WRITE_TABLE_US * self.tables

    def scan_rows(self, distance: int, sample: PrefixSample | None = None) -> float:
        """Return the number of rows below which a plain scan is expected to be faster than the probes.

        `math.inf` if a scan is always faster: at large distances probes read more keys than a scan reads rows.
        """
        saved_per_row = SCAN_ROW_US - CANDIDATE_US * self._share(distance, sample)
        return PROBE_US * self.probes(distance) / saved_per_row if saved_per_row > 0 else inf

    def _share(self, distance: int, sample: PrefixSample | None) -> float:
        """Return the number of keys that a search is expected to read for each stored fingerprint."""
        if sample is None:
            return _reads(self, distance)[1]
        return sum(
            sample.share(permutation.lead_mask, radius)
            for permutation, radius in zip(self.permutations, self.radii(distance), strict=True)
            if radius >= 0
        )


@lru_cache(maxsize=1 << 13)
def _reads(design: Design, distance: int) -> tuple[int, float]:
    """Return the probes of a search over all tables, and the keys that it reads for each stored fingerprint."""
    probes, share = 0, 0.0
    for bits, radius in zip(design.prefix_bits, design.radii(distance), strict=True):
        ways = _flips(bits, radius)
        probes += ways
        share += ways / (1 << bits)
    return probes, share


@cache
def _flips(bits: int, radius: int) -> int:
    """Return the number of ways to flip up to `radius` of `bits` bits, 0 for a radius of -1."""
    return sum(comb(bits, flips) for flips in range(radius + 1))
