"""Designs: the radius against every placement of differing bits, and the figures of the cost model."""

import json
import os
from math import comb, inf
from pathlib import Path

import numpy as np
import pytest

from simsql.hamming.blocks import flip_masks
from simsql.hamming.design import CANDIDATE_US, PROBE_US, SCAN_ROW_US, Design

SHARED = Path(os.environ.get("SIMSQL_SHARED", Path(__file__).parents[2].parent / "shared")) / "data"
WIDTH = 12
DESIGNS = [
    (blocks, lead) for blocks in range(2, WIDTH + 1) for lead in range(1, blocks) if comb(blocks, lead) <= 128
]
# The plain designs of the paper for 2**34 fingerprints at distance 3.
PAPER = [((6, 3), 20, {31, 32, 33}, 8), ((5, 2), 10, {25, 26}, 512), ((4, 1), 4, {16}, 262_144)]


@pytest.mark.parametrize(("blocks", "lead"), DESIGNS)
def test_the_radius_is_exact_for_every_placement_of_differing_bits(blocks, lead):
    """No placement of k bits needs more flips than radius(k), and some placement needs that many."""
    design = Design(blocks, lead, WIDTH)
    differing = np.arange(2**WIDTH, dtype=np.uint64)
    in_lead = [np.bitwise_count(differing & np.uint64(p.lead_mask)) for p in design.permutations]
    needed = np.minimum.reduce(in_lead)
    for distance in range(WIDTH + 1):
        worst = needed[np.bitwise_count(differing) == distance].max()
        assert design.radius(distance) == worst
        assert worst <= min(design.prefix_bits)


@pytest.mark.parametrize(("blocks", "lead"), DESIGNS)
def test_a_search_meets_every_fingerprint_within_the_distance(blocks, lead):
    """Flip the prefix, compare prefixes, compare distances: the search itself, for every pair of 12 bits."""
    design = Design(blocks, lead, WIDTH)
    query = 0b1010_0110_1100
    everything = np.arange(2**WIDTH, dtype=np.uint64)
    distances = np.bitwise_count(everything ^ np.uint64(query))
    for distance in range(WIDTH + 1):
        met = np.zeros(2**WIDTH, dtype=bool)
        probes = 0
        for permutation in design.permutations:
            prefix = np.uint64(permutation.prefix_mask)
            flips = flip_masks(permutation.prefix_mask, design.radius(distance))
            probes += len(flips)
            wanted = (np.uint64(permutation.key(query)) & prefix) ^ flips
            met |= np.isin(permutation.key(everything) & prefix, wanted)
        assert met[distances <= distance].all()
        assert probes == design.probes(distance)


@pytest.mark.parametrize(("blocks", "lead"), [(2, 1), (3, 1), (4, 1), (5, 2), (6, 3), (7, 4), (64, 1), (64, 63)])
def test_the_radius_at_64_bits_is_what_the_evenest_spread_needs(blocks, lead):
    design = Design(blocks, lead)
    for distance in range(65):
        held = [distance // blocks + (block < distance % blocks) for block in range(blocks)]
        assert design.radius(distance) == sum(sorted(held)[:lead]) <= min(design.prefix_bits)


def test_the_default_is_four_tables():
    assert Design() == Design(blocks=4, lead=1, width=64)
    assert Design().tables == len(Design().permutations) == 4
    assert Design().prefix_bits == (16, 16, 16, 16)
    assert repr(Design(np.int64(5), 2)) == "Design(blocks=5, lead=2, width=64)"


def test_figures_for_ten_million_fingerprints():
    four, two = Design(4, 1), Design(2, 1)
    assert [four.radius(k) for k in (3, 7, 10)] == [0, 1, 2]
    assert [four.probes(k) for k in (3, 7, 10)] == [4, 68, 548]
    assert [round(four.candidates(k, 10**7)) for k in (3, 7, 10)] == [610, 10_376, 83_618]
    assert two.probes(3) == 66
    assert two.candidates(3, 2**34) == 66 * 4


def test_prefixes_of_different_length_are_counted_each_for_itself():
    design = Design(6, 3)
    assert design.prefix_bits[0] == 33
    assert design.prefix_bits[-1] == 31
    assert design.probes(4) == sum(1 + bits for bits in design.prefix_bits)
    assert design.candidates(3, 2**34) == pytest.approx(sum(2 ** (34 - b) for b in design.prefix_bits))


def test_the_cost_model_weighs_probes_and_candidates_against_a_scan():
    design = Design(4, 1)
    for distance in (0, 3, 7, 10, 15):
        rows = design.scan_rows(distance)
        assert design.search_us(distance, round(rows * 0.9)) > SCAN_ROW_US * rows * 0.9
        assert design.search_us(distance, round(rows * 1.1)) < SCAN_ROW_US * rows * 1.1
    assert design.search_us(3, 2**16) == pytest.approx(4 * PROBE_US + 4 * CANDIDATE_US)
    assert [round(design.scan_rows(k)) for k in (3, 7, 11)] == [150, 2557, 20_807]
    assert design.scan_rows(64) == inf
    assert design.candidates(3, 0) == 0


def test_a_larger_distance_never_costs_less():
    for design in (Design(2, 1), Design(4, 1), Design(6, 3), Design(64, 1)):
        for measure in (design.radius, design.probes, design.scan_rows):
            assert [measure(k) for k in range(65)] == sorted(measure(k) for k in range(65))


@pytest.mark.parametrize(("arguments", "tables", "prefixes", "candidates"), PAPER)
def test_designs_of_the_paper(arguments, tables, prefixes, candidates):
    check_paper_design(Design(*arguments), tables, prefixes, candidates)


def test_designs_of_the_paper_as_published():
    if not SHARED.is_dir():
        pytest.skip(f"no shared data in {SHARED}")
    published = json.loads((SHARED / "vectors.json").read_text())["paper_designs_64_bits_k3_2**34"]
    plain = [row for row in published if isinstance(row["blocks"], list)]
    assert len(plain) == 3
    for row in plain:
        design = Design(len(row["blocks"]), len(row["blocks"]) - 3)
        assert list(design.permutations[0].sizes) == row["blocks"]
        check_paper_design(design, row["tables"], set(row["prefix_bits"]), row["candidates_at_most"])


def check_paper_design(design, tables, prefixes, candidates):
    assert design.tables == tables
    assert design.radius(3) == 0
    assert design.probes(3) == tables
    assert set(design.prefix_bits) == prefixes
    assert max(2 ** (34 - bits) for bits in design.prefix_bits) == candidates
    assert design.candidates(3, 2**34) <= tables * candidates


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: Design(1, 1), ValueError, "blocks must be from 2 to 64, not 1"),
        (lambda: Design(65, 1), ValueError, "blocks must be from 2 to 64, not 65"),
        (lambda: Design(13, 1, width=12), ValueError, "blocks must be from 2 to 12, not 13"),
        (lambda: Design(4, 4), ValueError, "lead must be from 1 to 3, not 4"),
        (lambda: Design(4, 0), ValueError, "lead must be from 1 to 3, not 0"),
        (lambda: Design(4, 1, width=1), ValueError, "width must be from 2 to 64, not 1"),
        (lambda: Design(10, 4), ValueError, "needs 210 tables, allowed are 1 to 128"),
        (lambda: Design("4", 1), TypeError, "blocks must be an int from 2 to 64, not '4'"),
        (lambda: Design(4, True), TypeError, "lead must be an int from 1 to 3, not True"),
        (lambda: Design().radius(65), ValueError, "distance must be from 0 to 64, not 65"),
        (lambda: Design().probes(-1), ValueError, "distance must be from 0 to 64, not -1"),
        (lambda: Design(3, 1, width=12).radius(13), ValueError, "distance must be from 0 to 12, not 13"),
        (lambda: Design().candidates(3, -1), ValueError, "rows must be from 0 to"),
        (lambda: Design().candidates(3, 1e6), TypeError, "rows must be an int"),
    ],
)
def test_wrong_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
