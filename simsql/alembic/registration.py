"""Register the operations with Alembic: how to run, render and compare them."""

from functools import cache
from typing import Any

from alembic import util
from alembic.autogenerate import comparators, renderers
from alembic.operations import Operations

from simsql.alembic.autogenerate import compare_indexes, leave_out_schema
from simsql.alembic.operations import (
    BuildSimhashIndexOp,
    ClearFingerprintsOp,
    CreateSimhashIndexOp,
    DropSimhashIndexOp,
    InstallSimsqlOp,
    UninstallSimsqlOp,
    build_index,
    clear_fingerprints,
    create_index,
    drop_index,
    install,
    uninstall,
)
from simsql.alembic.rendering import render_clear, render_drop, render_index, render_install, render_uninstall

_OPERATIONS: tuple[tuple[str, Any, Any, Any], ...] = (
    ("install_simsql", InstallSimsqlOp, install, render_install),
    ("uninstall_simsql", UninstallSimsqlOp, uninstall, render_uninstall),
    ("create_simhash_index", CreateSimhashIndexOp, create_index, render_index),
    ("build_simhash_index", BuildSimhashIndexOp, build_index, render_index),
    ("drop_simhash_index", DropSimhashIndexOp, drop_index, render_drop),
    ("clear_fingerprints", ClearFingerprintsOp, clear_fingerprints, render_clear),
)


@cache  # Alembic runs env.py for every command, and takes no operation twice
def register() -> None:
    """Add simsql's operations to `op`, and simhash indexes to autogenerate and check.

    Call it in env.py, before `context.configure`. Further calls have no effect.
    """
    for name, operation, implementation, renderer in _OPERATIONS:
        Operations.register_operation(name)(operation)
        Operations.implementation_for(operation)(implementation)
        renderers.dispatch_for(operation)(renderer)
    # Indexes are compared when tables have been: what is created and dropped is known then. Up to Alembic 1.17,
    # comparators run in the order in which they are registered, and Alembic's own comes first.
    if hasattr(util, "DispatchPriority"):
        comparators.dispatch_for("schema", priority=util.DispatchPriority.FIRST)(leave_out_schema)
        comparators.dispatch_for("schema", priority=util.DispatchPriority.LAST)(compare_indexes)
    else:
        comparators.dispatch_for("schema")(compare_indexes)
