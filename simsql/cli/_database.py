"""The options that choose a database, and how a command works in it."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from simsql.cli._options import Printing, option, read_folder
from simsql.cli._terminal import Telling
from simsql.database.database_choice import DatabaseChoice
from simsql.errors import SimsqlError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Engine

# The pool logs errors of connections that an interrupt left in the middle of a command. Nobody can act on them.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


@contextmanager
def postgresql_errors(install: str = "simsql install") -> Iterator[None]:
    """Raise SimsqlError for errors of PostgreSQL or the driver.

    `install` is the command that installs simsql in the database.
    """
    try:
        yield
    except Exception as error:
        if "psycopg" not in sys.modules:  # a command without a database does not wait for its import
            raise
        from simsql.database.connect import PostgresqlError, one_line  # noqa: PLC0415

        if not isinstance(error, PostgresqlError):
            raise
        raise SimsqlError(f"PostgreSQL: {one_line(error, install).removeprefix('simsql: ')}") from error


def _name_session(_dialect: Any, _record: Any, _arguments: Any, options: dict[str, Any]) -> None:
    """Let hints of the database have codes in place of SQL: see `as_commands`."""
    options["application_name"] = "simsql command line"


@dataclass(frozen=True)
class Connecting:
    """The options of every command that works in a database."""

    database: Annotated[str | None, option("--database", ", else an embedded server")] = None
    server_dir: Annotated[Path | None, option("--server-dir", parser=read_folder)] = None

    @property
    def is_given(self) -> bool:
        """Whether an option chooses the database."""
        return bool(self.database or self.server_dir)

    @property
    def install(self) -> str:
        """The command that installs simsql in the database. A URL may have a password, so it is not repeated."""
        if self.server_dir:
            return f"simsql install --server-dir {shlex.quote(str(self.server_dir))}"
        return "simsql install with the same --database" if self.database else "simsql install"

    def chosen(self) -> DatabaseChoice:
        """Return the database that the options or the environment choose."""
        default = None if self.is_given else os.environ.get("SIMSQL_DATABASE")
        if default == "":  # of a deployment that has lost its URL
            raise UsageError("SIMSQL_DATABASE is empty: set it to a URL, or unset it to use an embedded server")
        return DatabaseChoice(self.database or default, self.server_dir)

    @contextmanager
    def open(self, *, new: bool = False, scratch: bool = False) -> Iterator["Engine"]:
        """Open the database, or with `scratch` an empty one if none is chosen.

        Raises SimsqlError for errors of PostgreSQL, and for a folder without a server unless `new`: it is probably
        misspelled.
        """
        from simsql.server import holds_server  # noqa: PLC0415

        chosen = self.chosen()
        if (folder := chosen.server_dir) and not new and not holds_server(folder):
            raise SimsqlError(
                f"{folder} has no server: name another folder, or create one there with {self.install}"
            )
        from sqlalchemy import event  # noqa: PLC0415

        with postgresql_errors(self.install), chosen.open(scratch=scratch) as engine:
            event.listen(engine, "do_connect", _name_session)
            yield engine


@dataclass(frozen=True)
class Working(Telling, Connecting):
    """The options of a command that works in a database and says how far it is."""


@dataclass(frozen=True)
class Listing(Working, Printing):
    """The options of a command that prints rows of a database."""
