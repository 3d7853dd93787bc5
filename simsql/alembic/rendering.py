"""How operations are written into a migration, and what has to be imported for it."""

from collections.abc import Callable
from typing import Any, Literal

from alembic.autogenerate.api import AutogenContext

from simsql.alembic.operations import (
    BuildSimhashIndexOp,
    CreateSimhashIndexOp,
    DropSimhashIndexOp,
    InstallSimsqlOp,
    UninstallSimsqlOp,
)
from simsql.sqlalchemy import Fingerprint

RenderItem = Callable[[str, Any, AutogenContext], str | Literal[False]]


def render_install(context: AutogenContext, operation: InstallSimsqlOp) -> str:  # noqa: ARG001 - Alembic passes it
    """Write `op.install_simsql()`."""
    return _call(context, "install_simsql")


def render_uninstall(context: AutogenContext, operation: UninstallSimsqlOp) -> str:  # noqa: ARG001
    """Write `op.uninstall_simsql()`."""
    return _call(context, "uninstall_simsql")


def render_index(context: AutogenContext, operation: CreateSimhashIndexOp) -> str:
    """Write `op.create_simhash_index(...)` or `op.build_simhash_index(...)`, in plain literals."""
    name = "build_simhash_index" if isinstance(operation, BuildSimhashIndexOp) else "create_simhash_index"
    return _call(context, name, operation, operation.options())


def render_drop(context: AutogenContext, operation: DropSimhashIndexOp) -> str:
    """Write `op.drop_simhash_index(...)`."""
    return _call(context, "drop_simhash_index", operation, {})


def _call(
    context: AutogenContext,
    name: str,
    operation: CreateSimhashIndexOp | DropSimhashIndexOp | None = None,
    options: dict[str, object] | None = None,
) -> str:
    arguments = []
    if operation:
        # Names may be a subclass of str that is written otherwise.
        arguments = [repr(str(operation.table_name)), repr(str(operation.column_name))]
        if operation.schema is not None:
            arguments.append(f"schema={str(operation.schema)!r}")
        arguments += [f"{option}={value!r}" for option, value in (options or {}).items()]
    return f"{context.opts['alembic_module_prefix'] or ''}{name}({', '.join(arguments)})"


def import_fingerprint(render_item: RenderItem | None) -> RenderItem:
    """Return a render_item that imports the type of fingerprints where a migration names it.

    What the user's own hook writes, it writes.
    """

    def render(kind: str, item: Any, context: AutogenContext) -> str | Literal[False]:
        rendered = render_item(kind, item, context) if render_item else False
        if rendered is False and isinstance(item, Fingerprint):
            context.imports.add("import simsql.sqlalchemy")
        return rendered

    return render
