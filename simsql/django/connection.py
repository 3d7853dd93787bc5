"""Django's own connection for the functions of `simsql.database`, which take SQLAlchemy's.

Inside `atomic`, as in a migration or a `TestCase`, another connection would see nothing of the transaction. So the
engine of a database alias never connects: it works in the session of Django's connection of the same thread.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections

if TYPE_CHECKING:
    from sqlalchemy import Engine


@functools.cache
def engine_of(using: str = DEFAULT_DB_ALIAS) -> "Engine":
    """Return an engine that works in the session, and in the transaction, of Django's connection.

    `using` is an alias of settings.DATABASES. In a transaction of Django's, nothing that simsql does commits
    or rolls back. The first connection raises django.core.exceptions.ImproperlyConfigured for a database other
    than PostgreSQL through psycopg 3.
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


def check_database(django: Any) -> None:
    """Raise ImproperlyConfigured unless this is a connection to PostgreSQL through psycopg 3."""
    if django.vendor != "postgresql" or django.Database.__name__ != "psycopg":
        driver = "psycopg2" if django.vendor == "postgresql" else django.settings_dict["ENGINE"]
        raise ImproperlyConfigured(
            f"simsql needs PostgreSQL with psycopg 3, but the database {django.alias!r} uses {driver}:"
            " set ENGINE to django.db.backends.postgresql, and pip install 'psycopg[binary]'"
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
