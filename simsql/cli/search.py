"""`simsql near`: searches in an indexed table."""

import json
import sys
from typing import Annotated

import typer

from simsql.cli._app import Database, Keep, command, open_database, parse_fingerprint
from simsql.database.search import near_rows, recipe_of
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import simhash


@command("near")
def near_command(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="The indexed table, as SQL writes it: article, app.article.")
    ],
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Search for texts like this one; - reads it from stdin.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Search for this fingerprint, unsigned decimal.")
    ] = None,
    distance: Annotated[
        int | None, typer.Option(metavar="BITS", help="How many bits may differ; by default the index's own.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The indexed column, where the table has several.")
    ] = None,
    database: Database = None,
    keep: Keep = None,
) -> None:
    """Search a table for a text or a fingerprint.

    Prints the rows that are near as one JSON line each, nearest first.
    """
    if (text is None) == (fingerprint is None):
        raise UsageError("say what to search for: either --text or --fingerprint")
    if distance is not None and not 0 <= distance <= 64:
        raise UsageError(f"a distance is a number of bits from 0 to 64, not {distance}")
    wanted = None if fingerprint is None else parse_fingerprint(fingerprint)
    with open_database(database, keep) as engine, engine.connect() as connection:
        if wanted is None:
            content = sys.stdin.buffer.read().decode("utf-8", "replace") if text == "-" else str(text)
            wanted = simhash(content, recipe_of(connection, table, column))
        if wanted is None:
            raise SimsqlError("the text has no letters or digits, so it has no fingerprint to search for")
        rows = near_rows(connection, table, wanted, distance, column)
    for found in rows:
        print(json.dumps(found._asdict(), ensure_ascii=False))
    if not rows:
        print("simsql: nothing is that near", file=sys.stderr)
