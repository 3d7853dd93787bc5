"""Diagrams of boxes, arrows and bits as SVG files, on a page that is light or dark, as the charts are."""

from collections.abc import Sequence
from html import escape

from benchmarks.chart import COLOURS, svg_file

BLUE, ORANGE, GREEN, PINK, *_ = COLOURS
WIDTH = 560  # so that a text of 15 pixels is still one of 9 on a telephone
LINE = 20
_STYLE = """
text { font-size: 15px } .small { font-size: 13px } .strong { font-weight: 600 } .code { font-family: monospace }
.ink { stroke: #555; fill: none; stroke-width: 1.5 } .tip { fill: #555 } .dim { fill: #666 }
@media (prefers-color-scheme: dark) { .ink { stroke: #aaa } .tip { fill: #aaa } .dim { fill: #aaa } }"""
_TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    '<path class="tip" d="M0,0 L8,4 L0,8 z"/></marker>'
)


class Drawing:
    """A drawing to which shapes are added. Places are in pixels from its upper left corner."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [_TIP]

    def text(self, x: float, y: float, text: str, classes: str = "") -> None:
        """Write one line with its base at `y`; with the classes middle and end, `x` is its middle or its end."""
        self._parts.append(f'<text class="{classes}" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def rectangle(
        self, x: float, y: float, width: float, height: float, colour: str | None = None, opacity: float = 0.18
    ) -> None:
        """Draw a rectangle with an outline; in grey, and empty, without a colour."""
        look = (
            f'rx="3" fill="{colour}" fill-opacity="{opacity}" stroke="{colour}"'
            if colour
            else 'rx="3" class="ink"'
        )
        self._rectangle(x, y, width, height, look)

    def bar(self, x: float, y: float, width: float, height: float, colour: str, opacity: float = 1) -> None:
        """Fill a rectangle."""
        self._rectangle(x, y, width, height, f'fill="{colour}" fill-opacity="{opacity:g}"')

    def _rectangle(self, x: float, y: float, width: float, height: float, look: str) -> None:
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>')

    def box(
        self, x: float, y: float, width: float, lines: Sequence[str], colour: str | None = None, code: bool = False
    ) -> float:
        """Draw a box around lines of text, of which the first is a heading. Return its lower edge."""
        height = LINE * len(lines) + 16
        self.rectangle(x, y, width, height, colour)
        for place, line in enumerate(lines):
            look = "strong" if not place else "small code" if code else "small"
            self.text(x + 12, y + 22 + LINE * place, line, look)
        return y + height

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw an arrow through these points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polyline class="ink" points="{path}" marker-end="url(#tip)"/>')

    def line(self, start: tuple[float, float], end: tuple[float, float], colour: str | None, label: str) -> None:
        """Draw a line, dashed without a colour, and write a short text over it, nearer to its start."""
        look = f'stroke="{colour}" stroke-width="2.5"' if colour else 'class="ink" stroke-dasharray="4 4"'
        (x, y), (to_x, to_y) = start, end
        self._parts.append(f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" {look}/>')
        if not label:
            return
        x, y, width = x + (to_x - x) * 0.45, y + (to_y - y) * 0.45, 8 * len(label) + 6
        self._rectangle(x - width / 2, y - 9, width, 18, 'class="page"')
        self.text(x, y + 5, label, "small middle")

    def node(self, x: float, y: float, name: str, colour: str) -> None:
        """Draw a document as a disk with a letter, which hides what is below."""
        for look in ('class="page"', f'fill="{colour}" fill-opacity="0.25" stroke="{colour}" stroke-width="2"'):
            self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="16" {look}/>')
        self.text(x, y + 5, name, "middle strong")

    def file(self, height: float) -> str:
        """Return the SVG file."""
        return svg_file(WIDTH, round(height), self._title, self._parts, _STYLE)
