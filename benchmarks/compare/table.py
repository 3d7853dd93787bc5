"""The rows of the table: what each tool found, what it took and what it needs, as Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.compare.corpus import Quality
from benchmarks.figures import format_value, markdown_line

_TITLES = ("tool", "precision", "recall", "F1", "processor", "x", "clock", "build", "disk", "memory", "needs")
_NUMBERS = set(_TITLES) - {"tool", "needs"}


@dataclass(frozen=True)
class Row:
    """One tool in one section. What was not measured is None; the first row of a section is the measure of x."""

    tool: str
    quality: Quality
    processor: float
    """Seconds of the processor: of the whole job, or of one search."""
    clock: float
    """Seconds that passed."""
    needs: str
    build: float | None = None
    """Processor seconds to build the index."""
    disk: int | None = None
    """Bytes of the index."""
    memory: float | None = None
    """Bytes at the peak of the largest process."""

    def cells(self, first: "Row") -> list[str]:
        """Return the cells of this row in the section of `first`."""
        return [
            self.tool,
            *shares(self.quality),
            _time(self.processor),
            format_value(float(f"{self.processor / first.processor:.2g}"), "")
            if self.processor and first.processor
            else "-",
            _time(self.clock),
            "-" if self.build is None else _time(self.build),
            _megabytes(self.disk),
            _megabytes(self.memory),
            self.needs,
        ]


def shares(quality: Quality) -> list[str]:
    """Return the cells of precision, recall and F1."""
    values = (quality.precision, quality.recall, quality.f1)
    return ["-" if value is None else f"{value:.3f}" for value in values]


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the table of one section."""
    yield markdown_line(_TITLES)
    yield markdown_line("---:" if title in _NUMBERS else "---" for title in _TITLES)
    for row in rows:
        yield markdown_line(row.cells(rows[0]))


def _time(seconds: float) -> str:
    if not seconds:
        return "-"  # no /proc to read it from
    return format_value(seconds, "s") if seconds >= 0.5 else format_value(1000 * seconds, "ms")


def _megabytes(size: float | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f} MB"
