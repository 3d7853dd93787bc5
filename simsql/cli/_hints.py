"""Translate hints of errors and findings from SQL and Python to commands."""

import re
import shlex
from collections.abc import Callable

_CALL = re.compile(r"(?:SELECT (?:\* FROM )?|CALL )simsql\.(\w+)\(((?:'(?:[^']|'')*'|[^'()])*)\)(?:;$)?")
_VALUE = re.compile(r"(?:(\w+) => )?(?:(E?)'((?:[^']|'')*)'|([\w.]+))")

_NEW_INDEX = ("table_name", "column_name", "distance", "blocks", "lead", "inner_blocks", "recipe", "scope")
# Each function: its command, its parameters in order, and how many of them are arguments of the command.
_COMMANDS = {
    "build": ("index build", _NEW_INDEX, 2),
    "create_index": ("index create", _NEW_INDEX, 2),
    "drop_index": ("index drop", ("table_name", "column_name"), 1),
    "repair": ("index repair", ("table_name",), 1),
    "uninstall": ("uninstall", ("drop_indexes",), 0),
    "vacuum": ("index vacuum", ("table_name", "column_name"), 1),
    "verify": ("index verify", ("table_name", "column_name"), 1),
}
_OPTIONS = {
    "blocks": "--blocks",
    "column_name": "--column",
    "distance": "--distance",
    "inner_blocks": "--inner-blocks",
    "lead": "--lead",
    "recipe": "--recipe",
    "scope": "--scope-column",
}


def as_commands(message: str) -> str:
    """Return a message with commands in place of SQL calls and Python arguments."""
    message = _CALL.sub(_as_command, message)
    for pattern, replacement in _PHRASES:
        message = re.sub(pattern, replacement, message)
    return message


def _as_command(call: re.Match[str]) -> str:
    try:
        command, parameters, positional = _COMMANDS[call[1]]
        words = ["simsql", *command.split()]
        for number, (name, value) in enumerate(_read_arguments(call[2])):
            parameter = name or parameters[number]
            if value is None:
                continue
            if number < positional:
                words.append(value)
            elif parameter == "drop_indexes":
                words += ["--drop-indexes"] * (value == "true")
            else:
                each = value.strip("{}").split(",") if parameter == "scope" else [value]
                words += [word for part in each for word in (_OPTIONS[parameter], part)]
    except LookupError:  # no command does this
        return call[0]
    return shlex.join(words)


def _read_arguments(arguments: str) -> list[tuple[str | None, str | None]]:
    """Return the name (or None) and the value of each argument of a call; NULL is None."""
    found = list(_VALUE.finditer(arguments))
    if ", ".join(match[0] for match in found) != arguments:
        raise LookupError(arguments)
    return [(match[1], _read_value(match)) for match in found]


def _read_value(match: re.Match[str]) -> str | None:
    _, escaped, quoted, bare = match.groups()
    if quoted is None:
        return None if bare.upper() == "NULL" else bare
    text = quoted.replace("''", "'")
    return text.replace("\\\\", "\\") if escaped else text


def _as_scopes(found: re.Match[str]) -> str:
    return " ".join(f"--scope {column}=..." for column in re.findall(r"'((?:[^']|'')*)', \.\.\.", found[0]))


_PHRASES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"SELECT \* FROM simsql\.indexes lists", "simsql index list lists"),
    (r"scope => jsonb_build_object\([^()]*\)", _as_scopes),
    (r"[Nn]ame the column: (?:column_name => )?one of", "Name the column with --column: one of"),
    (r"name the column for the fingerprints", "name the column for the fingerprints with --column"),
    # Every command runs in its own transaction.
    (r"\. An index that was created after this transaction .*", ""),
    # If a message offers both. A full stop would look like a part of the command.
    (r"(simsql [^;]+); or \1\. Columns", r"\1; columns"),
)
