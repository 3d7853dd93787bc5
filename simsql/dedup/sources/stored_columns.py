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
    ignored = [column for column in (*(column for column, _ in indexes), sketches) if column]
    why: str | None = f"no simhash index of the table that you can read has recipe {options.recipe.id}"
    fingerprints = None
    for column, recipe_id in indexes:
        if not same_recipe(recipe_id, options.recipe.id):
            continue
        sample = source.raw.execute(
            source.compose(_SAMPLE_OF, stored=column, sketch=source.number(sketches))
        ).fetchall()
        words = ["simsql", "backfill", source.name, "--column", column, "--text-column", options.text_column]
        ignored, why = [column], _refuse_fingerprints(source, options, sample, shlex.join(words))
        if why:
            continue
        fingerprints = column
        if sketches:
            words += ["--sketch-column", sketches]
            ignored, why = [sketches], _refuse_sketches(source, options, sketches, sample, shlex.join(words))
        break
    if why and ignored:
        why = f"not used: {' and '.join(ignored)} of {source.name}, because {why}"
        return StoredColumns(fingerprints, None, why)
    return StoredColumns(fingerprints, fingerprints and sketches, None)


def _find_sketches(source: SourceTable, named: str | None) -> str | None:
    """Return the name of the column that may hold the sketches."""
    found = source.look_up("sketch") if named is None else source.find_column(named)
    if found and found.type == "bigint":
        return named or "sketch"
    if named is not None:
        raise UsageError(f"column {named} of {source.name} is not bigint: it cannot hold sketches")
    return None


def _refuse_fingerprints(
    source: SourceTable, options: TableOptions, sample: Sequence[tuple[Any, ...]], filling: str
) -> str | None:
    """Return why a column does not have the fingerprints of the texts, given a sample of it."""
    made = simhash_many([text for _, _, text, _, _ in sample], options.recipe)
    stored = np.array([value for *_, value, _ in sample], dtype=np.int64).view(np.uint64)
    (wrong,) = np.nonzero(np.ma.getmaskarray(made) | (made.data != stored))
    if len(wrong):
        row = source.name_row(*sample[wrong[0]][:2])
        why = f"{row} has a fingerprint that is not that of its {options.text_column}. To replace it, run"
        return f"{why} {filling} --all-rows"
    return None if sample else f"it has no fingerprints. Fill it: {filling}"


def _refuse_sketches(
    source: SourceTable, options: TableOptions, sketches: str, sample: Sequence[tuple[Any, ...]], filling: str
) -> str | None:
    """Return why a column does not have the sketches of the texts. Raises UsageError if the user has named it."""
    there = [row for row in sample if row[-1] is not None]
    wrong: Any = next((row for row in there if sketch_of(row[2]) != row[-1] % (1 << 64)), None)
    try:
        refuse_other_sketches(source.find_column(sketches).comment, "it")
    except UsageError as error:
        why: str | None = str(error)
    else:
        again = f"If it is the column of the sketches, run {filling} --all-rows"
        why = wrong and f"{source.name_row(*wrong[:2])} has a sketch that is not that of its text. {again}"
    if why and options.sketch_column:
        raise UsageError(f"column {sketches} of {source.name} cannot be used: {why}")
    return why if why or there else f"it has no sketches. Fill it: {filling}"
