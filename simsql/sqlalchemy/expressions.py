"""SQL that columns, indexes, searches and migrations share: tables, calls of search functions, DDL elements."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    ClauseElement,
    Column,
    ColumnElement,
    Select,
    SQLColumnExpression,
    Table,
    Text,
    cast,
    func,
    literal,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy import column as name_column
from sqlalchemy import table as name_table
from sqlalchemy.dialects.postgresql import ARRAY, REGCLASS
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import QueryableAttribute
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.selectable import FromClause, TableValuedAlias
from sqlalchemy.sql.visitors import InternalTraversal
from sqlalchemy.types import Integer, NullType, TypeEngine

from simsql.arrays.checks import is_missing
from simsql.arrays.columns import OneFingerprint
from simsql.database.bigint import Scope
from simsql.database.index_spec import IndexSpec
from simsql.errors import UsageError
from simsql.sqlalchemy.sources import source_columns

# A fingerprint in any of its forms, an expression with one, or None or a masked element for a text without words.
FingerprintArgument: TypeAlias = OneFingerprint | SQLColumnExpression[Any]


class _QueryError(ArgumentError, UsageError):
    """A UsageError as SQLAlchemy's functions raise it."""


@contextmanager
def argument_errors() -> Iterator[None]:
    """Raise a UsageError as an ArgumentError, too."""
    try:
        yield
    except UsageError as error:
        raise _QueryError(str(error)) from None


class TableName(ColumnElement[str]):
    """A table as a regclass literal, with the same name as in the surrounding statement."""

    # The table is not a child, so that replacing a statement's tables by aliases does not affect it. It is in a
    # tuple because SQLAlchemy's statement cache takes the truth value of plain objects, and a table has none.
    _traverse_internals = [("named", InternalTraversal.dp_plain_obj)]  # noqa: RUF012 - declared so by SQLAlchemy
    type = REGCLASS()

    def __init__(self, table: Table) -> None:
        self.named = (table,)

    def get_children(self, **_: Any) -> tuple[Table, ...]:
        """Return the table to read-only visitors, such as a Session that chooses an engine by it."""
        return self.named


@compiles(TableName)
def _render_table_name(element: TableName, compiler: SQLCompiler, **_: Any) -> str:
    # Without a dialect of a database, as in str(statement), it is "default".
    if compiler.dialect.name not in ("postgresql", "default"):
        raise _QueryError(f"simsql searches in PostgreSQL, and this database is {compiler.dialect.name}")
    (table,) = element.named
    name = compiler.preparer.format_table(table)
    # A schema_translate_map inserts the name of another schema later, as an identifier. It may contain a single
    # quote, which would not be doubled, but hardly this tag. And the meaning of a backslash depends on
    # standard_conforming_strings.
    if not any(mark in name for mark in ("'", "\\", "__[SCHEMA_")):
        return f"'{name}'::regclass"
    tag = "$simsql_table$"
    while tag in name:
        tag = f"$_{tag[1:]}"
    return f"{tag}{name}{tag}::regclass"


def root_column(expression: ColumnElement[Any]) -> Column[Any]:
    """Return the one table column of an expression, found directly or through aliases and subqueries."""
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
    """Return an expression unchanged, and any other value as an expression of this type."""
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
    searched: ColumnElement[Any],
    arguments: Sequence[ColumnElement[Any]],
    scope: Scope | None,
    found: Mapping[str, TypeEngine[Any]],
    words: Sequence[str] | None = None,
) -> "Select[*tuple[Any, ...]]":
    """Return a SELECT of the columns `found` from a call of a search function of simsql.

    `arguments` are those between the table and the column. `words` are the columns of near_wide, of which
    `searched` is one.

    Citus would send a statement that reads one shard to its worker as a whole, with the search in it, and workers
    have no simhash indexes. But it runs a subquery that reads a local table on the coordinator. So the registry is
    joined, whose ids begin with 1. PostgreSQL removes this join when it plans the statement.
    """
    indexed = root_column(searched)
    call = getattr(func.simsql, function)(
        TableName(indexed.table),
        *arguments,
        literal(words, ARRAY(Text())) if words else literal(str(indexed.name), Text()),
        *([] if scope is None else [_scope_values(indexed.table, scope)]),
    )
    # The columns are named. When SQLAlchemy copies the statement to load a relationship, a column object would
    # bring its function call along a second time.
    alias = f"simsql_{function}"
    called: TableValuedAlias = call.alias(alias)
    columns = [literal_column(f"{alias}.{name}", type_).label(name) for name, type_ in found.items()]
    local = name_table("registry", name_column("id", Integer), schema="simsql").alias()
    joined = called.outerjoin(local, local.c.id == literal_column("0"))
    # A null finds nothing. The condition is for SQLAlchemy, which would warn of a cartesian product: it connects
    # the search with the table that it depends on.
    depends_on = [value.is_not(None) for value in correlated(searched, arguments, scope)]
    return select(*columns).select_from(joined).where(*depends_on).correlate_except(joined)


def correlated(
    searched: ColumnElement[Any], arguments: Sequence[ColumnElement[Any]], scope: Scope | None
) -> list[ColumnElement[Any]]:
    """Return the arguments and scope values of a search that depend on rows of another table."""
    values = {name: type_coerce(value, NullType()) for name, value in (scope or {}).items()}
    for name, value in values.items():
        if not set(value._from_objects).isdisjoint(searched._from_objects):
            raise ArgumentError(
                f"scope: {name!r} is a column of the searched rows, so each row would need a search of its own:"
                " pass a value, or a column of another table or alias, and join near(...).lateral() to that table"
            )
    return [value for value in (*arguments, *values.values()) if value._from_objects]


_OF_ENTITY = {"parententity", "parentmapper", "entity_namespace"}


def beside(expression: ColumnElement[Any], of_table: Column[Any]) -> ColumnElement[Any]:
    """Return another column of the rows of a fingerprint `expression`, also of an alias or a subquery."""
    around: FromClause = getattr(expression, "table", of_table.table)
    found = around.corresponding_column(of_table)
    if found is None:
        raise ArgumentError(
            f"the source of {expression} lacks the column {of_table.key!r} of {of_table.table.fullname}:"
            " select that column, too"
        )
    # As a part of the entity, so that SQLAlchemy adapts it to an alias as it does the fingerprint.
    return found._annotate({key: part for key, part in expression._annotations.items() if key in _OF_ENTITY})


def in_scope(expression: ColumnElement[Any], scope: Scope | None) -> list[ColumnElement[bool]]:
    """Return the conditions that the row of the fingerprint `expression` is in the scope.

    Rows of other scopes can have the same fingerprint, and the B-tree on the rows begins with the scope.
    """
    table = root_column(expression).table
    of_table = [(table_column(table, name, "scope"), value) for name, value in (scope or {}).items()]
    return [beside(expression, column) == _as_held(value, column) for column, value in of_table]


def _scope_values(table: Table, scope: Scope) -> ColumnElement[Any]:
    """Return the values as jsonb, each in the form of its column's type; ArgumentError for None."""
    pairs: list[ColumnElement[Any]] = []
    for name, value in scope.items():
        of_table = table_column(table, name, "scope")
        if value is None:
            raise ArgumentError(f"scope: {name!r} must not be None: rows with a null there are not indexed")
        # The arguments need types, because the signature of jsonb_build_object has none.
        pairs += [literal(str(of_table.name), Text()), _as_held(value, of_table)]
    # In full: a function of another role for these types would be preferred to this one for any types.
    return func.pg_catalog.jsonb_build_object(*pairs)


def _as_held(value: Any, of_table: Column[Any]) -> ColumnElement[Any]:
    """Return a value in the form of a column's type: a text becomes a number if the column holds numbers."""
    return cast(type_coerce(value, of_table.type), of_table.type)


class DeclaredIndex(NamedTuple):
    """A simhash index as the model of a table declares it, with column names and recipe filled in."""

    given: IndexSpec
    names_recipe: bool
    """Whether the model names the recipe; else it is the default one."""
    names_sources: bool
    """Whether the model names the sources of the index; else they are those of the column."""
    table: Table

    @property
    def column(self) -> Column[Any]:
        """The fingerprint column."""
        return next(column for column in self.table.columns if column.name == self.given.column)

    @property
    def spec(self) -> IndexSpec:
        """The description, with the sources of the column if the model does not name them."""
        sources = None if self.names_sources else source_columns(self.column)
        return replace(self.given, sources=tuple(sources.items())) if sources else self.given


_NO_SCHEMA = "3F000"  # the SQLSTATE invalid_schema_name


class SimhashIndexDDL(ExecutableDDLElement):
    """A call of a function of simsql for its target, a table, with these arguments after the table."""

    def __init__(self, function: str, *arguments: str | int | ColumnElement[Any]) -> None:
        self.function = function
        self.arguments = [
            value
            if isinstance(value, ColumnElement)
            else literal(value, Text() if isinstance(value, str) else BigInteger())
            for value in arguments
        ]

    def _call(self, table: TableName) -> tuple[str, ClauseElement]:
        """Return the statement as a keyword, if there is one, and an expression."""
        return "SELECT ", getattr(func.simsql, self.function)(table, *self.arguments)


@compiles(SimhashIndexDDL, "postgresql")
def _render_ddl(element: SimhashIndexDDL, compiler: DDLCompiler, **_: Any) -> str:
    if not isinstance(element.target, Table):
        raise ArgumentError(f"{type(element).__name__} needs a table: execute it .against(table)")
    keyword, expression = element._call(TableName(element.target))
    return keyword + compiler.sql_compiler.process(expression, literal_binds=True)


class CreateSimhashIndex(SimhashIndexDDL):
    """Create a simhash index: `concurrently`, while others write and outside a transaction.

    `names_recipe` and `names_sources` tell whether the model names them; a migration does.
    """

    def __init__(
        self,
        spec: IndexSpec,
        *,
        names_recipe: bool = True,
        names_sources: bool = True,
        concurrently: bool = False,
    ) -> None:
        self.spec = spec
        self.names = names_recipe, names_sources
        self.concurrently = concurrently

    def _call(self, table: TableName) -> tuple[str, ClauseElement]:
        arguments = DeclaredIndex(self.spec, *self.names, *table.named).spec.arguments()
        if self.concurrently:
            return "CALL ", func.simsql.build(table, *arguments)
        return "SELECT ", func.simsql.create_index(table, *arguments)

    def __call__(self, target: Any, bind: Any, **options: Any) -> None:
        """Create the index as a listener of its table; UsageError without simsql in the database."""
        try:
            super().__call__(target, bind, **options)  # type: ignore[no-untyped-call]
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _NO_SCHEMA:
                raise
            raise UsageError(
                f"the simhash index on {target.fullname} needs simsql, which this database does not have: run"
                " simsql install, or call simsql.database.install_schema(engine), before create_all"
            ) from error


class DropSimhashIndexIfExists(SimhashIndexDDL):
    """Drop the simhash index of a column, if there is one."""

    def _call(self, table: TableName) -> tuple[str, ClauseElement]:
        registry = name_table("registry", name_column("table_id"), name_column("column_name"), schema="simsql")
        dropped = select(func.simsql.drop_index(registry.c.table_id, registry.c.column_name))
        return "", dropped.where(registry.c.table_id == table, registry.c.column_name == self.arguments[0])


def declared_indexes(table: Table) -> Iterator[DeclaredIndex]:
    """Yield the simhash indexes that a table declares."""
    for listener in table.dispatch.after_create:
        if isinstance(listener, CreateSimhashIndex):
            yield DeclaredIndex(listener.spec, *listener.names, table)
