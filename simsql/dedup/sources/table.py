"""The rows of an existing table as one snapshot shows them.

Rows are identified by the places of their versions, (tableoid, ctid), which the snapshot keeps until its
transaction ends. So keys of any type are copied inside PostgreSQL, and memory does not grow with their length.

Statements that read the table carry a condition that PostgreSQL refuses to parse if the name has come to belong to
a view, whose functions would run with the privileges of this role. No value is cast: a cast could be the owner's.
Only the condition of the user's own may call functions.
"""

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg
from psycopg import sql
from sqlalchemy import Engine

from simsql.database.connect import one_line
from simsql.database.load import FoundTable, find_table
from simsql.database.primary_keys import NO_KEY
from simsql.database.sources import TextColumns, join_texts, text_of
from simsql.database.transfer import as_bytes, has_bytes, raw_connection
from simsql.decide.documents import I64
from simsql.decide.rules import Rules
from simsql.documents import Outputs, printable
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import FOLDING_RECIPE, Recipe

_POSITION_BITS, _PLACE_BITS = 16, 48

# Characters and rows that are fetched at once; the first fetch does not know how long the texts are.
_FETCHED_CHARACTERS = 1 << 22
_FETCHED_ROWS = 5_000
_FIRST_ROWS = 20

# As simsql._primary_key does, without simsql. Columns of a materialized view are never declared NOT NULL.
_KEY = """
    SELECT keyed.names
      FROM pg_catalog.pg_index AS i
     CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(a.attname ORDER BY k.place)
          FROM ROWS FROM (pg_catalog.unnest(i.indkey), pg_catalog.unnest(i.indclass),
                          pg_catalog.unnest(i.indcollation))
               WITH ORDINALITY AS k (attribute, class, collation_id, place)
          JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND a.attnum OPERATOR(pg_catalog.=) k.attribute
           AND a.attcollation OPERATOR(pg_catalog.=) k.collation_id AND (a.attnotnull OR %(stored)s)
          JOIN pg_catalog.pg_opclass AS c ON c.oid OPERATOR(pg_catalog.=) k.class AND c.opcdefault
         WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_constraint AS n
             WHERE n.conrelid OPERATOR(pg_catalog.=) i.indrelid AND n.contype OPERATOR(pg_catalog.=) 'n'
               AND NOT n.convalidated AND a.attnum OPERATOR(pg_catalog.=) ANY (n.conkey))) AS keyed (names)
     WHERE i.indrelid OPERATOR(pg_catalog.=) %(table)s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
       AND (i.indimmediate OR i.indisprimary)
       AND pg_catalog.cardinality(keyed.names) OPERATOR(pg_catalog.=) i.indnkeyatts
     ORDER BY i.indisprimary DESC, i.indisreplident DESC, i.indnkeyatts, i.indexrelid
     LIMIT 1
"""
_COLUMN = """
    SELECT y.typcategory OPERATOR(pg_catalog.=) 'S', pg_catalog.format_type(a.atttypid, a.atttypmod)
      FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_type AS y ON y.oid OPERATOR(pg_catalog.=) a.atttypid
     WHERE a.attrelid OPERATOR(pg_catalog.=) %s AND a.attname OPERATOR(pg_catalog.=) %s
       AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
"""
_DISTRIBUTED = "SELECT FROM pg_catalog.pg_dist_partition AS d WHERE d.logicalrelid OPERATOR(pg_catalog.=) %s"
_READABLE_REGISTRY = """
    SELECT CASE WHEN pg_catalog.has_schema_privilege(oid, CAST('USAGE' AS pg_catalog.text))
                THEN pg_catalog.to_regclass('simsql.registry') IS NOT NULL END
      FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) 'simsql'
"""
# The index may be that of the partitioned table, or of a partition.
_SCOPE = """
    SELECT r.scope_columns
      FROM simsql.registry AS r
     WHERE pg_catalog.cardinality(r.scope_columns) OPERATOR(pg_catalog.>) 0
       AND (r.table_id OPERATOR(pg_catalog.=) %(table)s
            OR r.table_id OPERATOR(pg_catalog.=) ANY (
                ARRAY(SELECT a.relid FROM pg_catalog.pg_partition_ancestors(%(table)s) AS a (relid)))
            OR r.table_id OPERATOR(pg_catalog.=) ANY (
                ARRAY(SELECT p.relid FROM pg_catalog.pg_partition_tree(%(table)s) AS p)))
     ORDER BY r.id
     LIMIT 1
"""
_GUARD = sql.SQL("NOT EXISTS (SELECT FROM {rows_of} AS g TABLESAMPLE pg_catalog.system (0) WHERE false)")
_ORDER = (
    "SELECT {t}.tableoid, {t}.ctid, {rank}, {scope} FROM {rows_of} AS {t} WHERE {guard} AND ({where})"
    " ORDER BY {keys}"
)
_READ = "SELECT {t}.tableoid, {t}.ctid, {texts} FROM {rows_of} AS {t} WHERE {guard} AND {in_scope} AND ({where})"
_WANTED = "CREATE TEMPORARY TABLE {wanted} (part pg_catalog.oid, place pg_catalog.tid) ON COMMIT DROP"
_READ_WANTED = (
    "SELECT {t}.tableoid, {t}.ctid, {label}, {texts} FROM {rows_of} AS {t}"
    " WHERE {guard} AND EXISTS (SELECT FROM {wanted} AS w"
    " WHERE w.place OPERATOR(pg_catalog.=) {t}.ctid AND w.part OPERATOR(pg_catalog.=) {t}.tableoid)"
)
_NULL_KEYS = "SELECT FROM {rows_of} AS {t} WHERE {guard} AND ({where}) AND NOT (ROW({keys}) IS NOT NULL) LIMIT 1"
_LABELS = "SELECT {t}.tableoid, {t}.ctid, {label} FROM {rows_of} AS {t} WHERE {guard}"
# Only an expression is valid in both places: what closes a parenthesis does not close a bracket.
_CONDITIONS = (
    "SELECT FROM {rows_of} AS {t} WHERE {guard} AND ({condition}) LIMIT 0",
    "SELECT FROM {rows_of} AS {t} WHERE {guard} AND (ARRAY[{condition}])[1] LIMIT 0",
)

UNSTEADY = (
    "row-level security or --where selects different rows each time the table is read: choose a role that sees all"
    " rows, and a condition without random results"
)


@dataclass(frozen=True)
class TableOptions:
    """The table to read, the rules, and the table to create for the decisions. Table names are as in SQL.

    Raises UsageError for options that exclude each other.
    """

    table: str
    texts: TextColumns
    into: str | None = None
    """Only a run that explains has none."""
    scope_columns: tuple[str, ...] = ()
    """Compare only rows with equal values in these columns. Rows with a null in one of them are not decided."""
    where: str | None = None
    """Decide only about rows that meet this condition, an expression in SQL."""
    all_scopes: bool = False
    """Compare all rows, even if a simhash index of the table has a scope."""
    replace: bool = False
    """Replace the table of decisions that an earlier run has created."""
    rules: Rules = field(default_factory=Rules)
    recipe: Recipe = FOLDING_RECIPE
    workers: int | None = None
    """Number of processes that compute fingerprints; None for this process only."""
    report: Path | None = None
    """The page to write."""
    explain: tuple[str, str] | None = None
    """The keys of two rows to explain, as PostgreSQL prints them, instead of writing decisions."""

    def outputs(self) -> Outputs:
        """Return the files that the run writes. Raises UsageError if they cannot be written."""
        return Outputs({"--report": self.report})

    def __post_init__(self) -> None:
        if self.explain and (self.into or self.replace or self.report):
            raise UsageError("--explain writes no decisions: leave out --into, --replace and --report")
        if self.explain and self.explain[0] == self.explain[1]:
            raise UsageError(f"{printable(self.explain[0])!r} is one row: name two different ones with --explain")
        if not (self.explain or self.into):
            raise UsageError("name the table for the decisions with --into")
        if self.all_scopes and self.scope_columns:
            raise UsageError("--all-scopes and --scope-column exclude each other: leave one out")
        if self.rules.by_file:
            raise UsageError(
                f"--keep {self.rules.keep} is for files: name a column, such as the time of the last change, with"
                " --keep-field"
            )


class KeyOrder(NamedTuple):
    """The ranks of the rows, from the first on, by ascending place."""

    place: I64
    by_key: I64
    """By key."""
    by_value: I64
    scope: I64
    """The number of the scope, from 1; 0 for rows with a null in a scope column."""

    def find(self, places: I64) -> "KeyOrder":
        """Return the part about rows at these places. Raises SimsqlError if one is not there."""
        if not np.isin(places, self.place).all():
            raise SimsqlError(UNSTEADY)
        position = np.searchsorted(self.place, places)
        return KeyOrder(*(array[position] for array in self))


class SourceTable:
    """A table as the snapshot of one transaction shows it."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]], found: FoundTable, options: TableOptions) -> None:
        self.raw = raw
        self.name = options.table
        self.oid = found.oid
        self._found = found
        self._columns = options.texts
        self._has_bytes = has_bytes(raw)
        self._is_plain = not self._has_bytes and list(self._columns.values()) == [None]
        self._partitions: dict[int, int] = {}
        self._chosen = 0  # numbers the tables of chosen places
        only = sql.SQL("ONLY ") if found.kind == "r" else sql.SQL("")
        rows_of = only + found.name
        self._parts: dict[str, sql.Composable] = {
            "rows_of": rows_of,
            "t": sql.Identifier(found.relation),  # the name by which a condition of the user's refers to it
            "guard": _GUARD.format(rows_of=rows_of),
        }
        # In this order: the snapshot of the transaction, which the first query takes, must not be older than the
        # lock, and nobody renames or replaces the table afterwards. A materialized view is only locked by a query,
        # but what a REFRESH in between has stored is visible to older snapshots, too.
        lock = "LOCK TABLE {rows_of} IN ACCESS SHARE MODE"
        stored = found.kind == "m"
        raw.execute(self.compose("SELECT FROM {rows_of} AS {t} WHERE {guard} LIMIT 0" if stored else lock))
        self._check()
        values = [self.compose("{t}.{column}", column=column) for column in self._columns]
        self._parts["texts"] = sql.SQL(", ").join(map(self._readable, values))
        key = raw.execute(_KEY, {"table": self.oid, "stored": stored}).fetchone()
        if key is None:
            what = "no unique index on columns" if stored else NO_KEY
            raise UsageError(f"{self.name} has {what}, so decisions could not name its rows: create one")
        self.keys: list[str] = key[0]
        if not (options.scope_columns or options.where is not None or options.all_scopes):
            self._refuse_scope()
        self._set_scope(options.scope_columns)
        self._set_condition(options.where)
        keys = self.key_columns(found.relation)
        if stored and raw.execute(self.compose(_NULL_KEYS, keys=keys)).rowcount:
            names = ", ".join(sql.Identifier(name).as_string(raw) for name in self.keys)
            raise UsageError(
                f"rows of {self.name} have a null in their key ({names}), so decisions could not name them: leave"
                " them out with --where"
            )

    def read_order(self, best: str | None) -> KeyOrder:
        """Return the order of the rows by key, and by the values of the column `best`, highest first.

        Nulls come last; without `best`, all rows have the same rank.
        """
        rank: sql.Composable = sql.SQL("0")
        if best is not None:
            self._find_column(best)
            rank = self.compose("pg_catalog.dense_rank() OVER (ORDER BY {t}.{best} DESC NULLS LAST)", best=best)
        numbers = array("q")  # for each row: place, rank, scope
        with self.raw.cursor("simsql_order") as cursor:
            cursor.itersize = _FETCHED_ROWS
            cursor.execute(self.compose(_ORDER, rank=rank, keys=self.key_columns(self._found.relation)))
            for part, tid, value, scope in cursor:
                numbers.extend((self._place(part, tid), value, scope))
        place, by_value, scope = np.frombuffer(numbers, dtype=np.int64).reshape(-1, 3).T
        order = np.argsort(place)
        return KeyOrder(place[order], order, by_value[order], scope[order])

    def rows(self) -> Iterator[tuple[int, str | UnicodeDecodeError | None]]:
        """Yield the place of each row of a scope, and its text, which may be null or not UTF-8.

        Few of them are in memory at a time.
        """
        size = _FIRST_ROWS
        with self.raw.cursor("simsql_rows") as cursor:
            cursor.execute(self.compose(_READ))
            while rows := cursor.fetchmany(size):
                characters = sum(len(text) for row in rows for text in row[2:] if text is not None)
                for part, tid, *values in rows:
                    text: str | UnicodeDecodeError | None
                    try:
                        text = self._text(values)
                    except UnicodeDecodeError as error:
                        text = error
                    yield self._place(part, tid), text
                    del text, values  # a long text is not kept while the next one is read
                size = max(1, min(_FETCHED_ROWS, _FETCHED_CHARACTERS * len(rows) // max(1, characters)))

    def text_at(self, alias: str) -> sql.Composable:
        """Return the expression for the text that digests are of: as it is stored, not what is made of it."""
        columns = [sql.Identifier(alias, column) for column in self._columns]
        if len(columns) == 1:
            return columns[0]
        return sql.SQL(r"pg_catalog.concat_ws(E'\n', {})").format(sql.SQL(", ").join(columns))

    def _text(self, values: Sequence[str | bytes | None], errors: str = "strict") -> str | None:
        """Return what is compared, of the values of the columns."""
        if self._is_plain:
            return values[0]  # type: ignore[return-value]
        texts = (_decode(value, errors) for value in values)
        return join_texts(map(text_of, texts, self._columns.values()))

    def _readable(self, value: sql.Composable) -> sql.Composable:
        return sql.SQL(as_bytes("{}")).format(value) if self._has_bytes else value

    def labelled_texts(self, places: I64) -> Iterator[tuple[int, str | None, str]]:
        """Yield the places, texts and labels of the rows at these places, in any order."""
        self._chosen += 1
        wanted = sql.Identifier("pg_temp", f"simsql_wanted_{self._chosen}")
        self.raw.execute(self.compose(_WANTED, wanted=wanted))
        with (
            self.raw.cursor() as cursor,
            cursor.copy(self.compose("COPY {wanted} FROM STDIN", wanted=wanted)) as copy,
        ):
            copy.write("".join(f"{place}\n" for place in self.spell(places)))
        self.raw.execute(self.compose("ANALYZE {wanted}", wanted=wanted))
        for part, tid, label, *values in self._copy(self.compose(_READ_WANTED, wanted=wanted, label=self._label)):
            yield self._place(int(part), tid), self._text(values, "backslashreplace"), label

    def find(self, labels: Sequence[str]) -> dict[str, int]:
        """Return the places of the rows with these labels. Raises UsageError if there is none, or several.

        The label of a row is its key as PostgreSQL prints it, with several columns as `(1,two)`.
        """
        found: dict[str, list[int]] = {label: [] for label in labels}
        # A comparison in SQL would need a cast.
        for part, tid, label in self._copy(self.compose(_LABELS, label=self._label)):
            if label in found:
                found[label].append(self._place(int(part), tid))
        for label, places in found.items():
            if len(places) != 1:
                form = self.keys[0] if len(self.keys) == 1 else f"({', '.join(self.keys)})"
                raise UsageError(
                    f"{len(places) or 'no'} rows of {self.name} have the key {printable(label)}: write a key as"
                    f" SELECT {form} prints it"
                )
        return {label: place for label, (place,) in found.items()}

    def _copy(self, query: sql.Composed) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query whose third column is a label, all values as PostgreSQL prints them."""
        with self.raw.cursor() as cursor, cursor.copy(sql.SQL("COPY ({}) TO STDOUT").format(query)) as copy:
            for part, tid, *values in copy.rows():
                # Bytes are written as \x and hexadecimal digits.
                found = [bytes.fromhex(value[2:]) if self._has_bytes and value else value for value in values]
                yield part, tid, _decode(found[0], "backslashreplace"), *found[1:]

    @property
    def _label(self) -> sql.Composable:
        keys = self.key_columns(self._found.relation)
        label = keys if len(self.keys) == 1 else sql.SQL("ROW({})").format(keys)
        return self._readable(sql.SQL("pg_catalog.concat({})").format(label)) if self._has_bytes else label

    def compose(self, statement: str, **parts: sql.Composable | str) -> sql.Composed:
        """Return a statement about the table; `parts` are its other slots, names as strings."""
        named = {name: sql.Identifier(part) if isinstance(part, str) else part for name, part in parts.items()}
        return sql.SQL(statement).format(**self._parts, **named)

    def key_columns(self, of: str, prefix: str = "") -> sql.Composable:
        """Return the columns of the key, in the list of a SELECT."""
        return sql.SQL(", ").join(
            sql.SQL("{} AS {}").format(sql.Identifier(of, key), sql.Identifier(prefix + key))
            if prefix
            else sql.Identifier(of, key)
            for key in self.keys
        )

    def spell(self, places: I64) -> list[str]:
        """Return the partitions and the values of ctid of these places, for COPY."""
        partitions = list(self._partitions)
        return [
            f"{partitions[place >> _PLACE_BITS]}\t({place >> _POSITION_BITS & 0xFFFFFFFF},{place & 0xFFFF})"
            for place in places.tolist()
        ]

    def _place(self, partition: int, tid: str) -> int:
        """Return the number for a place: its partition, its page (32 bits) and the position there (16 bits)."""
        number = self._partitions.setdefault(partition, len(self._partitions))
        page, _, position = tid[1:-1].partition(",")
        return number << _PLACE_BITS | int(page) << _POSITION_BITS | int(position)

    def _check(self) -> None:
        if find_table(self.raw, self._found.name.as_string(self.raw)) != self._found:
            raise SimsqlError(f"{self.name} was renamed or replaced just now: run it again")
        there = self.raw.execute("SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL")
        # Two rows in different shards may have the same place.
        if there.fetchall() == [(True,)] and self.raw.execute(_DISTRIBUTED, [self.oid]).rowcount:
            raise UsageError(
                f"{self.name} is managed by Citus, which does not tell rows apart: copy it to a plain table"
            )
        for column in self._columns:
            is_text, kind = self._find_column(column)
            if not is_text:
                raise UsageError(
                    f"column {column} of {self.name} is {kind}, not text: name another with --text-column"
                )

    def _find_column(self, column: str) -> tuple[bool, str]:
        """Return whether a column holds texts, and its type in SQL. Raises UsageError if there is none."""
        found = self.raw.execute(_COLUMN, [self.oid, column]).fetchone()
        if found is None:
            raise UsageError(f"{self.name} has no column {column}")
        is_text, kind = found
        return is_text, kind

    def _refuse_scope(self) -> None:
        """Raise UsageError if an index of the table has a scope, and simsql is open to this role."""
        if self.raw.execute(_READABLE_REGISTRY).fetchone() != (True,):
            return
        found = self.raw.execute(_SCOPE, {"table": self.oid}).fetchone()
        if found:
            scope = " ".join(f"--scope-column {column}" for column in found[0])
            raise UsageError(
                f"a simhash index of {self.name} has the scope {', '.join(found[0])}: compare only rows of the"
                f" same scope with {scope}, choose rows with --where, or compare all with --all-scopes"
            )

    def _set_scope(self, columns: Sequence[str]) -> None:
        for column in columns:
            self._find_column(column)
        self._parts |= {"in_scope": sql.SQL("true"), "scope": sql.SQL("1")}
        if columns:
            names = [self.compose("{t}.{column}", column=column) for column in columns]
            # As in an index with a scope, a row with a null in a scope column belongs to no scope.
            self._parts["in_scope"] = sql.SQL(" AND ").join(name + sql.SQL(" IS NOT NULL") for name in names)
            self._parts["scope"] = self.compose(
                "CASE WHEN {in_scope} THEN pg_catalog.dense_rank() OVER (ORDER BY {columns}) ELSE 0 END",
                columns=sql.SQL(", ").join(names),
            )

    def _set_condition(self, condition: str | None) -> None:
        self._parts["where"] = sql.SQL("true")
        if condition is None:
            return
        # On a line of its own, because it may end with a comment.
        given = sql.SQL(f"{condition}\n")
        for statement in _CONDITIONS:
            try:
                # The protocol of binary results takes a single statement.
                self.raw.execute(self.compose(statement, condition=given), binary=True)
            except psycopg.Error as error:
                raise UsageError(
                    f"--where is not a condition on the rows of {self.name}: {one_line(error)}"
                ) from None
        self._parts["where"] = given


def _decode(value: str | bytes | None, errors: str) -> str | None:
    return value.decode("utf-8", errors) if isinstance(value, bytes) else value


@contextlib.contextmanager
def open_table(engine: Engine, options: TableOptions) -> Iterator[SourceTable]:
    """Open a table in a transaction that ends with the context.

    Raises UsageError for a view, a table without a key, a column that does not hold text, a condition that
    is not one, and an index with a scope that the options do not take into account; psycopg.Error with
    PostgreSQL's message: no such table, no privilege to read it.
    """
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        with connection.begin():
            found = find_table(raw_connection(connection), options.table)
        if found.kind not in ("r", "p", "m"):
            raise UsageError(f"{options.table} is not a table: name the table that holds the texts")
        with connection.begin():
            raw = raw_connection(connection)
            # The session waits while texts are compared.
            raw.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield SourceTable(raw, found, options)
