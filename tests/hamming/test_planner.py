"""Plans against all designs there are, and the default design."""

import itertools
from math import comb

import pytest

from simsql.hamming import Design, plan
from simsql.hamming import design as design_module
from simsql.hamming.design import CALL_US, SCAN_ROW_US
from simsql.hamming.planner import KEY_BYTES, default_design, usual_designs


def every_design():
    """All that a user can make, found by trying."""
    for blocks in range(2, 65):
        for lead in range(1, blocks):
            for inner_blocks in (0, *range(2, 65)):
                if comb(blocks, lead) * max(1, inner_blocks) <= 128:
                    try:
                        yield Design(blocks, lead, inner_blocks)
                    except ValueError:
                        break


EVERY = list(every_design())


# For figures typed in here: they stay when the costs that are built in are measured anew.
COSTS = {"CALL_US": 50.0, "PROBE_US": 1.6, "CANDIDATE_US": 0.055, "SCAN_ROW_US": 0.0426, "WRITE_TABLE_US": 12.0}


@pytest.fixture
def typed(monkeypatch):
    """Set costs."""

    def set_costs(**costs):
        for name, value in {**COSTS, **costs}.items():
            monkeypatch.setattr(design_module, name, value)

    set_costs()
    return set_costs


@pytest.mark.parametrize(
    ("rows", "distance"), [(0, 3), (1_000, 7), (10**6, 3), (10**7, 10), (2**34, 3), (10**9, 30)]
)
def test_a_plan_leaves_out_only_what_is_hardly_faster_than_fewer_tables(rows, distance):
    made = plan(rows, distance)
    for design in EVERY:
        search_us = design.search_us(distance, rows)
        assert any(c.tables <= design.tables and c.search_us * 0.9 <= search_us for c in made.choices), design
    kept = [choice for choice in made.choices if choice != made.default]
    assert all(many.search_us < few.search_us * 0.9 for few, many in itertools.pairwise(kept))
    assert list(made.choices) == sorted(made.choices, key=lambda choice: choice.tables)
    assert len({choice.design for choice in made.choices}) == len(made.choices)


def test_the_figures_of_a_choice_are_those_of_its_design():
    made = plan(10**7, 7)
    for choice in made.choices:
        design = choice.design
        assert choice.tables == design.tables == len(design.prefix_bits)
        assert choice.prefix_bits == (min(design.prefix_bits), max(design.prefix_bits))
        assert (choice.probes, choice.candidates) == (design.probes(7), design.candidates(7, 10**7))
        assert (choice.search_us, choice.write_us) == (design.search_us(7, 10**7), design.write_us())
        assert choice.bytes == round(KEY_BYTES * design.tables * 10**7)
        assert not choice.scans
    two = plan(10**6, 10).choices[0]
    assert two.design == Design(2, 1)
    assert two.scans
    assert two.search_us == CALL_US + SCAN_ROW_US * 10**6


@pytest.mark.usefixtures("typed")
def test_a_plan_names_the_best_for_reading_and_writing():
    made = plan(10**7, 3)
    fastest = min(design.search_us(3, 10**7) for design in EVERY)
    assert made.reading == made.choices[-1]
    assert made.reading.search_us <= fastest / 0.9
    assert made.writing == made.choices[0]
    assert made.writing.tables == 2


@pytest.mark.usefixtures("typed")
def test_the_best_for_writing_is_slower_than_a_millisecond_only_where_others_are_too():
    seven, ten = plan(10**7, 7), plan(10**7, 10)
    assert [seven.writing.tables, ten.writing.tables] == [3, 3]
    assert seven.writing.search_us <= 1000 < seven.choices[0].search_us
    assert 1000 < ten.writing.search_us <= 2 * ten.reading.search_us < ten.choices[0].search_us


def test_the_default_costs_least_to_search_and_write_once():
    plain = [design for design in EVERY if not design.inner_blocks and design.tables <= 20]
    for rows, distance in itertools.product((10**6, 10**7, 10**8, 10**9), range(0, 65, 3)):
        found = default_design(rows, distance)
        assert not found.inner_blocks
        least = min(design.search_us(distance, rows) + design.write_us() for design in plain)
        assert found.search_us(distance, rows) + found.write_us() == least


@pytest.mark.usefixtures("typed")
def test_typed_defaults():
    assert plan(10**8, 7).default.design == default_design(10**8, 7) == Design(3)
    assert [default_design(10**6, k) for k in (0, 3, 7, 10)] == [Design(m) for m in (2, 4, 4, 4)]
    assert [default_design(10**n, 3) for n in (6, 7, 8, 9)] == [Design(m) for m in (4, 3, 3, 2)]


def test_usual_designs_are_the_defaults_of_ordinary_tables():
    assert usual_designs(3) == (Design(4), Design(3), Design(2))
    for distance in (0, 3, 7, 12, 20, 24):
        defaults = {default_design(round(10 ** (step / 13)), distance) for step in range(13 * 8 + 1)}
        assert set(usual_designs(distance)) == defaults


def test_small_tables_get_the_default_of_a_million_rows_and_equals_the_fewest_tables(typed):
    assert default_design(0, 3) == default_design(10**6, 3) == Design()
    made = plan(0, 3)
    assert made.default.design == Design()
    assert (made.rows, made.distance) == (0, 3)
    assert made.default in made.choices
    typed(CALL_US=1, PROBE_US=0, CANDIDATE_US=0, SCAN_ROW_US=0, WRITE_TABLE_US=0)
    assert default_design(10**6, 3) == Design(2)


def test_no_design_of_32_tables_or_fewer_is_much_better_than_the_default():
    """What the planner says of its small choice: a twentieth for 10 million rows, a quarter for 100 million."""
    few = [design for design in EVERY if design.tables <= 32]
    for rows, distance in itertools.product((10**6, 10**7, 10**8), range(65)):
        best = min(design.search_us(distance, rows) + design.write_us() for design in few)
        default = default_design(rows, distance)
        worse = (default.search_us(distance, rows) + default.write_us()) / best
        assert worse <= (1.05 if rows < 10**8 else 1.25), (rows, distance)


def test_other_costs_change_the_plan(typed):
    typed(WRITE_TABLE_US=1000.0)
    assert plan(10**6, 3).default.design == Design(2, 1)
    typed(CALL_US=10, PROBE_US=1, CANDIDATE_US=0.5, SCAN_ROW_US=1, WRITE_TABLE_US=2)
    made = plan(10**6, 3)
    for choice in made.choices:
        probing = 10 + choice.probes + choice.candidates / 2
        assert choice.search_us == pytest.approx(probing)
        assert choice.write_us == 2 * choice.tables


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: plan(-1, 3), ValueError, "rows must be between 0 and"),
        (lambda: plan(1e6, 3), TypeError, "rows must be an int"),
        (lambda: plan(10, 65), ValueError, "distance must be between 0 and 64, not 65"),
        (lambda: default_design(-1, 3), ValueError, "rows must be between 0 and"),
    ],
)
def test_wrong_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
