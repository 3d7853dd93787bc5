"""Parse recipes on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from simsql.errors import UsageError

if TYPE_CHECKING:
    from simsql.fingerprint import Recipe


def parse_recipe(name: str | None) -> Recipe | None:
    """Return the recipe with an id or a name, or read it from a file."""
    from simsql.fingerprint import Recipe, read_recipe

    if name is None:
        return None
    try:
        return Recipe.from_id(name)
    except ValueError as error:
        if not Path(name).exists() or Path(name).is_dir():
            raise UsageError(f"{error}, and there is no such file") from error
    try:
        return read_recipe(name)
    except ValueError as error:
        raise UsageError(str(error)) from error
