"""Simhash indexes in Alembic migrations: operations and autogenerate.

In env.py:

    import simsql.alembic

    simsql.alembic.register()

This adds op.install_simsql(), op.create_simhash_index() and the other operations. `alembic revision
--autogenerate` and `alembic check` then compare the `SimhashIndex` items of the models with the database. Use the
operation classes in your own Rewriter or process_revision_directives.
"""

from simsql.alembic.autogenerate import include_object, register
from simsql.alembic.operations import (
    AlterSimhashIndexOp,
    ChangeSimhashStorageOp,
    ClearFingerprintsOp,
    CreateSimhashIndexOp,
    DropSimhashIndexOp,
)

__all__ = [
    "AlterSimhashIndexOp",
    "ChangeSimhashStorageOp",
    "ClearFingerprintsOp",
    "CreateSimhashIndexOp",
    "DropSimhashIndexOp",
    "include_object",
    "register",
]
