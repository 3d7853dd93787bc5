"""`simsql near`, `pairs` and `clusters`: searches in an indexed table."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simsql.cli._app import (
    Database,
    Encoding,
    MaxDocument,
    RecipeName,
    ServerDir,
    command,
    parse_fingerprint,
    parse_max_document,
)
from simsql.cli._database import open_database
from simsql.cli._process import note
from simsql.cli._progress import ProgressBars
from simsql.cli._recipes import parse_recipe
from simsql.database.numpy_search import Batch, MemberBatch, PairBatch, Stream
from simsql.database.scope import Scope
from simsql.database.search_index import SearchIndex
from simsql.documents.content import UnfitError, read_document
from simsql.documents.formats import printable
from simsql.documents.single import read_single_text
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import simhash

IndexedTable = Annotated[
    str, typer.Argument(metavar="TABLE", help="The indexed table, as SQL writes it: article, app.article.")
]
IndexedColumn = Annotated[
    str | None, typer.Option(metavar="NAME", help="The indexed column, where the table has several.")
]
Distance = Annotated[
    int | None, typer.Option(metavar="BITS", help="How many bits may differ; by default the index's own.")
]
ScopeValues = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="The scope to search, where the index has one; once for each of its columns.",
    ),
]
Into = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Create this table and write them there, instead of to stdout."),
]


@command("near")
def near_command(
    table: IndexedTable,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Search for texts like this one; - reads it from stdin.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Search for texts like the one in this file; - reads it from stdin."),
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Search for this fingerprint, unsigned decimal.")
    ] = None,
    distance: Distance = None,
    column: IndexedColumn = None,
    recipe: RecipeName = None,
    encoding: Encoding = "utf-8",
    max_document: MaxDocument = "100MB",
    scope: ScopeValues = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Search a table for a text or a fingerprint.

    Prints the rows that are near as one JSON line each, nearest first.
    """
    if [text, file, fingerprint].count(None) != 2:
        raise UsageError("say what to search for: one of --text, --file and --fingerprint")
    _check_distance(distance)
    wanted = None if fingerprint is None else parse_fingerprint(fingerprint)
    within, given, limit = _parse_scope(scope), parse_recipe(recipe), parse_max_document(max_document)
    content = "" if wanted is not None else _read_text(text, file, encoding, limit)
    with open_database(database, server_dir) as engine, engine.connect() as connection:
        index = SearchIndex(connection, table, column, scope=within, recipe=given)
        if wanted is None or given:
            made_by = index.recipe()
        if wanted is None:
            wanted = simhash(content, made_by)
        if wanted is None:
            raise SimsqlError(
                f"the text has too few letters and digits for a fingerprint of the recipe {made_by.id}"
            )
        rows = index.near_rows(wanted, distance)
    for found in rows:
        print(json.dumps(found._asdict(), ensure_ascii=False))
    if not rows:
        note("nothing is that near")


def _read_stdin(limit: int) -> str:
    try:
        return read_document(sys.stdin.buffer, limit).decode("utf-8", "replace")
    except UnfitError as unfit:
        raise SimsqlError(f"the text on standard input is {unfit.reason}: {unfit.detail}") from None


@command("pairs")
def pairs_command(
    table: IndexedTable,
    distance: Distance = None,
    column: IndexedColumn = None,
    scope: ScopeValues = None,
    into: Into = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """List the pairs of near fingerprints in a table.

    Prints each pair of different fingerprints as one JSON line, in no order. It works in the memory of this
    process, and needs some 60 bytes there for each row.
    """
    _check_distance(distance)
    within = _parse_scope(scope)
    with open_database(database, server_dir) as engine:
        index = SearchIndex(engine, table, column, scope=within)
        _list(index.stream_pairs(distance), "pairs", _pair_lines, into)


@command("clusters")
def clusters_command(
    table: IndexedTable,
    distance: Distance = None,
    column: IndexedColumn = None,
    scope: ScopeValues = None,
    into: Into = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """List the clusters of fingerprints in a table.

    Prints each cluster as one JSON line: fingerprints that chains of near pairs connect, or one that several
    rows have. Its number is the fingerprint that PostgreSQL sorts first. It works in the memory of this process,
    and needs some 80 bytes there for each row.
    """
    _check_distance(distance)
    within = _parse_scope(scope)
    with open_database(database, server_dir) as engine:
        index = SearchIndex(engine, table, column, scope=within)
        _list(index.stream_clusters(distance), "clusters", _cluster_lines, into)


def _read_text(text: str | None, file: str | None, encoding: str, limit: int) -> str:
    """Return the text to search for, of at most so many bytes."""
    if file is not None:
        return read_single_text(file, encoding=encoding, max_document=limit, stdin=sys.stdin.buffer)
    if text == "-":
        return _read_stdin(limit)
    with suppress(OSError):  # longer than the name of a file can be
        if Path(str(text)).is_file():
            name = printable(str(text))
            note(f"{name} is a file, and --text searches for its name: use --file {name} to search for its text")
    return str(text)


def _check_distance(distance: int | None) -> None:
    if distance is not None and not 0 <= distance <= 64:
        raise UsageError(f"a distance is a number of bits from 0 to 64, not {distance}")


def _parse_scope(values: list[str] | None) -> Scope | None:
    """Return a scope of what was written as COLUMN=VALUE; values stay text, of which PostgreSQL makes the type."""
    if not values:
        return None
    parts = [value.partition("=") for value in values]
    for column, equals, _ in parts:
        if not (column and equals):
            raise UsageError(f"write a scope as COLUMN=VALUE, not {printable(column)}")
    scope = {column: value for column, _, value in parts}
    if len(scope) < len(parts):
        raise UsageError("a scope has one value for each column: name no column twice")
    return scope


def _list(stream: Stream[Batch], what: str, lines: Callable[[Batch], Iterator[str]], into: str | None) -> None:
    """Print what a stream finds, or have it copied into a table."""
    # A bar between the lines of the output would be neither.
    shown = into is not None or not sys.stdout.isatty()
    found = 0
    with ProgressBars(Console(stderr=True)).stage(f"find {what}", shown=shown):
        if into is not None:
            found = stream.copy_into(into)
        else:
            for batch in stream:
                for line in lines(batch):
                    print(line)
                    found += 1
    if into is not None:
        print(f"{into}: {found} rows")
    elif not found:
        note(f"there are no {what}")


def _pair_lines(batch: PairBatch) -> Iterator[str]:
    for a, b, bits in zip(batch.a.tolist(), batch.b.tolist(), batch.distance.tolist(), strict=True):
        yield json.dumps({"a": a, "b": b, "distance": bits})


def _cluster_lines(batch: MemberBatch) -> Iterator[str]:
    members = zip(batch.cluster.tolist(), batch.fingerprint.tolist(), strict=True)
    for cluster, group in groupby(members, key=itemgetter(0)):
        yield json.dumps({"cluster": cluster, "fingerprints": [fingerprint for _, fingerprint in group]})
