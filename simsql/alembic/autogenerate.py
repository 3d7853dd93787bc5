"""Compare the simhash indexes of the models with those of a database, and register this with Alembic."""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from alembic import util
from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import Operations
from alembic.operations.ops import CreateTableOp, DropTableOp, UpgradeOps
from sqlalchemy import BigInteger, Column, Connection, Index, MetaData, Table, text

from simsql.alembic.operations import (
    OPERATIONS,
    AlterSimhashIndexOp,
    ChangeSimhashStorageOp,
    ClearFingerprintsOp,
    ColumnOp,
    CreateSimhashIndexOp,
    DropSimhashIndexOp,
    InstallSimsqlOp,
    SimsqlOp,
)
from simsql.database.index_spec import IndexSpec, is_text_recipe, same_recipe
from simsql.hamming import Design
from simsql.sqlalchemy import Fingerprint, Sketch
from simsql.sqlalchemy.expressions import DeclaredIndex, declared_indexes

SCHEMA = "simsql"

# Triggers on users' tables: those of an index, with its id, and those of simsql.clear_on_change.
_OWN_NAME = re.compile(r"simsql_\d+_\w+|zz_simsql_clear_\d+(_\w+)?")

# With the storage `expression`, an index has B-trees on the user's table. An unfinished build leaves some on
# partitions, with a further number.
_BTREE = re.compile(r"simsql_\d+_\d+(_\d+)?")

# A child of the logger alembic, which the alembic.ini of every project configures.
log = logging.getLogger("alembic.autogenerate.simsql")

RenderItem = Callable[[str, Any, AutogenContext], str | Literal[False]]


def include_object(item: Any, name: str | None, type_: str, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001
    """Return False for objects that simsql has created in the database, else True: an include_object for env.py.

    With `register`, alembic_utils asks it by itself. Else it drops every function, view, trigger and grant that is
    not among your entities.
    """
    schema = getattr(item, "schema", None) or getattr(getattr(item, "table", None), "schema", None)
    if schema == SCHEMA:
        return False
    # alembic_utils passes the qualified name. The signature of a trigger is its bare name.
    own_name = getattr(item, "signature", name) or ""
    return type_ not in ("trigger", "index") or _OWN_NAME.fullmatch(own_name) is None


TableKey = tuple[str | None, str]
"""The schema and the name of a table as Alembic has them: the schema is None for the connection's default."""


class Stored(NamedTuple):
    """An index of the database: the operation that would create it, and what clears its stale fingerprints."""

    op: CreateSimhashIndexOp
    cleared_by: frozenset[str]
    """The columns whose change clears a fingerprint."""
    is_clearing: bool
    """Whether an index with sources has the trigger for them."""


Indexes = dict[TableKey, dict[str, Stored]]
"""What a database holds, by table and column."""


def leave_out(context: AutogenContext, upgrade_ops: UpgradeOps, schemas: set[str | None]) -> None:  # noqa: ARG001
    """Exclude what Alembic would drop: simsql's schema, its B-trees, and partitions and tables without a model."""
    schemas.discard(SCHEMA)
    connection = context.connection
    if connection is None or context.dialect.name != "postgresql":
        return
    # Partitions, and their parts of B-trees; the tables that dedup and dedup-table create, by their comments.
    statement = text(
        "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relispartition OR obj_description(c.oid, 'pg_class')"
        " ~ '^(documents of simsql dedup, recipe |(rows deleted by )?decisions of simsql dedup-table$)'"
    )
    left_out = {_key(context, *row) for row in connection.execute(statement)}

    def include(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
        if not reflected or compare_to is not None:
            return True
        if kind not in {"table", "index"}:
            return include_object(item, name, kind, reflected, compare_to)
        schema = (item if kind == "table" else item.table).schema
        return (schema, name) not in left_out and not (kind == "index" and _BTREE.fullmatch(name or ""))

    # Before the hook of the user, which is not asked about these.
    context._object_filters.insert(0, include)


def compare_indexes(context: AutogenContext, upgrade_ops: UpgradeOps, schemas: set[str | None]) -> None:
    """Add operations that create new indexes of the models and drop removed ones.

    Drops come first and creations last, so that tables, columns and B-trees exist. An index that differs is
    dropped and created, unless only its storage differs.
    """
    context.opts["render_item"] = _render_columns(context.opts.get("render_item"))
    connection = context.connection
    if connection is None or context.dialect.name != "postgresql":
        return
    installed = connection.execute(text("SELECT to_regclass('simsql.indexes') IS NOT NULL")).scalar_one()
    existing = _read_indexes(context, connection, schemas) if installed else {}
    changes = list(_changes_of_models(context, upgrade_ops, existing))
    for table in upgrade_ops.ops:
        if isinstance(table, DropTableOp):
            stored = existing.get((table.schema, table.table_name), {})
            changes += [index.op.reverse() for index in stored.values()]
    for op in changes:
        name = ".".join(filter(None, (op.schema, op.table_name, op.column_name)))
        log.info("Detected %s on %r", op.kind.replace("_", " "), name)
    drops = [op for op in changes if isinstance(op, DropSimhashIndexOp)]
    creates = [op for op in changes if isinstance(op, ClearFingerprintsOp | CreateSimhashIndexOp)]
    alters = [op for op in changes if op not in drops and op not in creates]
    missing = bool(creates or alters) and not (_is_current(connection) and _history_installs(context))
    install = [InstallSimsqlOp()] if missing else []
    upgrade_ops.ops[:] = [*install, *drops, *upgrade_ops.ops, *alters, *creates]


def _history_installs(context: AutogenContext) -> bool:
    """Return whether the revisions below each head install simsql. Else another database would not have it.

    A developer may have run `simsql install`. Without a history, as in compare_metadata, nobody knows.
    """
    script = context.migration_context.script if context.migration_context else None
    if script is None:
        return True
    below = [script.iterate_revisions(head, "base") for head in script.get_heads()]
    sources = ((Path(each.path).read_text(encoding="utf-8") for each in head) for head in below)
    return bool(below) and all(any("install_simsql" in source for source in head) for head in sources)


def _is_current(connection: Connection) -> bool:
    """Return whether a database has simsql, in a version whose indexes know sources: 0.2.0 knew none."""
    return bool(connection.execute(text("SELECT to_regproc('simsql._current_sources') IS NOT NULL")).scalar_one())


def _read_indexes(context: AutogenContext, connection: Connection, schemas: set[str | None]) -> Indexes:
    """Return the indexes on the tables that Alembic compares, by the current table names."""
    is_current = _is_current(connection)
    # As the upgrade names it.
    recipe = "i.recipe" if is_current else "coalesce(i.recipe, 'words12-log-1') AS recipe"
    faults = (
        "SELECT FROM unnest(simsql._source_faults(r)) AS f WHERE f.problem <> 'source renamed'"
        if is_current
        else "SELECT WHERE false"
    )
    # Citus re-creates a table whose distribution changes, and simsql.repair follows it.
    statement = text(
        "SELECT n.nspname AS schema, c.relname AS table_name, i.column_name, i.distance, i.blocks, i.lead,"  # noqa: S608 - a constant
        f" i.inner_blocks, {recipe}, i.scope, NULLIF(i.storage, 'tables') AS storage,"
        " coalesce(r.is_default, false) AS is_default,"
        f" {'simsql._current_sources(r)' if is_current else 'NULL'} AS sources,"
        f" NOT EXISTS ({faults}) AS is_clearing, ARRAY("
        "   SELECT a.attname::text FROM simsql._clearing_triggers(r.table_id, r.column_name) AS n (name)"
        "     JOIN pg_trigger AS t ON t.tgrelid = r.table_id AND t.tgname = n.name AND t.tgenabled IN ('O', 'A')"
        "     JOIN pg_depend AS d ON d.classid = 'pg_trigger'::regclass AND d.objid = t.oid"
        "     JOIN pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid"
        "    WHERE d.refobjid = r.table_id AND a.attnum > 0 AND a.attname <> r.column_name) AS cleared_by"
        " FROM simsql.indexes AS i JOIN simsql.registry AS r USING (id)"
        " JOIN pg_class AS c ON c.oid = coalesce(simsql._recreated(r), r.table_id)"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace ORDER BY i.id"
    )
    indexes: Indexes = {}
    for row in connection.execute(statement).mappings():
        schema, name = key = _key(context, row["schema"], row["table_name"])
        column = row["column_name"]
        if (
            schema in schemas
            and context.run_name_filters(name, "table", {"schema_name": schema})
            and context.run_name_filters(column, "column", {"schema_name": schema, "table_name": name})
        ):
            design = Design(row["blocks"], row["lead"], row["inner_blocks"])
            options = row["distance"], design, row["recipe"], tuple(row["scope"]), row["storage"], row["sources"]
            spec = IndexSpec(column, *options)
            op = CreateSimhashIndexOp(name, spec, schema=schema, is_default=row["is_default"])
            indexes.setdefault(key, {})[column] = Stored(op, frozenset(row["cleared_by"]), row["is_clearing"])
    return indexes


def _key(context: AutogenContext, schema: str | None, name: str) -> TableKey:
    return None if schema == context.dialect.default_schema_name else schema, name


def _changes_of_models(context: AutogenContext, upgrade_ops: UpgradeOps, existing: Indexes) -> Iterator[ColumnOp]:
    new = {_key(context, op.schema, op.table_name) for op in upgrade_ops.ops if isinstance(op, CreateTableOp)}
    for table in context.sorted_tables:
        key = _key(context, table.schema, table.name)
        wanted = {index.spec.column: index for index in declared_indexes(table)}
        stored, reflected = existing.get(key, {}), None
        if key not in new and (wanted or stored):
            reflected = _reflect(context, key)
            if reflected is None or not context.run_object_filters(table, table.name, "table", False, reflected):
                continue
        for column in {**wanted, **stored}:
            index = wanted.get(column)
            old = _with_sources(stored[column], index) if column in stored else None
            created = _creation(index, old) if index else None
            changes: list[ColumnOp | None] = [old.reverse() if old else None, created]
            if old and index:
                # Searches with the new recipe would miss old fingerprints, or find the wrong ones.
                changes.insert(1, _clearing(index, old.spec))
                if not _differs(index, old.spec):
                    changes = [*_alterations(stored[column], old, index)]
            if changes and _compares(context, column, created, old, table, reflected):
                yield from filter(None, changes)


def _reflect(context: AutogenContext, key: TableKey) -> Table | None:
    schema, name = key
    if not context.inspector.has_table(name, schema=schema):
        return None
    table = Table(name, MetaData(), schema=schema)
    context.inspector.reflect_table(table, None, resolve_fks=False)
    return table


def _creation(index: DeclaredIndex, old: CreateSimhashIndexOp | None) -> CreateSimhashIndexOp:
    """Return the operation that creates a model's index.

    The migration always contains the id of the recipe, even that of the default, so that a later default is
    detected as a change.
    """
    spec = index.spec
    if old:
        sources = spec.sources if index.names_sources else spec.sources or old.spec.sources
        spec = replace(spec, storage=spec.storage or old.spec.storage, sources=sources)
    if old and old.spec.recipe and not _recipe_differs(index, old.spec):
        spec = replace(spec, recipe=old.spec.recipe)
    is_default = old is not None and old.is_default
    return CreateSimhashIndexOp(index.table.name, spec, schema=index.table.schema, is_default=is_default)


def _with_sources(stored: Stored, index: DeclaredIndex | None) -> CreateSimhashIndexOp:
    """Return the operation of an index, with the model's sources if it knows none, but a trigger clears for them.

    The application has then called simsql.clear_on_change, as with 0.2.0.
    """
    op, cleared_by, _ = stored
    if index is None or op.spec.sources or not cleared_by or cleared_by != dict(index.spec.sources).keys():
        return op
    spec = replace(op.spec, sources=index.spec.sources)
    return CreateSimhashIndexOp(op.table_name, spec, schema=op.schema, is_default=op.is_default)


def _differs(index: DeclaredIndex, old: IndexSpec) -> bool:
    """Return whether an index differs from the model, apart from the storage, or a design that the model names."""
    spec = index.spec
    wanted = replace(
        spec, recipe=old.recipe, design=spec.design or old.design, storage=old.storage, sources=old.sources
    )
    return wanted != old or _recipe_differs(index, old) or _sources_differ(index, old)


def _sources_differ(index: DeclaredIndex, old: IndexSpec) -> bool:
    """Return whether an index has other sources than the model. Unknown ones, as those of 0.2.0, match any."""
    sources = index.spec.sources
    return bool(sources and old.sources) and sources != old.sources


def _alterations(stored: Stored, old: CreateSimhashIndexOp, index: DeclaredIndex) -> Iterator[ColumnOp]:
    """Yield what gives an index the storage and the sources that its model names, and the trigger for these."""
    where, schema = (old.table_name, old.column_name), old.schema
    storage = index.spec.storage
    if storage is not None and storage != (old.spec.storage or "tables"):
        yield ChangeSimhashStorageOp(*where, storage=storage, schema=schema)
    sources, before = dict(index.spec.sources), dict(old.spec.sources)
    if (sources or index.names_sources) and (sources != before or not stored.is_clearing):
        yield AlterSimhashIndexOp(*where, sources=sources, before=before, schema=schema)


def _recipe_differs(index: DeclaredIndex, old: IndexSpec) -> bool:
    """Return whether an index has another recipe than the model, which has the default one if it names none.

    A model has no recipe if it neither names one nor computes fingerprints, and the index has a user's own name.
    """
    type_ = index.column.type
    says = index.names_recipe or (isinstance(type_, Fingerprint) and type_.known_recipe is not None)
    return not same_recipe(old.recipe, index.spec.recipe) and (says or is_text_recipe(old.recipe))


def _clearing(index: DeclaredIndex, old: IndexSpec) -> ClearFingerprintsOp | None:
    """Return the operation that clears fingerprints with another recipe or other sources than the model's.

    Return None if an index without a recipe gets a user's own name, which may be right for its fingerprints, and
    for a generated column.
    """
    named_now = old.recipe is None and not is_text_recipe(index.spec.recipe)
    differs = _recipe_differs(index, old) and not named_now
    if not (differs or _sources_differ(index, old)) or index.column.computed is not None:
        return None
    if differs:
        message = "Detected changed recipe of fingerprints: %s in the database, %s in the models"
        log.info(message, old.recipe or "none", index.spec.recipe)
    return ClearFingerprintsOp(index.table.name, index.spec.column, schema=index.table.schema)


def _compares(
    context: AutogenContext,
    column: str,
    created: CreateSimhashIndexOp | None,
    old: CreateSimhashIndexOp | None,
    table: Table,
    reflected: Table | None,
) -> bool:
    """Call the user's include_object with the column, then with the index."""
    of_model = {c.name: c for c in table.columns}.get(column)
    in_database = {c.name: c for c in reflected.columns}.get(column) if reflected is not None else None
    if of_model is not None:
        included = context.run_object_filters(of_model, column, "column", False, in_database)
    else:
        included = in_database is None or context.run_object_filters(in_database, column, "column", True, None)
    if not included:
        return False
    # A type that Alembic does not have, passed to the user's hook.
    kind: Any = "simhash_index"
    items = [_as_item(index) for index in (created, old) if index]
    return context.run_object_filters(items[0], column, kind, created is None, items[1] if items[1:] else None)


def _as_item(index: CreateSimhashIndexOp) -> Index:
    """Return the argument for include_object: an index with its table and columns."""
    columns = [*index.spec.scope, index.column_name]
    table = Table(
        index.table_name, MetaData(), *(Column(name, BigInteger) for name in columns), schema=index.schema
    )
    return Index(index.column_name, *(table.c[name] for name in columns))


def _render_columns(render_item: RenderItem | None) -> RenderItem:
    """Return a render_item that writes the types of simsql with their import, whatever user_module_prefix is.

    The result of the user's own hook has priority.
    """

    def render(kind: str, item: Any, context: AutogenContext) -> str | Literal[False]:
        rendered = render_item(kind, item, context) if render_item else False
        if rendered is False and type(item) in (Fingerprint, Sketch):
            context.imports.add("import simsql.sqlalchemy")
            return f"simsql.sqlalchemy.{item!r}"
        return rendered

    return render


def _run_in_postgresql(operations: Operations, op: SimsqlOp) -> None:
    # An application may run its tests in another database.
    if operations.migration_context.dialect.name == "postgresql":
        op._run(operations)


@cache  # Alembic runs env.py for every command, but refuses to register an operation twice
def register() -> None:
    """Add simsql's operations to `op`, and simhash indexes to autogenerate and check.

    Call it in env.py, before `context.configure`. Further calls have no effect.
    """
    for operation in OPERATIONS:
        Operations.register_operation(operation.name)(operation)
        Operations.implementation_for(operation)(_run_in_postgresql)
        renderers.dispatch_for(operation)(lambda context, op: op._render(context))
    # Indexes are compared after tables, because the comparison depends on created and dropped tables. Up to
    # Alembic 1.17, comparators run in the order of their registration, and Alembic's own comes first.
    if hasattr(util, "DispatchPriority"):
        comparators.dispatch_for("schema", priority=util.DispatchPriority.FIRST)(leave_out)
        comparators.dispatch_for("schema", priority=util.DispatchPriority.LAST)(compare_indexes)
    else:
        comparators._registry["schema", "default"].insert(0, leave_out)
        comparators.dispatch_for("schema")(compare_indexes)
