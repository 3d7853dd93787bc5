"""What all commands share: the application, errors and exit codes, common options."""

import errno
import importlib
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from signal import SIGPIPE
from typing import Annotated, Any, ParamSpec

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from simsql import __version__
from simsql.cli._hints import as_commands
from simsql.cli._process import complain, note
from simsql.documents.formats import printable, storable
from simsql.documents.output import abandon
from simsql.errors import SimsqlError, UsageError

# Each command: the module that registers it, and the first line of its help.
_COMMANDS = {
    "backfill": ("backfill", "Compute the fingerprints of rows without one."),
    "dedup": ("dedup", "Find clusters of near-duplicates in files."),
    "fingerprint": ("fingerprint", "Print the fingerprint of every document."),
    "load": ("load", "Load documents into a table, with their fingerprints."),
    "find-all": ("memory", "Find all pairs of fingerprints in a file."),
    "find-clusters": ("memory", "Find the clusters of fingerprints in a file."),
    "plan": ("plan", "Compare the designs of an index."),
    "install": ("schema", "Install or update the schema in a database."),
    "upgrade": ("schema", "Update the schema in a database that has it."),
    "uninstall": ("schema", "Remove the schema from a database."),
    "status": ("schema", "Show the version and the indexes of a database."),
    "sql": ("schema", "Print the SQL that installs or updates the schema."),
    "near": ("search", "Search a table for a text or a fingerprint."),
    "pairs": ("search", "List the pairs of near fingerprints in a table."),
    "clusters": ("search", "List the clusters of fingerprints in a table."),
    "server": ("server", "Hold an embedded server open."),
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
            for module, _ in called:
                importlib.import_module(f"simsql.cli.{module}")
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
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_P = ParamSpec("_P")
# What all errors in arguments are. Its home depends on the version of the library.
_WrongUsage: Any = typer.BadParameter.__base__


def command(name: str, group: typer.Typer = app) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Register a command under a name."""
    return group.command(name)


def run_app() -> int:
    """Run the command that the arguments of the process name, and return the exit code."""
    try:
        code = _invoke()
        sys.stdout.flush()
    except Exception as error:
        return _report(error)
    return code


def _invoke() -> int:
    # Not through the library's own main(), which has other exit codes for Ctrl-C and for broken pipes.
    main: Any = get_command(app)
    try:
        if "_SIMSQL_COMPLETE" in os.environ:  # a shell asks what could come next
            main._main_shell_completion({}, "simsql")
        with main.make_context("simsql", sys.argv[1:]) as context:
            context.command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except SystemExit as end:  # of the library's own options for completion
        return int(end.code or 0)
    return 0


def _report(error: Exception) -> int:
    """Say in one line on stderr what went wrong, and return the exit code."""
    code = 1
    match error:
        case _WrongUsage():
            return _show_usage(error)
        case UsageError():
            code, message = 2, str(error)
        case SimsqlError() | ModuleNotFoundError():  # the latter for an extra: it says what to install
            message = str(error)
        case UnicodeEncodeError():
            # Without the argument: a URL may hold a password.
            code, message = 2, "an option holds bytes that are not UTF-8: PostgreSQL takes names and URLs in UTF-8"
        case BrokenProcessPool():
            message = "a process that makes fingerprints was killed: is the machine short of memory?"
        case BrokenPipeError(filename=None):  # its reader has read enough
            abandon(sys.stdout)
            return 128 + SIGPIPE
        case OSError(filename=None):
            message = _describe_output(error)
            abandon(sys.stdout)
        case OSError():
            message = f"{printable(storable(Path(error.filename)))}: {error.strerror}"
        case _:
            raise error
    complain(f"error: {as_commands(message)}")
    return code


def _describe_output(error: OSError) -> str:
    if error.errno == errno.EBADF:
        return "standard output is closed: redirect it to a file, or to /dev/null"
    return f"standard output cannot be written: {error.strerror or error}"


def _show_usage(error: Any) -> int:
    """Say in one line what is wrong with the arguments, and what tells more; without any, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        note(error.format_message())
    else:
        called = "simsql" if error.ctx is None else error.ctx.command_path
        if error.ctx is None and sys.argv[1] in _COMMANDS:
            called = f"simsql {sys.argv[1]}"
        # As pydantic says it, which some versions of the library use.
        said = printable(error.format_message().replace(": Value error, ", ": ").removesuffix("."))
        complain(f"error: {said[:1].lower()}{said[1:]}; see {called} --help")
    return int(error.exit_code)


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


def parse_size(size: str) -> int:
    match = re.fullmatch(r"(\d{1,3}(?:,\d{3}){1,5}|\d{1,18}(?:\.\d{1,9})?) ?([kmgtp]?)b?", size, re.IGNORECASE)
    if match is None:
        raise UsageError(f"{size!r} is not a size: write it as 500MB or 2GB")
    return int(float(match[1].replace(",", "")) * 1024 ** "_KMGTP".index(match[2].upper() or "_"))


def parse_max_document(size: str) -> int:
    limit = parse_size(size)
    # A line is read with its end, and a position in a text has to fit into 63 bits.
    if not 1 <= limit < 1 << 62:
        raise UsageError(f"--max-document must be at least 1 byte and less than 4096PB, not {size}")
    return limit
