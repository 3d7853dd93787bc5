"""`simsql dedup`: clusters of near-duplicates in files."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simsql.cli._app import (
    Database,
    Encoding,
    IdField,
    MaxDocument,
    NewRecipeName,
    Paths,
    ServerDir,
    TextField,
    command,
    parse_max_document,
)
from simsql.cli._database import database_or_default, postgresql_errors
from simsql.cli._progress import ProgressBars
from simsql.cli._recipes import parse_recipe
from simsql.cli._summary import print_summary
from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.workspace import Destination
from simsql.fingerprint import DEFAULT_RECIPE


@command("dedup")
def dedup_command(
    paths: Paths,
    distance: Annotated[
        int, typer.Option(metavar="BITS", help="How many of 64 bits may differ between near-duplicates.")
    ] = 7,
    recipe: NewRecipeName = None,
    text_field: TextField = "text",
    id_field: IdField = "id",
    encoding: Encoding = "utf-8",
    max_document: MaxDocument = "100MB",
    database: Database = None,
    server_dir: ServerDir = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Table for the documents, which stays; a later run adds what is new. In --server-dir it is"
            " simsql_documents by default; in --database without it, the documents are dropped at the end.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where clusters go, instead of stdout.")
    ] = None,
    drop_list: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the ids that a clean-up would drop: those read in this run that are within the distance"
            " of their cluster's representative.",
        ),
    ] = None,
) -> None:
    """Find clusters of near-duplicates in files.

    Prints one JSON line for each cluster. Its representative is its most central document, and distances are
    counted from there. What cannot be read is skipped, counted and named in the summary on stderr.
    """
    console = Console(stderr=True)
    options = DedupOptions(
        paths,
        distance=distance,
        recipe=parse_recipe(recipe) or DEFAULT_RECIPE,
        text_field=text_field,
        id_field=id_field,
        encoding=encoding,
        max_document=parse_max_document(max_document),
        destination=Destination(database_or_default(database, server_dir), server_dir, table),
        output=output,
        drop_list=drop_list,
    )
    with postgresql_errors():
        summary = run_dedup(options, ProgressBars(console))
    print_summary(summary, console)
