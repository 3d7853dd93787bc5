"""Engines and connections of SQLAlchemy, with whatever driver."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine

from simsql.errors import UsageError

READ_COMMITTED = {"isolation_level": "READ COMMITTED"}
"""Execution options of a connection that commits as it goes."""


@contextmanager
def begin(engine_or_connection: Engine | Connection, **options: Any) -> Iterator[Connection]:
    """Yield the connection, in whatever transaction it is, or one of the engine with these options in its own."""
    bind = check_bind(engine_or_connection)
    if isinstance(bind, Connection):
        yield bind
        return
    with bind.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def check_bind(engine_or_connection: Engine | Connection) -> Engine | Connection:
    """Return an engine or a connection. Raises UsageError for anything else, such as a URL or a session."""
    if isinstance(engine_or_connection, Engine | Connection):
        return engine_or_connection
    kind = type(engine_or_connection).__name__
    advice = {
        "str": ": open_engine makes an engine of a URL",
        "URL": ": open_engine makes an engine of a URL",
        "Session": ": pass session.connection()",
    }
    raise UsageError(
        f"pass an Engine or a Connection of SQLAlchemy, not a value of type {kind}{advice.get(kind, '')}"
    )


def check_engine(engine: Engine | Connection, function: str) -> Engine:
    """Return the engine for a function that commits. Raises UsageError for anything else."""
    engine = check_bind(engine)
    if isinstance(engine, Connection):
        raise UsageError(f"{function} commits as it works: pass an Engine, not a Connection")
    return engine
