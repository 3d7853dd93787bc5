"""`simsql install`, `uninstall`, `status`, `maintain` and `server`: what simsql itself needs.

They manage its schema in a database, and its embedded server.
"""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import Annotated

import typer

from simsql.cli._app import as_commands, command
from simsql.cli._database import Connecting, Working, postgresql_errors
from simsql.cli._options import Folder, LockTimeout, Printing, option, read_time
from simsql.cli.index import print_indexes
from simsql.documents.output_formats import Column, Format, print_rows
from simsql.errors import UsageError

_PROBLEMS = (Column("problem"), Column("remedy"))
_STATUS = tuple(map(Column, ("postgresql", "schema", "revision", "outdated", "indexes")))


@command("install")
def install_command(
    *,
    sql: Annotated[bool, option("--sql")] = False,
    start: Annotated[str | None, option("--from")] = None,
    lock_timeout: LockTimeout = None,
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
    with connecting.open(new=True, lock_timeout=lock_timeout) as engine:
        before = read_status(engine)
        changed = install_schema(engine, report=print)
        status = read_status(engine)
    done = "completed" if before.revision == status.revision else "upgraded" if before.version else "installed"
    print(f"schema simsql {status.version}: {done if changed else 'up to date'}")


@command("uninstall")
def uninstall_command(
    *,
    drop_indexes: Annotated[bool, option("--drop-indexes")] = False,
    lock_timeout: LockTimeout = None,
    connecting: Connecting,
) -> None:
    """Remove the schema from a database.

    Fail if there are simhash indexes, or views and other objects of yours that use simsql. Your tables keep their
    fingerprint columns and the B-trees on them.
    """
    from simsql.database import uninstall_schema

    with connecting.open(lock_timeout=lock_timeout) as engine:
        removed = uninstall_schema(engine, drop_indexes=drop_indexes)
    print(f"schema simsql: {'uninstalled' if removed else 'not installed'}")


@command("status")
def status_command(
    *, check: Annotated[bool, option("--check")] = False, printing: Printing, connecting: Connecting
) -> None:
    """Show the installed version and indexes.

    A table includes the indexes. The other formats give their number: simsql index list prints them. With --check,
    print one row per problem with its remedy instead: if simsql is not installed or outdated, what the server or
    the role lacks for the installation; otherwise the rows of the view simsql.problems, such as indexes that need
    a repair or a vacuum, and roles with privileges that they should not have.
    """
    from simsql.database import read_status
    from simsql.database.install import missing_requirements, problems

    with connecting.open() as engine:
        status = read_status(engine)
        outdated = status.version is not None and status.revision != status.newest_revision
        if check:
            found = [(f"schema simsql {status.version} is outdated", f"run {connecting.install}")] * outdated
            with engine.connect() as connection:
                if status.revision != status.newest_revision:
                    found += missing_requirements(connection)
                else:
                    found += ((problem, as_commands(remedy)) for problem, remedy in problems(connection))
            if print_rows(printing.format, _PROBLEMS, found):
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
    fault = "outdated" if outdated else "" if status.complete else "restored without its data"
    advice = f", {fault}: run {connecting.install}" if fault else ""
    print(f"schema simsql  {status.version} (revision {status.revision}{advice})")
    print(f"indexes        {len(status.indexes):,}")
    if status.indexes:
        print_indexes(printing.format, status)


@command("maintain")
def maintain_command(
    *, time_limit: Annotated[timedelta | None, option("--time-limit", parser=read_time)] = None, run: Working
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
