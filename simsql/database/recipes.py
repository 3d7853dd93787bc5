"""Refuse to write a fingerprint whose recipe is not that of the simhash index, for models.

A search passes its recipe along, and PostgreSQL compares it in the same statement. A write cannot: the database
may have no simsql, or the role may not use it. So the first fingerprint that is computed for a table sends a query
of its own, in the transaction of the write. Each dialect, of which an engine has one, remembers the answer for a
while.

Nothing is refused if the answer is not clear: no index, an index without a recipe or with a user's own name, no
simsql in the database, or no privilege to read its registry.
"""

import time
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import ColumnElement, Connection, Dialect, func, select, text
from sqlalchemy import column as name_column
from sqlalchemy import table as name_table
from sqlalchemy.exc import DontWrapMixin

from simsql.database.index_spec import differs_for_sure
from simsql.database.sketches import refuse_other_sketches
from simsql.errors import UsageError
from simsql.fingerprint import Revision

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


class WrittenTable(NamedTuple):
    """A table of a model, as the engine of a write names it."""

    key: Hashable
    """What tells it from other tables of the engine."""
    name: str
    """What errors call it."""
    regclass: ColumnElement[str]
    sketches: Sequence[str] = ()
    """The columns of sketches that the model has."""


# The recipes of each table as an engine names it. Engines that execution_options makes of one share its dialect.
_known: WeakKeyDictionary[Dialect, dict[Hashable, _Recipes]] = WeakKeyDictionary()


class _OtherRecipeError(DontWrapMixin, UsageError):
    """A UsageError that SQLAlchemy does not wrap if a column default raises it."""


def refuse_other_recipe(
    connection: Connection,
    table: WrittenTable,
    column: str,
    recipe: str | None,
    revision: Revision,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Raise UsageError if the index certainly has another recipe or, without one, the column other sketches."""
    # An error needs the current answer: the table or the index may have changed since.
    if not is_agreed(connection.dialect, table.key, column, recipe, revision):
        read = _read_recipes(connection, table, options or {})
        _known.setdefault(connection.dialect, {})[table.key] = read
        _refuse(read, f"{table.name}.{column}", column, recipe, revision)


def is_agreed(dialect: Dialect, key: Hashable, column: str, recipe: str | None, revision: Revision) -> bool:
    """Return whether this recipe was not refused when the table was last asked, less than a minute ago."""
    read = _known.get(dialect, {}).get(key)
    if read is None or time.monotonic() - read.read_at >= _REMEMBER:
        return False
    try:
        _refuse(read, "", column, recipe, revision)
    except _OtherRecipeError:
        return False
    return True


def _refuse(read: _Recipes, name: str, column: str, recipe: str | None, revision: Revision) -> None:
    if recipe is None:
        try:
            refuse_other_sketches(read.comments.get(column), name, revision)
        except UsageError as error:
            raise _OtherRecipeError(str(error)) from None
        return
    found = read.by_column.get(column)
    if differs_for_sure(found, recipe):
        raise _OtherRecipeError(
            f"{name}: the simhash index has recipe {found}, but the model fingerprints texts"
            f" with {recipe}, and these cannot be compared: give the column of the model the recipe of the"
            " index, or change the index in a migration"
        )


def _read_recipes(connection: Connection, table: WrittenTable, options: Mapping[str, Any]) -> _Recipes:
    comments: dict[str, str | None] = {}
    if table.sketches:
        of_table = _attributes.c.attrelid == table.regclass, _attributes.c.attname.in_(table.sketches)
        comment = func.pg_catalog.col_description(_attributes.c.attrelid, _attributes.c.attnum)
        statement = select(_attributes.c.attname, comment).where(*of_table)
        comments = dict(map(tuple, connection.execute(statement, execution_options=options)))
    if connection.execute(_READABLE).scalar_one() < len(_registry.columns):
        return _Recipes({}, comments, time.monotonic())
    registered = select(_registry.c.column_name, _registry.c.recipe).where(
        _registry.c.table_id == table.regclass, _registry.c.recipe.is_not(None)
    )
    rows = connection.execute(registered, execution_options=options)
    return _Recipes({row.column_name: row.recipe for row in rows}, comments, time.monotonic())
