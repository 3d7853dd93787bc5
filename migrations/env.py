"""Alembic's environment for simsql's own schema.

It has a version table of its own inside the schema `simsql` and never touches the history of the application that
the database belongs to. It serves Alembic's own commands (see alembic.ini); simsql itself runs the revisions by
`simsql.database.history`.
"""

import os

from alembic import context
from alembic.operations import Operations
from sqlalchemy import text

from simsql.database import open_engine
from simsql.database.history import VERSION_TABLE, find_folder


def run() -> None:
    """Run the revisions, whose arguments are the operations and the folder of SQL files."""
    with context.begin_transaction():
        # The version table is created before the first revision runs, and needs its schema.
        context.execute(text("CREATE SCHEMA IF NOT EXISTS simsql"))
        context.run_migrations(operations=Operations(context.get_context()), sql=find_folder("sql"))


if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **VERSION_TABLE)
    run()
else:
    engine = open_engine(os.environ["SIMSQL_DATABASE"])
    with engine.connect() as connection:
        context.configure(connection=connection, **VERSION_TABLE)
        run()
    engine.dispose()
