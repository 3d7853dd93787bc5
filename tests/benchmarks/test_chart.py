"""Charts are well-formed SVG in which every value is where the axes say."""

from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.chart import Line, Panel, draw_chart, rule_panels
from simsql.evaluate.measures import Estimate, LabelledPairs, evaluate_pairs

SVG = "{http://www.w3.org/2000/svg}"


def exactly(value):
    return Estimate(value, value, value)


def draw(*panels):
    return ElementTree.fromstring(draw_chart(panels))


def points_of(element):
    return [tuple(map(float, point.split(","))) for point in element.get("points").split()]


def texts_of(chart):
    return ["".join(element.itertext()) for element in chart.iter(f"{SVG}text")]


def test_values_are_where_the_axes_say():
    points = [(0, Estimate(0.0, 0.0, 0.5)), (5, exactly(0.5)), (10, exactly(1.0))]
    chart = draw(Panel("title", "bits", [Line("a", points)]))
    (line,) = chart.iter(f"{SVG}polyline")
    start, middle, end = points_of(line)
    assert middle == pytest.approx(((start[0] + end[0]) / 2, (start[1] + end[1]) / 2))
    assert (start[0] < end[0], start[1] > end[1]) == (True, True)  # upwards is less
    levels = {round(float(element.get("y1")), 1) for element in chart.iter(f"{SVG}line") if element.get("class")}
    assert {start[1], end[1]} <= levels
    (band,) = chart.iter(f"{SVG}polygon")
    assert points_of(band) == [(start[0], middle[1]), middle, end, end, middle, start]


def test_undefined_values_leave_gaps():
    points = [(x, exactly(None if x == 2 else x / 4)) for x in range(5)]
    chart = draw(Panel("title", "bits", [Line("a", points)]))
    assert [len(points_of(line)) for line in chart.iter(f"{SVG}polyline")] == [2, 2]
    chart = draw(Panel("title", "bits", [Line("a", [(0, exactly(None))])]))
    assert list(chart.iter(f"{SVG}polyline")) == []


def test_names_stay_text():
    chart = draw(Panel("<script>&\"'", "a < b", [Line("</svg>", [(0, exactly(1.0))])]))
    assert {"<script>&\"'", "a < b", "</svg>"} <= set(texts_of(chart))
    assert chart.find(f".//{SVG}script") is None


def test_a_chart_of_rules_has_a_panel_for_each_check():
    pairs = LabelledPairs(np.array([3, 9]), np.array([0.9, 0.2]), np.array([True, False]), np.ones(2))
    panels = rule_panels("words12-log-1", evaluate_pairs(pairs, range(13), [0.6]))
    assert [panel.title for panel in panels] == [
        "words12-log-1, without a check",
        "words12-log-1, similarity at least 0.6",
    ]
    chart = draw(*panels)
    assert len(chart.findall(f"{SVG}svg")) == 2
    assert len(list(chart.iter(f"{SVG}polyline"))) == 4
    assert texts_of(chart)[-2:] == ["precision", "recall"]
    colours = [line.get("stroke") for line in chart.iter(f"{SVG}polyline")]
    assert colours[0] == colours[2] != colours[1] == colours[3]
