"""Install, upgrade or remove simsql's schema, show its status, or print the SQL."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, Row, text

from simsql.database.connect import begin, check_engine
from simsql.errors import SimsqlError

if TYPE_CHECKING:
    from simsql.database.history import History

OLDEST_POSTGRESQL = 14


@dataclass(frozen=True)
class Status:
    """The installed version and indexes. `revision` and `version` are None if simsql is not installed.

    `indexes` are the rows of the view `simsql.indexes`, whose columns docs/sql.md describes.
    """

    server: str
    revision: str | None
    newest_revision: str
    version: str | None
    indexes: tuple[Row[Any], ...]


def install_schema(engine_or_connection: Engine | Connection) -> bool:
    """Install the schema `simsql` or upgrade it, in one transaction: that of the connection, if you pass one.

    Return whether anything changed. Safe to call twice, and from two processes at once. Raises SimsqlError if
    PostgreSQL is older than 14, the role may not create a schema, or a newer simsql installed the schema.
    """
    with begin(engine_or_connection) as connection:
        return install_within(connection, _own_history())


def install_within(connection: Connection, history: "History") -> bool:
    """Install the schema of a history in the connection's transaction."""
    check_server(connection)
    # Held until the end of the transaction: of two installations at once the second finds nothing to do.
    lock = "pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('simsql.install', 0))"
    connection.execute(text(f"SELECT {lock}"))
    before = history.current(connection)
    if before == history.newest:
        return False
    _check_may_create(connection, new=before is None)
    history.upgrade(connection)
    return True


def uninstall_schema(engine: Engine, *, drop_indexes: bool = False) -> bool:
    """Remove the schema `simsql` with all its objects, and its triggers; return False if it is not installed.

    Fingerprint columns and their B-trees stay. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: there
    are simhash indexes and `drop_indexes` is false, other views or objects use simsql, or the role does not own
    the schema.
    """
    with check_engine(engine, "uninstall_schema").begin() as connection:
        if _own_history().current(connection) is None:
            return False
        connection.execute(
            text("SELECT simsql.uninstall(drop_indexes => :drop_indexes)"), {"drop_indexes": drop_indexes}
        )
        return True


def read_status(engine: Engine) -> Status:
    """Return the installed version and indexes of a database."""
    history = _own_history()
    with begin(engine) as connection:
        server = connection.execute(text("SHOW server_version")).scalar_one()
        revision = history.current(connection)
        if revision is None:
            return Status(server, None, history.newest, None, ())
        version = connection.execute(text("SELECT simsql.version()")).scalar_one()
        rows = connection.execute(text("SELECT * FROM simsql.indexes ORDER BY id"))
        return Status(server, revision, history.newest, version, tuple(rows))


def schema_sql(start: str | None = None, *, transaction: bool = True) -> str:
    """Return the SQL script from a revision (by default, an empty database) to the newest, without connecting.

    It is wrapped in a transaction by default, and empty if the revision is the newest. Raises UsageError if the
    revision does not exist.
    """
    return _own_history().script(start, transaction=transaction)


def _own_history() -> "History":
    # Importing Alembic would take a third of the time of `import simsql.database`, and searches do not need it.
    from simsql.database.history import own_history  # noqa: PLC0415

    return own_history()


def check_server(connection: Connection) -> None:
    """Raise SimsqlError if the PostgreSQL server lacks a feature that simsql needs."""
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
