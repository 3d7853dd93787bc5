"""The rows of an existing table as one snapshot shows them, and a new table with the decisions about them.

Rows are identified by the places of their versions, (tableoid, ctid), which the snapshot keeps until its
transaction ends. So keys of any type are copied inside PostgreSQL, and memory does not grow with their length.

Statements that read the table carry a condition that PostgreSQL refuses to parse if the name has come to belong to
a view, whose functions would run with the privileges of this role. No value is cast: a cast could be the owner's.
"""

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import Connection, Engine

from simsql.database.index_spec import same_recipe
from simsql.database.transfer import raw_connection
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import Recipe, simhash_many

I64 = NDArray[np.int64]

# Prefixes of the key columns: of the row that is kept, and of the row that represents the cluster.
_KEPT, _REPRESENTATIVE = "kept_", "representative_"
_RESULTS = ("distance", "similarity", "drop")
_LONGEST_NAME = 63  # bytes of a name in PostgreSQL
_POSITION_BITS, _PLACE_BITS = 16, 48

# Characters and rows that are fetched at once; the first fetch does not know how long the texts are.
_FETCHED_CHARACTERS = 1 << 22
_FETCHED_ROWS = 5_000
_FIRST_ROWS = 20
_WRITTEN_ROWS = 5_000
# Rows whose stored fingerprints are compared with those of their texts.
_SAMPLE = 20

_FIND = """
    SELECT c.oid, n.nspname, c.relname, c.relkind
      FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE c.oid OPERATOR(pg_catalog.=) CAST(%s AS pg_catalog.regclass)
"""
_KEY = """
    SELECT a.attname
      FROM pg_catalog.pg_index AS i
     CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (attribute, place)
      JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid AND a.attnum OPERATOR(pg_catalog.=) k.attribute
     WHERE i.indrelid OPERATOR(pg_catalog.=) %s AND i.indisprimary
       AND k.place OPERATOR(pg_catalog.<=) i.indnkeyatts
     ORDER BY k.place
"""
_COLUMN = """
    SELECT y.typcategory OPERATOR(pg_catalog.=) 'S', pg_catalog.format_type(a.atttypid, a.atttypmod)
      FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_type AS y ON y.oid OPERATOR(pg_catalog.=) a.atttypid
     WHERE a.attrelid OPERATOR(pg_catalog.=) %s AND a.attname OPERATOR(pg_catalog.=) %s
       AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped
"""
_INDEXES = """
    SELECT r.column_name, r.recipe
      FROM simsql.registry AS r
      JOIN pg_catalog.pg_attribute AS a
        ON a.attrelid OPERATOR(pg_catalog.=) r.table_id AND a.attname OPERATOR(pg_catalog.=) r.column_name
       AND a.atttypid OPERATOR(pg_catalog.=) CAST('pg_catalog.int8' AS pg_catalog.regtype) AND NOT a.attisdropped
     WHERE r.table_id OPERATOR(pg_catalog.=) %s
       AND pg_catalog.has_column_privilege(a.attrelid, a.attnum, CAST('SELECT' AS pg_catalog.text))
     ORDER BY r.id
"""
_GUARD = sql.SQL("NOT EXISTS (SELECT FROM {rows_of} AS g TABLESAMPLE pg_catalog.system (0) WHERE false)")
# The decisions before the keys of the rows take the places of their versions.
_STAGE = (
    "CREATE TEMPORARY TABLE {staged} (part pg_catalog.oid, place pg_catalog.tid, kept_part pg_catalog.oid,"
    " kept_place pg_catalog.tid, star_part pg_catalog.oid, star_place pg_catalog.tid, distance pg_catalog.int4,"
    " similarity pg_catalog.float8, drop pg_catalog.bool) ON COMMIT DROP"
)
# One statement creates the table and fills it. An INSERT would name it again, and by then the owner of the schema
# could have put another one, with triggers, in its place.
_CREATE = (
    "CREATE TABLE {into} AS"
    " SELECT {keys}, {kept_keys}, v.distance, v.similarity, v.drop, {representative_keys} FROM {staged} AS v"
    " JOIN {rows_of} AS t ON t.ctid OPERATOR(pg_catalog.=) v.place"
    " AND t.tableoid OPERATOR(pg_catalog.=) v.part"
    " JOIN {rows_of} AS k ON k.ctid OPERATOR(pg_catalog.=) v.kept_place"
    " AND k.tableoid OPERATOR(pg_catalog.=) v.kept_part"
    " JOIN {rows_of} AS s ON s.ctid OPERATOR(pg_catalog.=) v.star_place"
    " AND s.tableoid OPERATOR(pg_catalog.=) v.star_part"
    " WHERE {guard}"
)
_READ = "SELECT t.tableoid, t.ctid, t.{text}, {stored} FROM {rows_of} AS t WHERE {guard}"
_SAMPLE_OF = (
    "SELECT t.{text}, t.{stored} FROM {rows_of} AS t"
    " WHERE t.{text} IS NOT NULL AND t.{stored} IS NOT NULL AND {guard} LIMIT {sample}"
)
_ORDER = "SELECT t.tableoid, t.ctid, {rank} FROM {rows_of} AS t WHERE {guard} ORDER BY {keys}"

_UNSTEADY = (
    "the row-level security of the table shows other rows at each reading: choose a role that sees all rows"
)


class Row(NamedTuple):
    """A row whose text is not null."""

    place: int
    """The place of its version: the number of its partition, its page (32 bits), its position there (16 bits)."""
    stored: int | None
    """The fingerprint that the table has for the text, a bigint."""
    characters: int


class KeyOrder(NamedTuple):
    """The ranks of the rows, from the first on, by ascending place."""

    place: I64
    by_key: I64
    """By primary key."""
    by_value: I64

    def find(self, places: I64) -> tuple[I64, I64]:
        """Return the ranks of rows at these places. Raises SimsqlError if one is not there."""
        if not np.isin(places, self.place).all():
            raise SimsqlError(_UNSTEADY)
        position = np.searchsorted(self.place, places)
        return self.by_key[position], self.by_value[position]


class Decided(NamedTuple):
    """Decisions to write, one per array position."""

    row: I64
    """Places of rows: see `Row`."""
    kept: I64
    representative: I64
    distance: I64
    """From the row that is kept, in bits."""
    similarity: NDArray[np.float64]
    """To the row that is kept; NaN if the texts were not compared."""
    drop: NDArray[np.bool_]

    def part(self, chosen: slice) -> "Decided":
        """Return some of the decisions."""
        row, kept, representative, distance, similarity, drop = self
        return Decided(
            row[chosen],
            kept[chosen],
            representative[chosen],
            distance[chosen],
            similarity[chosen],
            drop[chosen],
        )


class SourceTable:
    """A table as the snapshot of one transaction shows it, and the table of decisions. Use `open_tables`."""

    def __init__(
        self, connection: Connection, name: str, found: tuple[Any, ...], text_column: str, into: Sequence[str]
    ) -> None:
        self._raw = raw_connection(connection)
        self._name = name
        self._into = ".".join(into)
        self._oid, schema, relation, kind = found
        self._partitions: dict[int, int] = {}
        only = sql.SQL("ONLY ") if kind == "r" else sql.SQL("")
        rows_of = only + sql.Identifier(schema, relation)
        self._parts: dict[str, sql.Composable] = {
            "rows_of": rows_of,
            "text": sql.Identifier(text_column),
            "into": sql.Identifier(*into),
            "staged": sql.Identifier("pg_temp", "simsql_decided"),
            "guard": _GUARD.format(rows_of=rows_of),
            "sample": sql.Literal(_SAMPLE),
        }
        # In this order: the snapshot of the transaction, which the first query takes, must not be older than the
        # lock, and nobody renames or replaces the table afterwards.
        self._raw.execute(self._compose("LOCK TABLE {rows_of} IN ACCESS SHARE MODE"))
        self._check(found, sql.Identifier(schema, relation), text_column)
        self._keys = [key for (key,) in self._raw.execute(_KEY, [self._oid])]
        if not self._keys:
            raise UsageError(f"{name} has no primary key, so decisions could not name its rows: add one")
        self._check_names()
        self._raw.execute(self._compose(_STAGE))
        with self._raw.transaction(force_rollback=True):
            self._create()  # so that a run that cannot do it fails early

    def read_order(self, best: str | None) -> "KeyOrder":
        """Return the order of the rows by primary key, and by the values of the column `best`, highest first.

        Nulls come last; without `best`, all rows have the same rank.
        """
        rank: sql.Composable = sql.SQL("0")
        if best is not None:
            self._find_column(best)
            rank = sql.SQL("pg_catalog.dense_rank() OVER (ORDER BY t.{} DESC NULLS LAST)").format(
                sql.Identifier(best)
            )
        places, ranks = array("q"), array("q")
        with self._raw.cursor("simsql_order") as cursor:
            cursor.itersize = _FETCHED_ROWS
            cursor.execute(self._compose(_ORDER, rank=rank, keys=self._columns("t")))
            for part, tid, value in cursor:
                places.append(self._place(part, tid))
                ranks.append(value)
        order = np.argsort(np.array(places, dtype=np.int64))
        return KeyOrder(np.array(places, dtype=np.int64)[order], order, np.array(ranks, dtype=np.int64)[order])

    def find_stored(self, recipe: Recipe) -> str | None:
        """Return the column with the fingerprints of the texts by this recipe, if an index tells its recipe.

        A column that has other fingerprints in a sample, as that of another text has, is not one.
        """
        if not self._can_read_registry():
            return None
        for column, recipe_id in self._raw.execute(_INDEXES, [self._oid]).fetchall():
            if not same_recipe(recipe_id, recipe.id):
                continue
            sample = self._raw.execute(self._compose(_SAMPLE_OF, stored=sql.Identifier(column))).fetchall()
            made = simhash_many([text for text, _ in sample], recipe)
            stored = np.array([value for _, value in sample], dtype=np.int64).view(np.uint64)
            if len(sample) and not np.ma.getmaskarray(made).any() and bool((made.data == stored).all()):
                return str(column)
        return None

    def rows(self, stored: str | None) -> Iterator[tuple[Row, str] | None]:
        """Yield each row with its text, or None for a row whose text is null.

        Few of them are in memory at a time. `stored` is the column of `find_stored`.
        """
        column = sql.Identifier("t", stored) if stored else sql.SQL("CAST(NULL AS pg_catalog.int8)")
        size = _FIRST_ROWS
        with self._raw.cursor("simsql_rows") as cursor:
            cursor.execute(self._compose(_READ, stored=column))
            while rows := cursor.fetchmany(size):
                characters = 0
                for part, tid, text, fingerprint in rows:
                    if text is None:
                        yield None
                        continue
                    characters += len(text)
                    yield Row(self._place(part, tid), fingerprint, len(text)), text
                size = max(1, min(_FETCHED_ROWS, _FETCHED_CHARACTERS * len(rows) // max(1, characters)))

    def write(self, decided: Decided) -> Iterator[int]:
        """Create the table of decisions, with its primary key. Yield the number of rows so far."""
        copied = 0
        statement = self._compose("COPY {staged} FROM STDIN")
        with self._raw.cursor() as cursor, cursor.copy(statement) as copy:
            for start in range(0, len(decided.row), _WRITTEN_ROWS):
                batch = decided.part(slice(start, start + _WRITTEN_ROWS))
                columns = [
                    *(self._spell(places) for places in (batch.row, batch.kept, batch.representative)),
                    map(str, batch.distance.tolist()),
                    (r"\N" if np.isnan(value) else repr(value) for value in batch.similarity.tolist()),
                    map(str, batch.drop.tolist()),
                ]
                lines = ["\t".join(line) for line in zip(*columns, strict=True)]
                copy.write("\n".join([*lines, ""]))
                copied += len(lines)
                yield copied
        self._raw.execute(self._compose("ANALYZE {staged}"))
        created = self._create()
        if created != copied:
            raise SimsqlError(_UNSTEADY)
        keys = sql.SQL(", ").join(map(sql.Identifier, self._keys))
        self._raw.execute(self._compose("ALTER TABLE {into} ADD PRIMARY KEY ({keys})", keys=keys))

    def _check_names(self) -> None:
        columns = [
            *self._keys,
            *(_KEPT + key for key in self._keys),
            *_RESULTS,
            *(_REPRESENTATIVE + key for key in self._keys),
        ]
        for position, column in enumerate(columns):
            if column in columns[:position]:
                raise UsageError(
                    f"two columns of the decisions would be named {column}: rename the key column of {self._name}"
                )
            if len(column.encode()) > _LONGEST_NAME:
                raise UsageError(
                    f"the name {column} of a column of the decisions would be longer than {_LONGEST_NAME} bytes:"
                    f" rename the key column of {self._name}"
                )

    def _create(self) -> int:
        """Create the table of decisions from the staged ones, and return their number."""
        statement = self._compose(
            _CREATE,
            keys=self._columns("t"),
            kept_keys=self._columns("k", _KEPT),
            representative_keys=self._columns("s", _REPRESENTATIVE),
        )
        try:
            return self._raw.execute(statement).rowcount
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):  # the latter: just now
            raise UsageError(
                f"{self._into} exists already: choose another name with --into, or drop it if you no longer need"
                " it"
            ) from None

    def _check(self, found: tuple[Any, ...], name: sql.Identifier, text_column: str) -> None:
        now = self._raw.execute(_FIND, [name.as_string(self._raw)]).fetchone()
        if now != found:
            raise SimsqlError(f"{self._name} was renamed or replaced just now: run it again")
        if self._is_distributed():
            raise UsageError(
                f"{self._name} is managed by Citus, which does not tell rows apart: copy it to a plain table"
            )
        is_text, type_name = self._find_column(text_column)
        if not is_text:
            raise UsageError(
                f"column {text_column} of {self._name} is {type_name}, not text: name another with --text-column"
            )

    def _is_distributed(self) -> bool:
        """Return whether Citus manages the table: two rows in different shards may have the same place."""
        found = self._raw.execute("SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL")
        return found.fetchall() == [(True,)] and bool(
            self._raw.execute(
                "SELECT FROM pg_catalog.pg_dist_partition AS d WHERE d.logicalrelid OPERATOR(pg_catalog.=) %s",
                [self._oid],
            ).rowcount
        )

    def _find_column(self, column: str) -> tuple[bool, str]:
        found = self._raw.execute(_COLUMN, [self._oid, column]).fetchone()
        if found is None:
            raise UsageError(f"{self._name} has no column {column}")
        return found[0], found[1]

    def _can_read_registry(self) -> bool:
        """Return whether simsql is installed, and open to this role."""
        found = self._raw.execute(
            "SELECT CASE WHEN pg_catalog.has_schema_privilege(oid, CAST('USAGE' AS pg_catalog.text))"
            " THEN pg_catalog.to_regclass('simsql.registry') IS NOT NULL END"
            " FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) 'simsql'"
        ).fetchone()
        return found == (True,)

    def _columns(self, of: str, prefix: str = "") -> sql.Composable:
        """Return the columns of the key, in the list of a SELECT."""
        return sql.SQL(", ").join(
            sql.SQL("{} AS {}").format(sql.Identifier(of, key), sql.Identifier(prefix + key))
            if prefix
            else sql.Identifier(of, key)
            for key in self._keys
        )

    def _compose(self, statement: str, **parts: sql.Composable) -> sql.Composed:
        return sql.SQL(statement).format(**self._parts, **parts)

    def _place(self, partition: int, tid: str) -> int:
        """Return the number that stands for a place: see `Row`."""
        number = self._partitions.setdefault(partition, len(self._partitions))
        page, _, position = tid[1:-1].partition(",")
        return number << _PLACE_BITS | int(page) << _POSITION_BITS | int(position)

    def _spell(self, places: I64) -> list[str]:
        """Return the partitions and the values of ctid of these places, for COPY."""
        partitions = list(self._partitions)
        return [
            f"{partitions[place >> _PLACE_BITS]}\t({place >> _POSITION_BITS & 0xFFFFFFFF},{place & 0xFFFF})"
            for place in places.tolist()
        ]


@contextlib.contextmanager
def open_tables(engine: Engine, name: str, text_column: str, into: str) -> Iterator[SourceTable]:
    """Open a table and create another one for the decisions, in one transaction that ends with the context.

    Both names are as in SQL; `text_column` is an unquoted name. If the context ends with an error, nothing is
    left. Raises UsageError for a view, a table without a primary key, a column that does not hold text and a table
    of decisions that exists; psycopg.Error with PostgreSQL's message: no such table, no privilege to read it.
    """
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        with connection.begin():
            raw = raw_connection(connection)
            found = raw.execute(_FIND, [name]).fetchone()
            parts, schema = raw.execute(
                "SELECT pg_catalog.parse_ident(%s), pg_catalog.current_schema()", [into]
            ).fetchall()[0]
        if found is None:
            raise UsageError(f"there is no table {name}")
        if found[3] not in ("r", "p"):
            raise UsageError(f"{name} is not a table: name the table that holds the texts")
        if len(parts) > 2 or max(len(part.encode()) for part in parts) > _LONGEST_NAME:
            raise UsageError(
                f"{into!r} is not the name of a table: write it as decisions or app.decisions, with parts of up to"
                f" {_LONGEST_NAME} bytes"
            )
        if parts[0].startswith("pg_temp"):
            raise UsageError(f"{into} would end with this run: choose a schema that stays")
        if len(parts) == 1 and schema:
            parts = [schema, *parts]  # in full: a temporary table would come before another one of its bare name
        with connection.begin():
            # The session waits while texts are compared.
            raw_connection(connection).execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield SourceTable(connection, name, found, text_column, parts)
