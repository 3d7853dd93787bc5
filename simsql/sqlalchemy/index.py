"""SimhashIndex: a table item that is created and dropped with its table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, Column, Index, MetaData, Table, event
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import SchemaItem
from sqlalchemy.sql.base import SchemaEventTarget

from simsql.database.index_spec import IndexSpec
from simsql.fingerprint import Recipe
from simsql.hamming import Design
from simsql.sqlalchemy.column_type import Fingerprint
from simsql.sqlalchemy.expressions import CreateSimhashIndex, DropSimhashIndex, declared_indexes, table_column


class SimhashIndex(SchemaItem):
    """A simhash index on a fingerprint column, as an item of `__table_args__` or `Table(...)`.

    column
        The key of the column in its table.
    distance
        From 0 to 64: the default distance of searches, for which the index is designed.
    design
        The design; with None, PostgreSQL chooses it by the number of rows when the index is created.
    scope
        Keys of the columns that searches are confined to, such as a tenant's.
    recipe
        How the fingerprints are computed; by default, the recipe of the column's `Fingerprint`. If they do not
        come from texts, a name of your own, such as "phash64".

    `metadata.create_all` and `drop_all` create and drop the index with its table, in PostgreSQL only. The B-tree
    on the scope columns and the column becomes an ordinary Index of the table, named by the naming convention for
    the column, unless the table has an index that begins with these columns.

    Raises ValueError for a distance out of range, and sqlalchemy.exc.ArgumentError, once the table is known, for a
    column that does not exist or already has an index, and for a recipe other than that of the column's type.
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
    ) -> None:
        self.spec = IndexSpec.of(column, distance=distance, design=design, recipe=recipe, scope=scope)
        """What was written here, with keys for names of columns; None for a recipe that it does not name."""

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
        # A table_args may be shared by tables: this stays as it was written, and each table gets its own.
        spec = replace(
            self.spec,
            column=str(column.name),
            recipe=recipe or fingerprint.recipe.id,
            scope=tuple(str(member.name) for member in scope),
        )
        if any(other.column == spec.column for other in self.of(parent)):
            raise ArgumentError(f"SimhashIndex: table {parent.fullname} already has one on column {spec.column!r}")
        create = CreateSimhashIndex(spec, names_recipe=recipe is not None or fingerprint.names_recipe)
        drop = DropSimhashIndex(spec.column, if_exists=True)
        _declare_btree(parent, [*scope, column])
        # PostgreSQL alone has it; other databases run the application's tests. Copies made by to_metadata keep it.
        for moment, ddl in (("after_create", create), ("before_drop", drop)):
            event.listen(parent, moment, ddl.execute_if(dialect="postgresql"), propagate=True)


def _declare_btree(table: Table, columns: list[Column[Any]]) -> None:
    names = [column.name for column in columns]
    for index in table.indexes:
        if [getattr(part, "name", None) for part in index.expressions][: len(names)] == names:
            return
    # What the convention makes of the fingerprint column alone: of its first column alone it would make the
    # name of an ordinary index on that column of the scope.
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
