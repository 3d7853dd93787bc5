"""What a command shows: rows of results on stdout, and progress bars, skips and a summary on stderr."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, TextIO, cast

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from simsql.documents import DELIMITERS, Report, SkipCount, abandon, format_rows, printable, standard_output

_NOT_NAMED = {"binary", "excluded", "hidden", "link", "special file"}  # expected in any folder: only counted


class Format(StrEnum):
    """The format of results."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"


class Column(NamedTuple):
    """A column of results.

    In a table, numbers are right-aligned, counts have thousands separators, and long texts may be cut off. Long
    texts and own numbers come from columns of the user, whose names stay unchanged.
    """

    name: str
    kind: Literal["text", "long", "number", "own number", "count"] = "text"


_as_json = json.JSONEncoder(ensure_ascii=False).encode
_REPORT_SECONDS = 0.05  # between two steps of a progress bar
_MEASURED = 1000  # rows that decide the widths of the columns
_NARROWEST = 12
_GAP = "  "


def choose_format(wanted: Format | None) -> Format:
    """Return the requested format; by default, a table at a terminal and JSON lines elsewhere."""
    return wanted or (Format.TABLE if sys.stdout.isatty() else Format.JSONL)


def format_share(share: float | None, form: Format) -> float | str | None:
    """Return a share as a percentage in a table, else as it is. It is never rounded up to 100%."""
    return share if share is None or form is not Format.TABLE else f"{int(100 * share)}%"


def print_rows(form: Format, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
    """Print rows as they arrive, and return their number.

    Without rows, JSON lines and tables are empty, but CSV and TSV still have a header. Lists, objects and booleans
    in CSV and TSV cells are written as JSON.
    """
    names = [column.name for column in columns]
    if form is Format.TABLE:
        return _print_table(columns, rows)
    count = 0
    if form is Format.JSONL:
        for row in rows:
            print_json(dict(zip(names, row, strict=True)))
            count += 1
        return count
    cells = ([_as_json(cell) if isinstance(cell, bool | list | dict) else cell for cell in row] for row in rows)
    lines = format_rows(chain([names], cells), DELIMITERS[f".{form}"])
    output = standard_output()
    output.write(next(lines))
    for line in lines:
        output.write(line)
        count += 1
    return count


def print_json(row: dict[str, Any]) -> None:
    """Print a row as a line of JSON."""
    standard_output().write(f"{_as_json(row)}\n")


def _print_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
    """Print a table. At a terminal, long texts are cut off so that a row fits on a line."""
    shown = ([_show(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows)
    # The first rows decide the widths, so that a table of any length is printed as it arrives.
    measured = list(islice(shown, _MEASURED))
    if not measured:
        return 0
    headings = [_head(column) for column in columns]
    widths = [max(map(cell_len, cells)) for cells in zip(headings, *measured, strict=True)]
    at_terminal = sys.stdout.isatty()
    if at_terminal:
        widths = _fit(widths, columns, Console().width)
    lines = 0
    for cells in chain([headings], measured, shown):
        print(_GAP.join(_align(columns, widths, cells, cut=at_terminal)).rstrip())
        lines += 1
    return lines - 1


def _fit(widths: list[int], columns: Sequence[Column], room: int) -> list[int]:
    """Return widths that fit, if possible, by shrinking the widest columns of long texts."""
    room -= len(_GAP) * (len(widths) - 1)
    while sum(widths) > room:
        texts = [place for place, column in enumerate(columns) if column.kind == "long"]
        widest = max(texts, key=lambda place: widths[place], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _align(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str], *, cut: bool) -> Iterator[str]:
    for column, width, cell in zip(columns, widths, cells, strict=True):
        missing = width - cell_len(cell)
        if missing < 0 and cut and column.kind == "long":
            yield set_cell_size(cell, width - 1) + "…"
        else:
            left = column.kind in ("text", "long")
            yield cell + " " * missing if left else " " * missing + cell


def _head(column: Column) -> str:
    own = column.kind in ("long", "own number")
    return printable(column.name) if own else column.name.replace("_", " ")


def _show(column: Column, cell: Any) -> str:
    if cell is None or cell in ("", []):
        return "-"
    if column.kind == "count" and isinstance(cell, int | float):
        return f"{cell:,}"
    if isinstance(cell, list):
        return ", ".join(printable(part) if isinstance(part, str) else _as_json(part) for part in cell)
    return printable(cell) if isinstance(cell, str) else _as_json(cell)


class _Messages:
    """A stream for messages. Once it cannot be written, they vanish: what they are about is done all the same."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            abandon(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            abandon(self._stream)


def messages(*, quiet: bool) -> Console:
    """Return the console for progress and summaries: stderr, or nothing."""
    return Console(file=cast("TextIO", _Messages(sys.stderr)), quiet=quiet)


def is_terminal(console: Console) -> bool:
    """Return whether a console writes to a terminal. FORCE_COLOR makes rich treat a file as one."""
    return console.is_terminal and console.file.isatty() and not console.quiet


class ProgressBars:
    """Implement `simsql.documents.Stages`, with a progress bar for each stage at a terminal.

    With `results_wait`, nothing is written to stdout in a stage, so that every stage has a bar.
    """

    def __init__(self, console: Console, *, results_wait: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self._console = console
        self._results_wait = results_wait
        self._start = self._end = time.perf_counter()

    @property
    def total(self) -> float:
        """Seconds from the start to the end of the last stage."""
        return self._end - self._start

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, shown: bool = True) -> Iterator[Report]:
        """Time a stage and show its progress bar; without a total, only that it is running."""
        start = time.perf_counter()
        with self._bar(name, total) if shown or self._results_wait else nullcontext(_ignore) as report:
            yield report
        self._end = time.perf_counter()
        self.seconds[name] = self._end - start

    def add_stage(self, name: str) -> None:
        """Count the time since the last stage as a stage of its own."""
        start, self._end = self._end, time.perf_counter()
        self.seconds[name] = self._end - start

    @contextmanager
    def _bar(self, name: str, total: int | None) -> Iterator[Report]:
        if not is_terminal(self._console):
            yield _ignore
            return
        columns = TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        # Results go to stdout while the bar is shown: rich would print them above it, on the terminal.
        with Progress(*columns, console=self._console, redirect_stdout=False) as bar:
            task = bar.add_task(name, total=total)
            reported = time.perf_counter()

            def report(done: int) -> None:
                nonlocal reported
                # A call takes longer than reading a short document.
                if (now := time.perf_counter()) - reported > _REPORT_SECONDS:
                    bar.update(task, completed=done)
                    reported = now

            yield report
            bar.update(task, total=total or 1, completed=total or 1)


def _ignore(done: int) -> None:
    pass


def print_skips(skips: SkipCount, console: Console, *, what: str = "skipped", counted: bool = False) -> None:
    """List the skipped documents, up to ten per reason, except those expected in any folder.

    With `counted`, count those too, because no table follows. `what` begins each line.
    """
    for skip in skips.examples:
        if skip.reason not in _NOT_NAMED:
            # As Text: a file name is not markup.
            console.print(Text(f"{what} {skip.place}: {skip.reason}: {skip.detail}"), soft_wrap=True)
    for reason, count in skips.by_reason.items():
        named = sum(skip.reason == reason for skip in skips.examples)
        if reason in _NOT_NAMED and counted:
            console.print(Text(f"{what} {count:,}: {reason}"), soft_wrap=True)
        elif reason not in _NOT_NAMED and count > named:
            console.print(Text(f"{what} {count - named:,} more: {reason}"), soft_wrap=True)


def count_skips(skips: SkipCount) -> list[tuple[str, int]]:
    """Return the lines of a summary that count the skipped documents."""
    return [
        ("skipped", skips.by_reason.total()),
        *((f"  {reason}", count) for reason, count in skips.by_reason.most_common()),
    ]


def print_summary(counts: Iterable[tuple[str, int]], stages: ProgressBars, console: Console) -> None:
    """Print the summary of a run: its counts, and the seconds of its stages."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, count in counts:
        table.add_row(Text(name), f"{count:,}")
    table.add_row("seconds", f"{stages.total:.2f}")
    for stage, spent in stages.seconds.items():
        table.add_row(f"  {stage}", f"{spent:.2f}")
    console.print(table)
