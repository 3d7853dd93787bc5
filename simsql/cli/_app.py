"""What all commands share: the application, errors and exit codes, common options, the database."""

import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, ParamSpec

import psycopg
import typer
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from simsql import __version__
from simsql.database.connect import one_line, open_engine
from simsql.database.embedded import holds_server, start_embedded
from simsql.dedup.formats import printable, storable
from simsql.dedup.output import abandon
from simsql.dedup.workspace import Destination
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import Recipe, read_recipe

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


def command(name: str, group: typer.Typer = app) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Register a command whose errors are one line on stderr and an exit code."""

    def register(function: Callable[_P, None]) -> Callable[_P, None]:
        @functools.wraps(function)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                function(*args, **kwargs)
                sys.stdout.flush()
            except UsageError as error:
                fail(str(error), 2)
            except SimsqlError as error:
                fail(str(error), 1)
            except (DBAPIError, psycopg.Error) as error:
                fail(f"PostgreSQL: {one_line(error).removeprefix('simsql: ')}", 1)
            except UnicodeEncodeError:
                # Without the argument: a URL may hold a password.
                fail("an option holds bytes that are no UTF-8: PostgreSQL takes names and URLs in UTF-8", 2)
            except ModuleNotFoundError as error:
                fail(str(error), 1)  # of an extra: it says what to install
            except BrokenProcessPool:
                fail("a process that makes fingerprints was killed: is the machine short of memory?", 1)
            except BrokenPipeError:
                abandon(sys.stdout)  # who reads it has had enough
                raise typer.Exit(1) from None
            except OSError as error:
                if error.filename is None:
                    abandon(sys.stdout)
                    fail(f"standard output cannot be written: {error.strerror or error}", 1)
                fail(f"{printable(storable(Path(error.filename)))}: {error.strerror}", 1)
            except KeyboardInterrupt as interrupt:
                abandon(sys.stdout)  # who reads it may not read on, and would be waited for
                fail(
                    *("terminated", interrupt.args[0])
                    if isinstance(interrupt, _Terminated)
                    else ("interrupted", 130)
                )

        group.command(name)(run)
        return run

    return register


def fail(message: str, code: int) -> NoReturn:
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
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="How a text becomes a fingerprint: the id of a recipe, the name of one that simsql knows, or a file"
        " that holds one. By default that of the index, else words12-log-1.",
    ),
]


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


def parse_fingerprint(number: str) -> int:
    if not number.isdecimal() or int(number) >= 1 << 64:
        hint = " (a negative number is the bigint of PostgreSQL: add 2**64)" if number.startswith("-") else ""
        raise UsageError(
            f"{printable(number)} is not a fingerprint: they are whole numbers from 0 to 2**64 - 1{hint}"
        )
    return int(number)


def parse_recipe(name: str | None) -> Recipe | None:
    """Return the recipe of an id, of a name or in a file."""
    if name is None:
        return None
    try:
        return Recipe.from_id(name)
    except ValueError as error:
        if not Path(name).exists():
            raise UsageError(f"{error}; and there is no such file") from error
    try:
        return read_recipe(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


def database_or_default(database: str | None, keep: Path | None) -> str | None:
    return database or (None if keep else os.environ.get("SIMSQL_DATABASE") or None)


@contextmanager
def open_database(database: str | None, keep: Path | None, *, new: bool = False) -> Iterator[Engine]:
    """Open the database that the options name, else the embedded server's.

    Raises SimsqlError for a folder that holds no server, unless a new one is wanted: it is a slip of the pen.
    """
    destination = Destination(database_or_default(database, keep), keep)
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


def stop_on_signal(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    # As an exception, so that what was begun is cleared away.
    raise _Terminated(128 + signal_number)


def prepare_streams() -> None:
    """Make output UTF-8 whatever the terminal is, and give closed streams something to read and write."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
