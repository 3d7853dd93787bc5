"""The statements that create and drop a simhash index with its table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, Text, cast, func, literal, literal_column, select
from sqlalchemy import column as name_column
from sqlalchemy import table as name_table
from sqlalchemy.dialects.postgresql import ARRAY, array
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler

from simsql.sqlalchemy.expressions import TableName

if TYPE_CHECKING:
    from simsql.sqlalchemy.index import SimhashIndex


def declared_indexes(table: Table) -> Iterator["SimhashIndex"]:
    """Yield the simhash indexes that a table declares."""
    for listener in table.dispatch.after_create:
        if isinstance(listener, CreateSimhashIndex):
            yield listener.index


class _IndexDDL(ExecutableDDLElement):
    def __init__(self, index: "SimhashIndex") -> None:
        self.index = index

    @property
    def table_name(self) -> TableName:
        if not isinstance(self.target, Table):
            raise ArgumentError(f"{type(self).__name__} needs a table: execute it .against(table)")
        return TableName(self.target)


class CreateSimhashIndex(_IndexDDL):
    """Create a simhash index on its target, a table."""


class DropSimhashIndex(_IndexDDL):
    """Drop a simhash index of its target, a table, if it is there."""


@compiles(CreateSimhashIndex, "postgresql")
def _render_create(element: CreateSimhashIndex, compiler: DDLCompiler, **_: Any) -> str:
    index, design = element.index, element.index.design
    options = {
        "distance": literal(index.distance),
        "blocks": literal(design.blocks) if design else None,
        "lead": literal(design.lead) if design else None,
        "inner_blocks": literal(design.inner_blocks) if design else None,
        "recipe": literal(index.recipe_id),
        "scope": cast(array([literal(name) for name in index.scope]), ARRAY(Text)) if index.scope else None,
    }
    named = [literal_column(name).op("=>")(value) for name, value in options.items() if value is not None]
    call = func.simsql.create_index(element.table_name, literal(index.column_name), *named)
    return compiler.sql_compiler.process(select(call), literal_binds=True)


@compiles(DropSimhashIndex, "postgresql")
def _render_drop(element: DropSimhashIndex, compiler: DDLCompiler, **_: Any) -> str:
    registry = name_table("registry", name_column("table_id"), name_column("column_name", Text), schema="simsql")
    call = func.simsql.drop_index(registry.c.table_id, registry.c.column_name)
    statement = select(call).where(
        registry.c.table_id == element.table_name, registry.c.column_name == element.index.column_name
    )
    return compiler.sql_compiler.process(statement, literal_binds=True)
