"""`simsql dedup-table`: decisions about the rows of a table, in a new table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replaced
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from simsql.cli._app import command
from simsql.cli._database import Working
from simsql.cli._explanation import print_explained_pair
from simsql.cli._options import (
    Deciding,
    FoldingRecipeName,
    Html,
    TableName,
    Workers,
    option,
    parse_recipe,
    path_option,
)
from simsql.cli._terminal import print_skips, print_summary
from simsql.documents import main_content
from simsql.errors import UsageError
from simsql.processes import usable_cores

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from simsql.database.sources import TextColumns
    from simsql.dedup.sinks.table import TableSink
    from simsql.dedup.sources.rows import RowSource


@command("dedup-table")
def dedup_table_command(
    *,
    table: TableName,
    text_column: Annotated[
        list[str] | None, option("--text-column", "; by default the source of the index; may be repeated")
    ] = None,
    into: Annotated[str | None, option("--into", ": the key of each row, and that of the row to keep")] = None,
    replace: Annotated[
        bool, option("--replace", ": the table of --into, if this command has created it before")
    ] = False,
    scope_column: Annotated[list[str] | None, option("--scope-column")] = None,
    all_scopes: Annotated[bool, option("--all-scopes")] = False,
    where: Annotated[str | None, option("--where", ", such as \"lang = 'en'\"")] = None,
    html: Annotated[Html, option("--html", "; the columns hold such pages")] = Html.SOURCE,
    deciding: Deciding,
    recipe: FoldingRecipeName = None,
    workers: Workers = None,
    report: Annotated[Path | None, path_option("--report")] = None,
    explain: Annotated[
        tuple[str, str] | None,
        option("--explain", ": why two rows are together or apart; write no table", metavar="KEY KEY"),
    ] = None,
    run: Working,
) -> None:
    """Find near-duplicates in a table, and decide which to drop.

    Compare texts as dedup does, and write the decisions to a new table. Nothing is deleted. The table needs a
    primary key, or a unique index on NOT NULL columns.
    """
    from simsql.dedup.sources.table import TableOptions
    from simsql.dedup.table_job import dedup_table
    from simsql.fingerprint import FOLDING_RECIPE

    options = TableOptions(
        table,
        dict.fromkeys(text_column or ()),
        into,
        scope_columns=tuple(scope_column or ()),
        where=where,
        all_scopes=all_scopes,
        replace=replace,
        rules=deciding.rules(),
        recipe=parse_recipe(recipe) or FOLDING_RECIPE,
        workers=workers or usable_cores(),
        report=report,
        explain=explain,
    )
    if recipe:
        options.outputs().refuse(Path(recipe))
    stages = run.stages()
    with run.open() as engine:
        if not options.texts:
            options = replaced(options, texts=_texts_of_index(engine, table))
        if html is Html.MAIN:
            options = replaced(options, texts=dict.fromkeys(options.texts, main_content))
        source, sink, explanation = dedup_table(engine, options, stages)
    if explanation:
        print_explained_pair(None, explanation)
        return
    print_skips(source.skips, run.console)
    print(f"{options.into}: {sink.decided:,} rows")
    print_summary(_counts(source, sink), stages, run.console)
    if remark := sink.kinds.remark():
        run.remark(remark)


def _texts_of_index(engine: Engine, table: str) -> TextColumns:
    """Return the source of the index, and the function that makes texts of its values, if it has one."""
    from sqlalchemy.exc import ProgrammingError

    from simsql.database.binds import begin
    from simsql.database.query import RowQuery
    from simsql.database.search_index import SearchIndex, compared_texts

    try:
        with begin(engine) as connection:
            index, query = SearchIndex(connection, table), RowQuery(text="", similarity=0)
            return compared_texts(index, connection, query)
    except ProgrammingError as error:  # no index, which this command does not need
        raise UsageError("no index names the column of the texts: name it with --text-column") from error


def _counts(source: RowSource, sink: TableSink) -> Iterator[tuple[str, int]]:
    yield "rows", len(source.order.place)
    yield from ((f"  {reason}: not decided", count) for reason, count in source.undecided().items() if count)
    yield "clusters", sink.clusters
    yield "  rows in them", sink.members
    yield "rows that could be dropped", sink.droppable
    yield from sink.kinds.lines()
