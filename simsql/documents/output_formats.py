"""The formats of results: tables, JSON lines, CSV and TSV."""

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from simsql.documents.compression import is_named_compressed
from simsql.documents.document import printable
from simsql.documents.output import standard_output

DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""The delimiter for each ending of a file."""


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
_MEASURED = 1000  # rows that decide the widths of the columns
_NARROWEST = 12
_GAP = "  "


def format_of_file(path: Path) -> Format:
    """Return the format that the ending of a file names, compressed or not; by default JSON lines."""
    ending = (path.with_suffix("") if is_named_compressed(path) else path).suffix.lower()
    return Format(ending.removeprefix(".")) if ending in DELIMITERS else Format.JSONL


def choose_format(wanted: Format | None) -> Format:
    """Return the requested format; by default, a table at a terminal and JSON lines elsewhere."""
    return wanted or (Format.TABLE if sys.stdout.isatty() else Format.JSONL)


def format_rows(
    format_: Format, names: Sequence[str], rows: Iterable[Sequence[Any]], *, head: bool = True
) -> Iterator[str]:
    """Yield the line of each row as JSON, CSV or TSV, the latter with a header unless `head` is false.

    Lists, objects and booleans in the cells of CSV and TSV are written as JSON. Cells with a carriage return are
    quoted: a reader would take it for the end of the row.
    """
    if format_ is Format.JSONL:
        for row in rows:
            yield _as_json(dict(zip(names, row, strict=True))) + "\n"
        return
    text = StringIO()
    # Python 3.11 quotes only the characters of the line end, so it has to be this one.
    writer = csv.writer(text, delimiter=DELIMITERS[f".{format_}"], lineterminator="\r\n")
    for row in chain([names] if head else [], rows):
        writer.writerow(_as_json(cell) if isinstance(cell, bool | list | dict) else cell for cell in row)
        yield text.getvalue().removesuffix("\r\n") + "\n"
        text.seek(0)
        text.truncate()


def print_rows(format_: Format, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
    """Print rows as they arrive, and return their number.

    Without rows, JSON lines and tables are empty, but CSV and TSV still have a header.
    """
    if format_ is Format.TABLE:
        return _print_table(columns, rows)
    output, written = standard_output(), 0
    for line in format_rows(format_, [column.name for column in columns], rows):
        output.write(line)
        written += 1
    return written - (format_ is not Format.JSONL)  # the others have a header


def print_json(row: dict[str, Any]) -> None:
    """Print a row as a line of JSON."""
    standard_output().write(f"{_as_json(row)}\n")


def _print_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> int:
    """Print a table. Long texts are cut off so that a row fits the terminal, or into $COLUMNS characters."""
    shown = ([_show(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows)
    # The first rows decide the widths, so that a table of any length is printed as it arrives.
    measured = list(islice(shown, _MEASURED))
    if not measured:
        return 0
    headings = [_head(column) for column in columns]
    widths = [max(map(cell_len, cells)) for cells in zip(headings, *measured, strict=True)]
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        widths = _fit(widths, columns, Console().width)
    lines = 0
    for cells in chain([headings], measured, shown):
        print(_GAP.join(_align(columns, widths, cells)).rstrip())
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


def _align(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> Iterator[str]:
    for column, width, cell in zip(columns, widths, cells, strict=True):
        missing = width - cell_len(cell)
        if missing < 0 and column.kind == "long":
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
