"""The recipe of an index, and that texts are made into fingerprints by no other."""

from sqlalchemy import Connection, cast, func, select
from sqlalchemy.dialects.postgresql import REGCLASS

from simsql.errors import UsageError
from simsql.fingerprint import DEFAULT, KNOWN, Recipe
from simsql.fingerprint.recipe import check_recipe


def recipe_of(
    connection: Connection, table: str, column: str | None = None, recipe: Recipe | None = None
) -> Recipe:
    """Return the recipe that an index was created with: the one to fingerprint a text with for a search.

    An index that was created without naming one counts as made by the default recipe. Where the id does not say
    all of the recipe, as with a list of words or a table, give the `recipe` itself: it is returned if its id is
    that of the index. Raises UsageError if it is not, and if the id does not suffice; sqlalchemy.exc.DBAPIError
    with PostgreSQL's message: no index, more than one.
    """
    index = func.simsql._index(cast(table, REGCLASS), column).table_valued("column_name", "recipe")
    found = connection.execute(select(index.c.column_name, index.c.recipe)).one()
    return agreed_recipe(found.recipe, recipe, f"{table}({found.column_name})")


def agreed_recipe(recipe_id: str | None, given: Recipe | None, indexed: str) -> Recipe:
    """Return the recipe of this id or name, or the one given if it is this; None is the default recipe's.

    `indexed` names the table and the column in the message of the UsageError.
    """
    wanted = DEFAULT.id if recipe_id is None else recipe_id
    if given is not None:
        check_recipe(given)
        if given.id != wanted and KNOWN.get(wanted) != given:
            raise UsageError(
                f"the simhash index on {indexed} is of the recipe {wanted}, not {given.id}, and their fingerprints"
                " cannot be compared: give the recipe of the index, or drop it, make all fingerprints anew, and"
                " create it with the other recipe"
            )
        return given
    try:
        return Recipe.from_id(wanted)
    except ValueError as error:
        raise UsageError(f"the simhash index on {indexed}: {error}") from None
