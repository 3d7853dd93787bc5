"""Refuse to write with a model whose recipe is not that of the simhash index."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Connection

from simsql.database import recipes
from simsql.database.sources import Sources
from simsql.sqlalchemy.expressions import TableName
from simsql.sqlalchemy.sources import is_sketch

_TRANSLATION = "schema_translate_map"


def refuse_other_recipe(
    connection: Connection, column: Column[Any], sources: Sources, options: Mapping[str, Any] | None = None
) -> None:
    """Raise UsageError if the column's simhash index in the database certainly has a different recipe.

    If the sources have none, raise it if the column has other sketches. `options` are the execution options of the
    statement; by default, the connection's.
    """
    if connection.dialect.name != "postgresql":
        return
    table = column.table
    translation = (connection.get_execution_options() if options is None else options).get(_TRANSLATION) or {}
    key = translation.get(table.schema, table.schema), table.name
    sketches = [other.name for other in table.columns if is_sketch(other)]
    written = recipes.WrittenTable(key, table.name, TableName(table), sketches)
    given = {_TRANSLATION: translation} if translation else {}
    recipes.refuse_other_recipe(connection, written, column.name, sources.recipe_id, sources.revision, given)
