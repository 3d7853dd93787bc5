"""Print rows of results: a table for people, lines for programs."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from simsql.documents import printable


class Format(StrEnum):
    """The format of results."""

    TABLE = "table"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"


class Column(NamedTuple):
    """A column of results.

    In a table, numbers are right-aligned, counts have thousands separators, and long texts may be cut off.
    """

    name: str
    kind: Literal["text", "long", "number", "count"] = "text"


_as_json = json.JSONEncoder(ensure_ascii=False).encode
_MEASURED = 1000  # rows that decide the widths of the columns
_NARROWEST = 12
_GAP = "  "


def choose_format(wanted: Format | None) -> Format:
    """Return the requested format; by default, a table at a terminal and JSON lines elsewhere."""
    return wanted or (Format.TABLE if sys.stdout.isatty() else Format.JSONL)


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
    writer = csv.writer(sys.stdout, delimiter="," if form is Format.CSV else "\t", lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([_as_json(cell) if isinstance(cell, bool | list | dict) else cell for cell in row])
        count += 1
    return count


def print_json(row: dict[str, Any]) -> None:
    """Print a row as a line of JSON."""
    print(_as_json(row))


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
            yield " " * missing + cell if column.kind in ("number", "count") else cell + " " * missing


def _head(column: Column) -> str:
    # Long texts come from a column of the user, whose name stays unchanged.
    return printable(column.name) if column.kind == "long" else column.name.replace("_", " ")


def _show(column: Column, cell: Any) -> str:
    if cell is None or cell in ("", []):
        return "-"
    if column.kind == "count" and isinstance(cell, int | float):
        return f"{cell:,}"
    if isinstance(cell, list):
        return ", ".join(printable(part) if isinstance(part, str) else _as_json(part) for part in cell)
    return printable(cell) if isinstance(cell, str) else _as_json(cell)
