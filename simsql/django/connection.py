"""Django's own connection for the functions of `simsql.database`, which take SQLAlchemy's.

Inside `atomic`, as in a migration or a `TestCase`, another connection would see nothing of the transaction. So the
engine of a database alias never connects: it works in the session of Django's connection of the same thread.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError


class _SharedConnection(psycopg.Connection[tuple[Any, ...]]):
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


@functools.cache
def engine_of(using: str = DEFAULT_DB_ALIAS) -> Engine:
    """Return an engine that works in the session, and in the transaction, of Django's connection.

    `using` is an alias of settings.DATABASES. In a transaction of Django's, nothing that simsql does commits
    or rolls back. The first connection raises django.core.exceptions.ImproperlyConfigured for a database other
    than PostgreSQL through psycopg 3.
    """
    # hstore would ask the database for its types.
    return create_engine(
        "postgresql+psycopg://",
        creator=lambda: _SharedConnection(_open(using)),
        poolclass=NullPool,
        pool_reset_on_return=None,
        use_native_hstore=False,
    )


def _open(using: str) -> Any:
    django = connections[using]
    check_database(django)
    django.validate_no_broken_transaction()
    django.ensure_connection()
    return django


def check_database(django: Any) -> None:
    """Raise ImproperlyConfigured unless this is a connection to PostgreSQL through psycopg 3."""
    if django.vendor != "postgresql" or django.Database is not psycopg:
        driver = "psycopg2" if django.vendor == "postgresql" else django.settings_dict["ENGINE"]
        raise ImproperlyConfigured(
            f"simsql needs PostgreSQL with psycopg 3, but the database {django.alias!r} uses {driver}:"
            " set ENGINE to django.db.backends.postgresql, and pip install 'psycopg[binary]'"
        )


@contextmanager
def django_errors(using: str) -> Iterator[None]:
    """Raise errors of PostgreSQL as Django does, as django.db.Error."""
    try:
        yield
    except DBAPIError as error:
        with connections[using].wrap_database_errors:
            raise error.orig or error from None
