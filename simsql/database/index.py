"""Create and drop simhash indexes: thin calls of the SQL functions."""

from collections.abc import Sequence

from sqlalchemy import Connection, text

from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.hamming import Design


def create_index(
    connection: Connection,
    table: str,
    column: str,
    *,
    distance: int = 3,
    design: Design | None = None,
    recipe: Recipe | str = DEFAULT_RECIPE,
    scope: Sequence[str] = (),
) -> int:
    """Index the fingerprints of a bigint column, in the connection's transaction; return the index's id.

    `table` is a name as SQL writes it, with its schema and quotes where needed. Writers of the table wait
    until the transaction ends. `distance` (0 to 64) is what searches use that name none; the layout is
    `design`, chosen by the table's rows where there is none. The id of `recipe` is kept with the index, so that
    a search by text makes the same fingerprints; for fingerprints that are not made of texts, give a name of your
    own, such as "phash64". `scope` are the unquoted names of up to four columns to whose
    values every search is confined; rows with a null in one of them are in no scope. Raises
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such table or column, not bigint, a kind of table that
    cannot be indexed or a type that cannot be a scope, missing rights, an isolation level other than READ
    COMMITTED.
    """
    statement = text(
        "SELECT simsql.create_index(CAST(:table AS regclass), :column, distance => :distance,"
        " blocks => :blocks, lead => :lead, inner_blocks => :inner_blocks, recipe => :recipe,"
        " scope => CAST(:scope AS text[]))"
    )
    parameters = {
        "table": table,
        "column": column,
        "distance": distance,
        "blocks": design.blocks if design else None,
        "lead": design.lead if design else None,
        "inner_blocks": design.inner_blocks if design else None,
        "recipe": recipe.id if isinstance(recipe, Recipe) else recipe,
        "scope": list(scope),
    }
    index: int = connection.execute(statement, parameters).scalar_one()
    return index


def drop_index(connection: Connection, table: str, column: str | None = None) -> None:
    """Drop the simhash index of a column; the column itself and its B-tree stay.

    The column may be left out where the table has one index. Raises sqlalchemy.exc.DBAPIError if there is none.
    """
    connection.execute(
        text("SELECT simsql.drop_index(CAST(:table AS regclass), CAST(:column AS text))"),
        {"table": table, "column": column},
    )
