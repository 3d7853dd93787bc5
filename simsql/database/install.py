"""Install, upgrade and remove simsql's own schema, say what is installed, or print the SQL that would do it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from simsql.errors import SimsqlError

if TYPE_CHECKING:
    from simsql.database.history import History

OLDEST_POSTGRESQL = 14


@dataclass(frozen=True)
class IndexStatus:
    """One simhash index, as the view `simsql.indexes` shows it."""

    id: int
    table_name: str
    column_name: str
    scope: list[str]
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


def install_schema(engine: Engine) -> bool:
    """Install the schema `simsql`, or bring it up to date, in one transaction.

    Return whether anything changed. Safe to call twice and from two processes at once. Raises SimsqlError
    on a PostgreSQL older than 14, where the role may not create a schema, and for a schema of a newer simsql.
    """
    with engine.begin() as connection:
        return install_within(connection, _own_history())


def install_within(connection: Connection, history: "History") -> bool:
    """Do what `install_schema` does, in the connection's transaction."""
    check_server(connection)
    # Held until the end of the transaction: of two installations at once the second finds nothing to do.
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('simsql.install', 0))"))
    before = history.current(connection)
    if before == history.newest:
        return False
    _check_may_create(connection, new=before is None)
    history.upgrade(connection)
    return True


def upgrade_schema(engine: Engine) -> bool:
    """Bring the schema `simsql` up to date, in one transaction; its indexes stay.

    Return whether anything changed. Raises SimsqlError where there is none, and as `install_schema` does.
    """
    history = _own_history()
    with engine.begin() as connection:
        if history.current(connection) is None:
            raise SimsqlError("schema simsql is not installed: run simsql install")
        return install_within(connection, history)


def uninstall_schema(engine: Engine, *, drop_indexes: bool = False) -> bool:
    """Remove the schema `simsql` with all that it holds, and its triggers; return False where there is none.

    Columns of fingerprints and their B-trees stay. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message:
    there are simhash indexes and `drop_indexes` is not set, views or other things of the user's use simsql, the
    role does not own the schema.
    """
    with engine.begin() as connection:
        if _own_history().current(connection) is None:
            return False
        connection.execute(
            text("SELECT simsql.uninstall(drop_indexes => :drop_indexes)"), {"drop_indexes": drop_indexes}
        )
        return True


def read_status(engine: Engine) -> Status:
    """Return what of simsql the database holds."""
    history = _own_history()
    with engine.connect() as connection:
        server = connection.execute(text("SHOW server_version")).scalar_one()
        revision = history.current(connection)
        if revision is None:
            return Status(server, None, history.newest, None, ())
        version = connection.execute(text("SELECT simsql.version()")).scalar_one()
        rows = connection.execute(
            text(
                "SELECT id, table_name, column_name, scope, distance, blocks, lead, inner_blocks, recipe, state"
                " FROM simsql.indexes ORDER BY id"
            )
        )
        return Status(server, revision, history.newest, version, tuple(IndexStatus(*row) for row in rows))


def schema_sql(start: str | None = None) -> str:
    """Return the SQL script that leads from a revision of the schema to the newest; connects to no database.

    By default from an empty database; empty if the revision is the newest. Raises UsageError for a revision that
    does not exist.
    """
    return _own_history().script(start)


def _own_history() -> "History":
    # Alembic takes a third of the time that `import simsql.database` would take; who searches needs none of it.
    from simsql.database.history import own_history  # noqa: PLC0415

    return own_history()


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
