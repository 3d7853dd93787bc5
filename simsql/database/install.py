"""Install, upgrade or remove simsql's schema, show its status, or print the SQL."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from simsql.database.binds import begin, check_engine
from simsql.database.history import History, find_folder
from simsql.errors import SimsqlError

# Several migrations can install simsql, and the reverse of each tries to remove it; the last one succeeds.
# Triggers of clear_on_change are not dependents: simsql.uninstall would drop them.
UNINSTALL_IF_UNUSED = """\
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
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
    RAISE NOTICE 'schema simsql stays: %', SQLERRM;
END
$simsql$"""


@dataclass(frozen=True)
class Status:
    """The installed version and indexes. `revision` and `version` are None if simsql is not installed.

    `indexes` are the rows of the view `simsql.indexes`, whose columns docs/reference/sql.md describes.
    """

    server: str
    revision: str | None
    newest_revision: str
    version: str | None
    indexes: tuple[Row[Any], ...]
    complete: bool = True
    """False if the schema was restored without its data: `install_schema` completes it."""


def install_schema(
    engine_or_connection: Engine | Connection, *, report: Callable[[str], None] | None = None
) -> bool:
    """Install the schema `simsql` or upgrade it, in one transaction: that of the connection, if you pass one.

    Also creates indexes again that were restored without the data of the schema; `report` is called with a line
    about each. Return whether anything changed. Safe to call twice, and from two processes at once. Raises
    SimsqlError if the server or the role lacks what sql/requirements.sql lists, or a newer simsql installed the
    schema.
    """
    history = History()
    with begin(engine_or_connection) as connection:
        is_old = history.current(connection) != history.newest
        if is_old:
            for problem, remedy in missing_requirements(connection)[:1]:
                raise SimsqlError(f"{problem}: {remedy}")
            # Held until the end of the transaction: of two installations at once the second finds nothing to do.
            lock = "pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('simsql.install', 0))"
            connection.execute(text(f"SELECT {lock}"))
            is_old = history.current(connection) != history.newest
        if is_old:
            history.upgrade(connection)
        check = text(
            "SELECT EXISTS (SELECT FROM simsql.schema_version)"
            " AND NOT EXISTS (SELECT FROM simsql._unknown_indexes())"
        )
        if connection.execute(check).scalar_one():
            return is_old
        # It was restored without its data.
        adopted = connection.execute(text("SELECT simsql._adopt(:revision)"), {"revision": history.newest})
        for line in adopted.scalars().all():
            if report:
                report(line)
        return True


def uninstall_schema(engine: Engine, *, drop_indexes: bool = False) -> bool:
    """Remove the schema `simsql` with all its objects, and its triggers; return False if it is not installed.

    Fingerprint columns and their B-trees stay. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: there
    are simhash indexes and `drop_indexes` is false, other views or objects use simsql, or the role does not own
    the schema.
    """
    with check_engine(engine, "uninstall_schema").begin() as connection:
        if History().current(connection) is None:
            return False
        connection.execute(
            text("SELECT simsql.uninstall(drop_indexes => :drop_indexes)"), {"drop_indexes": drop_indexes}
        )
        return True


def read_status(engine: Engine) -> Status:
    """Return the installed version and indexes of a database.

    Changes nothing. Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: no connection, missing privileges.
    """
    history = History()
    with begin(engine) as connection:
        # An upgrade locks the registry, and a monitor must not hang.
        connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        server = connection.execute(text("SHOW server_version")).scalar_one()
        revision = history.current(connection)
        if revision is None:
            return Status(server, None, history.newest, None, ())
        version = connection.execute(text("SELECT simsql.version()")).scalar_one()
        rows = connection.execute(text("SELECT * FROM simsql.indexes ORDER BY id"))
        complete = text("SELECT EXISTS (SELECT FROM simsql.schema_version)")
        is_complete = connection.execute(complete).scalar_one()
        return Status(server, revision, history.newest, version, tuple(rows), is_complete)


def schema_sql(start: str | None = None) -> str:
    """Return the SQL script from a revision (by default, an empty database) to the newest, without connecting.

    It is one statement, so it is atomic, and a migration can run it in its transaction. It is empty if the
    revision is the newest. Raises UsageError if the revision does not exist.
    """
    return History().script(start)


def missing_requirements(connection: Connection) -> list[tuple[str, str]]:
    """Return what the server or the role lacks for an installation or an upgrade: each problem with its remedy."""
    script = (find_folder("sql") / "requirements.sql").read_text(encoding="utf-8")
    # Without parameters, so that no driver interprets percent signs.
    rows = connection.exec_driver_sql(script, execution_options={"no_parameters": True})
    return [(row.problem, row.remedy) for row in rows if not row.met]


def problems(connection: Connection) -> list[tuple[str, str]]:
    """Return what is wrong with simsql and its indexes, as in the view simsql.problems, each with its remedy."""
    rows = connection.execute(text("SELECT p.object, p.problem, p.remedy FROM simsql.problems AS p"))
    return [(f"{row.object}: {row.problem}", row.remedy) for row in rows]
