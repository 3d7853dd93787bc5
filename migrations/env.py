"""Alembic's environment for simsql's own schema.

It has a version table of its own inside the schema `simsql` and never touches the history of the application that
the database belongs to. It serves `alembic current`, `history` and `revision`. Upgrades are run by
`simsql.database.history`: they are more than the revisions, since they also lock and update all indexes.
"""

import os

from alembic import context
from alembic.util import CommandError

from simsql.database import open_engine


def refuse(**_: object) -> None:
    """Raise CommandError, and so undo what `alembic upgrade` does."""
    raise CommandError(
        "upgrade simsql's schema with `simsql install` or `op.install_simsql()`, not with `alembic upgrade`"
    )


OPTIONS = {
    "version_table": "schema_version",
    "version_table_schema": "simsql",
    "on_version_apply": refuse,
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **OPTIONS)
    context.run_migrations()
else:
    engine = open_engine(os.environ["SIMSQL_DATABASE"])
    try:
        with engine.connect() as connection:
            context.configure(connection=connection, **OPTIONS)
            context.run_migrations()
    finally:
        engine.dispose()
