"""The operations of migrations: their arguments, effects and reverses."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from alembic.operations import MigrateOperation, Operations
from alembic.util import CommandError
from sqlalchemy import BigInteger, Column, Dialect, MetaData, Table, null, text, update
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.schema import ExecutableDDLElement

from simsql.database import IndexSpec, install_schema, schema_sql
from simsql.database.index_spec import Storage
from simsql.errors import SimsqlError
from simsql.hamming import Design
from simsql.sqlalchemy.expressions import (
    BuildSimhashIndex,
    ChangeSimhashStorage,
    CreateSimhashIndex,
    DropSimhashIndex,
)

# A child of the logger alembic, which the alembic.ini of every project configures.
log = logging.getLogger("alembic.operations.simsql")

# Several branches can install simsql, and each downgrade tries to remove it; the last one succeeds. Triggers of
# clear_on_change are not dependents: simsql.uninstall would drop them.
_UNINSTALL = """\
-- SELECT simsql.uninstall(); unless something uses simsql
DO $simsql$
BEGIN
    IF pg_catalog.to_regnamespace('simsql') IS NULL THEN
        RETURN;
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_trigger AS t
                    JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
                    JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
                   WHERE n.nspname = 'simsql' AND p.proname = '_clear_fingerprint') THEN
        RAISE NOTICE 'schema simsql stays: tables have triggers of simsql.clear_on_change';
        RETURN;
    END IF;
    PERFORM simsql.uninstall();
EXCEPTION WHEN dependent_objects_still_exist THEN
    RAISE NOTICE 'schema simsql stays: %', SQLERRM;
END
$simsql$"""


class InstallSimsqlOp(MigrateOperation):
    """Install the schema simsql."""

    @classmethod
    def install_simsql(cls, operations: Operations) -> None:
        """Install the schema simsql, or upgrade it, in the migration's transaction.

        The schema stores its own version, outside the history of the application. If the schema is up to date,
        nothing happens. With `--sql`, the script installs simsql in a database without it.
        """
        operations.invoke(cls())

    def reverse(self) -> UninstallSimsqlOp:
        """Return the operation that undoes this one."""
        return UninstallSimsqlOp()

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        return ("install_simsql",)


class UninstallSimsqlOp(MigrateOperation):
    """Remove the schema simsql, unless something uses it."""

    @classmethod
    def uninstall_simsql(cls, operations: Operations) -> None:
        """Remove the schema simsql with all its objects, in the migration's transaction.

        If simhash indexes, such as those of another branch, views, columns or triggers of `simsql.clear_on_change`
        use it, the schema stays and no error is raised.
        """
        operations.invoke(cls())

    def reverse(self) -> InstallSimsqlOp:
        """Return the operation that undoes this one."""
        return InstallSimsqlOp()

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        return ("uninstall_simsql",)


class CreateSimhashIndexOp(MigrateOperation):
    """Create the simhash index that `spec` describes."""

    def __init__(self, table_name: str, spec: IndexSpec, *, schema: str | None = None) -> None:
        self.table_name = table_name
        self.spec = spec
        self.schema = schema

    @classmethod
    def create_simhash_index(
        cls,
        operations: Operations,
        table_name: str,
        column_name: str,
        *,
        schema: str | None = None,
        distance: int = 3,
        blocks: int | None = None,
        lead: int | None = None,
        inner_blocks: int | None = None,
        recipe: str | None = None,
        scope: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        """Create a simhash index on a bigint column, in the migration's transaction; writers of the table wait.

        `distance` (0 to 64) is the default of searches. `blocks`, `lead` and `inner_blocks` are the design, as in
        simsql.Design; without blocks, it is chosen by the number of rows. `recipe` is the id of the recipe of the
        fingerprints. `scope` names the columns that searches are confined to. `storage` is "tables" or
        "expression"; by default, "expression" for partitioned tables and "tables" for others.
        """
        design = _design(blocks, lead, inner_blocks)
        spec = IndexSpec.of(
            column_name, distance=distance, design=design, recipe=recipe, scope=scope, storage=storage
        )
        operations.invoke(cls(table_name, spec, schema=schema))

    def reverse(self) -> DropSimhashIndexOp:
        """Return the operation that undoes this one."""
        return DropSimhashIndexOp(self.table_name, self.spec.column, schema=self.schema, dropped=self)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        return ("add_simhash_index", self.schema, self.table_name, self.spec.column, self.spec.options())


class ClearFingerprintsOp(MigrateOperation):
    """Set all fingerprints of a column to NULL.

    Autogenerate adds it between dropping the index with one recipe and creating the index with another. The two
    recipes, and the columns of `texts` with their weights, appear in the comment about the backfill.
    """

    def __init__(
        self,
        table_name: str,
        column_name: str,
        *,
        schema: str | None = None,
        old_recipe: str | None = None,
        new_recipe: str | None = None,
        texts: Mapping[str, int] | None = None,
        undoes: bool = False,
    ) -> None:
        self.table_name = table_name
        self.column_name = column_name
        self.schema = schema
        self.old_recipe = old_recipe
        self.new_recipe = new_recipe
        self.texts = dict(texts or {})
        self.undoes = undoes

    @classmethod
    def clear_fingerprints(
        cls, operations: Operations, table_name: str, column_name: str, *, schema: str | None = None
    ) -> None:
        """Set all fingerprints of a column to NULL, in the migration's transaction, for a change of the recipe.

        Fingerprints of two recipes cannot be compared. Run `simsql backfill` to compute the new ones.
        """
        operations.invoke(cls(table_name, column_name, schema=schema))

    def reverse(self) -> ClearFingerprintsOp:
        """Return the operation that clears the new fingerprints; the old ones are not restored."""
        return ClearFingerprintsOp(
            self.table_name,
            self.column_name,
            schema=self.schema,
            old_recipe=self.new_recipe,
            new_recipe=self.old_recipe,
            texts=self.texts,
            undoes=not self.undoes,
        )

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        recipes = {"old_recipe": self.old_recipe, "new_recipe": self.new_recipe}
        return ("clear_fingerprints", self.schema, self.table_name, self.column_name, recipes)


class BuildSimhashIndexOp(CreateSimhashIndexOp):
    """Build the simhash index that `spec` describes while others write."""

    @classmethod
    def build_simhash_index(
        cls,
        operations: Operations,
        table_name: str,
        column_name: str,
        *,
        schema: str | None = None,
        distance: int = 3,
        blocks: int | None = None,
        lead: int | None = None,
        inner_blocks: int | None = None,
        recipe: str | None = None,
        scope: Sequence[str] = (),
        storage: Storage | None = None,
    ) -> None:
        """Create a simhash index while others read and write the table.

        It opens an autocommit block: the earlier operations of the migration are committed, and the build commits
        as it works. So make it the last operation of its migration. If the migration is interrupted, run it again
        and the build resumes. The column needs a B-tree. With the storage "expression", writers of a table or
        partition wait while a B-tree is created on it; `simsql index build` does not block writers. Takes the
        arguments of `op.create_simhash_index`.
        """
        design = _design(blocks, lead, inner_blocks)
        spec = IndexSpec.of(
            column_name, distance=distance, design=design, recipe=recipe, scope=scope, storage=storage
        )
        operations.invoke(cls(table_name, spec, schema=schema))


class DropSimhashIndexOp(MigrateOperation):
    """Drop a simhash index. To reverse it, pass the operation that creates the index as `dropped`."""

    def __init__(
        self,
        table_name: str,
        column_name: str,
        *,
        schema: str | None = None,
        dropped: CreateSimhashIndexOp | None = None,
    ) -> None:
        self.table_name = table_name
        self.column_name = column_name
        self.schema = schema
        self.dropped = dropped

    @classmethod
    def drop_simhash_index(
        cls, operations: Operations, table_name: str, column_name: str, *, schema: str | None = None
    ) -> None:
        """Drop a simhash index, but not the column and its B-tree, in the migration's transaction."""
        operations.invoke(cls(table_name, column_name, schema=schema))

    def reverse(self) -> CreateSimhashIndexOp:
        """Return the operation that undoes this one; ValueError without `dropped`."""
        if self.dropped is None:
            raise ValueError(
                f"dropping the simhash index on {self.table_name}.{self.column_name} cannot be undone:"
                " pass dropped=CreateSimhashIndexOp(...)"
            )
        return self.dropped

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        return ("remove_simhash_index", self.schema, self.table_name, self.column_name)


class ChangeSimhashStorageOp(MigrateOperation):
    """Keep a simhash index in the other storage."""

    def __init__(self, table_name: str, column_name: str, *, storage: Storage, schema: str | None = None) -> None:
        self.table_name = table_name
        self.column_name = column_name
        self.storage = storage
        self.schema = schema

    @classmethod
    def change_simhash_storage(
        cls,
        operations: Operations,
        table_name: str,
        column_name: str,
        *,
        storage: Storage,
        schema: str | None = None,
    ) -> None:
        """Keep a simhash index in the other storage, "tables" or "expression", in the migration's transaction.

        Its design, recipe and scope stay. Writers of the table wait, and at the end readers too, until the
        migration ends. `simsql index change-storage` changes to "expression" while others read and write.
        """
        operations.invoke(cls(table_name, column_name, storage=storage, schema=schema))

    def reverse(self) -> ChangeSimhashStorageOp:
        """Return the operation that undoes this one."""
        before: Storage = "tables" if self.storage == "expression" else "expression"
        return ChangeSimhashStorageOp(self.table_name, self.column_name, storage=before, schema=self.schema)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        return ("change_simhash_storage", self.schema, self.table_name, self.column_name, self.storage)


def install(operations: Operations, operation: InstallSimsqlOp) -> None:  # noqa: ARG001 - Alembic passes it
    """Run `op.install_simsql`."""
    context = operations.migration_context
    if context.as_sql:
        # Several branches can install it, and a script cannot look whether the database has it.
        if not context.opts.setdefault("simsql_is_printed", False):
            context.impl.static_output(schema_sql(transaction=False).rstrip())
        context.opts["simsql_is_printed"] = True
        return
    try:
        install_schema(operations.get_bind())
    except SimsqlError as error:
        raise CommandError(str(error)) from error  # printed in one line by Alembic


def uninstall(operations: Operations, operation: UninstallSimsqlOp) -> None:  # noqa: ARG001 - Alembic passes it
    """Run `op.uninstall_simsql`."""
    _run(operations, _UNINSTALL)
    if not operations.migration_context.as_sql:
        stays = operations.get_bind().execute(text("SELECT pg_catalog.to_regnamespace('simsql') IS NOT NULL"))
        if stays.scalar_one():
            log.info("Schema simsql stays: something in the database still uses it")


def create_index(operations: Operations, operation: CreateSimhashIndexOp) -> None:
    """Run `op.create_simhash_index`."""
    _run_on(operations, operation, CreateSimhashIndex(operation.spec))


def build_index(operations: Operations, operation: BuildSimhashIndexOp) -> None:
    """Run `op.build_simhash_index`."""
    with operations.get_context().autocommit_block():
        _run_on(operations, operation, BuildSimhashIndex(operation.spec))


def drop_index(operations: Operations, operation: DropSimhashIndexOp) -> None:
    """Run `op.drop_simhash_index`."""
    _run_on(operations, operation, DropSimhashIndex(str(operation.column_name)))


def change_storage(operations: Operations, operation: ChangeSimhashStorageOp) -> None:
    """Run `op.change_simhash_storage`."""
    _run_on(operations, operation, ChangeSimhashStorage(str(operation.column_name), operation.storage))


def clear_fingerprints(operations: Operations, operation: ClearFingerprintsOp) -> None:
    """Run `op.clear_fingerprints`."""
    fingerprint = Column(operation.column_name, BigInteger)
    table = Table(operation.table_name, MetaData(), fingerprint, schema=operation.schema)
    operations.execute(update(table).values({fingerprint: null()}).where(fingerprint.is_not(None)))


def _run(operations: Operations, statement: str) -> None:
    context = operations.migration_context
    if context.as_sql:
        context.impl.static_output(statement + context.impl.command_terminator)
    else:
        # Without parameters, so that no driver interprets colons and percent signs in names.
        operations.get_bind().exec_driver_sql(statement, execution_options={"no_parameters": True}).close()


def _run_on(
    operations: Operations,
    operation: CreateSimhashIndexOp | DropSimhashIndexOp | ChangeSimhashStorageOp,
    statement: ExecutableDDLElement,
) -> None:
    """Run a statement on the table of an operation, in the schema given by schema_translate_map."""
    statement = statement.against(Table(operation.table_name, MetaData(), schema=operation.schema))
    context = operations.migration_context
    if context.as_sql:
        script = str(statement.compile(dialect=_script_dialect()))
        context.impl.static_output(script + context.impl.command_terminator)
    else:
        operations.get_bind().execute(statement)


def _script_dialect() -> Dialect:
    """Return the dialect for scripts, in which percent signs and backslashes are not doubled for a driver."""
    dialect: PGDialect = PGDialect(paramstyle="named")  # type: ignore[no-untyped-call]
    dialect._backslash_escapes = False
    return dialect


def _design(blocks: int | None, lead: int | None, inner_blocks: int | None) -> Design | None:
    if blocks is None:
        if lead is not None or inner_blocks is not None:
            raise ValueError("lead and inner_blocks need blocks: pass blocks, or omit all of them")
        return None
    return Design(blocks, 1 if lead is None else lead, inner_blocks or 0)
