"""Install simsql's own schema in a database, say what is installed, or print the SQL that would do it."""

import io
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from simsql.errors import SimsqlError

VERSION_TABLE = "schema_version"
OLDEST_POSTGRESQL = 14


@dataclass(frozen=True)
class IndexStatus:
    """One simhash index, as the view `simsql.indexes` shows it."""

    id: int
    table_name: str
    column_name: str
    distance: int
    blocks: int
    lead: int
    inner_blocks: int
    recipe: str | None
    state: str


@dataclass(frozen=True)
class Status:
    """What of simsql a database holds. `revision` and `version` are None where nothing is installed."""

    server: str
    revision: str | None
    newest_revision: str
    version: str | None
    indexes: tuple[IndexStatus, ...]


def find_folder(name: str) -> Path:
    """Return the folder `sql` or `migrations`: inside the installed package, else beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise SimsqlError(f"{package / name} is missing: the installation of simsql is broken, install it again")


def install_schema(engine: Engine) -> bool:
    """Install the schema `simsql`, or bring it up to date, in one transaction.

    Return whether anything changed. Safe to call twice and from two processes at once. Raises SimsqlError
    on a PostgreSQL older than 14 and where the role may not create a schema.
    """
    with engine.begin() as connection:
        check_server(connection)
        # Held until the end of the transaction: of two installations at once the second finds nothing to do.
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('simsql.install', 0))"))
        config = _alembic_config()
        before = _revision(connection)
        if before == _newest_revision(config):
            return False
        _check_may_create(connection, new=before is None)
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return True


def read_status(engine: Engine) -> Status:
    """Return what of simsql the database holds."""
    with engine.connect() as connection:
        server = connection.execute(text("SHOW server_version")).scalar_one()
        revision = _revision(connection)
        newest = _newest_revision(_alembic_config())
        if revision is None:
            return Status(server, None, newest, None, ())
        version = connection.execute(text("SELECT simsql.version()")).scalar_one()
        rows = connection.execute(
            text(
                "SELECT id, table_name, column_name, distance, blocks, lead, inner_blocks, recipe, state"
                " FROM simsql.indexes ORDER BY id"
            )
        )
        return Status(server, revision, newest, version, tuple(IndexStatus(*row) for row in rows))


def schema_sql() -> str:
    """Return the SQL script that installs the schema in an empty database; connects to none."""
    output = io.StringIO()
    config = _alembic_config()
    config.output_buffer = output
    command.upgrade(config, "head", sql=True)
    return output.getvalue()


def check_server(connection: Connection) -> None:
    """Raise SimsqlError unless the connection leads to a PostgreSQL that has what simsql needs."""
    version = connection.execute(text("SHOW server_version_num")).scalar_one()
    if int(version) // 10_000 < OLDEST_POSTGRESQL:
        raise SimsqlError(
            f"PostgreSQL {int(version) // 10_000} is too old: simsql needs {OLDEST_POSTGRESQL} or newer"
            " (bit_count on bit strings); upgrade the server or use another one"
        )


def _check_may_create(connection: Connection, *, new: bool) -> None:
    database, user, may_create, owner = connection.execute(
        text(
            "SELECT current_database(), current_user, has_database_privilege(current_database(), 'CREATE'),"
            " (SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'simsql')"
        )
    ).one()
    if owner is None and not may_create:
        raise SimsqlError(
            f"role {user} may not create the schema simsql in database {database}:"
            f" as its owner, GRANT CREATE ON DATABASE {database} TO {user}"
        )
    if owner is not None and new:
        raise SimsqlError(
            f"database {database} has a schema simsql (of {owner}) that simsql did not install:"
            " rename or drop it, then install again"
        )


def _revision(connection: Connection) -> str | None:
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "version_table_schema": "simsql"}
    )
    return context.get_current_revision()


def _newest_revision(config: Config) -> str:
    revision = ScriptDirectory.from_config(config).get_current_head()
    if revision is None:
        raise SimsqlError("the migrations of simsql are missing: the installation is broken, install it again")
    return revision


def _alembic_config() -> Config:
    config = Config()
    # ConfigParser would read a percent sign in the path as a reference.
    config.set_main_option("script_location", str(find_folder("migrations")).replace("%", "%%"))
    config.attributes["version_table"] = VERSION_TABLE
    config.attributes["sql_folder"] = find_folder("sql")
    return config
