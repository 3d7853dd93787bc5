"""Refuse a model whose recipe is not that of the simhash index, in searches for texts and in writes.

A search passes its recipe along, and PostgreSQL compares it in the same statement. A write cannot: the database
may have no simsql, or the role may not use it. So the first fingerprint that is computed for a table sends a query
of its own, in the transaction of the write. Each engine remembers the answer for a while.

Nothing is refused if the answer is not clear: no index, an index without a recipe or with a user's own name, and
in a write, no simsql in the database or no privilege to read its registry.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Table,
    Text,
    func,
    literal,
    select,
    text,
)
from sqlalchemy import column as name_column
from sqlalchemy import table as name_table
from sqlalchemy.exc import DontWrapMixin

from simsql.database.index_spec import differs_for_sure, other_recipes
from simsql.database.sketches import refuse_other_sketches
from simsql.errors import UsageError
from simsql.fingerprint import Recipe
from simsql.sqlalchemy.expressions import TableName
from simsql.sqlalchemy.sources import is_sketch

_TRANSLATION = "schema_translate_map"
_REMEMBER = 60.0  # seconds

# A failed statement would abort the transaction. This one cannot fail, because it names no object of simsql.
_READABLE = text(
    "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class AS c"
    " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
    " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid"
    " WHERE n.nspname = 'simsql' AND c.relname = 'registry'"
    " AND a.attname IN ('table_id', 'column_name', 'recipe')"
    " AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT')"
)
_registry = name_table("registry", *map(name_column, ("table_id", "column_name", "recipe")), schema="simsql")


class _Recipes(NamedTuple):
    """The recipes of a table's indexes, and the comments of its sketches, by column."""

    by_column: Mapping[str, str]
    comments: Mapping[str, str | None]
    read_at: float


_attributes = name_table("pg_attribute", *map(name_column, ("attrelid", "attname", "attnum")), schema="pg_catalog")

# The recipes of each table as an engine names it. Engines that execution_options makes of one share its dialect.
_known: WeakKeyDictionary[Dialect, dict[tuple[str | None, str], _Recipes]] = WeakKeyDictionary()


class _OtherRecipeError(DontWrapMixin, UsageError):
    """A UsageError that SQLAlchemy does not wrap if a column default raises it."""


def of_recipe(fingerprint: ColumnElement[int], indexed: Column[Any], recipe: Recipe) -> ColumnElement[int]:
    """Return the fingerprint of a text as an expression that raises an error if the index has another recipe."""
    return func.simsql._of_recipe(
        fingerprint,
        TableName(indexed.table),
        *(literal(value, Text()) for value in (str(indexed.name), recipe.id, other_recipes(recipe.id))),
        type_=fingerprint.type,
    )


def refuse_other_recipe(
    connection: Connection, column: Column[Any], recipe: Recipe | None, options: Mapping[str, Any] | None = None
) -> None:
    """Raise UsageError if the column's simhash index in the database certainly has a different recipe.

    Without a recipe, raise it if the column has other sketches. `options` are the execution options of the
    statement; by default, the connection's.
    """
    if connection.dialect.name != "postgresql":
        return
    table = column.table
    translation = (connection.get_execution_options() if options is None else options).get(_TRANSLATION) or {}
    known = _known.setdefault(connection.dialect, {})
    key = translation.get(table.schema, table.schema), table.name
    read = known.get(key)
    if read is not None and time.monotonic() - read.read_at < _REMEMBER:
        try:
            _refuse(read, column, recipe)
        except _OtherRecipeError:
            pass  # an error needs the current answer: the table or the index may have changed since
        else:
            return
    read = known[key] = _read_recipes(connection, table, translation)
    _refuse(read, column, recipe)


def _refuse(read: _Recipes, column: Column[Any], recipe: Recipe | None) -> None:
    name = f"{column.table.name}.{column.name}"
    if recipe is None:
        try:
            refuse_other_sketches(read.comments.get(column.name), name)
        except UsageError as error:
            raise _OtherRecipeError(str(error)) from None
        return
    found = read.by_column.get(column.name)
    if differs_for_sure(found, recipe):
        raise _OtherRecipeError(
            f"{name}: the simhash index has recipe {found}, but the model fingerprints texts"
            f" with {recipe.id}, and these cannot be compared: pass the recipe of the index to Fingerprint, or"
            " change the index in a migration (alembic revision --autogenerate)"
        )


def _read_recipes(connection: Connection, table: Table, translation: Mapping[Any, Any]) -> _Recipes:
    options = {_TRANSLATION: translation} if translation else {}
    comments: dict[str, str | None] = {}
    sketched = [column.name for column in table.columns if is_sketch(column)]
    if sketched:
        of_table = _attributes.c.attrelid == TableName(table), _attributes.c.attname.in_(sketched)
        comment = func.pg_catalog.col_description(_attributes.c.attrelid, _attributes.c.attnum)
        statement = select(_attributes.c.attname, comment).where(*of_table)
        comments = dict(map(tuple, connection.execute(statement, execution_options=options)))
    if connection.execute(_READABLE).scalar_one() < len(_registry.columns):
        return _Recipes({}, comments, time.monotonic())
    registered = select(_registry.c.column_name, _registry.c.recipe).where(
        _registry.c.table_id == TableName(table), _registry.c.recipe.is_not(None)
    )
    rows = connection.execute(registered, execution_options=options)
    return _Recipes({row.column_name: row.recipe for row in rows}, comments, time.monotonic())
