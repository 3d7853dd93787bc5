"""`simsql load`: documents in files into a table."""

from typing import Annotated

from simsql.cli._app import command, parse_max_document
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
)
from simsql.cli._progress import ProgressBars, messages
from simsql.cli._recipes import parse_recipe
from simsql.cli._summary import print_load_summary
from simsql.dedup.loading import LoadOptions, run_load


@command("load")
def load_command(
    table: TableName,
    paths: Paths,
    id_column: Annotated[str | None, option("--id-column")] = None,
    text_column: Annotated[str | None, option("--text-column", "; without it they are not stored")] = None,
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
    """Load documents into a table, with their fingerprints.

    Adds a row for every document, or none at all if it fails. Fingerprints are made by the recipe of the table's
    index, which stays complete. Documents that cannot be read, and those whose id is there already if the column
    for ids has a unique index, are skipped, counted and named in the summary on stderr.
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
    print_load_summary(summary, console)
