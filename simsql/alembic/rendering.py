"""Render operations in a migration, with the imports that they need."""

import re
import shlex
from collections.abc import Callable
from typing import Any, Literal

from alembic.autogenerate.api import AutogenContext

from simsql.alembic.operations import (
    BuildSimhashIndexOp,
    ChangeSimhashStorageOp,
    ClearFingerprintsOp,
    CreateSimhashIndexOp,
    DropSimhashIndexOp,
    InstallSimsqlOp,
    UninstallSimsqlOp,
)
from simsql.database.index_spec import is_text_recipe
from simsql.fingerprint import DEFAULT_RECIPE, Recipe
from simsql.sqlalchemy import Fingerprint

RenderItem = Callable[[str, Any, AutogenContext], str | Literal[False]]


def render_install(context: AutogenContext, operation: InstallSimsqlOp) -> str:  # noqa: ARG001 - Alembic passes it
    """Render `op.install_simsql()`."""
    return _call(context, "install_simsql")


def render_uninstall(context: AutogenContext, operation: UninstallSimsqlOp) -> str:  # noqa: ARG001
    """Render `op.uninstall_simsql()`."""
    return _call(context, "uninstall_simsql")


def render_index(context: AutogenContext, operation: CreateSimhashIndexOp) -> str:
    """Render `op.create_simhash_index(...)` or `op.build_simhash_index(...)`, in plain literals."""
    name = "build_simhash_index" if isinstance(operation, BuildSimhashIndexOp) else "create_simhash_index"
    return _call(context, name, operation, operation.spec.options())


def render_drop(context: AutogenContext, operation: DropSimhashIndexOp) -> str:
    """Render `op.drop_simhash_index(...)`."""
    return _call(context, "drop_simhash_index", operation, {})


def render_change(context: AutogenContext, operation: ChangeSimhashStorageOp) -> str:
    """Render `op.change_simhash_storage(...)`."""
    return _call(context, "change_simhash_storage", operation, {"storage": operation.storage})


def render_clear(context: AutogenContext, operation: ClearFingerprintsOp) -> list[str]:
    """Render `op.clear_fingerprints(...)` after a comment with the reason and the command to run afterwards."""
    recipes = operation.old_recipe, operation.new_recipe
    old, new = (f"recipe {name}" if name else "no named recipe" for name in recipes)
    comment = [
        f"Fingerprints of {old} cannot be compared with those of {new}, so the column is cleared.",
        _refill(operation),
    ]
    if not operation.undoes:
        comment.append(f"To keep the old ones, name {old} in the model and generate this revision again.")
    # A name may hold a line break, and what follows it would be code.
    return [
        *(f"# {' '.join(line.splitlines())}" for line in comment),
        _call(context, "clear_fingerprints", operation, {}),
    ]


def _refill(operation: ClearFingerprintsOp) -> str:
    """Return a sentence on how to compute the new fingerprints."""
    if not is_text_recipe(operation.new_recipe):
        return "Fill it in again afterwards."
    try:
        Recipe.from_id(operation.new_recipe or DEFAULT_RECIPE.id)
        recipe = ""
    except ValueError:
        recipe = " --recipe FILE"
    names = [name for name in (operation.schema, operation.table_name) if name is not None]
    table = ".".join(name if re.fullmatch("[a-z_][a-z0-9_]*", name) else f'"{name}"' for name in names)
    texts = [name if weight == 1 else f"{name}={weight}" for name, weight in operation.texts.items()] or ["COLUMN"]
    arguments = [
        table,
        "--column",
        operation.column_name,
        *(part for name in texts for part in ("--text-column", name)),
    ]
    return f"Fill it in again afterwards: simsql backfill {shlex.join(arguments)}{recipe}"


def _call(
    context: AutogenContext,
    name: str,
    operation: CreateSimhashIndexOp
    | DropSimhashIndexOp
    | ChangeSimhashStorageOp
    | ClearFingerprintsOp
    | None = None,
    options: dict[str, object] | None = None,
) -> str:
    arguments = []
    if operation:
        column = operation.spec.column if isinstance(operation, CreateSimhashIndexOp) else operation.column_name
        # Names may be a subclass of str that is written otherwise.
        arguments = [repr(str(operation.table_name)), repr(str(column))]
        if operation.schema is not None:
            arguments.append(f"schema={str(operation.schema)!r}")
        arguments += [f"{option}={value!r}" for option, value in (options or {}).items()]
    return f"{context.opts['alembic_module_prefix'] or ''}{name}({', '.join(arguments)})"


def import_fingerprint(render_item: RenderItem | None) -> RenderItem:
    """Return a render_item that adds the import of the fingerprint type where a migration uses it.

    The result of the user's own hook has priority.
    """

    def render(kind: str, item: Any, context: AutogenContext) -> str | Literal[False]:
        rendered = render_item(kind, item, context) if render_item else False
        if rendered is False and isinstance(item, Fingerprint):
            context.imports.add("import simsql.sqlalchemy")
        return rendered

    return render
