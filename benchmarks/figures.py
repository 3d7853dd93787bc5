"""The figures of a run: collected, printed beside their bars, written as JSON."""

import json
import sys
import time
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.environment import Environment

SIMSQL = "simsql"


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    `value` is what the ratio and the bar are taken of: the median where there were many calls. `mean` is that
    of all calls, None where there was one. `checked` says how many results were compared with brute force.
    """

    section: str
    what: str
    system: str
    rows: int
    value: float
    unit: str
    mean: float | None = None
    calls: int = 1
    checked: int = 0
    note: str = ""


@dataclass
class Report:
    """All figures of a run, in the order in which they were measured."""

    environment: Environment = field(default_factory=dict)
    options: dict[str, object] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    wrong_result: str | None = None
    _started: float = field(default_factory=time.monotonic)

    def add(self, figure: Figure) -> None:
        """Keep a figure."""
        self.figures.append(figure)
        self.say(f"{figure.section}: {figure.what}, {figure.system}: {format_value(figure.value, figure.unit)}")

    def say(self, line: str) -> None:
        """Show on stderr what goes on, with the seconds since the start."""
        print(f"[{time.monotonic() - self._started:7.1f} s] {line}", file=sys.stderr, flush=True)

    def skip(self, reason: str) -> None:
        """Keep what was not measured, and why; once, however often it is said."""
        if reason not in self.skipped:
            self.skipped.append(reason)
            self.say(reason)

    def find(self, section: str, what: str, system: str) -> Figure | None:
        """Return a figure by what it measures, None if it was not."""
        for figure in self.figures:
            if (figure.section, figure.what, figure.system) == (section, what, system):
                return figure
        return None

    def reference(self, figure: Figure) -> Figure | None:
        """Return the figure that a ratio is taken to: simsql's own, of the same thing in the same unit."""
        for other in self.figures:
            if (other.section, other.what, other.unit) == (figure.section, figure.what, figure.unit):
                return other if other.system.startswith(SIMSQL) else None
        return None

    def write(self, path: Path) -> None:
        """Write the run as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "environment": self.environment,
            "options": self.options,
            "figures": [asdict(figure) for figure in self.figures],
            "skipped": self.skipped,
            "wrong_result": self.wrong_result,
        }
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_report(path: Path) -> Report:
    """Return the run that a JSON file holds."""
    content = json.loads(path.read_text(encoding="utf-8"))
    figures = [Figure(**figure) for figure in content["figures"]]
    return Report(content["environment"], content["options"], figures, content["skipped"], content["wrong_result"])


def format_value(value: float, unit: str) -> str:
    """Return a value in three significant digits with its unit; bytes from a million on in MB."""
    if unit == "bytes" and abs(value) >= 1e6:
        value, unit = value / 1e6, "MB"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f} {unit}".strip()
    digits = f"{value:.3g}"
    return f"{float(digits):,.0f} {unit}".strip() if "e" in digits else f"{digits} {unit}".strip()


def markdown_line(cells: Iterable[str]) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def format_table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[str]) -> str:
    """Return a table in plain text; columns whose titles are among `numbers` stand to the right."""
    lines = [list(titles), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if title in numbers else cell.ljust(width)
            for cell, width, title in zip(line, widths, titles, strict=True)
        ).rstrip()
        for line in lines
    )
