"""Describe a simhash index, and check the recipe of its texts."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from simsql.arrays.checks import FINGERPRINT_BITS, whole_number
from simsql.database.sources import Extract, Sources, extract_name
from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT_RECIPE, KNOWN_RECIPES, Recipe, check_recipe, visible_text
from simsql.hamming import Design

OPTIONS = ("distance", "blocks", "lead", "inner_blocks", "recipe", "scope", "storage", "sources")
"""The arguments of the SQL functions that create an index, after the table and the column."""

Storage = Literal["tables", "expression"]

# Every id of any version begins and ends like this. A user's own name, such as "phash64", rarely does.
_ID = r"(?:words|characters|trigrams|jieba|pattern\.|letters\.|custom\.).*-[0-9]+"
# What follows the recipe of texts that a function of the application makes of the sources.
_OF = r"(?: of [\w.]+)?"
# The functions that are simsql's own: the command line has them, too.
_FUNCTIONS: dict[str, Extract] = {extract_name(visible_text): visible_text}


@dataclass(frozen=True, init=False)
class IndexSpec:
    """The description of a simhash index on one column, without its table, in plain values.

    Raises ValueError for a distance out of range or an unknown storage, and TypeError if the distance is not an
    integer or the scope is a single str.
    """

    column: str
    """The unquoted name of the bigint column."""
    distance: int = 3
    """The default of searches, between 0 and 64."""
    design: Design | None = None
    """The layout; None lets PostgreSQL choose it by the number of rows."""
    recipe: str | None = None
    """The id of the recipe, or a name of your own, such as "phash64", for those that do not come from texts.

    None stands for an unknown one. If a function of the application makes the texts, " of " and its name follow.
    """
    scope: tuple[str, ...] = ()
    """The unquoted names of up to four columns that confine searches. Rows with a null in one are not indexed."""
    storage: Storage | None = None
    """Where the index is kept: in key tables, or in B-trees on the table itself. See docs/reference/sql.md.

    None lets PostgreSQL choose: "expression" for partitioned tables, "tables" for others.
    """
    sources: tuple[tuple[str, int], ...] = ()
    """The unquoted names of the columns of the texts, in alphabetical order, with their weights.

    None are known if it is empty. Pass one name, or a mapping of names to weights.
    """

    def __init__(
        self,
        column: str,
        distance: int = 3,
        design: Design | None = None,
        recipe: Recipe | str | None = None,
        scope: Sequence[str] = (),
        storage: Storage | None = None,
        sources: str | Mapping[str, int] | Sequence[tuple[str, int]] | None = None,
    ) -> None:
        if isinstance(scope, str):
            raise TypeError(f"scope must be a sequence of column names, not a str: pass scope=[{scope!r}]")
        if storage not in (None, *get_args(Storage)):
            raise UsageError(f"storage must be 'tables' or 'expression', not {storage!r}")
        values = {
            # Names that come from a Column are a subclass of str, which has no type in SQL.
            "column": str(column),
            "distance": whole_number("distance", distance, 0, FINGERPRINT_BITS),
            "design": design,
            "recipe": recipe.id if isinstance(recipe, Recipe) else _spelled_id(recipe),
            "scope": tuple(map(str, scope)),
            "storage": storage,
            "sources": () if sources is None else _canonical(sources),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def options(self) -> dict[str, object]:
        """Return the named arguments of `simsql.create_index` and `simsql.build`, without omitted ones."""
        design = self.design
        layout = (design.blocks, design.lead, design.inner_blocks) if design else (None, None, None)
        texts = (self.recipe, list(self.scope) or None, self.storage, dict(self.sources) or None)
        values = (self.distance, *layout, *texts)
        return {name: value for name, value in zip(OPTIONS, values, strict=True) if value is not None}

    def arguments(self, names: Sequence[str] | None = None) -> list[Any]:
        """Return the arguments of an SQL function after the table: the column, then the options by name.

        By default these are the options with a value. With `names`, they are those options, null if they have no
        value.
        """
        from simsql.database.arguments import as_arguments  # noqa: PLC0415 - Django needs no SQLAlchemy

        given = self.options()
        return as_arguments(self.column, {name: given.get(name) for name in names or given})


def _canonical(sources: str | Mapping[str, int] | Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    try:
        given = {sources: 1} if isinstance(sources, str) else dict(sources)
    except (TypeError, ValueError):
        raise TypeError(f"sources must be the name of a column, or names with weights, not {sources!r}") from None
    weights = sorted((str(name), weight) for name, weight in Sources.of(given, None).weights) if given else []
    # The weight of a single text changes nothing.
    return ((weights[0][0], 1),) if len(weights) == 1 else tuple(weights)


def agreed_recipe(recipe_id: str | None, given: Recipe | None, indexed: str) -> Recipe:
    """Return the recipe of this id or name, or the given one if it matches; None is unknown, and matches any."""
    recipe_id, _ = split_recipe(recipe_id)
    if given is not None:
        check_recipe(given)
        if recipe_id not in (None, given.id) and KNOWN_RECIPES.get(str(recipe_id)) != given:
            raise UsageError(
                f"the simhash index on {indexed} has the recipe {recipe_id}, not {given.id}, and their"
                " fingerprints cannot be compared: pass the recipe of the index, or drop the index, recompute all"
                " fingerprints, and create the index with the other recipe"
            )
        return given
    if recipe_id is None:
        raise UsageError(
            f"nobody has named the recipe of the simhash index on {indexed}, and texts need it: if it is"
            f" {DEFAULT_RECIPE.id}, run simsql index alter with --recipe {DEFAULT_RECIPE.id}, or pass the recipe"
        )
    try:
        return Recipe.from_id(recipe_id)
    except ValueError as error:
        raise UsageError(f"the simhash index on {indexed}: {error}") from None


def split_recipe(recipe_id: str | None) -> tuple[str | None, str | None]:
    """Return the recipe of texts, and the name of the function that makes them of the sources, if there is one."""
    found = re.fullmatch(r"(.*?) of ([\w.]+)", recipe_id or "", re.DOTALL)
    return (found[1], found[2]) if found else (recipe_id, None)


def agreed_extract(recipe_id: str | None, given: Extract | None, indexed: str) -> Extract | None:
    """Return the function that the recipe of an index names: the given one, or one of simsql's own."""
    _, name = split_recipe(recipe_id)
    if given is not None and (recipe_id is None or extract_name(given) == name):
        return given
    if given is not None:
        raise UsageError(
            f"the simhash index on {indexed} has the recipe {recipe_id}, and not texts of {extract_name(given)}:"
            " pass the function of the index, or change its recipe and compute all fingerprints again"
        )
    if name is not None and name not in _FUNCTIONS:
        raise UsageError(
            f"the texts of {indexed} are what the application's function {name} returns for the sources, so only"
            " a process that has the function can read or fill them: run manage.py simsql_backfill in Django, or"
            f" in Python SearchIndex(..., extract={name.rpartition('.')[2]}).backfill()"
        )
    return _FUNCTIONS.get(name or "")


def same_recipe(one: str | None, other: str | None) -> bool:
    """Return whether two ids or names mean the same recipe; None is an unknown one."""
    return _full_id(one) == _full_id(other)


def names_of_recipe(recipe_id: str) -> list[str]:
    """Return the names of the recipe with this id."""
    return [name for name in KNOWN_RECIPES if same_recipe(name, recipe_id)]


def is_text_recipe(recipe_id: str | None) -> bool:
    """Return whether this is the id of a recipe for texts, and not a user's own name or None."""
    return re.fullmatch(_ID + _OF, _full_id(recipe_id) or "", re.DOTALL) is not None


@functools.cache
def other_recipes(recipe_id: str, *, is_named: bool = True) -> str:
    """Return a regular expression of the recipes that cannot mean this one; a user's own name can.

    An unknown one, the empty string, can if a model or a caller names the recipe; the default is no name. Python
    and PostgreSQL read the expression alike.
    """
    same = [recipe_id, *names_of_recipe(recipe_id)]
    others = [*(re.escape(name) for name in KNOWN_RECIPES if name not in same), _ID, *([] if is_named else [""])]
    return rf"\A(?!(?:{'|'.join(map(re.escape, same))}){_OF}\Z)(?:{'|'.join(others)}){_OF}\Z"


def differs_for_sure(found: str | None, recipe_id: str) -> bool:
    """Return whether an index with this recipe certainly has another one. None can mean the given one."""
    return (found in KNOWN_RECIPES or is_text_recipe(found)) and not same_recipe(found, recipe_id)


def _full_id(recipe_id: str | None) -> str | None:
    of_texts, function = split_recipe(recipe_id)
    if function is not None:
        return f"{_full_id(of_texts)} of {function}"
    return KNOWN_RECIPES[recipe_id].id if recipe_id in KNOWN_RECIPES else recipe_id


def _spelled_id(recipe_id: str | None) -> str | None:
    """Return the id for a name, if it spells out the recipe and says more than the name."""
    known = KNOWN_RECIPES.get(recipe_id or "")
    return known.id if known is not None and isinstance(known.tokens, str) else recipe_id
