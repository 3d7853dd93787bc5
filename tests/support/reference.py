"""The pages of docs/reference/python/: the public names, from their docstrings.

The committed pages have a line for each name, and need no site. On the site, docs/conf.py shows the full
descriptions, too, and links to them.
"""

import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sqlalchemy import Engine

import simsql
import simsql.alembic.operations
import simsql.fingerprint.recipe
from simsql.database import SearchIndex
from simsql.sqlalchemy.columns import Bits64

FOLDER = Path(__file__).resolve().parents[2] / "docs/reference/python"
# The packages with names for users, and the page that shows how to use them. The names of the other packages
# are for simsql itself.
PUBLIC = {
    "simsql": "../python.md",
    "simsql.fingerprint": "../fingerprints.md",
    "simsql.hamming": "../python.md",
    "simsql.database": "../python.md",
    "simsql.server": "../../guides/embedded.md",
    "simsql.sqlalchemy": "../sqlalchemy.md",
    "simsql.alembic": "../alembic.md",
    "simsql.django": "../django.md",
}
_INDEX = """# Names in Python

Every function and class that you can rely on, and the types that they return. Other names and packages, also those
that a page shows, are for simsql itself and change without notice, except those for
[other engines](../../explanation/scale.md).

| package | contents |
|---|---|
"""
_RESULTS = "The names above return objects of these types. You need not import them."


class Entry(NamedTuple):
    """A name, its full name, the first line of its docstring, and what shows the whole on the site."""

    name: str
    target: str
    purpose: str
    directive: str = ""


def committed_pages() -> dict[Path, str]:
    """Return the pages as they are committed."""
    rows = [
        f"| [{package}]({file_of(package).name}) | {_purpose(import_module(package))} |\n" for package in PUBLIC
    ]
    pages = {file_of(package): page(package) for package in PUBLIC}
    return {FOLDER / "index.md": _INDEX + "".join(rows), **pages}


def file_of(package: str) -> Path:
    return FOLDER / f"{package.removeprefix('simsql.')}.md"


def page(package: str, *, on_site: bool = False) -> str:
    """Return the page of a package; for the site, with links to full descriptions."""
    module = import_module(package)
    guide = PUBLIC[package]
    title = (FOLDER / guide).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    lines = [f"# {package}", "", _purpose(module), "", f"[{title}]({guide}) shows how to use these names."]
    lines += ["" if on_site else "The site and `help(name)` in Python describe each in full.\n"]
    values = [getattr(module, name) for name in _names(module)]
    lines += ["```{eval-rst}", f".. py:module:: {package}", "```", ""] if on_site else []
    lines += _section([entry for name in _names(module) for entry in entries(module, name)], on_site=on_site)
    results = list(dict.fromkeys(result for value in values for result in _results_of(value)))
    if results:
        found = [entry for result in results for entry in _entries_of_class(result, _path(result))]
        lines += ["", "## Results", "", _RESULTS, "", *_section(found, on_site=on_site)]
    return "\n".join([*lines, ""])


def entries(module: ModuleType, name: str) -> Iterator[Entry]:
    """Yield an exported name, and what users call through it."""
    value, target = getattr(module, name), f"{module.__name__}.{name}"
    if inspect.isclass(value):
        yield from _entries_of_class(value, target)
    elif not callable(value):
        about = _about_constant(name)
        yield Entry(name, target, about, f".. py:data:: {target}\n\n   {about}\n")
    else:
        yield Entry(name, target, _purpose(value), f".. autofunction:: {target}\n")
        if value is simsql.alembic.register:
            yield from map(_operation, simsql.alembic.operations.OPERATIONS)


def _names(module: ModuleType) -> list[str]:
    """Return the exported names, without those that `simsql` exports, too."""
    return [name for name in module.__all__ if module is simsql or name not in simsql.__all__]


def _entries_of_class(value: type, target: str) -> Iterator[Entry]:
    name = value.__name__
    kind = "autoexception" if issubclass(value, Exception) else "autoclass"
    yield Entry(name, target, _purpose(value), f".. {kind}:: {target}\n" + "   :members:\n" * _has_methods(value))
    for member, method in vars(value).items() if _has_methods(value) else ():
        if (inspect.isroutine(method) or isinstance(method, property)) and not member.startswith("_"):
            yield Entry(f"{name}.{member}", f"{target}.{member}", _purpose(method))
    if issubclass(value, Bits64):
        for member, method in vars(value.comparator_factory).items():
            if inspect.isroutine(method) and not member.startswith("_"):
                path = f"{target}.comparator_factory.{member}"
                yield Entry(f"column.{member}", path, _purpose(method), f".. automethod:: {path}\n")


def _has_methods(value: type) -> bool:
    """Whether users call methods of a class. Those of a subclass for a framework are called by the framework."""
    ours = {"simsql", "builtins", "typing"}
    return {base.__module__.partition(".")[0] for base in value.__mro__} <= ours or _is_queryset(value)


def _is_queryset(value: type) -> bool:
    return value.__name__ == "SimhashQuerySet"


def _operation(operation: Any) -> Entry:
    """Return the entry of an operation of migrations as `op` has it."""
    method = getattr(operation, "create_simhash_index", operation)
    parameters = [
        each for name, each in inspect.signature(method).parameters.items() if name not in ("cls", "operations")
    ]
    # The annotations of this module are strings.
    signature = re.sub(r"(: )'([^']*)'", r"\1\2", str(inspect.Signature(parameters)))
    name = f"op.{operation.name}"
    about = textwrap.indent(inspect.getdoc(method) or "", "   ")
    return Entry(name, name, _purpose(method), f".. py:function:: {name}{signature}\n\n{about}\n")


# Modules import these when they need them: their annotations are strings.
_IMPORTED_LATE = {"Engine": Engine, "SearchIndex": SearchIndex}


def _results_of(value: Any) -> Iterator[type]:
    """Yield the classes in the results of a function or of a class's methods, and in their fields."""
    functions = [value]
    if inspect.isclass(value):
        functions = [getattr(member, "__func__", member) for member in vars(value).values()]
        functions = [function for function in functions if inspect.isfunction(function) and _has_methods(value)]
    for function in functions:
        if inspect.isfunction(function) and not function.__name__.startswith("_"):
            yield from _classes_in(typing.get_type_hints(function, localns=_IMPORTED_LATE).get("return"))


def _classes_in(hint: Any) -> Iterator[type]:
    """Yield the classes of simsql in a type that no package exports."""
    for part in (typing.get_origin(hint), hint):
        if inspect.isclass(part) and part.__module__.startswith("simsql.") and part not in _exported():
            yield part
            for inner in typing.get_type_hints(part).values():
                yield from _classes_in(inner)
    for argument in typing.get_args(hint):
        yield from _classes_in(argument)


def _exported() -> list[Any]:
    return [getattr(module, name) for module in map(import_module, PUBLIC) for name in module.__all__]


def _section(found: list[Entry], *, on_site: bool) -> Iterator[str]:
    yield from ("| name | purpose |", "|---|---|")
    for entry in found:
        name = f"[`{entry.name}`](#{entry.target})" if on_site else f"`{entry.name}`"
        yield f"| {name} | {entry.purpose} |"
    if on_site:
        yield from ("", "```{eval-rst}", *(entry.directive for entry in found if entry.directive), "```")


def _path(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _purpose(value: Any) -> str:
    """Return the first line of a docstring, which is its first sentence or two."""
    line = (inspect.getdoc(value) or "").partition("\n")[0]
    assert line.endswith("."), f"{value} has no docstring that begins with a sentence on a line"
    # Two asterisks between digits would begin or end bold text.
    return line.replace("|", "\\|").replace("2**", "2\\*\\*")


def _about_constant(name: str) -> str:
    """Return the string below the assignment of a constant."""
    source = inspect.getsource(simsql.fingerprint.recipe)
    found = re.search(rf'^{name}\b.*?^"""(.*?)"""', source, re.MULTILINE | re.DOTALL)
    assert found, f"{name} has no docstring"
    return found[1]
