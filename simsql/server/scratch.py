"""A temporary database of an embedded server."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL, Connection, NullPool, create_engine, text

from simsql.server.embedded import EmbeddedServer

_PREFIX = "simsql_scratch_"


@contextmanager
def scratch_database(server: EmbeddedServer) -> Iterator[URL]:
    """Create an empty database. At the end, close its connections and drop it.

    Also drop the scratch databases of killed processes.
    """
    admin = create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    name = f"{_PREFIX}{os.getpid()}_{secrets.token_hex(4)}"
    # One session stays in the database for as long as it is needed: one without sessions was left behind.
    # The lock covers the moment between its creation and that session.
    with admin.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(hashtextextended('simsql.scratch', 0))"))
        _drop_left_behind(connection)
        connection.execute(text(f"CREATE DATABASE {name}"))
        url = server.url(name)
        occupant = create_engine(url, poolclass=NullPool).connect()
    try:
        yield url
    finally:
        occupant.close()
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


def _drop_left_behind(connection: Connection) -> None:
    databases = connection.execute(
        text(
            "SELECT d.datname FROM pg_database AS d WHERE starts_with(d.datname, :prefix)"
            " AND NOT EXISTS (SELECT FROM pg_stat_activity AS a WHERE a.datid = d.oid)"
        ),
        {"prefix": _PREFIX},
    )
    for name in databases.scalars().all():
        connection.execute(text(f"DROP DATABASE IF EXISTS {name}"))
