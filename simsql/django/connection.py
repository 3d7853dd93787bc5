"""Django's own connection for the functions of `simsql.database`, which take SQLAlchemy's.

Inside `atomic`, as in a migration or a `TestCase`, another connection would see nothing of the transaction. So the
engine of a database alias never connects: it works in the session of Django's connection of the same thread.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections

if TYPE_CHECKING:
    from sqlalchemy import Engine


@functools.cache
def engine_of(using: str = DEFAULT_DB_ALIAS) -> "Engine":
    """Return an engine that works in the session, and in the transaction, of Django's connection.

    `using` is an alias of settings.DATABASES. In a transaction of Django's, nothing that simsql does commits
    or rolls back. The first connection raises django.db.NotSupportedError for a database other than PostgreSQL,
    and django.core.exceptions.ImproperlyConfigured without psycopg 3.
    """
    # Imported here, with SQLAlchemy and psycopg: models and migrations of other databases need neither.
    from simsql.django.session import session_engine  # noqa: PLC0415

    return session_engine(lambda: _open(using))


def _open(using: str) -> Any:
    django = connections[using]
    check_database(django)
    django.validate_no_broken_transaction()
    django.ensure_connection()
    return django


def is_postgresql(django: Any) -> bool:
    """Return whether a connection is to PostgreSQL; elsewhere a fingerprint is a plain bigint that is computed."""
    return bool(django.vendor == "postgresql")


def check_database(django: Any) -> None:
    """Raise NotSupportedError unless the database is PostgreSQL, and ImproperlyConfigured without psycopg 3."""
    if not is_postgresql(django):
        raise NotSupportedError(f"simsql searches in PostgreSQL, and database {django.alias!r} is {django.vendor}")
    if django.Database.__name__ != "psycopg":
        raise ImproperlyConfigured(
            f"simsql needs psycopg 3, and database {django.alias!r} uses psycopg2: pip install 'psycopg[binary]'"
        )


@contextmanager
def django_errors(using: str) -> Iterator[None]:
    """Raise errors of PostgreSQL as Django does, as django.db.Error."""
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

    try:
        yield
    except DBAPIError as error:
        with connections[using].wrap_database_errors:
            raise error.orig or error from None
