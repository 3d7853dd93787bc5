"""Compare the simhash indexes of the models with those of a database."""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

from alembic.autogenerate.api import AutogenContext
from alembic.operations.ops import CreateTableOp, DropTableOp, UpgradeOps
from sqlalchemy import BigInteger, Column, Connection, Index, MetaData, Table, text

from simsql.alembic.operations import CreateSimhashIndexOp, InstallSimsqlOp
from simsql.alembic.rendering import import_fingerprint
from simsql.sqlalchemy import SimhashIndex

SCHEMA = "simsql"
# Below the name of a logger that the alembic.ini of every project shows.
log = logging.getLogger("alembic.autogenerate.simsql")


class TableKey(NamedTuple):
    """A table as Alembic knows it: the schema is None for the connection's default."""

    schema: str | None
    name: str


class Change(NamedTuple):
    """What is to be done about the index on one column: drop it, create it, or both."""

    dropped: CreateSimhashIndexOp | None
    created: CreateSimhashIndexOp | None

    def log(self) -> None:
        """Tell of it, as Alembic tells of what it detects."""
        kind = "changed" if self.dropped and self.created else "added" if self.created else "removed"
        if index := self.created or self.dropped:
            name = ".".join(filter(None, (index.schema, index.table_name, index.column_name)))
            log.info("Detected %s simhash index on %r", kind, name)


Indexes = dict[TableKey, dict[str, CreateSimhashIndexOp]]
"""The operations that would create what a database holds, by table and column."""


def leave_out_schema(context: AutogenContext, upgrade_ops: UpgradeOps, schemas: set[str | None]) -> None:  # noqa: ARG001
    """Keep Alembic from reading simsql's own schema."""
    schemas.discard(SCHEMA)


def compare_indexes(context: AutogenContext, upgrade_ops: UpgradeOps, schemas: set[str | None]) -> None:
    """Add what creates the indexes that the models have gained, and drops those that they have lost.

    Drops come first and creations last, so that tables, columns and B-trees are there. An index that differs is
    dropped and created.
    """
    connection = context.connection
    if connection is None or context.dialect.name != "postgresql":
        return
    upgrade_ops.ops[:] = [op for op in upgrade_ops.ops if getattr(op, "schema", None) != SCHEMA]
    context.opts["render_item"] = import_fingerprint(context.opts.get("render_item"))
    installed = connection.execute(text("SELECT to_regclass('simsql.indexes') IS NOT NULL")).scalar_one()
    existing = _read_indexes(context, connection, schemas) if installed else {}
    changes = [*_changes_of_models(context, upgrade_ops, existing), *_dropped_with_tables(upgrade_ops, existing)]
    drops = [change.dropped.reverse() for change in changes if change.dropped]
    creates = [change.created for change in changes if change.created]
    for change in changes:
        change.log()
    install = [InstallSimsqlOp()] if creates and not installed else []
    upgrade_ops.ops[:] = [*install, *drops, *upgrade_ops.ops, *creates]


def _read_indexes(context: AutogenContext, connection: Connection, schemas: set[str | None]) -> Indexes:
    """Return the indexes of the tables that Alembic compares, under the names that these tables have now."""
    statement = text(
        "SELECT n.nspname AS schema, c.relname AS table_name, i.column_name, i.distance, i.blocks, i.lead,"
        " i.inner_blocks AS inner, i.recipe, i.scope"
        " FROM simsql.indexes AS i JOIN simsql.registry AS r USING (id) JOIN pg_class AS c ON c.oid = r.table_id"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace ORDER BY i.id"
    )
    indexes: Indexes = {}
    for row in connection.execute(statement).mappings():
        key, column = _key(context, row["schema"], row["table_name"]), row["column_name"]
        if (
            key.schema in schemas
            and context.run_name_filters(key.name, "table", {"schema_name": key.schema})
            and context.run_name_filters(column, "column", {"schema_name": key.schema, "table_name": key.name})
        ):
            index = CreateSimhashIndexOp(**{**row, "schema": key.schema})
            indexes.setdefault(key, {})[column] = index
    return indexes


def _key(context: AutogenContext, schema: str | None, name: str) -> TableKey:
    return TableKey(None if schema == context.dialect.default_schema_name else schema, name)


def _changes_of_models(context: AutogenContext, upgrade_ops: UpgradeOps, existing: Indexes) -> Iterator[Change]:
    new = {_key(context, op.schema, op.table_name) for op in upgrade_ops.ops if isinstance(op, CreateTableOp)}
    for table in context.sorted_tables:
        key = _key(context, table.schema, table.name)
        wanted = {index.column_name: index for index in SimhashIndex.of(table)}
        stored, reflected = existing.get(key, {}), None
        if key not in new and (wanted or stored):
            reflected = _reflect(context, key)
            if reflected is None or not context.run_object_filters(table, table.name, "table", False, reflected):
                continue
        for column in {**wanted, **stored}:
            old = stored.get(column)
            index = wanted.get(column)
            created = _creation(table, index, old) if index else None
            if old and index and not _differs(index, old):
                continue
            if _compares(context, column, created, old, table, reflected):
                yield Change(old, created)


def _dropped_with_tables(upgrade_ops: UpgradeOps, existing: Indexes) -> Iterator[Change]:
    for op in upgrade_ops.ops:
        if isinstance(op, DropTableOp):
            for index in existing.get(TableKey(op.schema, op.table_name), {}).values():
                yield Change(index, None)


def _reflect(context: AutogenContext, key: TableKey) -> Table | None:
    """Return the table as the database has it, None if it has none."""
    if not context.inspector.has_table(key.name, schema=key.schema):
        return None
    table = Table(key.name, MetaData(), schema=key.schema)
    context.inspector.reflect_table(table, None, resolve_fks=False)
    return table


def _creation(table: Table, index: SimhashIndex, old: CreateSimhashIndexOp | None) -> CreateSimhashIndexOp:
    """Return the operation that creates a model's index.

    A recipe that the model does not name is that of the index that was there, else today's default: its id stands
    in the migration, so that no later default makes fingerprints that the column cannot be compared with.
    """
    recipe = old.recipe if old and not index.names_recipe else index.recipe_id
    design = index.design
    return CreateSimhashIndexOp(
        table.name,
        index.column_name,
        schema=table.schema,
        distance=index.distance,
        blocks=design.blocks if design else None,
        lead=design.lead if design else None,
        inner=design.inner if design else None,
        recipe=recipe,
        scope=index.scope,
    )


def _differs(index: SimhashIndex, old: CreateSimhashIndexOp) -> bool:
    """Return whether an index is not what the model says; on what it does not say, any is right."""
    design = index.design
    return (
        (index.distance, tuple(index.scope)) != (old.distance, old.scope)
        or (design is not None and (design.blocks, design.lead, design.inner) != (old.blocks, old.lead, old.inner))
        or (index.names_recipe and index.recipe_id != old.recipe)
    )


def _compares(
    context: AutogenContext,
    column: str,
    created: CreateSimhashIndexOp | None,
    old: CreateSimhashIndexOp | None,
    table: Table,
    reflected: Table | None,
) -> bool:
    """Ask the user's include_object about the column, then about the index itself."""
    of_model = {c.name: c for c in table.columns}.get(column)
    in_database = {c.name: c for c in reflected.columns}.get(column) if reflected is not None else None
    if of_model is not None:
        included = context.run_object_filters(of_model, column, "column", False, in_database)
    else:
        included = in_database is None or context.run_object_filters(in_database, column, "column", True, None)
    if not included:
        return False
    # Alembic names the types that it knows; a hook sees this one.
    kind: Any = "simhash_index"
    items = [_as_item(index) for index in (created, old) if index]
    return context.run_object_filters(items[0], column, kind, created is None, items[1] if items[1:] else None)


def _as_item(index: CreateSimhashIndexOp) -> Index:
    """Return what include_object is asked about: an index with its table and columns."""
    columns = [*index.scope, index.column_name]
    table = Table(
        index.table_name, MetaData(), *(Column(name, BigInteger) for name in columns), schema=index.schema
    )
    return Index(index.column_name, *(table.c[name] for name in columns))
