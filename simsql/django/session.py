"""A second connection object for the session of Django's connection."""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, NullPool, create_engine


class SharedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A second object for the session of Django's connection, with psycopg's own cursors and types.

    In a transaction of Django's it does not end it; else it begins and ends its own.
    """

    def __init__(self, django: Any) -> None:
        original = django.connection
        pgconn = original.pgconn
        handlers = pgconn.notice_handler, pgconn.notify_handler
        super().__init__(pgconn)
        # Notices stay with Django's object.
        pgconn.notice_handler, pgconn.notify_handler = handlers
        # Both objects would use the same names.
        self.prepare_threshold = None
        self._within = False
        # Django has begun a transaction before PostgreSQL knows it.
        if pgconn.transaction_status == TransactionStatus.IDLE and original.isolation_level is not None:
            self.isolation_level = original.isolation_level
        self._within = django.in_atomic_block or not django.get_autocommit()

    def commit(self) -> None:
        """Commit, unless the transaction is Django's."""
        if not self._within:
            super().commit()

    def rollback(self) -> None:
        """Roll back, unless the transaction is Django's."""
        if not self._within:
            super().rollback()

    def __setattr__(self, name: str, value: Any) -> None:
        """Change no mode and no isolation level of a transaction of Django's."""
        if name not in ("autocommit", "isolation_level") or not self._within:
            super().__setattr__(name, value)

    def close(self) -> None:
        """Leave the session to Django."""

    def __del__(self, *_: Any) -> None:
        """Do not warn of an open connection."""


def session_engine(open_django: Callable[[], Any]) -> Engine:
    """Return an engine that works in the session of the connection that the function returns."""
    # hstore would ask the database for its types.
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: SharedConnection(open_django()),
        poolclass=NullPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
    )
