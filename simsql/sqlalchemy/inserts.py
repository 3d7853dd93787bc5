"""Compute fingerprints and sketches in INSERT statements without the unit of work, through a column default."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Column, ColumnDefault

from simsql.database.sources import Sources, compute_many
from simsql.sqlalchemy.recipes import refuse_other_recipe
from simsql.sqlalchemy.sources import compute_row, find_other, source_key

# The last text of an execution, and its values by the names of the columns.
_last: WeakKeyDictionary[Any, tuple[str, dict[str, int | None]]] = WeakKeyDictionary()


def add_default(column: Column[Any], _: object) -> None:
    """Add a default that computes the value to a column of a table, unless it has a default."""
    sources = getattr(column.type, "sources", None)  # an array of fingerprints has none
    if column.default is not None or not isinstance(sources, Sources):
        return

    def compute(context: Any) -> int | None:
        """Return the value for the row that is being inserted; None unless the row has all sources."""
        original, row = _inserted_row(context)
        keys = {name: source_key(original, name) for name in sources.names}
        if not row.keys() >= set(keys.values()):
            return None  # what is missing may be an expression
        texts = {name: row[key] for name, key in keys.items()}
        refuse_other_recipe(context.root_connection, original, sources, context.execution_options)
        other, of_other = find_other(sources, original.table.columns)
        text = next(iter(texts.values()))
        if other is None or not isinstance(text, str):
            return compute_row(sources, texts, f"{original.table.name}.{original.name}")
        # Both columns of a row are computed one after the other.
        of_text, values = _last.get(context, (None, {}))
        if of_text != text or original.name not in values:
            ((own, others),) = compute_many([text], sources, of_other)
            values = {original.name: own, other.name: others}
            _last[context] = text, values
        return values[original.name]

    ColumnDefault(compute)._set_parent_with_dispatch(column)


def _inserted_row(context: Any) -> tuple[Column[Any], Mapping[str, Any]]:
    """Return the column for which a default is computed, and the values of its row by the keys of the columns."""
    column, row = context.current_column, context.get_current_parameters(isolate_multiinsert_groups=False)
    # An INSERT in a CTE is a part of a statement of another kind.
    if not getattr(context.compiled.compile_state, "_has_multi_parameters", False):
        return column, row
    # One of several rows in VALUES: parameters have its number, and from the second row on, so has the column.
    # SQLAlchemy separates the rows itself, but not those of a mapped class, nor rows with an expression.
    number = column.index + 1 if column._is_multiparam_column else 0
    column = column.original if number else column
    names = {key: f"{key}_m{number}" for key, _ in column.table.columns.items()}
    if number == 0:
        # Another default has stored its value for the first row under the bare key.
        row = {names[key]: row[key] for key in names if key in row} | row
    return column, {key: row[name] for key, name in names.items() if name in row}
