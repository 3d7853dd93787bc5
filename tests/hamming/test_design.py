"""Designs: the radius against every placement of differing bits, and the figures of the cost model."""

from math import comb, inf

import numpy as np
import pytest
from hamming_samples import PAPER, published

from simsql.hamming import design as design_module
from simsql.hamming.blocks import block_sizes, flip_masks
from simsql.hamming.design import CALL_US, CANDIDATE_US, PROBE_US, SCAN_ROW_US, WRITE_TABLE_US, Design


def every_design(width):
    """Each design of a narrow fingerprint, nested or not."""
    for blocks in range(2, width + 1):
        for lead in range(1, blocks):
            others = width - sum(block_sizes(blocks, width)[:lead])
            for inner_blocks in (0, *range(2, others + 1)):
                if comb(blocks, lead) * max(1, inner_blocks) <= 128:
                    yield Design(blocks, lead, inner_blocks, width)


class Placements:
    """Every placement of differing bits in a narrow fingerprint, and how many fall into each table's prefix."""

    def __init__(self, design):
        differing = np.arange(2**design.width, dtype=np.uint64)
        self.bits = np.bitwise_count(differing)
        self.in_prefix = np.array(
            [np.bitwise_count(differing & np.uint64(p.lead_mask)) for p in design.permutations], dtype=int
        )

    def missed(self, radii, distance):
        """Whether some placement of at most `distance` bits is found by no table."""
        needed = self.in_prefix[:, self.bits <= distance]
        return not (needed <= np.array(radii)[:, None]).any(axis=0).all()


@pytest.mark.parametrize("width", [8, 9, 10])
def test_no_placement_of_differing_bits_is_missed(width):
    for design in every_design(width):
        placements = Placements(design)
        for distance in range(width + 1):
            radii = design.radii(distance)
            assert len(radii) == design.tables
            assert not placements.missed(radii, distance), (design, distance)
            assert all(-1 <= radius <= bits for radius, bits in zip(radii, design.prefix_bits, strict=True))


@pytest.mark.parametrize("width", [10, 11])
def test_with_one_lead_block_no_radius_of_any_table_can_be_lowered(width):
    """But at distance = width, where the first table alone reads everything."""
    for blocks in range(2, width + 1):
        design = Design(blocks, 1, 0, width)
        placements = Placements(design)
        for distance in range(width):
            radii = design.radii(distance)
            assert sum(radii) + blocks == distance + 1
            for table in range(blocks):
                lowered = list(radii)
                lowered[table] -= 1
                assert (radii[table] == -1) or placements.missed(lowered, distance), (design, distance, table)


@pytest.mark.parametrize("width", [8, 10, 11])
def test_with_more_lead_blocks_the_common_radius_is_the_least(width):
    """The even spread needs it; and where it leaves just `lead` blocks with fewer bits, in every table."""
    for design in every_design(width):
        if design.lead == 1 or design.inner_blocks:
            continue
        placements = Placements(design)
        for distance in range(width + 1):
            radii = design.radii(distance)
            assert len(set(radii)) == 1
            assert placements.missed([radius - 1 for radius in radii], distance), (design, distance)
            if distance % design.blocks == design.blocks - design.lead and distance <= width - design.lead:
                for table in range(design.tables):
                    lowered = list(radii)
                    lowered[table] -= 1
                    assert placements.missed(lowered, distance), (design, distance, table)


@pytest.mark.parametrize("width", [6, 7])
def test_a_search_meets_every_fingerprint_within_the_distance(width):
    """Flip the prefix, compare prefixes: the search itself, for one query and every other fingerprint."""
    everything = np.arange(2**width, dtype=np.uint64)
    query = 0b1_1010_0110 % 2**width
    distances = np.bitwise_count(everything ^ np.uint64(query))
    for design in every_design(width):
        keys = [(p, p.key(query), p.key(everything)) for p in design.permutations]
        for distance in range(width + 1):
            met = np.zeros(2**width, dtype=bool)
            probes = candidates = 0
            for (permutation, key, stored), radius in zip(keys, design.radii(distance), strict=True):
                if radius >= 0:
                    prefix = np.uint64(permutation.prefix_mask)
                    wanted = (np.uint64(key) & prefix) ^ flip_masks(permutation.prefix_mask, radius)
                    found = np.isin(stored & prefix, wanted)
                    met |= found
                    probes += len(wanted)
                    candidates += found.sum()
            assert met[distances <= distance].all()
            assert probes == design.probes(distance)
            assert candidates == design.candidates(distance, 2**width)


@pytest.mark.parametrize(("blocks", "lead"), [(2, 1), (3, 1), (4, 1), (5, 2), (6, 3), (7, 4), (64, 1), (64, 63)])
def test_the_radius_at_64_bits_is_what_the_evenest_spread_needs(blocks, lead):
    design = Design(blocks, lead)
    for distance in range(65):
        held = [distance // blocks + (block < distance % blocks) for block in range(blocks)]
        even = sum(sorted(held)[:lead])
        assert max(design.radii(distance)) == design.radius(distance)
        assert design.radius(distance) == even <= min(design.prefix_bits)


def test_radii_of_four_tables():
    design = Design(4, 1)
    assert [design.radii(k) for k in (0, 2, 3, 4, 7, 10)] == [
        (0, -1, -1, -1),
        (0, 0, 0, -1),
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (1, 1, 1, 1),
        (2, 2, 2, 1),
    ]


def test_radii_of_nested_tables():
    """The tables of the paper's example have 28 bits in front and need no flip at its distance of 3."""
    design = Design(4, 1, 4)
    assert [set(design.radii(k)) for k in (0, 3, 4, 5, 6, 7)] == [{0}, {0}, {1}, {2}, {2}, {2}]


def test_the_default_is_four_tables():
    assert Design() == Design(blocks=4, lead=1, inner_blocks=0, width=64)
    assert Design().tables == len(Design().permutations) == 4
    assert Design().prefix_bits == (16, 16, 16, 16)
    assert repr(Design(np.int64(5), 2)) == "Design(blocks=5, lead=2, inner_blocks=0, width=64)"


def test_figures_for_ten_million_fingerprints():
    four, two = Design(4, 1), Design(2, 1)
    assert [four.radius(k) for k in (3, 7, 10)] == [0, 1, 2]
    assert [four.probes(k) for k in (3, 7, 10, 11)] == [4, 68, 3 * 137 + 17, 548]
    assert [round(four.candidates(k, 10**7)) for k in (3, 7, 10, 11)] == [610, 10_376, 65_308, 83_618]
    assert [two.probes(k) for k in (2, 3)] == [34, 66]
    assert two.candidates(3, 2**34) == 66 * 4


def test_the_cost_model_weighs_probes_and_candidates_against_a_scan(monkeypatch):
    design = Design(4, 1)
    for distance in (3, 7, 10, 15):
        rows = design.scan_rows(distance)
        fewer, more = round(rows * 0.9), round(rows * 1.1)
        assert design.search_us(distance, fewer) == CALL_US + SCAN_ROW_US * fewer
        assert design.search_us(distance, more) < CALL_US + SCAN_ROW_US * more
    assert design.search_us(3, 2**16) == pytest.approx(CALL_US + 4 * PROBE_US + 4 * CANDIDATE_US)
    for name, value in {"PROBE_US": 1.6, "CANDIDATE_US": 0.055, "SCAN_ROW_US": 0.0426}.items():
        monkeypatch.setattr(design_module, name, value)
    assert [round(design.scan_rows(k)) for k in (3, 7, 11)] == [150, 2557, 20_807]
    assert design.scan_rows(64) == inf
    assert design.candidates(3, 0) == 0
    assert design.search_us(3, 0) == CALL_US
    assert [Design(m).write_us() / WRITE_TABLE_US for m in (2, 4)] == [2, 4]


def test_a_larger_distance_never_costs_less():
    for design in (Design(2, 1), Design(4, 1), Design(6, 3), Design(64, 1)):
        for measure in (design.radius, design.probes, design.scan_rows):
            assert [measure(k) for k in range(65)] == sorted(measure(k) for k in range(65))


@pytest.mark.parametrize(("arguments", "tables", "prefixes", "candidates"), PAPER)
def test_designs_of_the_paper(arguments, tables, prefixes, candidates):
    design = Design(*arguments)
    assert design.tables == tables
    assert design.radius(3) == 0
    assert design.probes(3) == tables
    assert set(design.prefix_bits) == prefixes
    assert max(2 ** (34 - bits) for bits in design.prefix_bits) == candidates
    assert design.candidates(3, 2**34) <= tables * candidates


def test_designs_of_the_paper_are_those_published():
    rows = published("paper_designs_64_bits_k3_2**34")
    figures = [(row["tables"], set(row["prefix_bits"]), row["candidates_at_most"]) for row in rows]
    assert figures == [tuple(row[1:]) for row in PAPER]
    for row, (arguments, *_) in zip(rows, PAPER, strict=True):
        if isinstance(row["blocks"], list):
            assert list(block_sizes(arguments[0])) == row["blocks"]


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Design(1, 1), ValueError, "blocks must be between 2 and 64, not 1"),
        (lambda: Design(65, 1), ValueError, "blocks must be between 2 and 64, not 65"),
        (lambda: Design(13, 1, width=12), ValueError, "blocks must be between 2 and 12, not 13"),
        (lambda: Design(4, 4), ValueError, "lead must be between 1 and 3, not 4"),
        (lambda: Design(4, 0), ValueError, "lead must be between 1 and 3, not 0"),
        (lambda: Design(4, 1, width=1), ValueError, "width must be between 2 and 64, not 1"),
        (lambda: Design(10, 4), ValueError, "needs 210 tables, more than the limit of 128"),
        (lambda: Design(4, 1, 1), ValueError, "inner_blocks must be 0 or between 2 and 48, .* not 1"),
        (lambda: Design(4, 1, 49), ValueError, "inner_blocks must be between 0 and 48, not 49"),
        (lambda: Design(3, 1, 43), ValueError, "inner_blocks must be between 0 and 42, not 43"),
        (lambda: Design(4, 1, 33), ValueError, "4 blocks with 1 leading and 33 inner ones needs 132 tables"),
        (lambda: Design("4", 1), TypeError, "blocks must be an int between 2 and 64, not '4'"),
        (lambda: Design(4, True), TypeError, "lead must be an int between 1 and 3, not True"),
        (lambda: Design().radius(65), ValueError, "distance must be between 0 and 64, not 65"),
        (lambda: Design().probes(-1), ValueError, "distance must be between 0 and 64, not -1"),
        (lambda: Design(3, 1, width=12).radius(13), ValueError, "distance must be between 0 and 12, not 13"),
        (lambda: Design().candidates(3, -1), ValueError, "rows must be between 0 and"),
        (lambda: Design().candidates(3, 1e6), TypeError, "rows must be an int"),
    ],
)
def test_wrong_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
