"""The operations of migrations: their arguments, effects and reverses, and how autogenerate writes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.util import CommandError
from sqlalchemy import BigInteger, Column, Dialect, MetaData, Table, null, text, update
from sqlalchemy.dialects.postgresql.base import PGDialect

from simsql.database import IndexSpec, install_schema, schema_sql
from simsql.database.arguments import as_arguments
from simsql.database.index_spec import Storage
from simsql.database.install import UNINSTALL_IF_UNUSED
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT_RECIPE
from simsql.hamming import Design
from simsql.sqlalchemy.expressions import CreateSimhashIndex, SimhashIndexDDL

# A child of the logger alembic, which the alembic.ini of every project configures.
log = logging.getLogger("alembic.operations.simsql")


OPERATIONS: list[type[SimsqlOp]] = []
"""All operations, in the order of their definition."""


class SimsqlOp(MigrateOperation):
    """An operation with the name `name` in `op`, and how to run it and to write it in a migration."""

    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Let the operation in `op` take the arguments of the class, unless it has arguments of its own."""

        def invoke(cls: type[SimsqlOp], operations: Operations, *arguments: Any, **options: Any) -> None:
            operations.invoke(cls(*arguments, **options))

        if "name" in vars(cls):
            OPERATIONS.append(cls)
        if hasattr(cls, "name") and not hasattr(cls, cls.name):
            invoke.__name__, invoke.__doc__ = cls.name, cls.__doc__
            setattr(cls, cls.name, classmethod(invoke))

    def _run(self, operations: Operations) -> None:
        """Run the operation, or print it as SQL."""
        raise NotImplementedError

    def _render(self, context: AutogenContext) -> str | list[str]:
        """Return the lines that a migration has for the operation, in plain literals."""
        return f"{context.opts['alembic_module_prefix'] or ''}{self.name}({', '.join(self._arguments())})"

    def _arguments(self) -> list[str]:
        return []

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        return (self.name,)


class InstallSimsqlOp(SimsqlOp):
    """Install the schema simsql, or upgrade it, in the migration's transaction.

    The schema stores its own version, outside the history of the application. If the schema is up to date,
    nothing happens. With `--sql`, the script installs simsql in a database without it.
    """

    name = "install_simsql"

    def reverse(self) -> UninstallSimsqlOp:
        """Return the operation that undoes this one."""
        return UninstallSimsqlOp()

    def _run(self, operations: Operations) -> None:
        context = operations.migration_context
        if context.as_sql:
            # Several branches can install it, and a script cannot check whether the database has it.
            if not context.opts.setdefault("simsql_is_printed", False):
                context.impl.static_output(schema_sql().rstrip())
            context.opts["simsql_is_printed"] = True
            return
        try:
            install_schema(operations.get_bind())
        except SimsqlError as error:
            raise CommandError(str(error)) from error  # printed in one line by Alembic


class UninstallSimsqlOp(SimsqlOp):
    """Remove the schema simsql with all its objects, in the migration's transaction.

    If simhash indexes, such as those of another branch, views, columns or triggers of `simsql.clear_on_change` use
    it, the schema stays and no error is raised.
    """

    name = "uninstall_simsql"

    def reverse(self) -> InstallSimsqlOp:
        """Return the operation that undoes this one."""
        return InstallSimsqlOp()

    def _run(self, operations: Operations) -> None:
        context = operations.migration_context
        if context.as_sql:
            context.impl.static_output(UNINSTALL_IF_UNUSED + context.impl.command_terminator)
            return
        # Without parameters, so that no driver interprets colons and percent signs in names.
        connection = operations.get_bind()
        connection.exec_driver_sql(UNINSTALL_IF_UNUSED, execution_options={"no_parameters": True}).close()
        stays = connection.execute(text("SELECT pg_catalog.to_regnamespace('simsql') IS NOT NULL"))
        if stays.scalar_one():
            log.info("Schema simsql stays: something in the database still uses it")


@dataclass(eq=False)
class ColumnOp(SimsqlOp):
    """An operation on the fingerprint column of a table, or on its simhash index."""

    kind: ClassVar[str]
    """What `alembic check` calls the difference."""

    table_name: str
    column_name: str
    _: KW_ONLY
    schema: str | None = None

    def _statement(self) -> SimhashIndexDDL:
        raise NotImplementedError

    def _options(self) -> dict[str, object]:
        """Return the named arguments of the operation."""
        return {}

    def _run(self, operations: Operations) -> None:
        """Run the operation, or print it as SQL, on the table in the schema given by schema_translate_map."""
        statement = self._statement().against(Table(self.table_name, MetaData(), schema=self.schema))
        context = operations.migration_context
        if context.as_sql:
            script = str(statement.compile(dialect=_script_dialect()))
            context.impl.static_output(script + context.impl.command_terminator)
        else:
            operations.get_bind().execute(statement)

    def _arguments(self) -> list[str]:
        # Names may be a subclass of str that is written otherwise.
        schema = {} if self.schema is None else {"schema": str(self.schema)}
        options = [f"{option}={value!r}" for option, value in {**schema, **self._options()}.items()]
        return [repr(str(self.table_name)), repr(str(self.column_name)), *options]

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what `alembic check` shows."""
        options = self._options()
        return (self.kind, self.schema, self.table_name, self.column_name, *([options] if options else []))


class CreateSimhashIndexOp(ColumnOp):
    """Create the simhash index that `spec` describes: `concurrently`, while others write.

    `is_default` tells that it is the one of several indexes that searches without a column use.
    """

    name, kind = "create_simhash_index", "add_simhash_index"

    def __init__(
        self,
        table_name: str,
        spec: IndexSpec,
        *,
        schema: str | None = None,
        concurrently: bool = False,
        is_default: bool = False,
    ) -> None:
        super().__init__(table_name, spec.column, schema=schema)
        self.spec = spec
        self.concurrently = concurrently
        self.is_default = is_default

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
        recipe: str | None = DEFAULT_RECIPE.id,
        scope: Sequence[str] = (),
        storage: Storage | None = None,
        sources: str | Mapping[str, int] | None = None,
        concurrently: bool = False,
        is_default: bool = False,
    ) -> None:
        """Create a simhash index on a bigint column, in the migration's transaction; writers of the table wait.

        The arguments are those of `simsql.database.create_index`, but `blocks`, `lead` and `inner_blocks` are the
        design, as in simsql.Design, and `recipe` is an id, or None if the recipe is unknown. With `is_default`,
        searches that name no column use this index.

        With `concurrently`, others read and write the table meanwhile. The operation opens an autocommit block:
        the earlier operations of the migration are committed, and the build commits as it works. So make it the
        last operation of its migration. If the migration is interrupted, run it again and the build resumes. The
        column needs a B-tree. With the storage "expression", writers of a table or partition wait while a B-tree
        is created on it; `simsql index create --concurrently` does not block writers.
        """
        if blocks is None and (lead is not None or inner_blocks is not None):
            raise UsageError("lead and inner_blocks need blocks: pass blocks, or omit all of them")
        design = None if blocks is None else Design(blocks, 1 if lead is None else lead, inner_blocks or 0)
        spec = IndexSpec(column_name, distance, design, recipe, scope, storage, sources)
        options = {"concurrently": concurrently, "is_default": is_default}
        operations.invoke(cls(table_name, spec, schema=schema, **options))

    def reverse(self) -> DropSimhashIndexOp:
        """Return the operation that undoes this one."""
        return DropSimhashIndexOp(self.table_name, self.column_name, schema=self.schema, dropped=self)

    def _statement(self) -> SimhashIndexDDL:
        return CreateSimhashIndex(self.spec, concurrently=self.concurrently)

    def _options(self) -> dict[str, object]:
        unknown = {} if self.spec.recipe else {"recipe": None}
        flags = {"concurrently": self.concurrently, "is_default": self.is_default}
        return self.spec.options() | unknown | {name: True for name, is_set in flags.items() if is_set}

    def _run(self, operations: Operations) -> None:
        with operations.get_context().autocommit_block() if self.concurrently else nullcontext():
            super()._run(operations)
        if self.is_default:
            SetDefaultSimhashIndexOp(self.table_name, self.column_name, schema=self.schema)._run(operations)


@dataclass(eq=False, kw_only=True)
class DropSimhashIndexOp(ColumnOp):
    """Drop a simhash index, but not the column and its B-tree, in the migration's transaction.

    Writers of the table wait until the migration ends. To reverse the operation, pass the one that creates the
    index as `dropped`.
    """

    name, kind = "drop_simhash_index", "remove_simhash_index"
    dropped: CreateSimhashIndexOp | None = None

    def reverse(self) -> CreateSimhashIndexOp:
        """Return the operation that undoes this one; UsageError without `dropped`."""
        if self.dropped is None:
            raise UsageError(
                f"dropping the simhash index on {self.table_name}.{self.column_name} cannot be undone:"
                " pass dropped=CreateSimhashIndexOp(...)"
            )
        return self.dropped

    def _statement(self) -> SimhashIndexDDL:
        return SimhashIndexDDL("drop_index", str(self.column_name))


@dataclass(eq=False, kw_only=True)
class ChangeSimhashStorageOp(ColumnOp):
    """Keep a simhash index in the other storage, "tables" or "expression", in the migration's transaction.

    Its design, recipe and scope stay. Writers of the table wait, and at the end readers too, until the migration
    ends. `simsql index change-storage` changes to "expression" while others read and write.
    """

    name = kind = "change_simhash_storage"
    storage: Storage

    def reverse(self) -> ChangeSimhashStorageOp:
        """Return the operation that undoes this one."""
        return replace(self, storage="tables" if self.storage == "expression" else "expression")

    def _statement(self) -> SimhashIndexDDL:
        return SimhashIndexDDL("change_storage", self.storage, str(self.column_name))

    def _options(self) -> dict[str, object]:
        return {"storage": self.storage}


@dataclass(eq=False, kw_only=True)
class AlterSimhashIndexOp(ColumnOp):
    """Say which columns hold the texts of an index, as in `create_simhash_index`; {} if they are unknown.

    Their trigger is created, or dropped with {}. No fingerprint changes. Writers of the table wait until the
    migration ends. To reverse the operation, pass the sources until now as `before`.
    """

    name = kind = "alter_simhash_index"
    sources: str | Mapping[str, int]
    before: str | Mapping[str, int] = field(default_factory=dict)

    def reverse(self) -> AlterSimhashIndexOp:
        """Return the operation that undoes this one."""
        return replace(self, sources=self.before, before=self.sources)

    def _statement(self) -> SimhashIndexDDL:
        sources = dict(IndexSpec("", sources=self.sources).sources)
        return SimhashIndexDDL("alter_index", *as_arguments(self.column_name, {"sources": sources}))

    def _options(self) -> dict[str, object]:
        return {"sources": self.sources}


@dataclass(eq=False, kw_only=True)
class SetDefaultSimhashIndexOp(ColumnOp):
    """Let searches that name no column use this index, if the table has several, from the next commit on.

    Nobody waits. To undo it, name the other column. See `simsql.database.set_default_index` for `missing`.
    """

    name = kind = "set_default_simhash_index"
    missing: int = 0

    def _statement(self) -> SimhashIndexDDL:
        return SimhashIndexDDL("set_default_index", str(self.column_name), self.missing)


@dataclass(eq=False, kw_only=True)
class ClearFingerprintsOp(ColumnOp):
    """Set all fingerprints of a column to NULL, in the migration's transaction, for a change of the recipe.

    Fingerprints of two recipes cannot be compared. Run `simsql backfill` to compute the new ones. Autogenerate
    adds it between dropping the index with one recipe or some sources and creating the index with another.
    """

    name = kind = "clear_fingerprints"

    def reverse(self) -> ClearFingerprintsOp:
        """Return the operation that clears the new fingerprints; the old ones are not restored."""
        return replace(self)

    def _run(self, operations: Operations) -> None:
        fingerprint = Column(self.column_name, BigInteger)
        table = Table(self.table_name, MetaData(), fingerprint, schema=self.schema)
        operations.execute(update(table).values({fingerprint: null()}).where(fingerprint.is_not(None)))

    def _render(self, context: AutogenContext) -> list[str]:
        return [
            "# Fingerprints of other recipes or texts cannot be compared with new ones. Fill the column in again:",
            "# with simsql backfill or, if only your application has the recipe or makes the texts, there.",
            str(super()._render(context)),
        ]


def _script_dialect() -> Dialect:
    """Return the dialect for scripts, in which percent signs and backslashes are not doubled for a driver."""
    dialect: PGDialect = PGDialect(paramstyle="named")  # type: ignore[no-untyped-call]
    dialect._backslash_escapes = False
    return dialect
