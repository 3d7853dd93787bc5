"""Load rows in bulk with COPY, and the keys of an index with them.

The triggers of an index sort and insert the keys of one statement in SQL. A large load into an index that the role
owns disables the insert trigger for its duration, permutes and sorts millions of keys at once in numpy, and copies
them straight into the key tables.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import Connection, Engine

from simsql.arrays.checks import fingerprint_column
from simsql.arrays.columns import Fingerprints
from simsql.arrays.positions import first_of_equals, gather
from simsql.database.bigint import to_bigints
from simsql.database.binds import check_bind
from simsql.database.index_spec import agreed_extract, agreed_recipe
from simsql.database.sketches import check_sketch_column, find_column, refuse_other_sketches
from simsql.database.sources import Extract, text_of
from simsql.database.transfer import copy_columns, raw_connection, sqlalchemy_errors
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import DEFAULT_RECIPE, Recipe, simhash_items, simhash_items_with_sketches
from simsql.hamming import Design

Row = Sequence[Any]
Item = TypeVar("Item")

# Rows of a COPY, and characters or bytes after which it ends earlier. Rows are gathered first: a COPY that waits
# for a slow source would block DROP DATABASE for all databases of the server. Smaller loads do not write keys
# themselves: blocking other writers would cost more than it saves.
_BATCH_ROWS, _BATCH_SIZE = 10_000, 1 << 24
# Keys that are sorted together: the more, the fewer B-tree pages each of them touches.
_SORTED_KEYS = 1 << 22


class FoundTable(NamedTuple):
    """A table as the catalogue shows it."""

    oid: int
    schema: str
    relation: str
    """The bare name."""
    kind: str
    """"r" for a table, "p" for a partitioned one, others for views and the like."""

    @property
    def name(self) -> sql.Identifier:
        """The name for statements."""
        return sql.Identifier(self.schema, self.relation)


class Copier:
    """Add rows to a table with COPY, batch by batch."""

    def __init__(
        self, raw: psycopg.Connection[tuple[Any, ...]], table: FoundTable, columns: Sequence[str]
    ) -> None:
        self.raw = raw
        self.table = table
        self.columns = columns
        active = "SELECT pg_catalog.row_security_active(CAST(%s AS oid)), current_user"
        ((is_secured, role),) = raw.execute(active, [table.oid]).fetchall()
        if is_secured:
            raise SimsqlError(
                f"row-level security of {table.schema}.{table.relation} applies to role {role}, and COPY cannot"
                " load into such a table: load as a role with BYPASSRLS, or insert the rows"
            )

    def add(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add rows; return the ones that were added."""
        names = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(self.table.name, names)
        with self.raw.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
        return rows


class Target(NamedTuple):
    """The columns that receive the fingerprints and sketches of texts, and the recipe of the index, if any."""

    table: str
    column: str
    indexed: bool
    recipe_id: str | None
    sketch_column: str | None
    sources: Mapping[str, int] | None = None
    """The columns of the texts with their weights, if the index knows them."""
    sketch_comment: str | None = None
    """That of the column of the sketches, which says what they are."""
    given: Extract | None = None
    """The function of the application that makes the texts, if the process has one."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the values of `compute`."""
        return [self.column] if self.sketch_column is None else [self.column, self.sketch_column]

    def recipe(self, given: Recipe | None = None) -> Recipe:
        """Return the recipe of the index or, without an index, the given or default one, if the sketches agree."""
        recipe = given or DEFAULT_RECIPE
        if self.indexed:
            recipe = agreed_recipe(self.recipe_id, given, f"{self.table}({self.column})")
        if self.sketch_column is not None:
            name = f"column {self.sketch_column} of {self.table}"
            refuse_other_sketches(self.sketch_comment, name, recipe.revision)
        return recipe

    def extract(self) -> Extract | None:
        """Return the function that makes texts of the sources. Raises UsageError as `agreed_extract`."""
        return agreed_extract(self.recipe_id, self.given, f"{self.table}({self.column})")

    def weights(self, given: Mapping[str, int] | None) -> Mapping[str, int]:
        """Return the sources that the index knows, or the given ones. Raises UsageError if they are others."""
        known = self.sources or given
        if known is None:
            raise UsageError(
                f"nobody has named the columns of the texts whose fingerprints {self.table}({self.column}) holds:"
                f" pass them, or store them with the index: simsql index alter {self.table} --source COLUMN"
            )
        # The weight of a single text changes nothing.
        if given is not None and given != known and not (given.keys() == known.keys() and len(known) == 1):
            told, wanted = (" and ".join(f"{name}={each[name]}" for name in each) for each in (known, given))
            raise UsageError(
                f"the fingerprints in {self.table}({self.column}) come from {told}, as its simhash index says, and"
                f" not from {wanted}: name no sources, or change the index with simsql index alter"
            )
        return known

    def compute(
        self, items: Iterable[tuple[Item, str]], recipe: Recipe, workers: int | None
    ) -> Iterator[tuple[Item, tuple[int | None, ...]]]:
        """Yield each item with the bigints for the columns, None without features. Reads items ahead."""
        if self.sketch_column is None:
            for batch, fingerprints in simhash_items(items, recipe, workers):
                yield from zip(batch, zip(to_bigints(fingerprints), strict=True), strict=True)
        else:
            for batch, fingerprints, sketches in simhash_items_with_sketches(items, recipe, workers):
                values = zip(to_bigints(fingerprints), to_bigints(sketches), strict=True)
                yield from zip(batch, values, strict=True)


@sqlalchemy_errors()
def load_rows(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    rows: Iterable[Row],
    *,
    text_column: str | None = None,
    fingerprints: Fingerprints | None = None,
    column: str | None = None,
    sketch_column: str | None = None,
    recipe: Recipe | None = None,
    workers: int | None = None,
) -> int:
    """COPY rows into a table, with fingerprints, in the connection's transaction; return the number of rows.

    `table` is a name as in SQL, and `columns` are the unquoted names of the values in each row. Fingerprints come

    - from the texts in `text_column`, one of `columns`: computed in `workers` processes (see `simhash_many`) with
      the recipe of the index or, without an index, with `recipe` or the default one;
    - from `fingerprints`, an array or a sequence with a fingerprint in any form for each row, masked or None if
      there is none, which were computed with `recipe`;
    - or from the rows: then one of `columns` holds bigints or None.

    In the first two cases they go into `column`, which you can omit if the table has only one index. If you pass a
    `recipe`, it must be that of the index. Pass it if the id of the index's recipe is not enough. The sketches of
    the texts in `text_column` go into `sketch_column`, if you name one.

    An indexed table stays searchable. From 10,000 rows or 16 MB on, the keys are copied directly and other writers
    of the table wait until the transaction ends, provided that the role owns the table and the index, the
    transaction is READ COMMITTED, the index has no scope and the table has no other INSERT trigger. Otherwise the
    index's triggers add the keys.

    Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message, UsageError if the arguments conflict or the number
    of fingerprints is not that of the rows, and TypeError for a text that is not a str or a fingerprint that is
    not a bigint. Then no rows were added. The iterable of rows can read from the connection, but must not insert
    into the table through it, which raises SimsqlError, or end its transaction: the index's triggers may be
    disabled.
    """
    if isinstance(check_bind(connection), Engine):
        raise UsageError(
            "load_rows works in a transaction of yours: pass a Connection, as from engine.begin(), not an Engine"
        )
    if text_column is not None and fingerprints is not None:
        raise UsageError("text_column and fingerprints exclude each other: pass only one of them")
    if text_column is not None:
        if text_column not in columns:
            raise UsageError(f"text_column must be one of {', '.join(columns)}, not {text_column}")
        target = find_target(connection, table, column, sketch_column)
        target.weights({text_column: 1})
        position, extract = columns.index(text_column), target.extract()
        texts = ((row, text_of(row[position], extract)) for row in _check_lengths(rows, len(columns)))
        items = ((row, "" if text is None else text) for row, text in texts)
        rows = ([*row, *values] for row, values in target.compute(items, target.recipe(recipe), workers))
        columns = [*columns, *target.columns]
    elif sketch_column is not None:
        raise UsageError("sketch_column needs text_column, the texts to sketch: pass both, or omit sketch_column")
    elif fingerprints is not None:
        target = find_target(connection, table, column)
        if recipe is not None:
            target.recipe(recipe)
        rows = _append(rows, fingerprints)
        columns = [*columns, target.column]
    elif recipe is not None:
        raise UsageError("recipe needs text_column or fingerprints: pass one of them, or omit recipe")
    raw = raw_connection(connection)
    return load_through(Copier(raw, find_table(raw, table), columns), connection, rows)


@sqlalchemy_errors()
def find_target(
    connection: Connection, table: str, column: str | None = None, sketch_column: str | None = None
) -> Target:
    """Return the column for fingerprints, the given one or that of the only index, and that for sketches."""
    found = raw_connection(connection).execute(
        "SELECT r.column_name, r.recipe, simsql._current_sources(r) FROM simsql.registry AS r"
        " WHERE r.table_id OPERATOR(pg_catalog.=) CAST(%s AS pg_catalog.regclass) ORDER BY r.id",
        [table],
    )
    indexes = {name: described for name, *described in found}
    if column is None:
        if len(indexes) != 1:
            which = f"several simhash indexes ({', '.join(indexes)})" if indexes else "no simhash index"
            raise UsageError(f"{table} has {which}: name the column for the fingerprints (column, --column)")
        (column,) = indexes
    kind = find_column(connection, table, column).type
    if kind != "bigint":
        raise UsageError(f"column {column} of {table} is {kind}, not bigint: it cannot hold fingerprints")
    comment = None
    if sketch_column is not None:
        if sketch_column == column:
            raise UsageError(f"column {column} of {table} holds fingerprints: name another for the sketches")
        comment = check_sketch_column(connection, table, sketch_column)
    recipe, sources = indexes.get(column, (None, None))
    return Target(table, column, column in indexes, recipe, sketch_column, sources, comment)


def _check_lengths(rows: Iterable[Row], length: int) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        if len(row) != length:
            raise UsageError(f"row {number} has {len(row)} values for {length} columns")
        yield row


def _append(rows: Iterable[Row], fingerprints: Fingerprints) -> Iterator[list[Any]]:
    values, present = fingerprint_column(fingerprints)
    masked = np.ma.MaskedArray(values, mask=np.ma.nomask if present is None else ~present)
    remaining = iter(rows)
    for start in range(0, len(values), _BATCH_ROWS):
        batch = masked[start : start + _BATCH_ROWS]
        bigints = to_bigints(batch)
        part = list(islice(remaining, len(batch)))
        if len(part) < len(batch):
            raise UsageError(f"{len(values)} fingerprints for {start + len(part)} rows")
        for row, bigint in zip(part, bigints, strict=True):
            yield [*row, bigint]
    if next(remaining, None) is not None:
        raise UsageError(f"more rows than the {len(values)} fingerprints")


def load_through(copier: Copier, connection: Connection, rows: Iterable[Row]) -> int:
    """Add rows through a copier, and their keys if this session may; return the number of added rows."""
    raw, table = copier.raw, copier.table
    indexes: list[_Keys] | None = None
    inserted = count = 0
    # A savepoint in the caller's transaction, or a new transaction: a failed load leaves no rows and no disabled
    # trigger.
    with raw.transaction():
        for batch in gather(rows, _size, _BATCH_SIZE, _BATCH_ROWS):
            if indexes is None:
                is_full = len(batch) == _BATCH_ROWS or sum(map(_size, batch)) >= _BATCH_SIZE
                # Now or never: after a COPY through the triggers the lock that this takes would be a stronger one
                # than the transaction holds, and two loads that wait for one another's are in deadlock.
                indexes = _begin_load(connection, table, copier.columns) if is_full else []
                inserted = count_inserted(raw, table)
            added = copier.add(batch)
            for index in indexes or ():
                index.add(added)
            count += len(added)
        if indexes and count_inserted(raw, table) != inserted + count:
            raise SimsqlError(
                f"other rows were inserted into {table.name.as_string(raw)} during the load, while triggers were"
                " off: the iterable of rows, and functions in defaults and checks, must not write to the table"
            )
        for index in indexes or ():
            index.copy()
            raw.execute("SELECT simsql._set_firing(%s, %s, 'A')", [table.oid, f"simsql_{index.index_id}_insert"])
            raw.execute("SELECT simsql._stamp(%s)", [index.index_id])
    return count


def count_inserted(raw: psycopg.Connection[tuple[Any, ...]], table: FoundTable) -> int:
    """Return the number of rows that this transaction has inserted into a table, from PostgreSQL's statistics."""
    ((count,),) = raw.execute("SELECT pg_catalog.pg_stat_get_xact_tuples_inserted(%s)", [table.oid]).fetchall()
    return int(count)


def _begin_load(connection: Connection, table: FoundTable, columns: Sequence[str]) -> list["_Keys"]:
    """Disable the insert triggers of the indexes whose keys this session may write itself."""
    found = raw_connection(connection).execute(
        "SELECT id, column_name, blocks, lead, inner_blocks FROM simsql._begin_direct_load(%s, %s)",
        [table.oid, list(columns)],
    )
    return [
        _Keys(connection, index_id, Design(blocks, lead, inner_blocks), columns.index(column))
        for index_id, column, blocks, lead, inner_blocks in found
    ]


def _size(row: Row) -> int:
    return sum(len(value) for value in row if isinstance(value, str | bytes))


class _Keys:
    def __init__(self, connection: Connection, index_id: int, design: Design, position: int) -> None:
        self.index_id = index_id
        self._connection = connection
        self._design = design
        self._position = position
        self._waiting: list[NDArray[np.int64]] = []
        self._count = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Collect the fingerprints of rows that the table has accepted."""
        values = (row[self._position] for row in rows)
        try:
            bigints = np.fromiter((operator.index(value) for value in values if value is not None), dtype=np.int64)
        except TypeError as error:
            raise TypeError(f"a fingerprint in a row must be a bigint or None: {error}") from None
        self._waiting.append(bigints)
        self._count += len(bigints)
        if self._count >= _SORTED_KEYS:
            self.copy()

    def copy(self) -> None:
        """COPY the keys collected since the last call."""
        if not self._count:
            return
        fingerprints = np.concatenate(self._waiting).view(np.uint64)
        fingerprints.sort()
        fingerprints = fingerprints[first_of_equals(fingerprints)]
        self._waiting, self._count = [], 0
        for permutation in self._design.permutations:
            keys = permutation.key(fingerprints).view(np.int64)
            keys.sort()
            name = sql.Identifier("simsql", f"keys_{self.index_id}_{permutation.number}")
            copy_columns(self._connection, name, {"key": keys})


def find_table(raw: psycopg.Connection[tuple[Any, ...]], table: str) -> FoundTable:
    """Find a table by its name as in SQL. Raises UsageError for the number of a table that is not there."""
    found = raw.execute(
        "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace"
        " WHERE c.oid OPERATOR(pg_catalog.=) CAST(%s AS pg_catalog.regclass)",
        [table],
    ).fetchone()
    if found is None:
        raise UsageError(f"there is no table {table}")
    return FoundTable(*found)
