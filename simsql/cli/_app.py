"""What all commands share: the application, errors and exit codes, common options."""

import functools
import importlib
import io
import os
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from typer.core import TyperGroup
from typer.main import get_group

from simsql import __version__
from simsql.dedup.formats import printable, storable
from simsql.dedup.output import abandon
from simsql.errors import SimsqlError, UsageError

# Each command: the module that registers it, and the first line of its help.
_COMMANDS = {
    "backfill": ("backfill", "Give fingerprints to the rows that have a text and none yet."),
    "dedup": ("dedup", "Find clusters of near-duplicates in files."),
    "fingerprint": ("fingerprint", "Print the fingerprint of every document."),
    "load": ("load", "Load documents into a table, with their fingerprints."),
    "find-all": ("memory", "Find all pairs of fingerprints in a file."),
    "find-clusters": ("memory", "Find the clusters of fingerprints in a file."),
    "plan": ("plan", "Compare the designs of an index."),
    "install": ("schema", "Install or update the schema in a database."),
    "upgrade": ("schema", "Update the schema in a database that has it."),
    "uninstall": ("schema", "Remove the schema from a database."),
    "status": ("schema", "Say what of simsql a database holds."),
    "sql": ("schema", "Print the SQL that installs or updates the schema."),
    "near": ("search", "Search a table for a text or a fingerprint."),
    "pairs": ("search", "List the pairs of near fingerprints in a table."),
    "clusters": ("search", "List the clusters of fingerprints in a table."),
    "index": ("index", "Create, build, list, check, mend and drop simhash indexes."),
}


class _Commands(TyperGroup):
    """All commands. A module is imported when one of its commands is called: what the others need takes time."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as the library calls it
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            # A slip of the pen is compared with all names.
            called = [_COMMANDS[cmd_name]] if cmd_name in _COMMANDS else _COMMANDS.values()
            try:
                for module, _ in called:
                    importlib.import_module(f"simsql.cli.{module}")
            except KeyboardInterrupt as interrupt:
                _fail_interrupted(interrupt)
            self.commands.update(get_group(app).commands)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as the library calls it
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


app = typer.Typer(
    name="simsql",
    cls=_Commands,
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
                _fail_interrupted(interrupt)

        group.command(name)(run)
        return run

    return register


def fail(message: str, code: int) -> NoReturn:
    print(f"simsql: {message}", file=sys.stderr)
    raise typer.Exit(code)


def _fail_interrupted(interrupt: KeyboardInterrupt) -> NoReturn:
    abandon(sys.stdout)  # who reads it may not read on, and would be waited for
    fail(*("terminated", interrupt.args[0]) if isinstance(interrupt, _Terminated) else ("interrupted", 130))


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
_RECIPE_HELP = (
    "How a text becomes a fingerprint: the id of a recipe, the name of one that simsql knows, or a file that holds"
    " one. By default "
)
RecipeName = Annotated[
    str | None,
    typer.Option("--recipe", metavar="RECIPE", help=_RECIPE_HELP + "that of the index, else words12-log-1."),
]
NewRecipeName = Annotated[
    str | None,
    typer.Option("--recipe", metavar="RECIPE", help=_RECIPE_HELP + "words12-log-1."),
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
