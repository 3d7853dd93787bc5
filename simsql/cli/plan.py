"""`simsql plan`: what searches cost, by design and by the skew of the fingerprints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from simsql.cli._app import command
from simsql.cli._database import Listing
from simsql.cli._options import IndexedColumn, distance_option, number_option, option
from simsql.documents.output_formats import Column, Format, print_rows
from simsql.errors import UsageError

if TYPE_CHECKING:
    from simsql.hamming import Choice, Plan

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")

_HEADINGS = (
    Column("tables"),
    *(Column(name, "number") for name in ("blocks", "lead", "inner", "prefix bits", "probes", "candidates")),
    *(Column(name, "number") for name in ("disk", "search", "write")),
    Column("best for"),
)
_FIELDS = (
    *("tables", "blocks", "lead", "inner_blocks", "prefix_bits", "probes", "candidates", "scans"),
    *("bytes", "search_us", "write_us", "best_for"),
)


@command("plan")
def plan_command(
    *,
    rows: Annotated[
        int | None, number_option("--rows", "; by default, as many as that of --like has", least=0, most=1 << 64)
    ] = None,
    distance: Annotated[int, distance_option(" in a search")] = 3,
    table: Annotated[str | None, option("--like", ", and by default for as many")] = None,
    column: IndexedColumn = None,
    run: Listing,
) -> None:
    """Compare index designs.

    Print one row per design worth considering, from the fewest tables to the most: its blocks, lead blocks and
    inner blocks, the probes and candidates of one search, the disk space of the key tables, the expected times to
    search and to add a row, and what it is best for. Only --like connects to a server: it reads a table, for
    figures that fit the skew of its fingerprints.
    """
    from simsql.hamming import plan

    if table is None and run.is_given:
        raise UsageError("--database and --server-dir are for reading a table: add --like")
    if rows is None and table is None:
        raise UsageError("give the number of rows with --rows, or a table with --like")
    if column and table is None:
        raise UsageError("--column needs --like")
    sample = None
    if table is not None:
        from simsql.database.samples import sample_fingerprints

        with run.open() as engine, engine.connect() as connection:
            stored, sample = sample_fingerprints(connection, table, column)
        if sample is None:
            run.remark("too few different fingerprints: the figures are for random ones")
        if rows is None:
            rows = stored
    made = plan(rows or 0, distance, sample=sample)
    _print_plan(run.format, made)


def _print_plan(form: Format, made: Plan) -> None:
    if form is Format.TABLE:
        print_rows(form, _HEADINGS, (_describe(choice, made) for choice in made.choices))
        return
    rows = []
    for choice in made.choices:
        named = {"prefix_bits": list(choice.prefix_bits), "best_for": _purposes(choice, made)}
        figures = {**asdict(choice), **asdict(choice.design), **named}
        rows.append([figures[field] for field in _FIELDS])
    print_rows(form, [*map(Column, _FIELDS)], rows)


def _describe(choice: Choice, made: Plan) -> Sequence[str]:
    design, (shortest, longest) = choice.design, choice.prefix_bits
    reads = f"{choice.probes:,}", f"{choice.candidates:,.{0 if choice.candidates >= 10 else 1}f}"
    if choice.scans:
        reads = "scan", "-"
    return (
        str(choice.tables),
        str(design.blocks),
        str(design.lead),
        str(design.inner_blocks or "-"),
        str(shortest) if shortest == longest else f"{shortest}-{longest}",
        *reads,
        _format_size(choice.bytes),
        _format_time(choice.search_us),
        _format_time(choice.write_us),
        ", ".join(_purposes(choice, made)),
    )


def _purposes(choice: Choice, made: Plan) -> list[str]:
    best = {"reading": made.reading, "writing": made.writing, "default": made.default}
    return [purpose for purpose, chosen in best.items() if chosen == choice]


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
