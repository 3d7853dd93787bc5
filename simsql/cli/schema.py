"""`simsql install`, `upgrade`, `uninstall`, `status` and `sql`: simsql's own schema in a database."""

from typing import Annotated

import typer

from simsql.cli._app import Database, ServerDir, command
from simsql.cli._database import open_database
from simsql.cli.index import print_indexes
from simsql.database.install import install_schema, read_status, schema_sql, uninstall_schema, upgrade_schema


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
    drop_indexes: Annotated[bool, typer.Option("--drop-indexes", help="Drop all simhash indexes, too.")] = False,
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
def status_command(database: Database = None, server_dir: ServerDir = None) -> None:
    """Show the version and the indexes of a database."""
    with open_database(database, server_dir) as engine:
        status = read_status(engine)
    print(f"PostgreSQL     {status.server}")
    if status.version is None:
        print("schema simsql  not installed: run simsql install")
        return
    outdated = "" if status.revision == status.newest_revision else ", outdated: run simsql upgrade"
    print(f"schema simsql  {status.version} (revision {status.revision}{outdated})")
    print(f"indexes        {len(status.indexes)}")
    if status.indexes:
        print_indexes(status.indexes)


@command("sql")
def sql_command(
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="REVISION", help="Print the upgrade of a database that has this revision."),
    ] = None,
) -> None:
    """Print the SQL that installs or updates the schema.

    simsql status shows the revision of a database. Connects to nothing.
    """
    print(schema_sql(start), end="")
