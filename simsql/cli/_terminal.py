"""What a command says on stderr: progress bars, skips and a summary."""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from simsql.cli._options import option
from simsql.cli._process import note
from simsql.documents import Report, SkipCount, abandon

_REPORT_SECONDS = 0.05  # between two steps of a progress bar
_PARTS = 1000  # of a progress bar
# Expected in any folder: only counted.
_NOT_NAMED = {"binary", "excluded", "hidden", "image", "link", "not a picture", "special file"}
_NAMED = 3  # places in a line about several documents


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


@dataclass(frozen=True, kw_only=True)  # the last one in the help
class Telling:
    """The option of every command that says something on stderr."""

    quiet: Annotated[bool, option("--quiet")] = False

    @cached_property
    def console(self) -> Console:
        """The console for progress and summaries: stderr, or nothing."""
        return Console(file=cast("TextIO", _Messages(sys.stderr)), quiet=self.quiet)

    def stages(self, *, results_wait: bool = False) -> "ProgressBars":
        return ProgressBars(self.console, results_wait=results_wait)

    def remark(self, message: str) -> None:
        note(message, quiet=self.quiet)

    @contextmanager
    def remark_on_warnings(self) -> Iterator[None]:
        """Make the first warning in the block a remark behind it."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
        for warning in caught[:1]:
            self.remark(str(warning.message))


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
        start = reported = time.perf_counter()
        columns = TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        is_shown = is_terminal(self._console) and (shown or self._results_wait)
        # Results go to stdout while the bar is shown: rich would print them above it, on the terminal.
        bar = Progress(*columns, console=self._console, redirect_stdout=False)
        # Not disabled: rich 13.7 would end it with an empty line.
        with bar if is_shown else nullcontext():
            task = bar.add_task(name, total=total)

            def report(done: int) -> None:
                nonlocal reported
                # A call takes longer than reading a short document.
                if is_shown and (now := time.perf_counter()) - reported > _REPORT_SECONDS:
                    bar.update(task, completed=done)
                    reported = now

            yield report
            bar.update(task, total=total or 1, completed=total or 1)
        self._end = time.perf_counter()
        self.seconds[name] = self._end - start

    @contextmanager
    def shares(self, name: str, *, shown: bool = True) -> Iterator[Callable[[float], None]]:
        """Run a stage that reports which share of it is done."""
        with self.stage(name, _PARTS, shown=shown) as report:
            yield lambda share: report(round(_PARTS * share))

    def add_stage(self, name: str) -> None:
        """Count the time since the last stage as a stage of its own."""
        start, self._end = self._end, time.perf_counter()
        self.seconds[name] = self._end - start


def print_skips(skips: SkipCount, console: Console, *, what: str = "skipped", counted: bool = False) -> None:
    """List the skipped documents, up to ten per reason, except those expected in any folder.

    At a terminal, those of a reason share a line with the detail of the first, so that results stay in view. With
    `counted`, count those of any folder too, because no table follows. `what` begins each line. Then count the
    files that were decoded by a guess.
    """
    grouped = is_terminal(console)
    for reason, count in skips.by_reason.items():
        examples = [skip for skip in skips.examples if skip.reason == reason]
        lines = [f"{skip.place}: {reason}: {skip.detail}" for skip in examples]
        if reason in _NOT_NAMED:
            lines = [f"{count:,}: {reason}"] if counted else []
        elif grouped and count > 1:
            places = [skip.place for skip in examples[:_NAMED]] + ["..."] * (count > _NAMED)
            lines = [f"{count:,}: {reason}: {', '.join(places)}: {examples[0].detail}"]
        elif count > len(lines):
            lines.append(f"{count - len(lines):,} more: {reason}")
        for line in lines:
            # As Text: a file name is not markup.
            console.print(Text(f"{what} {line}"), soft_wrap=True)
    if skips.guesses:
        found = ", ".join(f"{count:,} as {encoding}" for encoding, count in skips.guesses.most_common())
        console.print(Text(f"files with a guessed encoding: {found}"), soft_wrap=True)


def count_skips(skips: SkipCount) -> list[tuple[str, int]]:
    """Return the lines of a summary that count the skipped documents."""
    return [
        ("skipped", skips.by_reason.total()),
        *((f"  {reason}", count) for reason, count in skips.by_reason.most_common()),
    ]


def print_summary(counts: Iterable[tuple[str, int]], stages: ProgressBars, console: Console) -> None:
    """Print the summary of a run: its counts, and the seconds of its stages."""
    rows = [(name, f"{count:,}") for name, count in counts]
    rows.append(("seconds", f"{stages.total:.2f}"))
    rows += [(f"  {stage}", f"{spent:.2f}") for stage, spent in stages.seconds.items()]
    left, right = (max(map(len, column)) for column in zip(*rows, strict=True))
    console.print(Text("\n".join(f"{name:{left}}  {value:>{right}}" for name, value in rows)), soft_wrap=True)
