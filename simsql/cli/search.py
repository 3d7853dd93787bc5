"""`simsql near`, `similar`, `pairs` and `clusters`: searches in an indexed table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from simsql.cli._app import command
from simsql.cli._database import Listing
from simsql.cli._explanation import print_explanation
from simsql.cli._options import (
    OF_TITLES,
    Encoding,
    IndexedColumn,
    IndexedTable,
    MaxDocument,
    RecipeName,
    ScopeValues,
    SearchDistance,
    SketchColumn,
    number_option,
    option,
    parse_fingerprint,
    parse_recipe,
    parse_scope,
    share_option,
)
from simsql.documents import printable, read_single_text
from simsql.documents.output_formats import Column, Format, print_json, print_rows
from simsql.errors import SimsqlError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from simsql.database import SearchIndex
    from simsql.database.primary_keys import PrimaryKeys
    from simsql.database.query import RowOptions, RowQuery
    from simsql.database.results import Member, Pair, Results, Row
    from simsql.database.search_index import MatchingRow
    from simsql.database.similar import SimilarOptions


@dataclass(frozen=True)
class _Text:
    text: Annotated[str | None, option("--text")] = None
    file: Annotated[str | None, option("--file")] = None
    encoding: Encoding = "utf-8"
    max_document: MaxDocument = "100MB"

    def read(self, run: Listing) -> str:
        """Return the text; an empty one if the options name none."""
        text, file = self.text or "", "-" if self.text == "-" else self.file
        if file is not None:
            options = {"encoding": self.encoding, "max_document": self.max_document}
            return read_single_text(file, **options, stdin=sys.stdin.buffer)
        with suppress(OSError):  # longer than the name of a file can be
            if Path(text).is_file():
                name = printable(text)
                use = f"use --file {name} to search for its content"
                run.remark(f"{name} is a file, and --text searches for its name: {use}")
        return text


@dataclass(frozen=True)
class _Rows:
    table: IndexedTable
    text_column: Annotated[
        list[str] | None,
        option("--text-column", ", to compare them; by default the source of the index; may be repeated"),
    ] = None
    sketch_column: SketchColumn = None
    column: IndexedColumn = None
    recipe: RecipeName = None
    scope: ScopeValues = None
    explain: Annotated[
        str | None, option("--explain", ": why the search finds the row with this key, or does not")
    ] = None


@command("near")
def near_command(
    *,
    searched: _Text,
    fingerprint: Annotated[str | None, option("--fingerprint")] = None,
    distance: SearchDistance = None,
    similarity: Annotated[
        float | None, share_option("--similarity", f" to yours{OF_TITLES}; by default, texts are not compared")
    ] = None,
    rows: _Rows,
    run: Listing,
) -> None:
    """Search a table for a text or a fingerprint.

    Print the matching rows, nearest first. With --similarity, compare their texts with yours and print only rows
    that are similar. If the table has sketches, --sketch-column saves reading most of the other texts.
    """
    from simsql.database import SearchIndex
    from simsql.database.query import NOT_GIVEN, RowQuery

    if [searched.text, searched.file, fingerprint].count(None) != 2:
        raise UsageError("use exactly one of --text, --file and --fingerprint")
    if similarity is not None and fingerprint is not None:
        raise UsageError("--similarity compares texts: use --text or --file")
    if similarity is None and (rows.text_column or rows.sketch_column) and not rows.explain:
        raise UsageError("--text-column and --sketch-column need --similarity")
    wanted = NOT_GIVEN if fingerprint is None else parse_fingerprint(fingerprint)
    options: RowOptions = {"scope": parse_scope(rows.scope), "similarity": similarity}
    text = searched.read(run)
    if fingerprint is None:
        options |= {"text": text, "recipe": parse_recipe(rows.recipe)}
    query = RowQuery(wanted, distance, **options)
    _search(
        rows, query, None, partial(SearchIndex.near_rows, fingerprint=wanted, distance=distance, **options), run
    )


@command("similar")
def similar_command(
    *,
    searched: _Text,
    similarity: Annotated[float, share_option("--similarity", f" to yours{OF_TITLES}")] = 0.6,
    recall: Annotated[
        float | None, share_option("--recall", "; by default 0.99, or less if that takes long")
    ] = None,
    limit: Annotated[int | None, number_option("--limit", ", the most similar ones", least=1)] = None,
    rows: _Rows,
    run: Listing,
) -> None:
    """Search a table for texts that are similar to yours.

    Print the rows, most similar first. The search reads the keys that similar texts most likely have, and misses
    few of them. If the table has sketches, --sketch-column saves reading most of the other texts.
    """
    from simsql.database import SearchIndex
    from simsql.database.query import RowQuery
    from simsql.database.similar import SimilarOptions

    if (searched.text is None) == (searched.file is None):
        raise UsageError("use either --text or --file")
    text, options = searched.read(run), SimilarOptions(similarity=similarity, recall=recall)
    query = RowQuery(
        text=text, scope=parse_scope(rows.scope), recipe=parse_recipe(rows.recipe), similarity=similarity
    )
    search = partial(SearchIndex.similar, text=text, limit=limit, scope=query.scope, **options)
    _search(rows, query, options, search, run)


def _search(
    rows: _Rows,
    query: RowQuery,
    similar: SimilarOptions | None,
    search: Callable[..., Sequence[MatchingRow]],
    run: Listing,
) -> None:
    """Print the rows that a search finds, or explain what decided about one of them."""
    from simsql.database import SearchIndex
    from simsql.database.explain_row import explain_row

    given = parse_recipe(rows.recipe)
    columns: dict[str, Any] = {"text_column": rows.text_column, "sketch_column": rows.sketch_column}
    with run.open() as engine, _snapshot(engine) as connection, run.remark_on_warnings():
        index = SearchIndex(connection, rows.table, rows.column, recipe=given)
        if query.text is None and given:
            index.recipe()
        if query.text is not None and index.fingerprint(query.text) is None:
            raise SimsqlError(
                f"the text has too few letters and digits for a fingerprint of the recipe {index.recipe().id}"
            )
        if rows.explain is not None:
            row = explain_row(connection, rows.table, rows.column, rows.explain, query, similar=similar, **columns)
            print_explanation(run.form, row, [row.key], "found" if row.found else "not found")
            return
        found = search(index, **columns)
    _print_near(run.format, found, query.similarity is not None)
    if not found:
        run.remark("no matches")


def _print_near(form: Format, rows: Sequence[MatchingRow], compared: bool) -> None:
    columns = [Column("fingerprint"), Column("distance", "number")]
    if compared:
        columns.append(Column("similarity", "number"))
    if form is Format.JSONL:
        for found in rows:
            print_json({column.name: getattr(found, column.name) for column in columns} | {"row": found.row})
        return
    names = rows[0].row if rows else ()
    print_rows(
        form,
        (*columns, *(_column_of_row(name, [found.row[name] for found in rows], columns) for name in names)),
        (
            (*(_cell(form, getattr(found, column.name)) for column in columns), *found.row.values())
            for found in rows
        ),
    )


def _cell(form: Format, value: float) -> float | str:
    from simsql.fingerprint import show_similarity

    is_similarity = isinstance(value, float)
    return show_similarity(value) if is_similarity and form is Format.TABLE else value


def _column_of_row(name: str, cells: Sequence[object], before: Sequence[Column]) -> Column:
    # The table may have columns of these names, too: mostly that of its fingerprints.
    heading = f"row.{name}" if name in [column.name for column in before] else name
    numbers = all(cell is None or type(cell) in (int, float) for cell in cells)
    return Column(heading, "own number" if numbers else "long")


@dataclass(frozen=True)
class _WholeTable:
    table: IndexedTable
    distance: SearchDistance = None
    column: IndexedColumn = None
    scope: ScopeValues = None
    keys: Annotated[bool, option("--keys")] = False
    into: Annotated[str | None, option("--into", " instead of stdout")] = None


@command("pairs")
def pairs_command(*, wanted: _WholeTable, run: Listing) -> None:
    """List all pairs of near fingerprints in a table.

    Print each pair of different fingerprints, in no particular order. This takes about 60 bytes of memory per row.
    """
    from simsql.database import SearchIndex

    _list("pairs", SearchIndex.pairs, _print_pairs, wanted, run)


@command("clusters")
def clusters_command(*, wanted: _WholeTable, run: Listing) -> None:
    """List all clusters of near fingerprints in a table.

    Print one line of JSON per cluster, or one line per member in the other formats. A cluster consists of
    fingerprints connected by near pairs, or of one fingerprint that several rows share. Its number is the
    fingerprint that PostgreSQL sorts first. This takes about 80 bytes of memory per row.
    """
    from simsql.database import SearchIndex

    _list("clusters", SearchIndex.clusters, _print_clusters, wanted, run)


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """Begin a transaction whose statements see one state: the same rows, and the same default index of a table."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        yield connection


def _list(
    what: str,
    search: Callable[[SearchIndex, int | None], Results[Row]],
    print_all: Callable[[Format, PrimaryKeys | None, Iterable[Row]], int],
    wanted: _WholeTable,
    run: Listing,
) -> None:
    """Print the results of a search, or copy them into a table."""
    from simsql.database import SearchIndex
    from simsql.database.primary_keys import PrimaryKeys

    into = wanted.into
    if into is not None and (run.form or wanted.keys):
        raise UsageError("--into writes fingerprints into a table: leave out --format and --keys")
    scope = parse_scope(wanted.scope)
    # A progress bar would break up the lines of the output.
    shown = into is not None or not sys.stdout.isatty()
    with run.open() as engine, _snapshot(engine) as connection:
        results = search(SearchIndex(connection, wanted.table, wanted.column, scope=scope), wanted.distance)
        keys = PrimaryKeys(connection, wanted.table, wanted.column, scope=scope) if wanted.keys else None
        with run.stages().stage(f"find {what}", shown=shown):
            found = print_all(run.format, keys, results) if into is None else results.copy_into(into)
    if into is not None:
        print(f"{into}: {found:,} rows")
    elif not found:
        run.remark(f"there are no {what}")


def _print_pairs(form: Format, keys: PrimaryKeys | None, pairs: Iterable[Pair]) -> int:
    columns = [Column("a"), Column("b"), Column("distance", "number")]
    if keys is None:
        return print_rows(form, columns, pairs)
    found = ((*pair, rows[pair[0]], rows[pair[1]]) for pair, rows in _with_keys(pairs, keys, itemgetter(0, 1)))
    return print_rows(form, [*columns, Column("a_keys"), Column("b_keys")], found)


def _print_clusters(form: Format, keys: PrimaryKeys | None, members: Iterable[Member]) -> int:
    found = (
        ((*member, None) for member in members)
        if keys is None
        else ((*member, rows[member[1]]) for member, rows in _with_keys(members, keys, itemgetter(slice(1, 2))))
    )
    columns = [Column("cluster"), Column("fingerprint")]
    if form is not Format.JSONL:
        if keys is None:
            return print_rows(form, columns, (member[:2] for member in found))
        lines = ((cluster, fingerprint, key) for cluster, fingerprint, rows in found for key in rows or [None])
        return print_rows(form, [*columns, Column("key")], lines)
    count = 0
    for cluster, group in groupby(found, key=itemgetter(0)):
        _, fingerprints, rows = zip(*group, strict=True)
        printed = {"cluster": cluster, "fingerprints": fingerprints}
        print_json(printed if keys is None else {**printed, "keys": rows})
        count += 1
    return count


def _with_keys(
    items: Iterable[Row], keys: PrimaryKeys, sides: Callable[[Row], Iterable[int]]
) -> Iterator[tuple[Row, dict[int, list[Any]]]]:
    """Yield each item with the keys of the rows with its fingerprints, which are looked up for many at once."""
    rest = iter(items)
    while part := list(islice(rest, 5_000)):
        rows = keys.find({fingerprint for item in part for fingerprint in sides(item)})
        yield from ((item, rows) for item in part)
