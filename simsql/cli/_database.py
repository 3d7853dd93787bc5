"""The options that choose a database, and how a command works in it."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from simsql.cli._options import Printing, option, read_folder
from simsql.cli._process import note
from simsql.cli._terminal import Telling
from simsql.errors import SimsqlError, UsageError

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic
    from sqlalchemy import Engine

# The pool logs errors of connections that an interrupt left in the middle of a command. Nobody can act on them.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


@contextmanager
def postgresql_errors(install: str = "simsql install") -> Iterator[None]:
    """Raise SimsqlError for errors of PostgreSQL or the driver, UsageError if a name or its type is wrong."""
    try:
        yield
    except Exception as error:
        if "psycopg" not in sys.modules:  # a command without a database does not wait for its import
            raise
        from simsql.database.connect import PostgresqlError, is_wrong_name, one_line

        if not isinstance(error, PostgresqlError):
            raise
        said = one_line(error, install)
        kind = UsageError if is_wrong_name(error) and not said.endswith(install) else SimsqlError
        raise kind(f"PostgreSQL: {said}") from error


def _ask_for_codes(connection: Any) -> None:
    """Let hints of a transaction have codes in place of SQL: see `as_commands`.

    Not of procedures that commit: a pooler could hand a session with the setting on to another client.
    """
    _set(connection, "SET LOCAL simsql.hints = 'codes'")


def _set(connection: Any, statement: str) -> None:
    """Run SET LOCAL in a transaction that is not in autocommit mode."""
    if not connection.connection.dbapi_connection.autocommit:
        connection.exec_driver_sql(statement)


@dataclass(frozen=True)
class Connecting:
    """The options of every command that works in a database."""

    database: Annotated[str | None, option("--database", ", else an embedded server")] = None
    server_dir: Annotated[Path | None, option("--server-dir", parser=read_folder)] = None

    @property
    def is_given(self) -> bool:
        return bool(self.database or self.server_dir)

    @property
    def install(self) -> str:
        """The command that installs simsql in the database. A URL may have a password, so it is not repeated."""
        if self.server_dir:
            return f"simsql install --server-dir {shlex.quote(str(self.server_dir))}"
        return "simsql install with the same --database" if self.database else "simsql install"

    def url(self) -> str | None:
        """Return the URL that the options or the environment choose; None for an embedded server."""
        if self.database and self.server_dir:
            raise UsageError("--database and --server-dir exclude each other: leave one out")
        url = self.database if self.is_given else os.environ.get("SIMSQL_DATABASE")
        if url == "" and not self.is_given:  # of a deployment that has lost its URL
            raise UsageError("SIMSQL_DATABASE is empty: set it to a URL, or unset it to use an embedded server")
        return url or None

    @contextmanager
    def open(self, *, new: bool = False, lock_timeout: timedelta | None = None) -> Iterator["Engine"]:
        """Open the database, with this time for locks in all in each transaction.

        Raises SimsqlError for errors of PostgreSQL and of the embedded server, and for a folder without a server
        unless `new`: it is probably misspelled.
        """
        # Here: whoever works without a database does not wait for their import.
        from sqlalchemy import event

        from simsql.database.connect import open_engine
        from simsql.server import holds_server, start_embedded

        url, folder = self.url(), self.server_dir
        if folder and not new and not holds_server(folder):
            raise SimsqlError(
                f"{folder} has no server: name another folder, or create one there with {self.install}"
            )
        with postgresql_errors(self.install), ExitStack() as stack:
            if url:
                engine = open_engine(url, prepare=False)  # there may be a pooler
            else:
                server = stack.enter_context(start_embedded(folder))
                engine = open_engine(server.url())
            stack.callback(engine.dispose)
            event.listen(engine, "connect", lambda raw, _: raw.add_notice_handler(self._tell_of_waiting))
            event.listen(engine, "begin", _ask_for_codes)
            if lock_timeout:
                limit = f"SET LOCAL lock_timeout = {lock_timeout // timedelta(milliseconds=1)}"
                event.listen(engine, "begin", lambda connection: _set(connection, limit))
            yield engine

    def _tell_of_waiting(self, notice: "Diagnostic") -> None:
        """Print for which transactions a call of simsql waits."""
        if notice.sqlstate == "55P03":
            note(f"{notice.message_primary}. {notice.message_hint}", quiet=getattr(self, "quiet", False))


@dataclass(frozen=True)
class Working(Telling, Connecting):
    """The options of a command that works in a database and says how far it is."""


@dataclass(frozen=True)
class Listing(Working, Printing):
    """The options of a command that prints rows of a database."""
