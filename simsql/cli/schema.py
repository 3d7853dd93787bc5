"""`simsql install`, `upgrade`, `uninstall`, `status` and `sql`: simsql's own schema in a database."""

from typing import Annotated

from simsql.cli._app import command
from simsql.cli._database import open_database
from simsql.cli._options import Database, Formatted, ServerDir, option
from simsql.cli._rows import Column, Format, choose_format, print_rows
from simsql.cli.index import print_indexes
from simsql.database.install import install_schema, read_status, schema_sql, uninstall_schema, upgrade_schema

_STATUS = tuple(map(Column, ("postgresql", "schema", "revision", "outdated", "indexes")))


@command("install")
def install_command(database: Database = None, server_dir: ServerDir = None) -> None:
    """Install or update the schema in a database."""
    with open_database(database, server_dir, new=True) as engine:
        changed = install_schema(engine)
        status = read_status(engine)
    print(f"schema simsql {status.version}: {'installed' if changed else 'up to date'}")


@command("upgrade")
def upgrade_command(database: Database = None, server_dir: ServerDir = None) -> None:
    """Update the schema in a database that has it.

    Indexes stay, and are searched as before.
    """
    with open_database(database, server_dir) as engine:
        changed = upgrade_schema(engine)
        status = read_status(engine)
    print(f"schema simsql {status.version}: {'upgraded' if changed else 'up to date'}")


@command("uninstall")
def uninstall_command(
    drop_indexes: Annotated[bool, option("--drop-indexes")] = False,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Remove the schema from a database.

    Refuses while there are simhash indexes, or views and other things of yours that use simsql. Your tables keep
    their columns of fingerprints and the B-trees on them.
    """
    with open_database(database, server_dir) as engine:
        removed = uninstall_schema(engine, drop_indexes=drop_indexes)
    print(f"schema simsql: {'uninstalled' if removed else 'not installed'}")


@command("status")
def status_command(
    form: Formatted = None,
    database: Database = None,
    server_dir: ServerDir = None,
) -> None:
    """Show the version and the indexes of a database.

    Lines for programs hold the versions and the number of indexes: simsql index list prints the indexes.
    """
    wanted = choose_format(form)
    with open_database(database, server_dir) as engine:
        status = read_status(engine)
    outdated = status.version is not None and status.revision != status.newest_revision
    if wanted is not Format.TABLE:
        row = status.server, status.version, status.revision, outdated, len(status.indexes)
        print_rows(wanted, _STATUS, [row])
        return
    print(f"PostgreSQL     {status.server}")
    if status.version is None:
        print("schema simsql  not installed: run simsql install")
        return
    advice = ", outdated: run simsql upgrade" if outdated else ""
    print(f"schema simsql  {status.version} (revision {status.revision}{advice})")
    print(f"indexes        {len(status.indexes):,}")
    if status.indexes:
        print_indexes(wanted, status.indexes)


@command("sql")
def sql_command(
    start: Annotated[str | None, option("--from")] = None,
) -> None:
    """Print the SQL that installs or updates the schema.

    simsql status shows the revision of a database. Connects to nothing.
    """
    print(schema_sql(start), end="")
