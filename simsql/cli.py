"""The command line. It parses, calls and prints; the work is done elsewhere.

Exit codes: 0 done, 1 the job failed, 2 wrong usage; 130 after Ctrl-C, 143 after SIGTERM and 129 after
SIGHUP.
"""

import functools
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, ParamSpec

import psycopg
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from simsql import __version__
from simsql.database.connect import one_line, open_engine
from simsql.database.embedded import holds_server, start_embedded
from simsql.database.install import install_schema, read_status, schema_sql
from simsql.database.search import near_rows, recipe_of
from simsql.dedup.formats import printable, storable
from simsql.dedup.intake import SkipCount, without_words
from simsql.dedup.job import DedupOptions, name_paths, run_dedup
from simsql.dedup.output import abandon
from simsql.dedup.readers import Document, DocumentReader
from simsql.dedup.summary import print_skips, print_summary
from simsql.dedup.workspace import Destination
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import simhash, simhash_batches

app = typer.Typer(
    name="simsql",
    help="Find near-duplicates in PostgreSQL.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_P = ParamSpec("_P")


class _Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: as Ctrl-C, for which psycopg cancels the statement that runs. Holds the exit code."""


def _command(name: str) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Register a command whose errors are one line on stderr and an exit code."""

    def register(function: Callable[_P, None]) -> Callable[_P, None]:
        @functools.wraps(function)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                function(*args, **kwargs)
                sys.stdout.flush()
            except UsageError as error:
                _fail(str(error), 2)
            except SimsqlError as error:
                _fail(str(error), 1)
            except (DBAPIError, psycopg.Error) as error:
                _fail(f"PostgreSQL: {one_line(error).removeprefix('simsql: ')}", 1)
            except UnicodeEncodeError:
                # Without the argument: a URL may hold a password.
                _fail("an option holds bytes that are no UTF-8: PostgreSQL takes names and URLs in UTF-8", 2)
            except BrokenProcessPool:
                _fail("a process that makes fingerprints was killed: is the machine short of memory?", 1)
            except BrokenPipeError:
                abandon(sys.stdout)  # who reads it has had enough
                raise typer.Exit(1) from None
            except OSError as error:
                if error.filename is None:
                    abandon(sys.stdout)
                    _fail(f"standard output cannot be written: {error.strerror or error}", 1)
                _fail(f"{printable(storable(Path(error.filename)))}: {error.strerror}", 1)
            except KeyboardInterrupt as interrupt:
                abandon(sys.stdout)  # who reads it may not read on, and would be waited for
                _fail(
                    *("terminated", interrupt.args[0])
                    if isinstance(interrupt, _Terminated)
                    else ("interrupted", 130)
                )

        app.command(name)(run)
        return run

    return register


def _fail(message: str, code: int) -> NoReturn:
    print(f"simsql: {message}", file=sys.stderr)
    raise typer.Exit(code)


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Folders (read recursively), files of text, .jsonl, .ndjson, .csv, .tsv, each also .gz, .xz or .bz2;"
        " - is JSON lines on standard input.",
    ),
]
TextField = Annotated[str, typer.Option(metavar="NAME", help="Field or column that holds the text.")]
IdField = Annotated[
    str,
    typer.Option(metavar="NAME", help="Field or column that names the document: unique in all files and runs."),
]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="Encoding of texts.")]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="PostgreSQL database: postgresql://user@host/name; by default $SIMSQL_DATABASE, else an embedded"
        " server.",
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of an embedded server whose data stays."),
]


@_command("dedup")
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
        destination=Destination(_database_or_default(database, keep), keep, table),
        output=output,
        drop_list=drop_list,
    )
    print_summary(run_dedup(options, console), console)


@_command("fingerprint")
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


@_command("near")
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
    wanted = None if fingerprint is None else _parse_fingerprint(fingerprint)
    with _open_database(database, keep) as engine, engine.connect() as connection:
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


@_command("install")
def install_command(database: Database = None, keep: Keep = None) -> None:
    """Install or update the schema in a database."""
    with _open_database(database, keep, new=True) as engine:
        changed = install_schema(engine)
        status = read_status(engine)
    print(f"schema simsql {status.version}: {'installed' if changed else 'up to date'}")


@_command("status")
def status_command(database: Database = None, keep: Keep = None) -> None:
    """Say what of simsql a database holds."""
    with _open_database(database, keep) as engine:
        status = read_status(engine)
    print(f"PostgreSQL     {status.server}")
    if status.version is None:
        print("schema simsql  not installed: run simsql install")
        return
    outdated = "" if status.revision == status.newest_revision else ", outdated: run simsql install"
    print(f"schema simsql  {status.version} (revision {status.revision}{outdated})")
    print(f"indexes        {len(status.indexes)}")
    if status.indexes:
        table = Table(box=None, pad_edge=False)
        for heading in ("table", "column", "distance", "blocks", "lead", "recipe", "state"):
            table.add_column(heading, overflow="fold")
        for index in status.indexes:
            names = Text(index.table_name), Text(index.column_name)
            numbers = str(index.distance), str(index.blocks), str(index.lead)
            table.add_row(*names, *numbers, Text(index.recipe or "-"), index.state)
        # Into a pipe or a file every index goes on one line, however long.
        Console(highlight=False, width=None if sys.stdout.isatty() else 1_000).print(table)


@_command("sql")
def sql_command() -> None:
    """Print the SQL that installs the schema.

    It is for a database that has none. Connects to nothing.
    """
    print(schema_sql(), end="")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"simsql {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _parse_fingerprint(number: str) -> int:
    if not number.isdecimal() or int(number) >= 1 << 64:
        hint = " (a negative number is the bigint of PostgreSQL: add 2**64)" if number.startswith("-") else ""
        raise UsageError(
            f"{printable(number)} is not a fingerprint: they are whole numbers from 0 to 2**64 - 1{hint}"
        )
    return int(number)


def _database_or_default(database: str | None, keep: Path | None) -> str | None:
    return database or (None if keep else os.environ.get("SIMSQL_DATABASE") or None)


@contextmanager
def _open_database(database: str | None, keep: Path | None, *, new: bool = False) -> Iterator[Engine]:
    """Open the database that the options name, else the embedded server's.

    Raises SimsqlError for a folder that holds no server, unless a new one is wanted: it is a slip of the pen.
    """
    destination = Destination(_database_or_default(database, keep), keep)
    if destination.keep and not new and not holds_server(destination.keep):
        raise SimsqlError(
            f"{destination.keep} holds no server: simsql dedup PATH --keep {destination.keep} makes one"
        )
    if destination.database:
        engine = open_engine(destination.database)
        try:
            yield engine
        finally:
            engine.dispose()
        return
    with start_embedded(destination.keep) as server:
        engine = open_engine(server.url())
        try:
            yield engine
        finally:
            engine.dispose()


def _stop_on_signal(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    # As an exception, so that what was begun is cleared away.
    raise _Terminated(128 + signal_number)


def _prepare_streams() -> None:
    """Make output UTF-8 whatever the terminal is, and give closed streams something to read and write."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def main() -> None:
    """Run the command line."""
    _prepare_streams()
    signal.signal(signal.SIGTERM, _stop_on_signal)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        signal.signal(signal.SIGHUP, _stop_on_signal)
    app()
