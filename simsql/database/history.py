"""simsql's own schema history: the revisions in migrations/ and the SQL that they run.

They run with a migration context of their own, never through `alembic.op` and `alembic.context`: of these there is
one for the whole process, and it belongs to the application whose migration installs simsql.
"""

import io
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import Connection

from simsql.errors import SimsqlError, UsageError

VERSION_TABLE = {"version_table": "schema_version", "version_table_schema": "simsql"}
_QUOTE = "$simsql_script$"


@dataclass(frozen=True)
class History:
    """The revisions in a folder, one after the other, and the folder of SQL files that they run."""

    migrations: Path
    sql: Path

    @cached_property
    def revisions(self) -> tuple[str, ...]:
        """The ids of all revisions, oldest first."""
        return tuple(script.revision for script in reversed(list(self._scripts.walk_revisions())))

    @property
    def newest(self) -> str:
        """The id of the newest revision."""
        if not self.revisions:
            raise SimsqlError("the migrations of simsql are missing: the installation is broken, install it again")
        return self.revisions[-1]

    def current(self, connection: Connection) -> str | None:
        """Return the revision of the schema in a database, None without one.

        Raises SimsqlError for one that is not of this history: a newer simsql has installed it.
        """
        revision = MigrationContext.configure(connection, opts=VERSION_TABLE).get_current_revision()
        if revision is not None and revision not in self.revisions:
            raise SimsqlError(
                f"the schema simsql in this database is of revision {revision}, and this simsql knows"
                f" {self.revisions[0]} to {self.newest}: it is older than the schema, upgrade the package"
            )
        return revision

    def upgrade(self, connection: Connection, target: str | None = None) -> None:
        """Run all revisions that the database lacks, up to a target, in the connection's transaction."""
        current = self.current(connection)
        self._run(MigrationContext.configure(connection, opts=VERSION_TABLE), current, target or self.newest)

    def script(self, start: str | None = None, target: str | None = None, *, transaction: bool = True) -> str:
        """Return the SQL that leads from one revision to another: from an empty database, to the newest.

        In a transaction of its own, or without one. Raises UsageError for a revision that there is not, and for a
        way back.
        """
        target = target or self.newest
        for revision in (start, target):
            if revision is not None and revision not in self.revisions:
                raise UsageError(f"there is no revision {revision}: they are {', '.join(self.revisions)}")
        if start is not None and self.revisions.index(start) > self.revisions.index(target):
            raise UsageError(f"revision {start} is newer than {target}: there is no way back but to uninstall")
        if start == target:
            return ""
        output = io.StringIO()
        options = {**VERSION_TABLE, "as_sql": True, "output_buffer": output, "starting_rev": start}
        # Otherwise SQLAlchemy doubles percent signs, for a driver that is not there.
        context = MigrationContext.configure(
            dialect_name="postgresql", dialect_opts={"paramstyle": "named"}, opts=options
        )
        if transaction:
            with context.begin_transaction():
                self._run(context, start, target)
        else:
            self._run(context, start, target)
        return output.getvalue()

    @cached_property
    def _scripts(self) -> ScriptDirectory:
        return ScriptDirectory(str(self.migrations))

    def _run(self, context: MigrationContext, start: str | None, target: str) -> None:
        operations = Operations(context)
        for script in self._between(start, target):
            if context.as_sql:
                context.impl.static_output(f"-- simsql's schema, revision {script.revision}: {script.doc}")
            script.module.upgrade(operations, self.sql)
        context.stamp(self._scripts, target)

    def _between(self, start: str | None, target: str) -> list[Script]:
        """Return the revisions after one, up to and with another, oldest first."""
        found = self._scripts.iterate_revisions(target, start or "base")
        return [self._scripts.get_revision(script.revision) for script in reversed(list(found))]


def own_history() -> History:
    """Return the history of the schema that this simsql installs."""
    return History(find_folder("migrations"), find_folder("sql"))


def find_folder(name: str) -> Path:
    """Return the folder `sql` or `migrations`: inside the installed package, else beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise SimsqlError(f"{package / name} is missing: the installation of simsql is broken, install it again")


def run_script(operations: Operations, script: str) -> None:
    """Run a script of several SQL statements, or print it where the context only prints SQL.

    Through any driver: asyncpg takes one statement at a time, so all of them are one for it.
    """
    context = operations.migration_context
    if context.as_sql:
        context.impl.static_output(script)
        return
    if _QUOTE in script:
        raise ValueError(f"a script that holds {_QUOTE} cannot be run")
    block = f"DO $simsql_run$ BEGIN EXECUTE {_QUOTE}{script}{_QUOTE}; END $simsql_run$"
    # Without parameters, so that no driver reads colons and percent signs.
    operations.get_bind().exec_driver_sql(block, execution_options={"no_parameters": True})
