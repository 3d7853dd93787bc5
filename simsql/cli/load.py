"""`simsql load`: load documents from files into a table."""

from typing import Annotated

from simsql.cli._app import command
from simsql.cli._database import open_database
from simsql.cli._options import (
    Database,
    Encoding,
    IdField,
    IndexedColumn,
    MaxDocument,
    Paths,
    Quiet,
    RecipeName,
    ServerDir,
    TableName,
    TextField,
    option,
    parse_max_document,
)
from simsql.cli._recipes import parse_recipe
from simsql.cli._terminal import ProgressBars, count_skips, messages, print_skips, print_summary
from simsql.dedup.loading import LoadOptions, run_load


@command("load")
def load_command(
    table: TableName,
    paths: Paths,
    id_column: Annotated[str | None, option("--id-column")] = None,
    text_column: Annotated[str | None, option("--text-column", "; by default, they are not stored")] = None,
    column: IndexedColumn = None,
    recipe: RecipeName = None,
    text_field: TextField = "text",
    id_field: IdField = "id",
    encoding: Encoding = "utf-8",
    max_document: MaxDocument = "100MB",
    database: Database = None,
    server_dir: ServerDir = None,
    quiet: Quiet = False,
) -> None:
    """Load documents and their fingerprints into a table.

    Add one row per document, or none if the load fails. Fingerprints follow the recipe of the table's index, which
    stays up to date. Documents that cannot be read are skipped, counted and listed in the summary on stderr, as
    are those whose id the table already has, if the id column has a unique index.
    """
    console = messages(quiet=quiet)
    options = LoadOptions(
        paths,
        table,
        id_column=id_column,
        text_column=text_column,
        column=column,
        recipe=parse_recipe(recipe),
        text_field=text_field,
        id_field=id_field,
        encoding=encoding,
        max_document=parse_max_document(max_document),
    )
    with open_database(database, server_dir) as engine, engine.begin() as connection:
        summary = run_load(connection, options, ProgressBars(console))
    print_skips(summary.skips, console)
    counts = [("documents", summary.documents)]
    if summary.without_fingerprint:
        counts.append(("  without words: no fingerprint", summary.without_fingerprint))
    print_summary([*counts, *count_skips(summary.skips)], summary.seconds, console)
