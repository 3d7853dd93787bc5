"""Find the columns of a table that hold the fingerprints and the sketches of its texts already."""

import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from simsql.database.index_spec import same_recipe
from simsql.database.sketches import refuse_other_sketches
from simsql.dedup.sources.table import SourceTable, TableOptions
from simsql.errors import UsageError
from simsql.fingerprint import simhash_many
from simsql.fingerprint import sketch as sketch_of

# Rows whose stored fingerprints and sketches are compared with those of their texts.
_SAMPLE = 20

# The index may be that of the partitioned table.
_INDEXES = """
    SELECT r.column_name, r.recipe
      FROM simsql.registry AS r
      JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) %(table)s AND a.attname OPERATOR(pg_catalog.=) r.column_name
       AND a.atttypid OPERATOR(pg_catalog.=) CAST('pg_catalog.int8' AS pg_catalog.regtype) AND NOT a.attisdropped
     WHERE r.table_id OPERATOR(pg_catalog.=) %(table)s
        OR r.table_id OPERATOR(pg_catalog.=) ANY (
           ARRAY(SELECT p.relid FROM pg_catalog.pg_partition_ancestors(%(table)s) AS p (relid)))
     ORDER BY r.id
"""
_WITH_FINGERPRINTS = (
    "SELECT {t}.tableoid, {t}.ctid, {t}.{text}, {t}.{stored}, {sketch} FROM {rows_of} AS {t}"
    " WHERE {t}.{text} IS NOT NULL AND {t}.{stored} IS NOT NULL AND {guard}"
)
# Rows with a sketch first: one of a column that is being filled may be anywhere.
_SAMPLE_OF = (
    f"({_WITH_FINGERPRINTS} AND {{sketch}} IS NOT NULL LIMIT {_SAMPLE})"
    f" UNION ALL ({_WITH_FINGERPRINTS} AND {{sketch}} IS NULL LIMIT {_SAMPLE}) LIMIT {_SAMPLE}"
)


class StoredColumns(NamedTuple):
    """The columns with the fingerprints and the sketches of the texts, if they can be used."""

    fingerprint: str | None
    sketch: str | None
    ignored: str | None
    """Why one that is there is not used."""


def find_stored(source: SourceTable, options: TableOptions) -> StoredColumns:
    """Return the column with the fingerprints of the texts by the recipe, if an index tells its recipe.

    A column that has other fingerprints in a sample, as that of another text has, is not one. The same holds for
    the column of the sketches, by default one of type bigint called `sketch`. Raises UsageError if
    `options.sketch_column` is not there, or has other numbers.
    """
    sketches = _find_sketches(source, options.sketch_column)
    indexes = source.raw.execute(_INDEXES, {"table": source.oid}).fetchall() if source.can_read_registry() else []
    owned = [column for column in (*(column for column, _ in indexes), sketches) if column]
    why = f"no simhash index of the table that you can read has recipe {options.recipe.id}"
    ignored = _ignoring(source, owned, why) if owned else None
    for column, recipe_id in indexes:
        if not same_recipe(recipe_id, options.recipe.id):
            continue
        sample = source.raw.execute(
            source.compose(_SAMPLE_OF, stored=column, sketch=source.number(sketches))
        ).fetchall()
        made = simhash_many([text for _, _, text, _, _ in sample], options.recipe)
        stored = np.array([value for *_, value, _ in sample], dtype=np.int64).view(np.uint64)
        (wrong,) = np.nonzero(np.ma.getmaskarray(made) | (made.data != stored))
        words = ["simsql", "backfill", source.name, "--column", column, "--text-column", options.text_column]
        filling = shlex.join(words)
        if len(wrong):
            row = source.name_row(*sample[wrong[0]][:2])
            why = f"{row} has a fingerprint that is not that of its {options.text_column}. To replace it, run"
            ignored = _ignoring(source, [column], f"{why} {filling} --all-rows")
        elif not sample:
            ignored = _ignoring(source, [column], f"it has no fingerprints. Fill it: {filling}")
        elif sketches is None:
            return StoredColumns(column, None, None)
        else:
            filling = f"{filling} --sketch-column {shlex.quote(sketches)}"
            return _with_sketches(source, column, sketches, sample, filling, required=bool(options.sketch_column))
    return StoredColumns(None, None, ignored)


def _find_sketches(source: SourceTable, named: str | None) -> str | None:
    """Return the name of the column that may hold the sketches."""
    found = source.look_up("sketch") if named is None else source.find_column(named)
    if found and found.type == "bigint":
        return named or "sketch"
    if named is not None:
        raise UsageError(f"column {named} of {source.name} is not bigint: it cannot hold sketches")
    return None


def _with_sketches(
    source: SourceTable,
    column: str,
    sketches: str,
    sample: Sequence[tuple[Any, ...]],
    filling: str,
    *,
    required: bool,
) -> StoredColumns:
    """Return the columns, that of the sketches only if it has those of the texts in the sample."""
    try:
        refuse_other_sketches(source.find_column(sketches).comment, "it")
    except UsageError as error:
        return _without_sketches(source, column, sketches, str(error), required=required)
    there = [row for row in sample if row[-1] is not None]
    if not there:
        why = f"it has no sketches. Fill it: {filling}"
        return StoredColumns(column, None, _ignoring(source, [sketches], why))
    for part, tid, text, _, found in there:
        if sketch_of(text) != found % (1 << 64):
            row = source.name_row(part, tid)
            filling = f"If it is the column of the sketches, run {filling} --all-rows"
            why = f"{row} has a sketch that is not that of its text. {filling}"
            return _without_sketches(source, column, sketches, why, required=required)
    return StoredColumns(column, sketches, None)


def _without_sketches(
    source: SourceTable, column: str, sketches: str, why: str, *, required: bool
) -> StoredColumns:
    if required:
        raise UsageError(f"column {sketches} of {source.name} cannot be used: {why}")
    return StoredColumns(column, None, _ignoring(source, [sketches], why))


def _ignoring(source: SourceTable, columns: Sequence[str], why: str) -> str:
    return f"not used: {' and '.join(columns)} of {source.name}, because {why}"
