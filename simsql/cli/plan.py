"""`simsql plan`: which design for how many rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from simsql.cli._app import Database, ServerDir, command, parse_size
from simsql.cli._database import database_or_default, open_database, postgresql_errors
from simsql.cli._process import note
from simsql.cli._progress import ProgressBars
from simsql.cli._tables import print_table
from simsql.database.calibrate import STEPS, measure_costs
from simsql.database.connect import open_engine
from simsql.database.install import install_schema
from simsql.errors import UsageError
from simsql.hamming import Choice, Costs, Plan, plan
from simsql.server.embedded import start_embedded
from simsql.server.scratch import scratch_database

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


@command("plan")
def plan_command(
    rows: Annotated[int, typer.Option(metavar="N", help="How many fingerprints the table has, or will have.")],
    distance: Annotated[
        int, typer.Option(metavar="BITS", help="How many bits of 64 searches allow to differ.")
    ] = 3,
    disk: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What the index may take on disk: 500MB, 2GB (1GB is 1024MB)."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure first what searches and writes cost on the server, by a million fingerprints of its own,"
            " which are removed afterwards. It takes seconds to minutes, and half a gigabyte.",
        ),
    ] = False,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Compare the designs of an index.

    Prints one line for each design worth considering, from the fewest tables to the most: blocks, lead blocks
    and inner blocks, the probes and candidates of one search, what the tables of keys take on disk, the
    expected time of a search and of adding a row, and what the design is best for. Connects to nothing, unless
    it calibrates.
    """
    if not 0 <= rows <= 1 << 64:
        raise UsageError(f"the rows of a table are a number from 0 to 2**64, not {rows}")
    if not 0 <= distance <= 64:
        raise UsageError(f"a distance is a number of bits from 0 to 64, not {distance}")
    if not calibrate and (database or server_dir):
        raise UsageError("a plan needs a database only to measure costs in it: add --calibrate")
    room = None if disk is None else parse_size(disk)
    costs = Costs()
    if calibrate:
        costs = _calibrate(database, server_dir)
        _print_costs(costs)
    made = plan(rows, distance, storage=room, costs=costs)
    _print_plan(made)
    if room is not None and made.within_storage is None:
        least = _format_size(min(choice.bytes for choice in made.choices))
        note(f"no design fits into {_format_size(room)}; the smallest takes {least}")


def _calibrate(database: str | None, server_dir: Path | None) -> Costs:
    stages = ProgressBars(Console(stderr=True))
    with _server_to_measure(database, server_dir) as engine, stages.stage("measuring the server", STEPS) as report:
        return measure_costs(engine, report=report)


@contextmanager
def _server_to_measure(database: str | None, server_dir: Path | None) -> Iterator[Engine]:
    if database_or_default(database, server_dir) or server_dir:
        with open_database(database, server_dir) as engine:
            yield engine
        return
    with postgresql_errors(), start_embedded() as server, scratch_database(server) as url:
        engine = open_engine(url)
        try:
            install_schema(engine)
            yield engine
        finally:
            engine.dispose()


def _print_costs(costs: Costs) -> None:
    table = _new_table("microseconds", "measured", "built in")
    names = ("a search", "a probe", "a candidate", "a row of a scan", "a row added to a table")
    for name, cost in zip(names, fields(Costs), strict=True):
        table.add_row(name, *(f"{getattr(of, cost.name):.3g}" for of in (costs, Costs())))
    print_table(table)
    print()


def _print_plan(made: Plan) -> None:
    headings = (
        "tables",
        "blocks",
        "lead",
        "inner",
        "prefix bits",
        "probes",
        "candidates",
        "disk",
        "search",
        "write",
    )
    table = _new_table(*headings, "best for")
    best = {
        "reading": made.reading,
        "writing": made.writing,
        "disk": made.within_storage,
        "default": made.default,
    }
    for choice in made.choices:
        design, (shortest, longest) = choice.design, choice.prefix_bits
        table.add_row(
            str(choice.tables),
            str(design.blocks),
            str(design.lead),
            str(design.inner_blocks or "-"),
            str(shortest) if shortest == longest else f"{shortest}-{longest}",
            *_format_reads(choice),
            _format_size(choice.bytes),
            _format_time(choice.search_us),
            _format_time(choice.write_us),
            ", ".join(purpose for purpose, chosen in best.items() if chosen == choice),
        )
    print_table(table)


def _format_reads(choice: Choice) -> tuple[str, str]:
    if choice.scans:
        return "scan", "-"
    return f"{choice.probes:,}", f"{choice.candidates:,.{0 if choice.candidates >= 10 else 1}f}"


def _new_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading in (headings[0], "best for") else "right")
    return table


def _format_size(size: float) -> str:
    power = 0
    while size >= 1000 and power < len(_UNITS) - 1:
        size, power = size / 1024, power + 1
    return f"{size:.{1 if size < 10 and power else 0}f} {_UNITS[power]}"


def _format_time(microseconds: float) -> str:
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.{1 if microseconds < 100_000 else 0}f} ms"
    return f"{microseconds / 1_000_000:,.1f} s"
