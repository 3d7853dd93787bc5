"""Alembic's environment for simsql's own schema.

It has a version table of its own inside the schema `simsql` and never touches the history of the
application that the database belongs to. `simsql install` and `simsql sql` run it; there is no alembic.ini.
"""

from alembic import context
from sqlalchemy import text

config = context.config
options = {
    "version_table": config.attributes["version_table"],
    "version_table_schema": "simsql",
    "target_metadata": None,
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **options)
    with context.begin_transaction():
        # The version table is created before the first migration runs, and needs its schema.
        context.execute("CREATE SCHEMA IF NOT EXISTS simsql")
        context.run_migrations()
else:
    connection = config.attributes["connection"]
    connection.execute(text("CREATE SCHEMA IF NOT EXISTS simsql"))
    context.configure(connection=connection, **options)
    with context.begin_transaction():
        context.run_migrations()
