"""Open the database that the options of a command choose."""

import logging
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from simsql.database.connect import one_line, open_engine
from simsql.dedup.store.destination import Destination
from simsql.errors import SimsqlError, UsageError
from simsql.server import holds_server, start_embedded

# The pool logs errors of connections that an interrupt left in the middle of a command. Nobody can act on them.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


def database_or_default(database: str | None, server_dir: Path | None) -> str | None:
    """Return the URL that the options or the environment choose, or None for an embedded server."""
    if database or server_dir:
        return database
    default = os.environ.get("SIMSQL_DATABASE")
    if default == "":  # of a deployment that has lost its URL
        raise UsageError("SIMSQL_DATABASE is empty: set it to a URL, or unset it to use an embedded server")
    return default


@contextmanager
def postgresql_errors() -> Iterator[None]:
    """Raise SimsqlError for errors of PostgreSQL or the driver."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        raise SimsqlError(f"PostgreSQL: {one_line(error).removeprefix('simsql: ')}") from error


@contextmanager
def open_database(database: str | None, server_dir: Path | None, *, new: bool = False) -> Iterator[Engine]:
    """Open the database that the options choose, else that of the embedded server.

    Raises SimsqlError for errors of PostgreSQL, and for a folder without a server unless `new`: it is probably
    misspelled.
    """
    destination = Destination(database_or_default(database, server_dir), server_dir)
    if destination.server_dir and not new and not holds_server(destination.server_dir):
        folder = destination.server_dir
        raise SimsqlError(f"{folder} has no server: create one with simsql server {shlex.quote(str(folder))}")
    with postgresql_errors():
        if destination.database:
            engine = open_engine(destination.database, prepare=False)  # there may be a pooler
            try:
                yield engine
            finally:
                engine.dispose()
            return
        with start_embedded(destination.server_dir) as server:
            engine = open_engine(server.url())
            try:
                yield engine
            finally:
                engine.dispose()
