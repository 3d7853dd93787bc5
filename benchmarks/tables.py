"""A run as tables: plain text while it is measured, Markdown for the documentation.

`python -m benchmarks.tables results.json` prints the Markdown, of several files in one.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bars import verdicts
from benchmarks.figures import Figure, Report, format_table, format_value, markdown_line, read_report

_TITLES = ("what", "system", "rows", "median", "mean", "calls", "checked", "x simsql", "bar", "met", "note")
_NUMBERS = {"rows", "median", "mean", "calls", "checked", "x simsql", "measured"}
_BAR_TITLES = ("what", "bar", "measured", "met")


def section_table(report: Report, section: str) -> str:
    """Return the figures of a section as plain text."""
    return format_table(_TITLES, _section_rows(report, section), _NUMBERS)


def bar_table(report: Report) -> str:
    """Return the bars with what was measured, as plain text."""
    return format_table(_BAR_TITLES, _bar_rows(report), _NUMBERS)


def markdown(report: Report) -> str:
    """Return the whole run as Markdown: the environment, the bars, and a table for each section."""
    parts = [_markdown_table(("", ""), list(report.environment.items()))]
    bars = _bar_rows(report)
    if bars:
        parts += ["### Bars", _markdown_table(_BAR_TITLES, bars)]
    for section in dict.fromkeys(figure.section for figure in report.figures):
        parts += [f"### {section.capitalize()}", _markdown_table(_TITLES, _section_rows(report, section))]
    if report.skipped:
        parts += ["### Not measured", "\n".join(f"- {reason}" for reason in report.skipped)]
    return "\n\n".join(parts)


def _section_rows(report: Report, section: str) -> list[list[str]]:
    """Return the rows of a section's table: what measures the same thing stands together."""
    figures = [figure for figure in report.figures if figure.section == section]
    first = {figure.what: place for place, figure in reversed(list(enumerate(figures)))}
    return [_cells(report, figure) for figure in sorted(figures, key=lambda figure: first[figure.what])]


def _cells(report: Report, figure: Figure) -> list[str]:
    reference = report.reference(figure)
    compared = reference and reference is not figure and reference.value and figure.value
    judged = verdicts(report, figure)
    return [
        figure.what,
        figure.system,
        f"{figure.rows:,}",
        format_value(figure.value, figure.unit),
        "" if figure.mean is None else format_value(figure.mean, figure.unit),
        f"{figure.calls:,}",
        f"{figure.checked:,}" if figure.checked else "",
        f"{figure.value / reference.value:.3g}" if compared and reference else "",
        "; ".join(verdict.bar for verdict in judged),
        "; ".join(verdict.word for verdict in judged),
        figure.note,
    ]


def _bar_rows(report: Report) -> list[list[str]]:
    return [
        [f"{figure.section}: {verdict.what}", verdict.bar, verdict.measured, verdict.word]
        for figure in report.figures
        for verdict in verdicts(report, figure)
    ]


def _markdown_table(titles: tuple[str, ...], rows: list[list[str]] | list[tuple[str, str]]) -> str:
    lines = [titles, ["---:" if title in _NUMBERS else "---" for title in titles], *rows]
    return "\n".join(markdown_line(cell.replace("|", r"\|") for cell in line) for line in lines)


def merge(reports: Sequence[Report]) -> Report:
    """Return one report with the figures of all, and the environment of the first."""
    figures = [figure for report in reports for figure in report.figures]
    skipped = list(dict.fromkeys(reason for report in reports for reason in report.skipped))
    return Report(reports[0].environment, reports[0].options, figures, skipped)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m benchmarks.tables results.json ...")
    print(markdown(merge([read_report(Path(name)) for name in sys.argv[1:]])))
