"""From a database URL to an engine, and from an error of PostgreSQL to one line."""

import re

import psycopg
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from simsql.errors import UsageError

_PLAIN = ("postgresql", "postgres")


def open_engine(database: str | URL) -> Engine:
    """Return an engine for a SQLAlchemy URL; a plain `postgresql://` means psycopg.

    Connects to nothing yet. Raises UsageError for a URL of another database system or driver.
    """
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        # The URL may hold a password: it is not repeated.
        raise UsageError("the database is not a URL: write it as postgresql://user@host:5432/database") from None
    if url.drivername in _PLAIN:
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername != "postgresql+psycopg":
        raise UsageError(
            f"{url.drivername}:// is not supported: simsql works in PostgreSQL, through psycopg (postgresql://)"
        )
    try:
        # create_index needs READ COMMITTED, whatever the database's default is.
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",
            connect_args={"application_name": "simsql", "client_encoding": "utf8"},
        )
        engine.dialect.create_connect_args(url)
    except NoSuchModuleError as error:
        raise UsageError(str(error)) from error
    except ArgumentError:
        raise UsageError("the database's URL has a port that is no number") from None
    return engine


def one_line(error: DBAPIError | psycopg.Error) -> str:
    """Return in one line what PostgreSQL or psycopg said, with the hint that came with it."""
    original = error.orig if isinstance(error, DBAPIError) else error
    diagnostic = getattr(original, "diag", None)
    message = getattr(diagnostic, "message_primary", None) or str(original)
    hint = getattr(diagnostic, "message_hint", None)
    if (isinstance(original, psycopg.errors.InvalidSchemaName) and "simsql" in message) or (
        isinstance(original, psycopg.errors.UndefinedTable) and '"simsql.registry"' in message
    ):
        hint = "The database lacks simsql: run simsql install"
    return re.sub(r"\s+", " ", f"{message}. {hint}" if hint else message).strip()
