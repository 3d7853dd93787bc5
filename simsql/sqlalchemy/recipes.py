"""Refuse to write with a model whose recipe is not that of the simhash index."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Connection

from simsql.database import recipes
from simsql.database.sources import Sources
from simsql.sqlalchemy.expressions import TableName

_TRANSLATION = "schema_translate_map"


def refuse_other_recipe(
    connection: Connection, column: Column[Any], sources: Sources, options: Mapping[str, Any] | None = None
) -> None:
    """Raise UsageError if the index of a column has another recipe; `options` are by default the connection's."""
    if connection.dialect.name != "postgresql":
        return
    table = column.table
    translation = (connection.get_execution_options() if options is None else options).get(_TRANSLATION) or {}
    key = translation.get(table.schema, table.schema), table.name
    others = ((other.name, getattr(other.type, "sources", None)) for other in table.columns)
    sketches = [name for name, of_other in others if isinstance(of_other, Sources) and of_other.recipe is None]
    written = recipes.WrittenTable(key, table.name, TableName(table), sketches)
    given = {_TRANSLATION: translation} if translation else {}
    recipes.refuse_other_recipe(connection, written, column.name, sources.recipe_id, sources.revision, given)
