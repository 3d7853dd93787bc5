"""Keep fingerprints up to date in INSERT and UPDATE statements, which bypass the unit of work.

An INSERT computes them in a column default, row by row. An UPDATE that sets a source but not the fingerprint is
completed when it is executed, and so is ON CONFLICT DO UPDATE. If Python knows the new text, the fingerprint is
computed. If only PostgreSQL knows it, rows whose text changes lose their fingerprint: a backfill finds a null, but
nothing finds a fingerprint of another text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    Column,
    ColumnDefault,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    Null,
    Update,
    and_,
    bindparam,
    case,
    event,
    func,
    literal,
    null,
)
from sqlalchemy.orm import ORMExecuteState, Session
from sqlalchemy.util import immutabledict

from simsql.fingerprint import Recipe
from simsql.sqlalchemy.recipes import refuse_other_recipe
from simsql.sqlalchemy.sources import Sources, computed_columns, source_key

# The parameters of one execution, by name.
_Row: TypeAlias = Mapping[str, Any]
_Computed: TypeAlias = list[tuple[Column[Any], Recipe]]

# The execution option with the columns that a session has computed before the statement is executed.
_COMPUTED = "simsql_computed"
# Stands for a text that only PostgreSQL knows.
_UNKNOWN = object()


def add_default(column: Column[Any], _: object) -> None:
    """Add a default that computes the fingerprint to a column of a table, unless it has a default."""
    sources = getattr(column.type, "sources", None)  # an array of fingerprints has none
    if column.default is not None or not isinstance(sources, Sources):
        return

    def compute(context: Any) -> int | None:
        """Return the fingerprint for the row that is being inserted; None unless the row has all sources."""
        original, row = _inserted_row(context)
        keys = {name: source_key(original, name) for name, _ in sources.weights}
        if not row.keys() >= set(keys.values()):
            return None  # what is missing may be an expression
        texts = {name: row[key] for name, key in keys.items()}
        refuse_other_recipe(context.root_connection, original, sources.recipe, context.execution_options)
        return sources.compute(texts, "a fingerprint")

    ColumnDefault(compute)._set_parent_with_dispatch(column)


def _inserted_row(context: Any) -> tuple[Column[Any], _Row]:
    """Return the column for which a default is computed, and the values of its row by the keys of the columns."""
    column, row = context.current_column, context.get_current_parameters(isolate_multiinsert_groups=False)
    if not context.compiled.compile_state._has_multi_parameters:
        return column, row
    # One of several rows in VALUES: parameters have its number, and from the second row on, so has the column.
    # SQLAlchemy separates the rows itself, but not those of a mapped class, nor rows with an expression.
    number = column.index + 1 if column._is_multiparam_column else 0
    column = column.original if number else column
    keys = column.table.columns.keys()
    return column, {key: row[f"{key}_m{number}"] for key in keys if f"{key}_m{number}" in row}


def follow_statements() -> None:
    """Register the listeners for the statements of all engines and sessions."""
    event.listen(Engine, "before_execute", _on_execute, retval=True)
    event.listen(Session, "do_orm_execute", _on_orm_execute)


def _on_execute(
    connection: Connection, statement: Any, several: Sequence[_Row], one: _Row, options: Mapping[str, Any]
) -> tuple[Any, Sequence[_Row], _Row]:
    if isinstance(statement, Update | Insert):
        statement, rows, computed = _complete(statement, several or [one])
        for column, recipe in [*computed, *options.get(_COMPUTED, ())]:
            refuse_other_recipe(connection, column, recipe, options)
        several, one = (rows, {}) if several else ([], rows[0])
    return statement, several, one


def _on_orm_execute(state: ORMExecuteState) -> None:
    """Complete an UPDATE before the session brings the objects that it holds up to date."""
    if isinstance(state.statement, Update) and not state.parameters:
        state.statement, _, computed = _complete(state.statement, [{}])
        state.update_execution_options(**{_COMPUTED: computed})


def _complete(statement: Update | Insert, rows: Sequence[_Row]) -> tuple[Any, Sequence[_Row], _Computed]:
    """Return the statement with the fingerprints that it lacks, its parameters, and what was computed."""
    computed: _Computed = []
    for column, sources in computed_columns(statement.table.columns):
        keys = {name: source_key(column, name) for name, _ in sources.weights}
        if isinstance(statement, Update):
            statement, rows, is_computed = _complete_update(statement, rows, column, sources, keys)
        else:
            statement, is_computed = _complete_conflict(statement, column, sources, keys)
        if is_computed:
            computed.append((column, sources.recipe))
    return statement, rows, computed


def _complete_update(
    statement: Any, rows: Sequence[_Row], column: Column[Any], sources: Sources, keys: Mapping[str, str]
) -> tuple[Update, Sequence[_Row], bool]:
    """Return the UPDATE, its parameters, and whether fingerprints were computed."""
    ordered = getattr(statement, "_ordered_values", None)  # of SQLAlchemy 2.0
    given = _by_key(ordered or (statement._values or {}).items())
    written = given.keys() | rows[0].keys()
    if column.key in written or written.isdisjoint(keys.values()):
        return statement, rows, False
    texts = [
        {name: _text(given.get(key, row.get(key, _UNKNOWN)), row) for name, key in keys.items()} for row in rows
    ]
    value: ColumnElement[Any]
    is_computed = all(text is not _UNKNOWN for of_row in texts for text in of_row.values())
    if not is_computed:
        new = {key: given.get(key, bindparam(key)) for key in keys.values() if key in written}
        value = _unless_changed(column, new)
    else:
        found = [sources.compute(of_row, str(column)) for of_row in texts]
        value = literal(found[0], column.type)
        if rows[0]:
            name = f"simsql_{column.key}"
            value = bindparam(name, type_=column.type)
            rows = [{**row, name: fingerprint} for row, fingerprint in zip(rows, found, strict=True)]
    statement = statement._generate()
    if ordered:
        statement._ordered_values = [*ordered, (column, value)]
    else:
        statement._values = immutabledict({**(statement._values or {}), column: value})
    return statement, rows, is_computed


def _complete_conflict(
    statement: Any, column: Column[Any], sources: Sources, keys: Mapping[str, str]
) -> tuple[Insert, bool]:
    """Return the INSERT, and whether a fingerprint was computed for its ON CONFLICT DO UPDATE."""
    clause = statement._post_values_clause
    set_here = getattr(clause, "update_values_to_set", {})
    given = _by_key(set_here.items() if isinstance(set_here, dict) else set_here)  # a list in SQLAlchemy 2.0
    of_row = all(_is_excluded(given.get(key), key) for key in keys.values())
    by_hand = column.key in given and not (of_row and _is_excluded(given[column.key], column.key))
    if by_hand or given.keys().isdisjoint(keys.values()):
        return statement, False
    texts = {name: _text(given.get(key, _UNKNOWN), {}) for name, key in keys.items()}
    is_computed = _UNKNOWN not in texts.values()
    value: ColumnElement[Any]
    if is_computed:
        value = literal(sources.compute(texts, str(column)), column.type)
    else:
        value = _unless_changed(column, {key: given[key] for key in keys.values() if key in given})
        if of_row:
            value = func.coalesce(statement.excluded[column.key], value)
    clause = clause._clone()
    clause.update_values_to_set = type(set_here)({**given, column.key: value}.items())
    statement = statement._generate()
    statement._post_values_clause = clause
    return statement, is_computed


def _by_key(values: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return the values that a statement sets by the keys of their columns."""
    return {key if isinstance(key, str) else key.key: value for key, value in values}


def _text(value: Any, row: _Row) -> Any:
    """Return the value in Python of a text that a statement sets; _UNKNOWN for an SQL expression."""
    if isinstance(value, BindParameter):
        if value.key in row:
            return row[value.key]
        return _UNKNOWN if value.required else value.effective_value
    if isinstance(value, Null):
        return None
    return _UNKNOWN if hasattr(value, "__clause_element__") or isinstance(value, ClauseElement) else value


def _is_excluded(value: Any, key: str) -> bool:
    """Return whether this is a column of the row that an INSERT with ON CONFLICT has proposed."""
    return (
        getattr(value, "key", None) == key and getattr(getattr(value, "table", None), "name", None) == "excluded"
    )


def _unless_changed(column: Column[Any], new: Mapping[str, Any]) -> ColumnElement[Any]:
    """Return the fingerprint as it is, or NULL if a source changes, or may change by a parameter."""
    same = []
    for key, value in new.items():
        source, known = column.table.columns[key], _text(value, {})
        if known is _UNKNOWN and isinstance(value, BindParameter):
            return null()
        same.append(source.is_not_distinct_from(value if known is _UNKNOWN else literal(known, source.type)))
    return case((and_(*same), column))
