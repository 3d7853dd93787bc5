"""What models declare: the type of a fingerprint column, and the simhash index of a table.

A fingerprint is unsigned in Python and a bigint in PostgreSQL.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    any_,
    event,
    func,
    literal,
)
from sqlalchemy.exc import ArgumentError, SAWarning
from sqlalchemy.schema import SchemaItem
from sqlalchemy.sql.base import SchemaEventTarget
from sqlalchemy.types import TypeDecorator

from simsql.database.index_spec import IndexSpec, Storage, agreed_recipe, other_recipes
from simsql.database.query import NOT_GIVEN, NotGiven, Query, RowOptions, RowQuery
from simsql.database.sources import Extract, Sources, add_extract, fingerprint_text
from simsql.fingerprint import DEFAULT_RECIPE, Recipe, check_recipe
from simsql.hamming import Design
from simsql.hamming.planner import usual_designs
from simsql.sqlalchemy.columns import Bits64, is_similar
from simsql.sqlalchemy.expressions import (
    CreateSimhashIndex,
    DropSimhashIndexIfExists,
    FingerprintArgument,
    TableName,
    argument_errors,
    as_fingerprint,
    correlated,
    declared_indexes,
    in_scope,
    root_column,
    root_columns,
    search,
    table_column,
)

_REPEATED = (
    ".near() of a column of another table is slow under row-level security, where PostgreSQL repeats the search"
    " for every pair of rows. Fast for every role:"
    " select(Other, n).join(n := near(Article.fingerprint, Other.fingerprint).lateral(), true())"
)


class _Comparator(TypeDecorator.Comparator[int]):
    """The expressions of a fingerprint column, also through aliases and subclasses."""

    __slots__ = ()

    def hamming_distance(self, other: FingerprintArgument) -> ColumnElement[int]:
        """Return the number of bits, 0 to 64, in which two fingerprints differ; NULL if one is NULL.

        `other` is a number in [0, 2**64), a column or another expression. Raises sqlalchemy.exc.ArgumentError for
        a column with a different recipe.
        """
        compared = as_fingerprint(other, Fingerprint())
        _check_comparable(self.expr, compared)
        return func.simsql.hamming_distance(self.expr, compared, type_=Integer())

    @argument_errors()
    def near(
        self,
        fingerprint: FingerprintArgument | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        **options: Unpack[RowOptions],
    ) -> ColumnElement[bool]:
        """Return the condition that a row's fingerprint is within the distance, answered by its simhash index.

        Use it in WHERE, in the ON clause of a join, in an UPDATE or DELETE. Takes the arguments of
        `simsql.sqlalchemy.near` and raises its errors.

        Emits a SAWarning for a column of another table, which is slow under row-level security: join
        `near(...).lateral()` instead.
        """
        query = RowQuery(fingerprint, distance, **options)
        wanted = as_expression(self.expr, query)
        arguments = [wanted, literal(query.distance, Integer())]
        matches = search("near", self.expr, arguments, query.scope, {"fingerprint": Fingerprint()})
        if correlated(self.expr, [wanted], query.scope):
            warnings.warn(_REPEATED, SAWarning, stacklevel=3)
        # As an array it is one condition of an index scan, also beside OR, and for each row of another table.
        array = func.array(matches.scalar_subquery())
        similar = is_similar(self.expr, query)
        return and_(self.expr.bool_op("=")(any_(array)), *in_scope(self.expr, query.scope), *similar)


class Fingerprint(Bits64):
    """A 64-bit fingerprint: an int in [0, 2**64) in Python, the bigint with the same bits in PostgreSQL.

    source
        The attribute whose text is fingerprinted, or several with their weights, such as `{"title": 3, "body":
        1}`: see `simsql.fingerprint.simhash_parts`. If the column is mapped to a class, the ORM computes the
        fingerprint whenever it inserts an object, or updates one whose source has changed, unless you assigned a
        fingerprint. INSERT statements with the texts also compute it: see the writes that bypass the unit of work
        in docs/reference/sqlalchemy.md. The fingerprint of a text without words is None.
    recipe
        How a text becomes a fingerprint; by default, simsql's default recipe.
    extract
        A function that makes a text, or None, of the value of a source, if that is HTML or JSON, such as
        `simsql.visible_text`. It is a function of a module: its name is stored with the recipe of the index, and
        only processes that have it fill the column. Searches for a text do not call it.

    Raises ValueError for an empty source or a weight outside of 1 to 1,000,000, and TypeError for a recipe that is
    not a Recipe, such as an id.

    Comparisons such as `<` and ORDER BY compare the bigint: numbers from 2**63 on come first.
    """

    __module__ = "simsql.sqlalchemy"

    cache_ok = True
    comparator_factory = _Comparator

    def __init__(
        self,
        source: str | Mapping[str, int] | None = None,
        recipe: Recipe | None = None,
        *,
        extract: Extract | None = None,
    ) -> None:
        self.recipe = DEFAULT_RECIPE if recipe is None else recipe
        check_recipe(self.recipe)
        self.names_recipe = recipe is not None
        self.extract = extract
        super().__init__(None if source is None else Sources.of(source, self.recipe, extract))

    @property
    def known_recipe(self) -> str | None:
        """The id of the recipe; None without a recipe and a source, when others compute the fingerprints."""
        return self.recipe.id if self.names_recipe or self.sources is not None else None


def as_expression(searched: ColumnElement[Any], query: Query) -> ColumnElement[int]:
    """Return the fingerprint of a query as an expression; a text gets the one it has in the searched column."""
    if query.text is None:
        fingerprint = as_fingerprint(query.fingerprint, Fingerprint())
        _check_comparable(searched, fingerprint)
        return fingerprint
    recipe = find_recipe(searched, query.recipe)
    number = literal(fingerprint_text(query.text, sources_of(searched), recipe, str(searched)), Fingerprint())
    # PostgreSQL raises an error if the index has one of these, or an unknown recipe and nobody names theirs.
    others = other_recipes(recipe.id, is_named=query.recipe is not None or _named_recipe(searched) is not None)
    indexed = root_column(searched)
    names = (literal(name, Text()) for name in (str(indexed.name), recipe.id, others))
    return func.simsql._of_recipe(number, TableName(indexed.table), *names, type_=number.type)


def find_designs(searched: ColumnElement[Any]) -> Sequence[Design]:
    """Return the designs that the index of a column may have, by the model; ArgumentError without an index."""
    indexed = root_column(searched)
    declared = (index.given for index in declared_indexes(indexed.table) if index.given.column == indexed.name)
    index = next(declared, None)
    if index is None:
        raise ArgumentError(
            f"a search for similar texts depends on the design of the index, and no model declares the index on"
            f" {searched}: add SimhashIndex({indexed.key!r}, ...) to its table, or use SearchIndex.similar"
        )
    return [index.design] if index.design else usual_designs(index.distance)


def sources_of(searched: ColumnElement[Any]) -> Sources | None:
    """Return the sources of a fingerprint column."""
    return searched.type.sources if isinstance(searched.type, Fingerprint) else None


def find_recipe(searched: ColumnElement[Any], given: Recipe | None) -> Recipe:
    """Return the recipe of a column: the given one, or that of its type or its index, or the default one."""
    of_type = isinstance(searched.type, Fingerprint) and searched.type.known_recipe is not None
    if given is None and (of_type or _named_recipe(searched) is None):
        return searched.type.recipe if isinstance(searched.type, Fingerprint) else DEFAULT_RECIPE
    return agreed_recipe(_known_recipe(searched) or DEFAULT_RECIPE.id, given, str(searched))


def _check_comparable(one: ColumnElement[Any], other: ColumnElement[Any]) -> None:
    """Raise ArgumentError if the models declare different recipes for the fingerprints of two expressions."""
    recipes = [_known_recipe(expression) for expression in (one, other)]
    if None not in recipes and recipes[0] != recipes[1]:
        raise ArgumentError(
            f"{one} has the recipe {recipes[0]}, but {other} has {recipes[1]}: their fingerprints cannot be"
            " compared; recompute one column with the recipe of the other"
        )


def _known_recipe(expression: ColumnElement[Any]) -> str | None:
    of_type = expression.type.known_recipe if isinstance(expression.type, Fingerprint) else None
    return of_type or _named_recipe(expression)


def _named_recipe(expression: ColumnElement[Any]) -> str | None:
    """Return the id of the recipe that a model names for a column or its index."""
    if isinstance(expression.type, Fingerprint) and expression.type.names_recipe:
        return expression.type.recipe.id
    for column in root_columns(expression):
        for index in declared_indexes(column.table):
            if index.given.column == column.name and index.names_recipe:
                return index.given.recipe
    return None


class SimhashIndex(SchemaItem):
    """A simhash index on a fingerprint column, as an item of `__table_args__` or `Table(...)`.

    column
        The key of the column in its table.
    distance
        The default distance of searches, between 0 and 64. The index is designed for it.
    design
        The design; with None, PostgreSQL chooses it by the number of rows when the index is created.
    scope
        The keys of the columns that confine searches, such as that of a tenant.
    recipe
        How the fingerprints are computed; by default, the recipe of the column's `Fingerprint`. If they do not
        come from texts, a name of your own, such as "phash64".
    storage
        "tables", or "expression" for B-trees on the table itself; by default, "expression" for partitioned tables
        and "tables" for others.
    sources
        The key of the column of the texts, or several with their weights; by default, the sources of the column's
        `Fingerprint`. They are stored with the index, whose trigger clears a fingerprint whose text alone changes;
        with {} it knows none and has no trigger.

    `metadata.create_all` and `drop_all` create and drop the index with its table, in PostgreSQL only. The B-tree
    on the scope columns and the column becomes an ordinary Index of the table, named by the naming convention for
    the column, unless the table has an index that begins with these columns.

    Raises ValueError for a distance out of range or an unknown storage, and sqlalchemy.exc.ArgumentError, once the
    table is known, for a column that does not exist or already has an index, and for a recipe other than that of
    the column's type.
    """

    __visit_name__ = "simhash_index"

    def __init__(
        self,
        column: str,
        *,
        distance: int = 3,
        design: Design | None = None,
        scope: Sequence[str] = (),
        recipe: Recipe | str | None = None,
        storage: Storage | None = None,
        sources: str | Mapping[str, int] | None = None,
    ) -> None:
        self.names_sources = sources is not None
        self.spec = IndexSpec(column, distance, design, recipe, scope, storage, sources)
        """The given arguments. Columns are named by their keys; the recipe is None if none was given."""

    @staticmethod
    def of(table: Table) -> list[IndexSpec]:
        """Return the simhash indexes that a table declares, with column names and recipe filled in."""
        return [declared.spec for declared in declared_indexes(table)]

    def __repr__(self) -> str:
        return "SimhashIndex(" + repr(self.spec).removeprefix("IndexSpec(column=")

    def _set_parent(self, parent: SchemaEventTarget, **_: Any) -> None:
        if not isinstance(parent, Table):
            raise ArgumentError(f"{self!r} must be in a Table or in __table_args__, not in {parent!r}")
        column = table_column(parent, self.spec.column, "SimhashIndex")
        scope = [table_column(parent, name, "SimhashIndex, scope") for name in self.spec.scope]
        fingerprint = column.type if isinstance(column.type, Fingerprint) else Fingerprint()
        recipe = self.spec.recipe
        if recipe and fingerprint.known_recipe not in (None, recipe):
            raise ArgumentError(
                f"SimhashIndex: its recipe is {recipe}, but that of column {column.name!r} of"
                f" table {parent.fullname} is {fingerprint.known_recipe}: set the recipe only on the column"
            )
        # Tables can share a __table_args__, so this object stays unchanged, and each table gets its own spec.
        spec = replace(
            self.spec,
            column=str(column.name),
            recipe=add_extract(recipe or fingerprint.recipe.id, fingerprint.extract),
            scope=tuple(str(member.name) for member in scope),
            sources=tuple(
                (str(table_column(parent, name, "SimhashIndex, sources").name), weight)
                for name, weight in self.spec.sources
            ),
        )
        if any(other.given.column == spec.column for other in declared_indexes(parent)):
            raise ArgumentError(f"SimhashIndex: table {parent.fullname} already has one on column {spec.column!r}")
        create = CreateSimhashIndex(
            spec,
            names_recipe=recipe is not None or fingerprint.names_recipe,
            names_sources=self.names_sources,
        )
        drop = DropSimhashIndexIfExists("drop_index", spec.column)
        _declare_btree(parent, [*scope, column])
        # Only in PostgreSQL, because an application may run its tests in another database. Copies made by
        # to_metadata keep listeners with `propagate`.
        for moment, ddl in (("after_create", create), ("before_drop", drop)):
            event.listen(parent, moment, ddl.execute_if(dialect="postgresql"), propagate=True)


def _declare_btree(table: Table, columns: list[Column[Any]]) -> None:
    names = [column.name for column in columns]
    for index in table.indexes:
        if [getattr(part, "name", None) for part in index.expressions][: len(names)] == names:
            return
    # The naming convention is applied to the fingerprint column. Applied to a B-tree that begins with a scope
    # column, it would give the name of an ordinary index on that column.
    like = Table(
        table.name,
        MetaData(naming_convention=table.metadata.naming_convention),
        Column(columns[-1].name, BigInteger),
        schema=table.schema,
    )
    name = Index(None, *like.columns).name
    if any(index.name == name for index in table.indexes):
        raise ArgumentError(
            f"SimhashIndex: table {table.fullname} already has an index named {name!r}, but the B-tree on"
            f" {', '.join(names)} needs this name: rename the index, or remove index=True from its column"
        )
    Index(name, *columns)
