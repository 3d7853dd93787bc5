"""SimhashIndex: a simhash index in `Meta.indexes`, with its B-tree and its trigger for stale fingerprints."""

from collections.abc import Sequence
from typing import Any

from django.db import NotSupportedError, models
from django.db.backends.ddl_references import Columns, Statement, Table

from simsql.database.index_spec import IndexSpec, Storage
from simsql.database.sources import add_extract
from simsql.django.connection import check_database, is_postgresql
from simsql.django.fields import SimhashField
from simsql.errors import UsageError

# Each in one line: sqlmigrate prints them.
_SOURCES = ", sources => jsonb_build_object(%(simhash_sources)s)"
_CREATE = "SELECT simsql.create_index(%(simhash_table)s, %(simhash_column)s%(simhash_options)s"
_BUILD = "CALL simsql.build(%(simhash_table)s, %(simhash_column)s%(simhash_options)s"
_DROP = "SELECT simsql.drop_index(%(simhash_table)s, %(simhash_column)s)"
# There may be no trigger: a field can gain a source later. Or one that is not the index's, as 0.2.0 created it.
_UNFOLLOW = (
    "SELECT simsql.drop_clear_on_change(%(simhash_table)s, %(simhash_column)s)"
    " WHERE EXISTS (SELECT FROM simsql._clearing_triggers(%(simhash_table)s, %(simhash_column)s))"
)
# Django creates the index of a CreateModel at the end of the migration.
_REPAIR = (
    "SELECT count(*) FROM simsql.repair(%(simhash_table)s)"
    " WHERE EXISTS (SELECT FROM simsql.registry WHERE table_id = %(simhash_table)s)"
)
_ALTER = (
    f"SELECT simsql.alter_index(table_id, column_name{_SOURCES})"  # noqa: S608 - constants
    " FROM simsql.registry WHERE table_id = %(simhash_table)s AND column_name = %(simhash_column)s"
)


class SimhashIndex(models.Index):
    """A simhash index on a SimhashField, and the B-tree on its column, which has the name of the index.

    field
        The name of the field.
    distance
        The default distance of searches, between 0 and 64. The index is designed for it.
    scope
        The names of the fields that confine searches, such as a tenant's: at most four.
    storage
        "tables", or "expression" for B-trees on the table itself; by default, "expression" for partitioned tables
        and "tables" for others.

    If the field has a source, the index knows it, and clears a fingerprint whose text alone changes. Raises
    ValueError for a distance out of range or an unknown storage. Other databases than PostgreSQL get the B-tree.
    """

    def __init__(
        self,
        field: str,
        *,
        distance: int = 3,
        scope: Sequence[str] = (),
        storage: Storage | None = None,
        name: str | None = None,
    ) -> None:
        spec = IndexSpec(field, distance=distance, scope=scope, storage=storage)
        self.field, self.distance, self.scope, self.storage = spec.column, spec.distance, spec.scope, spec.storage
        super().__init__(fields=[*self.scope, field], name=name)

    def deconstruct(self) -> Any:
        """Return the arguments."""
        options: dict[str, Any] = {"name": self.name, "distance": self.distance}
        if self.scope:
            options["scope"] = list(self.scope)
        if self.storage is not None:
            options["storage"] = self.storage
        return "simsql.django.SimhashIndex", (self.field,), options

    def renamed(self, old: str, new: str) -> "SimhashIndex":
        """Return the index after a field was renamed."""
        field, *scope = (new if name == old else name for name in (self.field, *self.scope))
        return SimhashIndex(field, distance=self.distance, scope=scope, storage=self.storage, name=self.name)

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **options: Any) -> Statement:
        """Return the statements that create the B-tree and, in PostgreSQL, the index and the trigger."""
        if options.get("concurrently"):
            raise NotSupportedError(
                f"AddIndexConcurrently cannot create the simhash index {self.name}: use"
                " simsql.django.BuildSimhashIndex, with the same arguments"
            )
        statement = super().create_sql(model, schema_editor, using, **options)
        if not is_postgresql(schema_editor.connection):
            return statement
        self._check_installed(model, schema_editor)
        templates = [str(statement.template), _CREATE + self._sources_part(model)]
        return Statement("; ".join(templates), **statement.parts, **self._parts(model, schema_editor))

    def remove_sql(self, model: Any, schema_editor: Any, **options: Any) -> Statement:
        """Return the statements that drop the index, the trigger and the B-tree."""
        statement = super().remove_sql(model, schema_editor, **options)
        if not is_postgresql(schema_editor.connection):
            return statement
        templates = [_UNFOLLOW, _DROP, str(statement.template)]
        return Statement("; ".join(templates), **statement.parts, **self._parts(model, schema_editor))

    def build_sql(self, model: Any, schema_editor: Any) -> list[Statement]:
        """Return the statements that create the index while others write, each in a transaction of its own."""
        self._check_installed(model, schema_editor)
        statement = super().create_sql(model, schema_editor, concurrently=True)
        # A build that was interrupted goes on.
        btree = str(statement.template).replace("CONCURRENTLY", "CONCURRENTLY IF NOT EXISTS")
        parts = {**statement.parts, **self._parts(model, schema_editor)}
        return [Statement(part, **parts) for part in (btree, _BUILD + self._sources_part(model))]

    def unfollow_sql(self, model: Any, schema_editor: Any) -> Statement:
        """Return the statement that drops the triggers, which would prevent a change of the columns' types."""
        return Statement(_UNFOLLOW, **self._parts(model, schema_editor))

    def repair_sql(self, model: Any, schema_editor: Any) -> Statement:
        """Return the statements that adapt the index, and the triggers, to new names and types."""
        templates = [_REPAIR, *([_ALTER] if self._sources(model) else [])]
        return Statement("; ".join(templates), **self._parts(model, schema_editor))

    def _check_installed(self, model: Any, schema_editor: Any) -> None:
        check_database(schema_editor.connection)
        if schema_editor.collect_sql:
            return
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.to_regnamespace('simsql') IS NULL")
            if cursor.fetchone()[0]:
                raise UsageError(
                    f"the simhash index on {model._meta.db_table} needs simsql, which this database does not have:"
                    " put simsql.django.InstallSimsql() first into the operations of the migration"
                )

    def _parts(self, model: Any, schema_editor: Any) -> dict[str, Any]:
        table, quote, sources = model._meta.db_table, schema_editor.quote_name, self._sources(model)
        column = model._meta.get_field(self.field)
        recipe = add_extract(column.recipe_id, column.extract) if isinstance(column, SimhashField) else None
        scope = [model._meta.get_field(name).column for name in self.scope]
        spec = IndexSpec(column.column, self.distance, None, recipe, scope, self.storage)
        given = "".join(f", {name} => {_literal(value)}" for name, value in spec.options().items())
        return {
            # As references, because Django may rename the table or the column before it runs the statement.
            "simhash_table": Table(table, lambda name: f"{_literal(quote(name))}::regclass"),
            "simhash_column": Columns(table, [column.column], _literal),
            "simhash_sources": Columns(table, list(sources), _literal, [f", {sources[name]}" for name in sources]),
            "simhash_options": given,
        }

    def _sources_part(self, model: Any) -> str:
        """Return the end of a call: the sources, if there are any."""
        return f"{_SOURCES if self._sources(model) else ''})"

    def _sources(self, model: Any) -> dict[str, int]:
        field = model._meta.get_field(self.field)
        weights = field.sources.weights if isinstance(field, SimhashField) and field.sources else ()
        # In a migration that renames a source, the field has the old name for a moment.
        known = {other.name: other.column for other in model._meta.local_concrete_fields}
        return {known[name]: weight for name, weight in weights if name in known}


def _literal(value: object) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]"
    return "'" + str(value).replace("'", "''") + "'" if isinstance(value, str) else str(value)
