"""`simsql dedup` and `simsql fingerprint`: documents in files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from simsql.cli._app import Database, Encoding, IdField, Keep, Paths, TextField, command
from simsql.cli._database import database_or_default, postgresql_errors
from simsql.dedup.formats import printable
from simsql.dedup.intake import SkipCount, without_words
from simsql.dedup.job import DedupOptions, name_paths, run_dedup
from simsql.dedup.readers import Document, DocumentReader
from simsql.dedup.summary import print_skips, print_summary
from simsql.dedup.workspace import Destination
from simsql.errors import SimsqlError
from simsql.fingerprint import simhash_batches


@command("dedup")
def dedup_command(
    paths: Paths,
    distance: Annotated[
        int, typer.Option(metavar="BITS", help="How many of 64 bits may differ between near-duplicates.")
    ] = 7,
    text_field: TextField = "text",
    id_field: IdField = "id",
    encoding: Encoding = "utf-8",
    database: Database = None,
    keep: Keep = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Table for the documents, which stays; a later run adds what is new. In --keep it is"
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
        text_field=text_field,
        id_field=id_field,
        encoding=encoding,
        destination=Destination(database_or_default(database, keep), keep, table),
        output=output,
        drop_list=drop_list,
    )
    with postgresql_errors():
        summary = run_dedup(options, console)
    print_summary(summary, console)


@command("fingerprint")
def fingerprint_command(
    paths: Paths, text_field: TextField = "text", id_field: IdField = "id", encoding: Encoding = "utf-8"
) -> None:
    """Print the fingerprint of every document.

    One line each: the fingerprint as an unsigned decimal number, a tab, the id.
    """
    skips = SkipCount()
    documents: list[Document] = []
    reader = DocumentReader(
        paths, text_field=text_field, id_field=id_field, encoding=encoding, stdin=sys.stdin.buffer
    )

    def texts() -> Iterator[str]:
        for item in reader:
            if isinstance(item, Document):
                documents.append(item._replace(text=""))
                yield item.text
            else:
                skips.add(item)

    printed = 0
    for batch in simhash_batches(texts()):
        for number, document in zip(batch.tolist(), documents[: len(batch)], strict=True):
            if number is None:
                skips.add(without_words(document.place))
            else:
                print(number, printable(document.name), sep="\t")
                printed += 1
        del documents[: len(batch)]
    print_skips(skips, Console(stderr=True))
    if not printed:
        raise SimsqlError(f"no document with a fingerprint in {name_paths(paths)}")
