"""The recipe of an index, and checks that texts are fingerprinted with no other."""

import re

from sqlalchemy import Connection, cast, func, select
from sqlalchemy.dialects.postgresql import REGCLASS

from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT_RECIPE, KNOWN_RECIPES, Recipe
from simsql.fingerprint.recipe import check_recipe

# Every id of any version begins and ends like this; a user's own name, such as "phash64", hardly ever does.
_ID = re.compile(r"(words|characters|jieba|pattern\.|letters\.|custom\.).*-[0-9]+", re.DOTALL)


def recipe_of(
    connection: Connection, table: str, column: str | None = None, recipe: Recipe | None = None
) -> Recipe:
    """Return the recipe of an index, to fingerprint texts for a search.

    An index without a recipe counts as having the default one. If the id of the recipe is not enough, as with a
    word list or table, pass `recipe`: it is returned if its id is that of the index. Raises UsageError if it is
    not, or if the id is not enough and no recipe is passed; sqlalchemy.exc.DBAPIError with PostgreSQL's message:
    no index, several indexes.
    """
    index = func.simsql._index(cast(table, REGCLASS), column).table_valued("column_name", "recipe")
    found = connection.execute(select(index.c.column_name, index.c.recipe)).one()
    return agreed_recipe(found.recipe, recipe, f"{table}({found.column_name})")


def agreed_recipe(recipe_id: str | None, given: Recipe | None, indexed: str) -> Recipe:
    """Return the recipe of this id or name, or the given one if it matches; None is the default recipe's id.

    `indexed` names the table and the column in the message of the UsageError.
    """
    wanted = DEFAULT_RECIPE.id if recipe_id is None else recipe_id
    if given is not None:
        check_recipe(given)
        if given.id != wanted and KNOWN_RECIPES.get(wanted) != given:
            raise UsageError(
                f"the simhash index on {indexed} has the recipe {wanted}, not {given.id}, and their fingerprints"
                " cannot be compared: pass the recipe of the index, or drop the index, recompute all fingerprints,"
                " and create the index with the other recipe"
            )
        return given
    try:
        return Recipe.from_id(wanted)
    except ValueError as error:
        raise UsageError(f"the simhash index on {indexed}: {error}") from None


def same_recipe(one: str | None, other: str | None) -> bool:
    """Return whether two ids or names mean the same recipe; None counts as the default recipe's."""
    return _full_id(one) == _full_id(other)


def is_text_recipe(recipe_id: str | None) -> bool:
    """Return whether this is the id of a recipe for texts, and not a user's own name.

    None counts as the default recipe's.
    """
    return _ID.fullmatch(_full_id(recipe_id)) is not None


def differs_for_sure(recipe_id: str | None, recipe: Recipe) -> bool:
    """Return whether this is the id of a different recipe. None and a user's name can mean the given one."""
    return recipe_id is not None and is_text_recipe(recipe_id) and not same_recipe(recipe_id, recipe.id)


def _full_id(recipe_id: str | None) -> str:
    if recipe_id is None:
        return DEFAULT_RECIPE.id
    return KNOWN_RECIPES[recipe_id].id if recipe_id in KNOWN_RECIPES else recipe_id
