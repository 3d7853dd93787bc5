"""A design (blocks and lead blocks, hence tables), what it can find and what a search with it costs.

The paper's search (Manku, Jain, Das Sarma, WWW 2007) reads the keys whose prefix equals that of the query.
Flipping bits of the prefix as well is multi-index hashing (Norouzi, Punjani, Fleet, CVPR 2012): then one
design answers every distance, each at a price that is known beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb, inf

from simsql.hamming._checks import FINGERPRINT_BITS, whole_number
from simsql.hamming.blocks import Permutation, permutations

TABLES_AT_MOST = 128

# Microseconds inside PostgreSQL 18, measured on two cores over 10 million fingerprints held in memory. Where
# these change, the thresholds baked into the SQL functions change with them.
PROBE_US = 1.6
CANDIDATE_US = 0.055
SCAN_ROW_US = 0.0426


@dataclass(frozen=True)
class Design:
    """`blocks` contiguous blocks, `lead` of them leading each key: comb(blocks, lead) permutation tables.

    `width` is the size of a fingerprint in bits, 64 but in tests and experiments. Raises ValueError unless
    2 <= blocks <= width <= 64, 1 <= lead < blocks and there are 128 tables or fewer; TypeError for anything
    that is no integer.
    """

    blocks: int = 4
    lead: int = 1
    width: int = FINGERPRINT_BITS

    def __post_init__(self) -> None:
        width = whole_number("width", self.width, 2, FINGERPRINT_BITS)
        blocks = whole_number("blocks", self.blocks, 2, width)
        lead = whole_number("lead", self.lead, 1, blocks - 1)
        if comb(blocks, lead) > TABLES_AT_MOST:
            raise ValueError(
                f"a design of {blocks} blocks with {lead} leading needs {comb(blocks, lead)} tables, "
                f"allowed are 1 to {TABLES_AT_MOST}"
            )
        # numpy integers are let in, and stored as what the fields say they are.
        for name, value in (("blocks", blocks), ("lead", lead), ("width", width)):
            object.__setattr__(self, name, value)

    @property
    def tables(self) -> int:
        """Number of permutation tables."""
        return comb(self.blocks, self.lead)

    @cached_property
    def permutations(self) -> tuple[Permutation, ...]:
        """The permutation of each table, in lexicographic order of the lead blocks."""
        return permutations(self.blocks, self.lead, self.width)

    @property
    def prefix_bits(self) -> tuple[int, ...]:
        """Prefix length of each table in bits; they differ where `blocks` does not divide `width`."""
        return tuple(permutation.prefix_bits for permutation in self.permutations)

    def radius(self, distance: int) -> int:
        """How many bits of a prefix a search must flip to miss no fingerprint within `distance` (0..width).

        An adversary spreads the differing bits evenly over the blocks; the `lead` emptiest blocks, which lead
        one of the permutations, then hold this many. It is exact, not only sufficient: the sizes of blocks
        differ by one at most, so the even spread fits into them at every distance, and a smaller radius would
        miss it. For the same reason it never exceeds the shortest prefix.
        """
        distance = whole_number("distance", distance, 0, self.width)
        each, left_over = divmod(distance, self.blocks)
        return self.lead * each + max(0, self.lead - (self.blocks - left_over))

    def probes(self, distance: int) -> int:
        """Prefix range scans of one search at `distance`, over all tables."""
        radius = self.radius(distance)
        return sum(_flips(bits, radius) for bits in self.prefix_bits)

    def candidates(self, distance: int, rows: int) -> float:
        """Keys that one search at `distance` is expected to read from `rows` random fingerprints.

        All tables together; a fingerprint found through several tables counts once for each.
        """
        rows = whole_number("rows", rows, 0, 1 << FINGERPRINT_BITS)
        return rows * self._share_read(distance)

    def search_us(self, distance: int, rows: int) -> float:
        """Return the expected microseconds of one search at `distance` over `rows` random fingerprints."""
        return PROBE_US * self.probes(distance) + CANDIDATE_US * self.candidates(distance, rows)

    def scan_rows(self, distance: int) -> float:
        """Return the number of rows below which a plain scan is expected to be faster than the probes.

        `math.inf` where it always is: at large distances the probes read more keys than a scan reads rows.
        """
        saved_per_row = SCAN_ROW_US - CANDIDATE_US * self._share_read(distance)
        return PROBE_US * self.probes(distance) / saved_per_row if saved_per_row > 0 else inf

    def _share_read(self, distance: int) -> float:
        """Keys read by one search, over all tables, for each fingerprint stored."""
        radius = self.radius(distance)
        return sum(_flips(bits, radius) / (1 << bits) for bits in self.prefix_bits)


def _flips(bits: int, radius: int) -> int:
    """Ways to flip up to `radius` of `bits` bits."""
    return sum(comb(bits, flips) for flips in range(radius + 1))
