"""The history of simsql's own schema: the revisions in migrations/ and their SQL.

Alembic shows the revisions, and creates new ones, but does not run them: in a process there is only one
`alembic.context`, and it belongs to the application whose migration installs simsql.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from sqlalchemy import Connection, text

from simsql.errors import SimsqlError, UsageError

_QUOTE = "$simsql_script$"


def find_folder(name: str) -> Path:
    """Return the folder `sql` or `migrations`, in the installed package or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise SimsqlError(f"{package / name} is missing: the installation of simsql is broken, install it again")


@dataclass(frozen=True)
class History:
    """A folder of linear revisions, and the folder of SQL files with the current schema: by default, simsql's own.

    The files of `sql/` create a new schema. An upgrade runs the SQL file of each later revision, which changes
    tables and types; then the files of `sql/` again, which replace functions; and then updates existing indexes.
    """

    migrations: Path = field(default_factory=partial(find_folder, "migrations"))
    sql: Path = field(default_factory=partial(find_folder, "sql"))

    @cached_property
    def revisions(self) -> tuple[str, ...]:
        """Return the ids of all revisions, oldest first: what their files begin with."""
        return tuple(sorted(path.name.partition("_")[0] for path in self.migrations.glob("versions/*_*.py")))

    @property
    def newest(self) -> str:
        """Return the id of the newest revision."""
        if not self.revisions:
            raise SimsqlError("the migrations of simsql are missing: the installation is broken, install it again")
        return self.revisions[-1]

    def current(self, connection: Connection) -> str | None:
        """Return the revision of the schema in a database, or None if it is not installed.

        A schema that was restored without its data has the revision of its version. Raises SimsqlError if the
        revision is not in this history, because a newer simsql installed it.
        """
        # to_regclass would fail for a role that may not use the schema.
        found = connection.execute(
            text(
                "SELECT c.relname FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n"
                " ON n.oid OPERATOR(pg_catalog.=) c.relnamespace WHERE n.nspname OPERATOR(pg_catalog.=) 'simsql'"
                " AND c.relname OPERATOR(pg_catalog.~) '^(registry|schema_version)$'"
            )
        )
        tables = found.scalars().all()
        if "schema_version" not in tables:
            return None
        revision = connection.execute(text("SELECT version_num FROM simsql.schema_version")).scalar_one_or_none()
        if revision is None and "registry" in tables:
            version = connection.execute(text("SELECT simsql.version()")).scalar_one().replace(".", "_")
            files = list(self.migrations.glob(f"versions/*_version_{version}.py"))
            revision = files[0].name.partition("_")[0] if files else None
        if revision is not None and revision not in self.revisions:
            raise SimsqlError(
                f"the schema simsql in this database has revision {revision}, but this simsql knows"
                f" only {self.revisions[0]} to {self.newest}: upgrade the package"
            )
        return revision

    def upgrade(self, connection: Connection) -> None:
        """Install the schema or upgrade it to the newest revision, in the connection's transaction."""
        for script in self._scripts(self.current(connection)):
            # In one statement, because asyncpg runs one at a time, and without parameters, so that no driver
            # interprets colons and percent signs.
            connection.exec_driver_sql(_as_statement(script), execution_options={"no_parameters": True})

    def script(self, start: str | None = None) -> str:
        """Return the SQL from a revision, by default an empty database, to the newest, as one statement."""
        if start is not None and start not in self.revisions:
            raise UsageError(f"there is no revision {start}: choose one of {', '.join(self.revisions)}")
        scripts = self._scripts(start)
        if not scripts:
            return ""
        way = "the schema" if start is None else f"an upgrade from revision {start}"
        return f"-- simsql: {way}, to revision {self.newest}\n{_as_statement(''.join(scripts))};\n"

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
            self.sql / "locks.sql",
            self.sql / "before_upgrade.sql",
            *(path for revision in later for path in self.migrations.glob(f"versions/{revision}_*.sql")),
            *functions,
            self.sql / "after_upgrade.sql",
            pin_search_path,
        ]

    def _scripts(self, start: str | None) -> list[str]:
        """Return what leads from a revision to the newest, and notes that in the database."""
        if start == self.newest:
            return []
        insert = f"INSERT INTO simsql.schema_version (version_num) VALUES ('{self.newest}');\n"  # noqa: S608 - a constant
        update = f"UPDATE simsql.schema_version SET version_num = '{self.newest}';\n"  # noqa: S608
        files = [f"{file.read_text(encoding='utf-8')}\n" for file in self.files(start)]
        return [*files, insert if start is None else update]


def _as_statement(script: str) -> str:
    if _QUOTE in script:
        raise ValueError(f"the script must not contain {_QUOTE}")
    return f"DO $simsql_run$ BEGIN EXECUTE {_QUOTE}\n{script}{_QUOTE}; END $simsql_run$"
