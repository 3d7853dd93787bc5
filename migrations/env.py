"""Alembic's environment for simsql's own schema.

It has a version table of its own inside the schema `simsql` and never touches the history of the application that
the database belongs to. It serves `alembic current`, `history` and `revision`. Upgrades are run by
`simsql.database.history`: they are more than the revisions.
"""

import os

from alembic import context

from simsql.database import open_engine
from simsql.database.history import VERSION_TABLE

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **VERSION_TABLE)
    context.run_migrations()
else:
    engine = open_engine(os.environ["SIMSQL_DATABASE"])
    try:
        with engine.connect() as connection:
            context.configure(connection=connection, **VERSION_TABLE)
            context.run_migrations()
    finally:
        engine.dispose()
