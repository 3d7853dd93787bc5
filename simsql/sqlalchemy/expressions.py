"""Build the parts of statements: a table as a regclass, and a call of a search function."""

from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias

from sqlalchemy import (
    Column,
    ColumnElement,
    SQLColumnExpression,
    Table,
    Text,
    cast,
    column,
    func,
    literal,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import REGCLASS
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import QueryableAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.selectable import FromClause, TableValuedAlias
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import Integer, NullType, TypeEngine

from simsql.hamming._checks import is_missing

# A fingerprint in [0, 2**64), an expression that gives one, or None or a masked element: a text without words.
FingerprintArgument: TypeAlias = SupportsIndex | SQLColumnExpression[Any] | None
# A text, or one for each source of a column, by its name.
TextArgument: TypeAlias = str | Mapping[str, str | None]
Scope: TypeAlias = Mapping[str, Any]


class TableName(ColumnElement[str]):
    """A table as a regclass literal, with the same name as in the surrounding statement."""

    # The table is no child: whoever replaces a statement's tables by aliases leaves it alone. It stands in a tuple
    # because the key of a cached statement asks plain objects for their truth, which a table does not tell.
    _traverse_internals = [("named", InternalTraversal.dp_plain_obj)]  # noqa: RUF012 - declared so by SQLAlchemy
    type = REGCLASS()

    def __init__(self, table: Table) -> None:
        self.named = (table,)

    def get_children(self, **_: Any) -> tuple[Table, ...]:
        """Return the table to read-only visitors, such as a Session that chooses an engine by it."""
        return self.named


@compiles(TableName)
def _render_table_name(element: TableName, compiler: SQLCompiler, **_: Any) -> str:
    (table,) = element.named
    name = compiler.preparer.format_table(table)
    # A schema_translate_map puts another schema's name in later, as an identifier: it may hold a single quote,
    # which nothing doubles, and hardly this tag. And a backslash means something else where
    # standard_conforming_strings is off.
    if not any(mark in name for mark in ("'", "\\", "__[SCHEMA_")):
        return f"'{name}'::regclass"
    tag = "$simsql_table$"
    while tag in name:
        tag = f"$_{tag[1:]}"
    return f"{tag}{name}{tag}::regclass"


def root_column(expression: ColumnElement[Any]) -> Column[Any]:
    """Return the table column of an expression, found directly or through aliases and subqueries.

    Raises ArgumentError unless there is exactly one.
    """
    roots = root_columns(expression)
    if len(roots) != 1:
        raise ArgumentError(
            f"{expression} is not a column of one table, so it has no simhash index: search for the column itself"
        )
    return roots[0]


def root_columns(expression: ColumnElement[Any]) -> list[Column[Any]]:
    """Return the possible table columns of an expression, found directly or through aliases and subqueries."""
    return [root for root in expression.base_columns if isinstance(root, Column) and isinstance(root.table, Table)]


def as_fingerprint(argument: FingerprintArgument, type_: TypeEngine[int]) -> ColumnElement[int]:
    """Return an expression as it is, and any other value as an expression of this type."""
    if isinstance(argument, QueryableAttribute):
        return argument.expression
    if isinstance(argument, ColumnElement) and not isinstance(argument.type, NullType):
        return argument
    return type_coerce(None if is_missing(argument) else argument, type_)


def table_column(table: Table, name: str, what: str) -> Column[Any]:
    """Return a column by its key in the table; ArgumentError, beginning with `what`, if there is none."""
    found = table.columns.get(name)
    if found is None:
        raise ArgumentError(
            f"{what}: table {table.fullname} has no column {name!r}; it has {', '.join(table.columns.keys())}"
        )
    return found


def search(
    function: str,
    indexed: Column[Any],
    arguments: Sequence[ColumnElement[Any]],
    distance: int | None,
    scope: Scope | None,
    found: Mapping[str, TypeEngine[Any]],
) -> TableValuedAlias:
    """Return a call of a search function of simsql, as a FROM element with the columns `found`."""
    call = getattr(func.simsql, function)(
        TableName(indexed.table),
        *arguments,
        literal(distance, Integer()),
        literal(str(indexed.name), Text()),
        *([] if scope is None else [_scope_values(indexed.table, scope)]),
    )
    valued: TableValuedAlias = call.table_valued(*(column(name, type_) for name, type_ in found.items()))
    return valued


def in_scope(expression: ColumnElement[Any], scope: Scope | None) -> list[ColumnElement[bool]]:
    """Return the conditions that the row of the fingerprint `expression` is in the scope.

    Rows of other scopes can have the same fingerprint, and the B-tree on the rows begins with the scope.
    """
    table = root_column(expression).table
    around: FromClause = getattr(expression, "table", table)
    conditions: list[ColumnElement[bool]] = []
    for name, value in (scope or {}).items():
        of_table = table_column(table, name, "scope")
        beside = around.corresponding_column(of_table)
        if beside is None:
            raise ArgumentError(
                f"scope: the source of {expression} lacks the column {name!r} of {table.fullname}:"
                " select that column, too"
            )
        conditions.append(beside == _as_held(value, of_table))
    return conditions


def _scope_values(table: Table, scope: Scope) -> ColumnElement[Any]:
    """Return the values as jsonb, each in the form of its column's type; ArgumentError for None."""
    pairs: list[ColumnElement[Any]] = []
    for name, value in scope.items():
        of_table = table_column(table, name, "scope")
        if value is None:
            raise ArgumentError(f"scope: {name!r} must not be None: rows with a null there are not indexed")
        # PostgreSQL has to know the type of each argument, and no function's signature tells it.
        pairs += [literal(str(of_table.name), Text()), _as_held(value, of_table)]
    return func.jsonb_build_object(*pairs)


def _as_held(value: Any, of_table: Column[Any]) -> ColumnElement[Any]:
    """Return a value in the form of a column's type: a text becomes a number if the column holds numbers."""
    return cast(type_coerce(value, of_table.type), of_table.type)
