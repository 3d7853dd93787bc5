"""Charts as SVG files without dependencies: lines with intervals, in panels, readable on light and dark pages."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from simsql.evaluate.measures import Estimate, RuleFigures

_WIDTH, _HEIGHT = 360, 300  # of a panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 34, 46  # the margins around its plot
_LEGEND = 26  # the height of a row of names, and its distance from the plots
_COLUMNS = 2
_TICKS = 5
# Colours that people who do not see red or green can tell apart: M. Okabe, K. Ito, 2008.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #222 } .title { font-size: 14px; font-weight: 600 }
.page { fill: #fff } .grid { stroke: #ddd } .middle { text-anchor: middle } .end { text-anchor: end }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .page { fill: #111 } .grid { stroke: #333 } }"""


class Line(NamedTuple):
    """A line of a chart. Lines with the same name have the same colour."""

    name: str
    points: Sequence[tuple[float, Estimate]]
    """The value at each place of the x axis, in ascending order; undefined values leave gaps."""
    dots: bool = False
    """Whether the points are not connected."""


class Panel(NamedTuple):
    """One of the plots of a chart, from 0 at the bottom to `top`."""

    title: str
    x_title: str
    lines: Sequence[Line]
    top: float = 1.0
    x_ticks: Mapping[float, str] | None = None
    """What is written at which values of an axis; by default, numbers at even steps."""
    y_ticks: Mapping[float, str] | None = None


def rule_panels(title: str, figures: Sequence[RuleFigures]) -> list[Panel]:
    """Return a panel of precision and recall over the distance for each check, None being without one."""
    panels = []
    for least in dict.fromkeys(rule.similarity for rule in figures):
        chosen = [rule for rule in figures if rule.similarity == least]
        check = "without a check" if least is None else f"similarity at least {least:g}"
        lines = (
            Line("precision", [(rule.distance, rule.precision) for rule in chosen]),
            Line("recall", [(rule.distance, rule.recall) for rule in chosen]),
        )
        panels.append(Panel(f"{title}, {check}", "distance in bits", lines))
    return panels


def draw_chart(panels: Sequence[Panel], columns: int = _COLUMNS) -> str:
    """Return an SVG file with the panels, so many in a row, and the names of the lines below."""
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    columns = min(columns, len(panels))
    width, bottom = columns * _WIDTH, -(-len(panels) // columns) * _HEIGHT
    parts = []
    for place, panel in enumerate(panels):
        row, column = divmod(place, columns)
        # A long title is cut off where the next panel begins.
        parts.append(f'<svg x="{column * _WIDTH}" y="{row * _HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}">')
        parts += _draw_panel(panel, colours)
        parts.append("</svg>")
    x, y = _LEFT, bottom + _LEGEND // 2
    for name in names:
        needed = 42 + round(6.6 * len(name))
        if x > _LEFT and x + needed > width:
            x, y = _LEFT, y + _LEGEND
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" stroke="{colours[name]}" stroke-width="3"/>')
        parts.append(f'<text x="{x + 30}" y="{y + 4}">{escape(name)}</text>')
        x += needed
    return svg_file(width, y + _LEGEND, "; ".join(panel.title for panel in panels), parts)


def svg_file(width: int, height: int, title: str, parts: Iterable[str], style: str = "") -> str:
    """Return an SVG file of this size in pixels, on a page that is light or dark as the reader prefers."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}{style}</style>",
            f'<rect class="page" width="{width}" height="{height}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _draw_panel(panel: Panel, colours: dict[str, str]) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    xs = [x for line in panel.lines for x, _ in line.points]
    least, most = min(xs), max(xs)

    def at(x: float, y: float) -> str:
        across = (x - least) / max(most - least, 1)
        return f"{_LEFT + across * (right - _LEFT):.1f},{bottom - y / panel.top * (bottom - _TOP):.1f}"

    parts = [f'<text class="title" x="{_LEFT}" y="20">{escape(panel.title)}</text>']
    levels = [panel.top * tick / _TICKS for tick in range(_TICKS + 1)]
    for value, label in (panel.y_ticks or {level: f"{level:.3g}" for level in levels}).items():
        y = at(least, value).split(",")[1]
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{float(y) + 4:.1f}">{escape(label)}</text>')
    places = range(round(least), round(most) + 1, max(1, round((most - least) / 8)))
    for x, label in (panel.x_ticks or {place: f"{place}" for place in places}).items():
        parts.append(f'<text class="middle" x="{at(x, 0).split(",")[0]}" y="{bottom + 17}">{escape(label)}</text>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text class="middle" x="{middle}" y="{bottom + 35}">{escape(panel.x_title)}</text>')
    for line in panel.lines:
        colour = colours[line.name]
        for run in _runs(line):
            points = [at(x, value.value or 0.0) for x, value in run]
            if line.dots:
                centres = (point.split(",") for point in points)
                parts += [f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>' for x, y in centres]
                continue
            band = [at(x, value.high or 0.0) for x, value in run]
            band += [at(x, value.low or 0.0) for x, value in reversed(run)]
            parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" fill-opacity="0.18"/>')
            parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def _runs(line: Line) -> list[list[tuple[float, Estimate]]]:
    """Return the stretches of a line where its value is defined."""
    runs: list[list[tuple[float, Estimate]]] = [[]]
    for point in line.points:
        if point[1].value is None:
            runs.append([])
        else:
            runs[-1].append(point)
    return [run for run in runs if run]
