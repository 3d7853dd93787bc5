"""`simsql backfill`: fingerprints for the texts that are in a table, once or as a worker."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from socket import AF_UNIX, SOCK_DGRAM, socket
from typing import TYPE_CHECKING, Annotated, NoReturn

from simsql.cli._app import as_commands, command
from simsql.cli._database import Working
from simsql.cli._options import (
    Filling,
    IndexedColumn,
    TableName,
    number_option,
    option,
    parse_recipe,
    path_option,
)
from simsql.cli._process import complain, interrupt_behind
from simsql.documents import printable
from simsql.errors import UsageError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from simsql.database.backfill import Filled

_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds between two looks of --follow


@command("backfill")
def backfill_command(
    *,
    table: TableName,
    filling: Filling,
    column: IndexedColumn = None,
    all_rows: Annotated[bool, option("--all-rows")] = False,
    batch: Annotated[int, number_option("--batch", least=1)] = 1_000,
    workers: Annotated[int | None, number_option("--workers", "; one for several text columns", least=1)] = None,
    follow: Annotated[bool, option("--follow")] = False,
    health: Annotated[Path | None, path_option("--health", "; only with --follow")] = None,
    run: Working,
) -> None:
    """Fingerprint the rows that have no fingerprint.

    The texts are in the columns that the index knows or, if it knows none, in --text-column. With --sketch-column,
    also sketch the rows that have no sketch. Process the table in the order of its key and
    commit each batch, while others read and write. If it is interrupted, run it again and it resumes. Also run it
    again after other programs have added rows without fingerprints, or use --follow. Once that has reached the
    database, it waits for it after errors, and goes on.
    """
    from simsql.database import SearchIndex

    if follow and all_rows:
        raise UsageError("--follow looks for rows without a fingerprint: run --all-rows on its own")
    if health and not follow:
        raise UsageError("--health needs --follow")
    made_by, sketch_column = parse_recipe(filling.recipe), filling.sketch_column
    given = {**filling.arguments(), "batch_rows": batch, "workers": workers or usable_cores()}
    with run.open() as engine, warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_: run.remark(printable(str(message)))
        index = SearchIndex(engine, table, column, recipe=made_by)
        if follow:
            _follow(run, engine, partial(index.follow, **given), sketch_column, health)
        with run.stages().shares("fingerprints") as report:
            filled = index.backfill(**given, all_rows=all_rows, report=report)
    _print_filled(filled, sketch_column)
    if filled.busy:
        print(f"Skipped {_rows(filled.busy)} that others were writing: run it again")


def _follow(
    run: Working,
    engine: Engine,
    begin: Callable[..., Iterator[Filled]],
    sketch_column: str | None,
    health: Path | None,
) -> NoReturn:
    """Look at the table again and again. After errors of PostgreSQL, unless it is the first look, begin again."""
    from sqlalchemy.exc import DBAPIError

    from simsql.database.connect import one_line

    def report(share: float) -> None:  # noqa: ARG001 - as a progress bar has it
        if health:
            health.touch()
        if address := os.environ.get("NOTIFY_SOCKET"):  # of systemd, for Type=notify and WatchdogSec=
            with socket(AF_UNIX, SOCK_DGRAM) as systemd:
                systemd.sendto(b"READY=1\nWATCHDOG=1", f"\0{address[1:]}" if address[0] == "@" else address)

    pause: float | None = None  # before the next try; None until the first look
    while True:
        try:
            start = time.monotonic()
            for filled in begin(report=report):
                if pause is None:
                    _print_filled(filled, sketch_column)
                pause = _PAUSE
                # A long look for nothing goes through many rows without words or texts: spare the server.
                spent = 0 if filled.written else time.monotonic() - start
                time.sleep(min(max(_PAUSE, 9 * spent), _LONGEST_PAUSE))
                start = time.monotonic()
        except DBAPIError as error:
            if pause is None or interrupt_behind(error):
                raise
            engine.dispose()
            said = as_commands(one_line(error, run.install)).removesuffix(".")
            complain(f"PostgreSQL: {said}; next try in {pause:g} s")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _print_filled(filled: Filled, sketch_column: str | None) -> None:
    sketched = f", sketched {_rows(filled.sketched)}" if sketch_column else ""
    print(f"Fingerprinted {_rows(filled.written)}{sketched}")
    if filled.unchanged:
        print(f"Left {_rows(filled.unchanged)} unchanged: the fingerprints are up to date")
    if filled.without_features:
        print(f"Left {_rows(filled.without_features)} without a fingerprint: no words in the text")
    sys.stdout.flush()  # a log may show it


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
