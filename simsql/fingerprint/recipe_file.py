"""Recipes in JSON files, each with its idf table, if any, in a file beside it.

    {
      "tokens": {"pattern": "[a-z]+", "characters": false},
      "shingles": [3],
      "stop_words": ["a", "is", "the"],
      "idf": "news.npz",
      "class_weights": {"title": 3}
    }

The fields are those of `Recipe`, and missing fields have their defaults. `idf` is the path of a file that
`IdfTable.write` has written, relative to the folder of the JSON file. `id` is optional, but must be correct.
"""

import json
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from simsql.errors import UsageError
from simsql.fingerprint.features import IdfTable
from simsql.fingerprint.recipe import DEFAULT_RECIPE, Pattern, Recipe, Tokenizer, check_recipe

_LARGEST = 1 << 26  # bytes
_FIELDS = tuple(field.name for field in fields(Recipe))


def write_recipe(recipe: Recipe, path: str | PathLike[str]) -> None:
    """Write a recipe to a file, and its idf table to a file of the same name with the extension .npz.

    Raises ValueError for a recipe with a Tokenizer, which cannot be written, and for a path with the extension
    .npz; OSError if a file cannot be written.
    """
    check_recipe(recipe)
    path = Path(path)
    if type(recipe.tokens) is Tokenizer:
        raise UsageError(
            f"the tokenizer of {recipe.id} is a function and cannot be written: keep the recipe in Python"
        )
    if path.suffix == ".npz":
        raise UsageError(f"{path}: .npz is the extension of idf tables: use another one for the recipe")
    written: dict[str, Any] = {"id": recipe.id}
    for name in _FIELDS:
        value = getattr(recipe, name)
        if value != getattr(DEFAULT_RECIPE, name):
            written[name] = _encode(name, value, path)
    # A lone surrogate cannot be encoded as UTF-8: write it as a JSON escape.
    path.write_bytes(json.dumps(written, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace") + b"\n")


def read_recipe(path: str | PathLike[str]) -> Recipe:
    """Read a recipe that `write_recipe` or a person has written.

    Raises ValueError, which begins with the path, for anything but a JSON object, unknown fields, invalid values,
    an idf table that cannot be read, and an `id` that is not that of the recipe; OSError if the file cannot be
    read.
    """
    path = Path(path)
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:  # or a device, which does not end
        raise UsageError(f"{path}: a recipe has at most {_LARGEST >> 20} MB")
    try:
        return _decode(json.loads(data, object_pairs_hook=_without_repeats), path)
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply to be read") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: a recipe must be a JSON object, but this is not JSON: {error}") from None
    except (ValueError, OSError) as error:
        raise UsageError(f"{path}: {error}") from None


def _encode(name: str, value: Any, path: Path) -> Any:
    if isinstance(value, Pattern):
        return {"pattern": value.expression, "characters": value.characters}
    if isinstance(value, IdfTable):
        table = path.with_suffix(".npz")
        value.write(table)
        return table.name
    if name == "stop_words":
        return sorted(value)
    return dict(value) if name == "class_weights" else value


def _decode(found: object, path: Path) -> Recipe:
    if type(found) is not dict:
        raise UsageError(f"a recipe must be a JSON object, not {found!r}")
    wanted = found.pop("id", None)
    _check_names(found, _FIELDS)
    recipe = Recipe(**{name: _decode_field(name, value, path) for name, value in found.items()})
    if wanted is not None and wanted != recipe.id:
        raise UsageError(
            f"the id is {wanted!r}, but the fields define {recipe.id!r}, which has other fingerprints:"
            " remove the id if the fields are correct"
        )
    return recipe


def _decode_field(name: str, value: Any, path: Path) -> Any:
    if name == "tokens" and isinstance(value, dict):
        _check_names(value, ("pattern", "characters"))
        expression, characters = value.get("pattern"), value.get("characters", False)
        if not isinstance(expression, str) or not isinstance(characters, bool):
            raise UsageError(
                'tokens with an expression must be written as {"pattern": "...", "characters": false}'
            )
        return Pattern(expression, characters)
    if name == "idf" and value is not None:
        if not isinstance(value, str):
            raise UsageError(f"idf must be the path of a table, not {value!r}")
        return IdfTable.read(path.parent / value)
    if name == "class_weights":
        if not isinstance(value, dict):
            raise UsageError(f'class_weights must be an object such as {{"title": 3}}, not {value!r}')
        return tuple(sorted(value.items()))
    default = getattr(DEFAULT_RECIPE, name)
    if isinstance(default, tuple | frozenset):
        if not isinstance(value, list) or any(isinstance(item, list | dict) for item in value):
            raise UsageError(f"{name} must be a list of names or numbers, not {value!r}")
        return type(default)(value)
    return value


def _check_names(found: dict[str, Any], known: tuple[str, ...]) -> None:
    unknown = ", ".join(repr(name) for name in found if name not in known)
    if unknown:
        raise UsageError(f"unknown field {unknown}: the fields are {', '.join(known)}")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"the field {name!r} occurs twice")
        found[name] = value
    return found
