"""DDL elements that create, build and drop a simhash index, with its table or in a migration."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Table, Text, func, literal, select
from sqlalchemy import column as name_column
from sqlalchemy import table as name_table
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler

from simsql.database.index_spec import IndexSpec
from simsql.sqlalchemy.expressions import TableName


class DeclaredIndex(NamedTuple):
    """A simhash index as a model declares it, with column names and recipe filled in."""

    spec: IndexSpec
    names_recipe: bool
    """Whether the model names the recipe; else it is the default one."""


class _IndexDDL(ExecutableDDLElement):
    @property
    def table_name(self) -> TableName:
        if not isinstance(self.target, Table):
            raise ArgumentError(f"{type(self).__name__} needs a table: execute it .against(table)")
        return TableName(self.target)


class CreateSimhashIndex(_IndexDDL):
    """Create a simhash index on its target, a table. `names_recipe` tells whether the model names the recipe."""

    def __init__(self, spec: IndexSpec, *, names_recipe: bool = False) -> None:
        self.spec = spec
        self.names_recipe = names_recipe


class BuildSimhashIndex(_IndexDDL):
    """Build a simhash index on its target, a table, while others write. Run it outside a transaction."""

    def __init__(self, spec: IndexSpec) -> None:
        self.spec = spec


class DropSimhashIndex(_IndexDDL):
    """Drop a simhash index of its target, a table."""

    def __init__(self, column: str, *, if_exists: bool = False) -> None:
        self.column = column
        self.if_exists = if_exists


def declared_indexes(table: Table) -> Iterator[DeclaredIndex]:
    """Yield the simhash indexes that a table declares."""
    for listener in table.dispatch.after_create:
        if isinstance(listener, CreateSimhashIndex):
            yield DeclaredIndex(listener.spec, listener.names_recipe)


@compiles(CreateSimhashIndex, "postgresql")
def _render_create(element: CreateSimhashIndex, compiler: DDLCompiler, **_: Any) -> str:
    call = func.simsql.create_index(element.table_name, *element.spec.arguments())
    return "SELECT " + compiler.sql_compiler.process(call, literal_binds=True)


@compiles(BuildSimhashIndex, "postgresql")
def _render_build(element: BuildSimhashIndex, compiler: DDLCompiler, **_: Any) -> str:
    call = func.simsql.build(element.table_name, *element.spec.arguments())
    return "CALL " + compiler.sql_compiler.process(call, literal_binds=True)


@compiles(DropSimhashIndex, "postgresql")
def _render_drop(element: DropSimhashIndex, compiler: DDLCompiler, **_: Any) -> str:
    if not element.if_exists:
        call = func.simsql.drop_index(element.table_name, literal(element.column, Text()))
        return "SELECT " + compiler.sql_compiler.process(call, literal_binds=True)
    registry = name_table("registry", name_column("table_id"), name_column("column_name", Text), schema="simsql")
    statement = select(func.simsql.drop_index(registry.c.table_id, registry.c.column_name)).where(
        registry.c.table_id == element.table_name, registry.c.column_name == element.column
    )
    return compiler.sql_compiler.process(statement, literal_binds=True)
