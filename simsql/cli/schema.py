"""`simsql install`, `status` and `sql`: simsql's own schema in a database."""

from simsql.cli._app import Database, Keep, command, open_database
from simsql.cli.index import print_indexes
from simsql.database.install import install_schema, read_status, schema_sql


@command("install")
def install_command(database: Database = None, keep: Keep = None) -> None:
    """Install or update the schema in a database."""
    with open_database(database, keep, new=True) as engine:
        changed = install_schema(engine)
        status = read_status(engine)
    print(f"schema simsql {status.version}: {'installed' if changed else 'up to date'}")


@command("status")
def status_command(database: Database = None, keep: Keep = None) -> None:
    """Say what of simsql a database holds."""
    with open_database(database, keep) as engine:
        status = read_status(engine)
    print(f"PostgreSQL     {status.server}")
    if status.version is None:
        print("schema simsql  not installed: run simsql install")
        return
    outdated = "" if status.revision == status.newest_revision else ", outdated: run simsql install"
    print(f"schema simsql  {status.version} (revision {status.revision}{outdated})")
    print(f"indexes        {len(status.indexes)}")
    if status.indexes:
        print_indexes(status.indexes)


@command("sql")
def sql_command() -> None:
    """Print the SQL that installs the schema.

    It is for a database that has none. Connects to nothing.
    """
    print(schema_sql(), end="")
