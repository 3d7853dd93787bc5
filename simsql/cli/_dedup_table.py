"""`simsql dedup --from-table`: decisions about the rows of a table, in a new table."""

from collections.abc import Iterator
from pathlib import Path

import typer

from simsql.cli._database import open_database, postgresql_errors
from simsql.cli._terminal import ProgressBars, messages, print_summary
from simsql.dedup.table_job import TableOptions, TableSummary, dedup_table
from simsql.errors import UsageError

# The parameters of `simsql dedup` that have a meaning for a table.
_OF_TABLES = {
    *("from_table", "text_column", "into", "database", "server_dir", "quiet"),
    *("distance", "similarity", "drop_similarity", "keep", "keep_field", "recipe", "workers"),
}


def check_parameters(context: typer.Context) -> None:
    """Raise UsageError for parameters of `simsql dedup` that are missing with --from-table, or useless."""
    given = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and _is_given(context, parameter.name)
    }
    if "from_table" not in given:
        for name in ("text_column", "into"):
            if name in given:
                raise UsageError(f"{given[name]} is about the rows of a table: name it with --from-table")
        return
    for name, option in given.items():
        if name not in _OF_TABLES:
            what = "PATH" if name == "paths" else option
            raise UsageError(f"{what} does not go with --from-table: leave one of them out")
    for name in ("text_column", "into"):
        if name not in given:
            raise UsageError(f"--from-table needs --{name.replace('_', '-')} NAME")


def _is_given(context: typer.Context, name: str) -> bool:
    # By its name: the class of a source belongs to typer or to click, depending on the version of typer.
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def decide_about_table(
    options: TableOptions, database: str | None, server_dir: Path | None, *, quiet: bool
) -> None:
    """Run the job, and print its summary."""
    console = messages(quiet=quiet)
    stages = ProgressBars(console)
    with open_database(database, server_dir) as engine, postgresql_errors():
        summary = dedup_table(engine, options, stages)
    print(f"{options.into}: {summary.decided:,} rows")
    print_summary(_counts(summary), stages, console)


def _counts(summary: TableSummary) -> Iterator[tuple[str, int]]:
    yield "rows", summary.read
    if summary.without_text:
        yield "  without a text: not decided", summary.without_text
    if summary.without_words:
        yield "  without words: not decided", summary.without_words
    if summary.stored_column is not None:
        yield f"  fingerprint stored in column {summary.stored_column}", summary.stored
    yield "clusters", summary.clusters
    yield "  rows in them", summary.members
    yield "rows that could be dropped", summary.droppable
