"""The application: its commands, and how their errors are reported."""

import errno
import gc
import importlib
import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from pathlib import Path
from signal import SIGPIPE
from typing import Annotated, Any, ParamSpec

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from simsql import __version__
from simsql.cli._process import complain, interrupt_behind, note
from simsql.documents import abandon, printable, storable
from simsql.errors import SimsqlError, UsageError

# Each command: the module that registers it, and the first line of its help.
_COMMANDS = {
    "backfill": ("backfill", "Fingerprint the rows that have no fingerprint."),
    "dedup": ("dedup", "Find near-duplicates in files, and decide which to drop."),
    "dedup-table": ("dedup_table", "Find near-duplicates in a table, and decide which to drop."),
    "evaluate": ("evaluate", "Measure precision and recall on labelled pairs."),
    "sample": ("sample", "Draw pairs of documents to label."),
    "fingerprint": ("fingerprint", "Print the fingerprint of every document."),
    "load": ("load", "Load documents and their fingerprints into a table."),
    "find-pairs": ("memory", "Find all pairs of near fingerprints in a file."),
    "find-clusters": ("memory", "Find clusters of near fingerprints in a file."),
    "plan": ("plan", "Compare index designs."),
    "install": ("setup", "Install or upgrade the schema in a database."),
    "uninstall": ("setup", "Remove the schema from a database."),
    "status": ("setup", "Show the installed version and indexes."),
    "maintain": ("setup", "Verify and vacuum the indexes that need it."),
    "near": ("search", "Search a table for a text or a fingerprint."),
    "similar": ("search", "Search a table for texts that are similar to yours."),
    "pairs": ("search", "List all pairs of near fingerprints in a table."),
    "clusters": ("search", "List all clusters of near fingerprints in a table."),
    "server": ("setup", "Run an embedded server until Ctrl-C."),
    "index": ("index", "Create, list, verify, change and drop simhash indexes."),
}


# Options of other programs that find duplicates, and those of simsql for the same: the first that a command has.
_ELSEWHERE = {
    "--threshold": ("--similarity", "--distance"),
    "--jaccard": ("--similarity",),
    "--bit-diff": ("--distance",),
    "--max-distance": ("--distance",),
    "--ngram": ("--recipe",),
    "--column": ("--text-field", "--text-column"),
    "--priority": ("--keep",),
    "--order": ("--keep",),
    "--keep-path": ("--keep-under",),
    "--delete": ("--clean", "--into"),
    "--remove": ("--clean", "--into"),
    "--threads": ("--workers",),
    "--num-proc": ("--workers",),
}
# What to call instead of a command that is not there.
_OTHER_COMMANDS = {"build": "index create --concurrently", "repair": "index verify --repair", "vacuum": "maintain"}
_OF_INDEXES = ("alter", "change-storage", "create", "drop", "list", "set-default", "verify")
_OTHER_COMMANDS |= {name: f"index {name}" for name in _OF_INDEXES}


class _Commands(TyperGroup):
    """All commands. Their modules are imported on first use, because some take long to import."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as the library calls it
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            # The library compares a misspelled name with all names.
            called = [_COMMANDS[cmd_name]] if cmd_name in _COMMANDS else _COMMANDS.values()
            for module, _ in called:
                importlib.import_module(f"simsql.cli.{module}")
            self.commands.update(get_group(app).commands)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as the library calls it
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


class _Command(TyperCommand):
    """A command that refuses a repeated option of one value: the library would take the last one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        order: list[Any] = self.make_parser(ctx).parse_args(args=list(args))[2]
        for position, given in enumerate(order):
            takes_one = given.param_type_name == "option" and not (given.multiple or given.is_flag)
            if takes_one and given in order[:position]:
                ctx.fail(f"{given.opts[0]} is given twice: it takes one value")
        return super().parse_args(ctx, args)


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
# The base class of all argument errors. Its module depends on the version of the library.
_WrongUsage: Any = typer.BadParameter.__base__


def command(name: str, group: typer.Typer = app) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Register a command under a name.

    A parameter whose type is a dataclass stands for the options that its fields describe.
    """

    def register(function: Callable[_P, None]) -> Callable[_P, None]:
        group.command(name, cls=_Command)(_take_apart(function))
        return function

    return register


def _take_apart(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with the fields of dataclasses among its parameters in place of the dataclasses."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in parameters if is_dataclass(each.annotation)}
    flat: list[inspect.Parameter] = []
    for each in parameters:
        group = groups.get(each.name)
        parts = inspect.signature(group, eval_str=True).parameters.values() if group else [each]
        flat += [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in parts]

    @wraps(function)
    def call(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        gc.freeze()  # the modules, which stay
        gc.set_threshold(10_000)  # the command imports more
        gc.enable()
        function(**given)

    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in flat}
    return call


def run_app() -> int:
    try:
        code = _invoke()
        sys.stdout.flush()
    except Exception as error:
        # A signal may come while a driver is not ready to clean up. The error of that is not what ended the run.
        interrupt = interrupt_behind(error)
        if interrupt:
            raise interrupt from None
        return _report(error)
    return code


@cache
def as_click_command() -> Any:
    """Return the application as the library runs it. To make it of all commands takes as long as a short run."""
    return get_command(app)


def _invoke() -> int:
    # Not through the library's own main(), which has other exit codes for Ctrl-C and for broken pipes.
    main = as_click_command()
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
            code, message = 2, "an option is not valid UTF-8: PostgreSQL needs names and URLs in UTF-8"
        case BrokenPipeError(filename=None):  # its reader has read enough
            abandon(sys.stdout)
            return 128 + SIGPIPE
        case MemoryError():
            message = "there is not enough memory: allow more, or read less at once"
        case OSError(errno=errno.EMFILE):
            message = "too many open files: allow more, as with ulimit -n 1024"
        case OSError(filename=None):
            message = f"standard output cannot be written: {error.strerror or error}"
            if error.errno == errno.EBADF:
                message = "standard output is closed: redirect it to a file, or to /dev/null"
            abandon(sys.stdout)
        case OSError():
            message = f"{printable(storable(Path(error.filename)))}: {error.strerror}"
        case _:
            raise error
    complain(f"error: {as_commands(message)}")
    return code


def _show_usage(error: Any) -> int:
    """Print what is wrong with the arguments in one line, or the help if there are none."""
    if type(error).__name__ == "NoArgsIsHelpError":
        note(error.format_message())
    else:
        called = "simsql" if error.ctx is None else error.ctx.command_path
        if error.ctx is None and sys.argv[1] in _COMMANDS:
            called = f"simsql {sys.argv[1]}"
        # Some versions of the library use pydantic, which words errors in this way.
        said = printable(error.format_message().replace(": Value error, ", ": ").removesuffix("."))
        if type(error).__name__ == "NoSuchOption" and (advice := _advise(error)):
            said = f"no such option: {error.option_name}: {advice}"
        name = said.split("'")[1] if said.startswith("No such command '") else ""
        if name in _OTHER_COMMANDS:
            said = f"no such command '{name}': use simsql {_OTHER_COMMANDS[name]}"
        see = " See" if said.endswith("?") else "; see"
        complain(f"error: {said[:1].lower()}{said[1:]}{see} {called} --help")
    return int(error.exit_code)


def _advise(error: Any) -> str | None:
    """Return what to use instead of an option that a command does not have, if its name is known."""
    own = {name for parameter in error.ctx.command.params for name in parameter.opts}
    name = error.option_name.replace("_", "-")
    if name == "--dry-run" and "--keep" in own:
        return "this command only decides, it removes nothing from what it reads"
    use = next((option for option in _ELSEWHERE.get(name, ()) if option in own), None)
    return use and f"use {use}{', or --drop-list for files that are one document' * (use == '--clean')}"


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


# Hints of errors and findings have codes for what they advise: see sql/calls.sql. Here they become commands. Each
# function: its command, how many of its first arguments the command has, before the column, and a flag.
_COMMANDS_OF_CALLS = {
    "alter_index": ("index alter", 1, ""),
    "build": ("index create", 2, "--concurrently"),
    "change_storage": ("index change-storage", 2, ""),
    "create_index": ("index create", 2, ""),
    "drop_index": ("index drop", 1, ""),
    "maintain": ("maintain", 0, ""),
    "repair": ("index verify", 1, "--repair"),
    "set_default_index": ("index set-default", 2, ""),
    "uninstall": ("uninstall", 0, "--drop-indexes"),
    "verify": ("index verify", 1, ""),
}


def as_commands(message: str) -> str:
    """Return a message of the database with commands in place of the codes in it."""
    parts = message.split("\x01")
    parts[1::2] = map(_as_command, parts[1::2])
    # A full stop after a command would look like a part of it.
    return "".join(parts) if parts[-1] else "".join(parts).removesuffix(";")


def _as_command(code: str) -> str:
    what, values, options, statement = json.loads(code)
    match what:
        case "scope":
            return " ".join(f"--scope {column}=..." for column in values)
        case "storage":
            return f"--storage {values[0]}"
        case "indexes":
            return "simsql index list"
        case "snapshot":  # each command has a new one
            return ""
    # To create an index again whose recipe is unknown: the command would give it the default one.
    is_nameless = what == "create_index" and "distance" in options and "recipe" not in options
    if what not in _COMMANDS_OF_CALLS or options.get("sources") == {} or is_nameless:
        return str(statement)
    command, positional, flag = _COMMANDS_OF_CALLS[what]
    words = ["simsql", *command.split(), *values[:positional]]
    for column in filter(None, values[positional:]):
        words += ["--column", column]
    for name, value in options.items():
        match value:
            case list():
                words += [word for column in value for word in ("--scope-column", column)]
            case dict():
                words += [word for source, weight in value.items() for word in ("--source", f"{source}={weight}")]
            case int() | str() if not isinstance(value, bool):
                words += [f"--{name.replace('_', '-')}", str(value)]
    return f"{shlex.join([*words, flag] if flag else words)};"
