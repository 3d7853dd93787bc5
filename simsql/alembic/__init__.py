"""Simhash indexes in Alembic migrations: operations and autogenerate.

In env.py:

    import simsql.alembic

    simsql.alembic.register()

From then on there are op.install_simsql(), op.create_simhash_index() and so on, and `alembic revision
--autogenerate` and `alembic check` compare the `SimhashIndex` items of the models with the database. The classes
of the operations are for a Rewriter or process_revision_directives of your own. `include_object` is for projects
that use alembic_utils.
"""

from simsql.alembic.filters import include_object
from simsql.alembic.operations import (
    BuildSimhashIndexOp,
    ClearFingerprintsOp,
    CreateSimhashIndexOp,
    DropSimhashIndexOp,
    InstallSimsqlOp,
    UninstallSimsqlOp,
)
from simsql.alembic.registration import register

__all__ = [
    "BuildSimhashIndexOp",
    "ClearFingerprintsOp",
    "CreateSimhashIndexOp",
    "DropSimhashIndexOp",
    "InstallSimsqlOp",
    "UninstallSimsqlOp",
    "include_object",
    "register",
]
