"""The history of simsql's own schema: the revisions in migrations/ and their SQL.

They run in their own migration context, never through `alembic.op` and `alembic.context`: a process has only one
of each, and they belong to the application whose migration installs simsql.
"""

import io
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection

from simsql.errors import SimsqlError, UsageError

VERSION_TABLE = {"version_table": "schema_version", "version_table_schema": "simsql"}
_QUOTE = "$simsql_script$"


@dataclass(frozen=True)
class History:
    """A folder of linear revisions, and the folder of SQL files with the current schema.

    The files of `sql/` create a new schema. An upgrade runs the SQL file of each later revision, which changes
    tables and types; then the files of `sql/` again, which replace functions; and then updates existing indexes.
    """

    migrations: Path
    sql: Path

    @cached_property
    def revisions(self) -> tuple[str, ...]:
        """Return the ids of all revisions, oldest first."""
        return tuple(script.revision for script in reversed(list(self._scripts.walk_revisions())))

    @property
    def newest(self) -> str:
        """Return the id of the newest revision."""
        if not self.revisions:
            raise SimsqlError("the migrations of simsql are missing: the installation is broken, install it again")
        return self.revisions[-1]

    def current(self, connection: Connection) -> str | None:
        """Return the revision of the schema in a database, or None if it is not installed.

        Raises SimsqlError if the revision is not in this history, because a newer simsql installed it.
        """
        revision = MigrationContext.configure(connection, opts=VERSION_TABLE).get_current_revision()
        if revision is not None and revision not in self.revisions:
            raise SimsqlError(
                f"the schema simsql in this database has revision {revision}, but this simsql knows"
                f" only {self.revisions[0]} to {self.newest}: upgrade the package"
            )
        return revision

    def upgrade(self, connection: Connection) -> None:
        """Install the schema or upgrade it to the newest revision, in the connection's transaction."""
        self._run(MigrationContext.configure(connection, opts=VERSION_TABLE), self.current(connection))

    def script(self, start: str | None = None) -> str:
        """Return the SQL from a revision (by default, an empty database) to the newest, as one statement.

        It is atomic by itself, and runs in a transaction, too. Raises UsageError if the revision does not exist.
        """
        if start is not None and start not in self.revisions:
            raise UsageError(f"there is no revision {start}: choose one of {', '.join(self.revisions)}")
        if start == self.newest:
            return ""
        output = io.StringIO()
        options = {**VERSION_TABLE, "as_sql": True, "output_buffer": output, "starting_rev": start}
        # Otherwise SQLAlchemy doubles percent signs for a driver.
        context = MigrationContext.configure(
            dialect_name="postgresql", dialect_opts={"paramstyle": "named"}, opts=options
        )
        self._run(context, start)
        way = "the schema" if start is None else f"an upgrade from revision {start}"
        return f"-- simsql: {way}, to revision {self.newest}\n{_as_statement(output.getvalue())};\n"

    def files(self, start: str | None = None) -> list[Path]:
        """Return the SQL files that lead from a revision to the newest, in order."""
        order = (self.sql / "install.sql").read_text(encoding="utf-8")
        installed = [self.sql / name for name in re.findall(r"^\\ir (\S+)$", order, re.MULTILINE)]
        if start is None:
            return installed
        later = self.revisions[self.revisions.index(start) + 1 :]
        search_path, _schema, *functions, pin_search_path = installed
        return [
            search_path,
            self.sql / "before_upgrade.sql",
            *(Path(self._scripts.get_revision(revision).path).with_suffix(".sql") for revision in later),
            *functions,
            self.sql / "after_upgrade.sql",
            pin_search_path,
        ]

    @cached_property
    def _scripts(self) -> ScriptDirectory:
        return ScriptDirectory(str(self.migrations))

    def _run(self, context: MigrationContext, start: str | None) -> None:
        if start == self.newest:
            return
        operations = Operations(context)
        for file in self.files(start):
            run_script(operations, file.read_text(encoding="utf-8"))
        context.stamp(self._scripts, self.newest)


def own_history() -> History:
    """Return the history of the schema that this version of simsql installs."""
    return History(find_folder("migrations"), find_folder("sql"))


def refuse_alembic() -> None:
    """Raise alembic.util.CommandError, in place of the `upgrade` function of every revision.

    `alembic upgrade` would run only the revisions, but an upgrade of simsql also locks and updates all indexes.
    """
    raise CommandError(
        "upgrade simsql's schema with `simsql install` or `op.install_simsql()`, not with `alembic upgrade`"
    )


def find_folder(name: str) -> Path:
    """Return the folder `sql` or `migrations`, in the installed package or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise SimsqlError(f"{package / name} is missing: the installation of simsql is broken, install it again")


def run_script(operations: Operations, script: str) -> None:
    """Run a script of several SQL statements, or print it if the context only prints SQL.

    asyncpg runs one statement at a time, so the script is wrapped in one statement.
    """
    context = operations.migration_context
    if context.as_sql:
        context.impl.static_output(script)
        return
    # Without parameters, so that no driver interprets colons and percent signs.
    operations.get_bind().exec_driver_sql(_as_statement(script), execution_options={"no_parameters": True})


def _as_statement(script: str) -> str:
    """Return a script of several statements as one."""
    if _QUOTE in script:
        raise ValueError(f"the script must not contain {_QUOTE}")
    return f"DO $simsql_run$ BEGIN EXECUTE {_QUOTE}\n{script}{_QUOTE}; END $simsql_run$"
