"""`simsql install`, `uninstall`, `status`, `maintain` and `server`: what simsql itself needs.

They manage its schema in a database, and its embedded server.
"""

from __future__ import annotations

import re
import signal
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simsql.cli._app import as_commands, command
from simsql.cli._database import Connecting, Working, postgresql_errors
from simsql.cli._options import Folder, Printing, option
from simsql.cli.index import print_indexes
from simsql.documents import printable
from simsql.documents.output_formats import Column, Format, print_rows
from simsql.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Row

_PROBLEMS = (Column("problem"), Column("remedy"))
_STATUS = tuple(map(Column, ("postgresql", "schema", "revision", "outdated", "indexes")))


@command("install")
def install_command(
    *,
    sql: Annotated[bool, option("--sql")] = False,
    start: Annotated[str | None, option("--from")] = None,
    connecting: Connecting,
) -> None:
    """Install or upgrade the schema in a database.

    Indexes stay, and you can search them as before. With --sql, print the SQL instead, for a database without
    simsql or, with --from, for one that has this revision: simsql status shows it.
    """
    from simsql.database import install_schema, read_status, schema_sql

    if sql or start:
        if not sql or connecting.is_given:
            raise UsageError("--from needs --sql, and --sql connects to no database: leave out the other options")
        print(schema_sql(start), end="")
        return
    with connecting.open(new=True) as engine:
        before = read_status(engine).version
        changed = install_schema(engine)
        status = read_status(engine)
    done = ("upgraded" if before else "installed") if changed else "up to date"
    print(f"schema simsql {status.version}: {done}")


@command("uninstall")
def uninstall_command(
    *, drop_indexes: Annotated[bool, option("--drop-indexes")] = False, connecting: Connecting
) -> None:
    """Remove the schema from a database.

    Fail if there are simhash indexes, or views and other objects of yours that use simsql. Your tables keep their
    fingerprint columns and the B-trees on them.
    """
    from simsql.database import uninstall_schema

    with connecting.open() as engine:
        removed = uninstall_schema(engine, drop_indexes=drop_indexes)
    print(f"schema simsql: {'uninstalled' if removed else 'not installed'}")


@command("status")
def status_command(
    *, check: Annotated[bool, option("--check")] = False, printing: Printing, connecting: Connecting
) -> None:
    """Show the installed version and indexes.

    A table includes the indexes. The other formats give their number: simsql index list prints them. With --check,
    print one row per problem with its remedy instead: if simsql is not installed or outdated, what the server or
    the role lacks for the installation; otherwise the indexes that need a repair, a vacuum or the like, and
    roles with privileges that they should not have.
    """
    from simsql.database import read_status
    from simsql.database.install import installation_faults, missing_requirements

    with connecting.open() as engine:
        status = read_status(engine)
        outdated = status.version is not None and status.revision != status.newest_revision
        if check:
            problems = [(f"schema simsql {status.version} is outdated", f"run {connecting.install}")] * outdated
            if status.revision != status.newest_revision:
                with engine.connect() as connection:
                    problems += missing_requirements(connection)
            else:
                problems += map(_describe, filter(lambda index: index.hint is not None, status.indexes))
                with engine.connect() as connection:
                    problems += ((fault, as_commands(remedy)) for fault, remedy in installation_faults(connection))
            if print_rows(printing.format, _PROBLEMS, problems):
                raise typer.Exit(1)
            return
    if printing.format is not Format.TABLE:
        row = status.server, status.version, status.revision, outdated, len(status.indexes)
        print_rows(printing.format, _STATUS, [row])
        return
    print(f"PostgreSQL     {status.server}")
    if status.version is None:
        print(f"schema simsql  not installed: run {connecting.install}")
        return
    advice = f", outdated: run {connecting.install}" if outdated else ""
    print(f"schema simsql  {status.version} (revision {status.revision}{advice})")
    print(f"indexes        {len(status.indexes):,}")
    if status.indexes:
        print_indexes(printing.format, status)


def _describe(index: Row[Any]) -> tuple[str, str]:
    """Return the problem of an index, and its remedy."""
    reason, remedy = index.state, index.hint
    if reason == "ready":
        reason, _, remedy = remedy.partition(": ")
    return f"{printable(index.table_name)}({printable(index.column_name)}): {reason}", as_commands(remedy)


def _read_time(written: str | timedelta) -> timedelta:
    found = re.fullmatch("([0-9]{1,6})(s|min|h)", str(written))
    if not found or not int(found[1]):
        raise typer.BadParameter(f"{written!r} is not a time such as 90s, 10min or 2h")
    return timedelta(seconds=int(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]])


@command("maintain")
def maintain_command(
    *, time_limit: Annotated[timedelta | None, option("--time-limit", parser=_read_time)] = None, run: Working
) -> None:
    """Verify and vacuum the indexes that need it.

    Compare a sample of the rows of each index that your role owns with its keys, and remove superfluous keys if
    there are many: keys that no row has any more, or that repeat another. The worst index comes first. Others can
    read and write meanwhile; what they have locked is skipped. If it fails for an index, go on with the others,
    and exit with code 1 at the end. Meant for a schedule, with --quiet.
    """
    from simsql.database import maintain

    with run.open() as engine:
        maintain(engine, time_limit=time_limit, report=lambda line: run.remark(as_commands(line)))


@command("server")
def server_command(folder: Folder) -> None:
    """Run an embedded server until Ctrl-C.

    Start the server, print its URL and wait for Ctrl-C or SIGTERM. Meanwhile, connect with psql, --database or any
    program on this machine. The last process that uses the server stops it.
    """
    from simsql.server import start_embedded

    with start_embedded(folder) as server:
        with postgresql_errors():
            url = server.url().set(drivername="postgresql")
        print(url.render_as_string(hide_password=False), flush=True)
        while True:
            signal.pause()
