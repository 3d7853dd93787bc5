"""Show the stages of a job as progress bars, and time them."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from simsql.documents import Report, abandon


class _Messages(Console):
    def on_broken_pipe(self) -> None:
        """Discard messages that nobody reads. The library itself would end the program."""
        self.quiet = True
        abandon(sys.stderr)


def messages(*, quiet: bool) -> Console:
    """Return the console for progress and summaries: stderr, or nothing."""
    return _Messages(stderr=True, quiet=quiet)


def is_terminal(console: Console) -> bool:
    """Return whether a console writes to a terminal. FORCE_COLOR makes rich treat a file as one."""
    return console.is_terminal and console.file.isatty() and not console.quiet


class ProgressBars:
    """Implement `simsql.documents.Stages`, with a progress bar for each stage at a terminal."""

    def __init__(self, console: Console) -> None:
        self.seconds: dict[str, float] = {}
        self._console = console

    @contextmanager
    def stage(self, name: str, total: int | None = None, *, shown: bool = True) -> Iterator[Report]:
        """Time a stage and show its progress bar; without a total, only that it is running."""
        start = time.perf_counter()
        columns = TextColumn("{task.description:<24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with Progress(
            *columns,
            console=self._console,
            disable=not (shown and is_terminal(self._console)),
            # Results go to stdout while the bar is shown: rich would print them above it, on the terminal.
            redirect_stdout=False,
        ) as bar:
            task = bar.add_task(name, total=total)

            def report(done: int) -> None:
                bar.update(task, completed=done)

            yield report
            bar.update(task, total=total or 1, completed=total or 1)
        self.seconds[name] = time.perf_counter() - start
