"""Turn a database URL into an engine, and an error of PostgreSQL into one line."""

import math
import re
from collections.abc import Iterator

import psycopg
from psycopg import pq
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from simsql.errors import UsageError

_SYSTEMS = ("postgresql", "postgres")
# Parameters of other drivers that have another name in libpq.
_RENAMED = {
    "database": "dbname",
    "direct_tls": "sslnegotiation",
    "ssl": "sslmode",
    "tcp_keepalive": "keepalives",
    "timeout": "connect_timeout",
}
# Parameters that tune a driver and do not affect the connection.
_IGNORED = {
    "async_fallback",
    "command_timeout",
    "max_cacheable_statement_size",
    "max_cached_statement_lifetime",
    "prepare_threshold",  # read by _prepare_threshold
    "prepared_statement_cache_size",
    "statement_cache_size",
}
_SSL = {"true": "require", "false": "disable"} | {
    mode: mode for mode in ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
}
_SWITCHES = {"sslnegotiation": {"true": "direct", "false": "postgres"}, "keepalives": {"true": "1", "false": "0"}}

PostgresqlError = DBAPIError | psycopg.Error
"""An error of PostgreSQL or the driver, as SQLAlchemy or the driver raise it."""

_WRONG_NAMES = (
    psycopg.errors.InvalidName,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedObject,
    psycopg.errors.AmbiguousColumn,
    psycopg.errors.DatatypeMismatch,
    psycopg.errors.WrongObjectType,
)


def open_engine(database: str | URL, *, prepare: bool = True) -> Engine:
    """Return an engine for a SQLAlchemy URL of PostgreSQL.

    It uses psycopg, even if the URL names another driver, and translates the parameters of asyncpg and pg8000. It
    does not connect yet. Without `prepare`, as with `prepare_threshold=None` in the URL, it prepares no statements
    and works through a transaction pooler, but searches take longer. Raises UsageError for a URL of another
    database system or an unknown driver, and for a parameter that libpq does not have.
    """
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        # The URL may contain a password, so the message does not repeat it.
        raise UsageError("the database is not a URL: write it as postgresql://user@host:5432/database") from None
    _check_driver(url)
    prepared = _prepare_threshold(url) if prepare else {"prepare_threshold": None}
    url = url.set(drivername="postgresql+psycopg", query=dict(_translate(url)))
    try:
        # create_index needs READ COMMITTED, even if the database has another default.
        engine = create_engine(
            url,
            isolation_level="READ COMMITTED",
            connect_args={"application_name": "simsql", "client_encoding": "utf8", **prepared},
        )
        engine.dialect.create_connect_args(url)
    except NoSuchModuleError as error:
        raise UsageError(str(error)) from error
    except ArgumentError:
        raise UsageError("the database URL has a port that is not a number") from None
    return engine


def _check_driver(url: URL) -> None:
    system, _, driver = url.drivername.partition("+")
    if system not in _SYSTEMS:
        raise UsageError(f"{url.drivername}:// is not supported: simsql works in PostgreSQL (postgresql://)")
    try:
        url.set(drivername=f"postgresql+{driver or 'psycopg'}").get_dialect()
    except (NoSuchModuleError, ValueError):  # ValueError: a name with dots
        raise UsageError(f"{url.drivername}:// names an unknown driver: use postgresql://") from None


def _prepare_threshold(url: URL) -> dict[str, int | None]:
    """Return the argument of psycopg that is not a parameter of libpq, if the URL has it."""
    values = url.query.get("prepare_threshold", ())
    value = values if isinstance(values, str) else "".join(values[-1:])
    if not value:
        return {}
    if value.lower() != "none" and not value.isdecimal():
        raise UsageError(f"the database URL has prepare_threshold={value}: write a whole number, or None")
    return {"prepare_threshold": int(value) if value.isdecimal() else None}


def _translate(url: URL) -> Iterator[tuple[str, str | tuple[str, ...]]]:
    """Yield the URL's parameters under libpq's names. Of repeated ones, the last counts, except for hosts."""
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    for name, values in url.query.items():
        renamed = _RENAMED.get(name, name)
        if name in _IGNORED or (name in _RENAMED and renamed in url.query):
            continue
        value = values if isinstance(values, str) else values[-1]
        if name == "unix_sock":
            # The path of a socket, as in /var/run/postgresql/.s.PGSQL.5432.
            folder, _, port = value.rpartition("/.s.PGSQL.")
            yield from (("host", folder), ("port", port))
        elif renamed not in known:
            raise UsageError(
                f"the database URL has the parameter {name}, which libpq does not have: remove it"
                f"{', or write sslmode=require or verify-full' if name.startswith('ssl') else ''}"
            )
        elif name in _RENAMED:
            yield renamed, _translate_value(name, renamed, value)
        else:
            yield name, values


def _translate_value(name: str, renamed: str, value: str) -> str:
    try:
        if renamed == "sslmode":
            return _SSL[value.lower()]
        if renamed == "connect_timeout":
            return str(math.ceil(float(value)))
    except (LookupError, ValueError, OverflowError):
        raise UsageError(f"the database URL has {name}={value}: write it as {renamed}") from None
    return _SWITCHES.get(renamed, {}).get(value.lower(), value)


def is_wrong_name(error: PostgresqlError) -> bool:
    """Return whether PostgreSQL does not find what a name stands for, or finds something of another kind."""
    return isinstance(error.orig if isinstance(error, DBAPIError) else error, _WRONG_NAMES)


def one_line(error: PostgresqlError, install: str = "simsql install") -> str:
    """Return the message and the hint of an error of PostgreSQL in one line; `install` installs simsql there."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, psycopg.Error) and original.sqlstate is None:
        # A cursor that is closed as PostgreSQL ends the session only says that the connection is lost.
        original = original.__context__ if isinstance(original.__context__, psycopg.Error) else original
    diagnostic = getattr(original, "diag", None)
    message = getattr(diagnostic, "message_primary", None) or str(original)
    hint = getattr(diagnostic, "message_hint", None)
    if (isinstance(original, psycopg.errors.InvalidSchemaName) and "simsql" in message) or (
        isinstance(original, psycopg.errors.UndefinedTable) and '"simsql.registry"' in message
    ):
        hint = f"simsql is not installed in the database: run {install}"
    elif isinstance(original, psycopg.errors.UndefinedFunction) and re.match(r"\w+ simsql\.", message):
        # Not one that a function of simsql calls.
        hint = hint if getattr(diagnostic, "context", None) else f"Schema simsql is outdated: run {install}"
    elif isinstance(original, psycopg.errors.UndefinedColumn) and "simsql._index(" in (
        getattr(error, "statement", "") or ""
    ):
        hint = f"Schema simsql is outdated: run {install}"  # the statement reads no table of yours
    elif isinstance(original, psycopg.errors.ReadOnlySqlTransaction) and not hint:
        hint = "The server is a standby, or its transactions are read-only: use the primary"
    elif "local user with ID" in message:  # libpq would connect as that user
        hint = "Name a user in the URL: postgresql://user@host/database"
    elif isinstance(original, psycopg.errors.InvalidName):
        hint = "Put a name with spaces or capital letters into double quotes, within the quotes of the shell"
    elif isinstance(original, psycopg.errors.CharacterNotInRepertoire):
        hint = "A key or text in the database is not UTF-8, which the encoding SQL_ASCII allows: convert it"
    message = message.removeprefix("simsql: ")
    return re.sub(r"\s+", " ", f"{message}. {hint}" if hint else message).strip()
