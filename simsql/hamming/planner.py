"""Compare designs for a number of rows and a distance, by search time, write time and storage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb, inf

from simsql.arrays.checks import FINGERPRINT_BITS, whole_number
from simsql.hamming.blocks import block_sizes
from simsql.hamming.design import TABLES_AT_MOST, Design
from simsql.hamming.skew import PrefixSample

# Bytes of a key in one table: 36.24 in the table and 22.46 in the B-tree, measured after a build over 10 million
# rows. B-tree pages split as keys are added: allow 75 bytes for a table that has grown by a fifth.
KEY_BYTES = 58.7

# `default_design` considers designs without inner blocks of up to this many tables. No other design of up to 32
# tables is better by more than a twentieth for up to 10 million rows, or a quarter for 100 million, at any
# distance.
_DEFAULT_TABLES = 20
# Tables grow: the best design for an empty table would soon be wrong.
_DEFAULT_ROWS = 1_000_000

# A design with more tables must be faster by this factor to appear in a plan.
_WORTH = 0.9
# Longest acceptable search, if a design can be that fast.
_USEFUL_US = 1_000.0


@dataclass(frozen=True)
class Choice:
    """A design and its costs. Times are in microseconds.

    `prefix_bits` are the lengths of its shortest and longest prefix. `probes` and `candidates` are those of a
    search with probes. If `scans`, a scan is expected to be faster, and `search_us` is the time of the scan.
    `write_us` is added to each insert of a row. `bytes` is the storage of keys and B-trees after a build.
    """

    design: Design
    tables: int
    prefix_bits: tuple[int, int]
    probes: int
    candidates: float
    scans: bool
    search_us: float
    write_us: float
    bytes: int


@dataclass(frozen=True)
class Plan:
    """The designs worth considering for a number of rows and a distance, and the best ones.

    `choices` are sorted by the number of tables. They omit each design, except `default`, if another one has no
    more tables and takes at most a ninth longer to search.

    `reading` has the fastest search. `writing` has the fewest tables among designs whose search takes up to a
    millisecond, or up to twice as long as the fastest if that is longer. `default` is the design that
    `create_index` chooses: see `default_design`.
    """

    rows: int
    distance: int
    choices: tuple[Choice, ...]
    reading: Choice
    writing: Choice
    default: Choice


def plan(rows: int, distance: int, *, sample: PrefixSample | None = None) -> Plan:
    """Compare all designs of up to 128 tables for `rows` fingerprints searched at `distance` (0 to 64 bits).

    Texts of one kind share bits, so that some ranges contain many more keys than others: pass a `sample` of your
    fingerprints. Without one, the figures assume random bits. Times are in microseconds, sizes in bytes.

    Raises ValueError for `rows` outside 0..2**64 or `distance` outside 0..64.
    """
    rows = whole_number("rows", rows, 0, 1 << FINGERPRINT_BITS)
    distance = whole_number("distance", distance, 0, FINGERPRINT_BITS)
    default = _choice(default_design(rows, distance), rows, distance, sample)
    choices = _worthwhile(rows, distance, sample)
    reading = choices[-1]
    useful = max(_USEFUL_US, 2 * reading.search_us)
    return Plan(
        rows=rows,
        distance=distance,
        choices=tuple(sorted({*choices, default}, key=lambda choice: (choice.tables, choice.search_us))),
        reading=reading,
        writing=next(choice for choice in choices if choice.search_us <= useful),
        default=default,
    )


def _worthwhile(rows: int, distance: int, sample: PrefixSample | None) -> list[Choice]:
    """Return the choices that search faster than all with fewer tables, by tables."""
    possible: list[Choice] = []
    fastest = inf
    designs = _designs(TABLES_AT_MOST, nested=True)
    for design in sorted(designs, key=lambda design: (design.tables, design.search_us(distance, rows))):
        # Skew only adds candidates, and a sample takes time to look at.
        if design.search_us(distance, rows) < _WORTH * fastest:
            possible.append(_choice(design, rows, distance, sample))
            fastest = min(fastest, possible[-1].search_us)
    choices: list[Choice] = []
    for choice in sorted(possible, key=lambda choice: (choice.tables, choice.search_us)):
        if not choices or choice.search_us < _WORTH * choices[-1].search_us:
            choices.append(choice)
    return choices


def default_design(rows: int, distance: int) -> Design:
    """Return the design that `create_index` chooses by default.

    Among the designs of up to 20 tables without inner blocks, it has the lowest `search_us + write_us`: the cost
    of a new row that is searched before it is written. Ties are resolved by fewest tables, then fewest blocks,
    then fewest lead blocks. `rows` below 1,000,000 count as 1,000,000. `simsql.create_index` computes the same in
    SQL. Raises ValueError for `rows` outside 0..2**64 or `distance` outside 0..64.
    """
    rows = max(whole_number("rows", rows, 0, 1 << FINGERPRINT_BITS), _DEFAULT_ROWS)

    def cost(design: Design) -> tuple[float, int, int, int]:
        total = design.search_us(distance, rows) + design.write_us()
        return total, design.tables, design.blocks, design.lead

    return min(_designs(_DEFAULT_TABLES, nested=False), key=cost)


@cache
def usual_designs(distance: int) -> tuple[Design, ...]:
    """Return the designs that `create_index` chooses by default for up to 100 million rows."""
    sizes = (round(_DEFAULT_ROWS * 10 ** (step / 8)) for step in range(17))
    return tuple(dict.fromkeys(default_design(rows, distance) for rows in sizes))


@cache
def _designs(tables: int, *, nested: bool) -> tuple[Design, ...]:
    """Return all designs for 64 bits with up to this number of tables."""
    return tuple(
        Design(blocks, lead, inner_blocks)
        for blocks in range(2, FINGERPRINT_BITS + 1)
        for lead in range(1, blocks)
        if comb(blocks, lead) <= tables
        for inner_blocks in (0, *range(2, nested * tables // comb(blocks, lead) + 1))
        if inner_blocks <= FINGERPRINT_BITS - sum(block_sizes(blocks)[:lead])
    )


def _choice(design: Design, rows: int, distance: int, sample: PrefixSample | None = None) -> Choice:
    return Choice(
        design=design,
        tables=design.tables,
        prefix_bits=(min(design.prefix_bits), max(design.prefix_bits)),
        probes=design.probes(distance),
        candidates=design.candidates(distance, rows, sample),
        scans=rows < design.scan_rows(distance, sample),
        search_us=design.search_us(distance, rows, sample),
        write_us=design.write_us(),
        bytes=round(KEY_BYTES * rows * design.tables),
    )
