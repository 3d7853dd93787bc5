"""Load rows whose source location is known; skip and report those whose id is already in the table."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import psycopg
from psycopg import sql
from sqlalchemy import Connection

from simsql.database.connect import one_line
from simsql.database.load import Copier, FoundTable, Row, find_table, load_through
from simsql.database.transfer import raw_connection, sqlalchemy_errors
from simsql.errors import SimsqlError

_STAGED = FoundTable(0, "pg_temp", "simsql_loaded", "r")
_NUMBER = sql.Identifier("simsql number")

# Whether the unique indexes of a table tell which ids are repeated, and this session may look. Not if the load has
# other columns with a unique index: what that refuses may have an id of its own.
_IS_SKIPPABLE = """
    SELECT pg_catalog.has_column_privilege(%(table)s, %(id)s, 'SELECT')
       AND pg_catalog.has_database_privilege(pg_catalog.current_database(), 'TEMPORARY')
       AND NOT c.relhasrules
       AND coalesce(pg_catalog.bool_or(u.with_id) AND pg_catalog.bool_and(u.with_id OR NOT u.with_other), false)
      FROM pg_catalog.pg_class AS c
     CROSS JOIN LATERAL (
        SELECT coalesce(pg_catalog.bool_or(a.attname OPERATOR(pg_catalog.=) %(id)s), false) AS with_id,
               coalesce(pg_catalog.bool_or(a.attname OPERATOR(pg_catalog.=) ANY (%(others)s)), false) AS with_other
          FROM pg_catalog.pg_index AS i
          LEFT JOIN pg_catalog.pg_attribute AS a
            ON a.attrelid OPERATOR(pg_catalog.=) i.indrelid
           -- Of its key, of an expression in it, or of its condition.
           AND (a.attnum OPERATOR(pg_catalog.=) ANY ((CAST(i.indkey AS smallint[]))[0:i.indnkeyatts - 1])
                OR EXISTS (SELECT FROM pg_catalog.pg_depend AS d
                            WHERE d.classid OPERATOR(pg_catalog.=) c.tableoid
                              AND d.objid OPERATOR(pg_catalog.=) i.indexrelid
                              AND d.refobjid OPERATOR(pg_catalog.=) i.indrelid
                              AND d.refobjsubid OPERATOR(pg_catalog.=) a.attnum))
         WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisunique AND i.indimmediate
         GROUP BY i.indexrelid) AS u
     WHERE c.oid OPERATOR(pg_catalog.=) %(table)s
     GROUP BY c.oid
"""


class RowWithOrigin(list[Any]):
    """A row with its name and the place where it was read."""

    __slots__ = ("name", "place")

    def __init__(self, values: Iterable[Any], name: str, place: str) -> None:
        super().__init__(values)
        self.name = name
        self.place = place


Skip = Callable[[RowWithOrigin, RowWithOrigin | None], None]
"""Takes a row whose id the table has already, and the earlier row of the load that has it, if that is known."""


@sqlalchemy_errors()
def load_rows_with_origin(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    rows: Iterable[RowWithOrigin],
    *,
    id_column: str | None,
    skip: Skip,
) -> int:
    """COPY rows like `load_rows`, but skip those whose id is in the table; return the number of added rows.

    `id_column` is the one of `columns` that holds the ids. The unique indexes and constraints of the table decide
    which ids are equal; without one, every row is added. `skip` is called with each skipped row.

    Raises SimsqlError with the place of a row that PostgreSQL refuses for another reason, or
    sqlalchemy.exc.DBAPIError if PostgreSQL does not report which row that is.
    """
    raw = raw_connection(connection)
    found = find_table(raw, table)
    copier: Copier
    if id_column is not None and _is_skippable(raw, found, id_column, columns):
        copier = _SkippingCopier(raw, found, columns, id_column, skip)
    else:
        copier = OriginCopier(raw, found, columns)
    return load_through(copier, connection, rows)


def _is_skippable(
    raw: psycopg.Connection[tuple[Any, ...]], table: FoundTable, id_column: str, columns: Sequence[str]
) -> bool:
    others = [column for column in columns if column != id_column]
    parameters = {"table": table.oid, "id": id_column, "others": others}
    try:
        with raw.transaction():
            return raw.execute(_IS_SKIPPABLE, parameters).fetchall() == [(True,)]
    except psycopg.errors.UndefinedColumn:
        return False  # COPY says it better


class OriginCopier(Copier):
    """Report the place of a row that PostgreSQL refuses."""

    def add(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Add rows; return the ones that were added."""
        try:
            return super().add(rows)
        except psycopg.Error as error:
            # COPY article, line 3, column id: ... The word for line is in the language of the server.
            pattern = rf"^COPY {re.escape(self.table.relation)}, \D*(\d+)"
            found = re.search(pattern, error.diag.context or "", re.MULTILINE)
            if found and 0 < int(found[1]) <= len(rows):
                raise _refused(rows[int(found[1]) - 1], error) from error
            raise


class _SkippingCopier(OriginCopier):
    """Skip rows whose id is already in the table.

    COPY stops at the first conflict, so it fills a temporary table, from which the others are inserted.
    """

    def __init__(
        self,
        raw: psycopg.Connection[tuple[Any, ...]],
        table: FoundTable,
        columns: Sequence[str],
        id_column: str,
        skip: Skip,
    ) -> None:
        super().__init__(raw, table, columns)
        self._skip = skip
        self._staged: Copier | None = None
        parts = {
            "table": table.name,
            "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
            "id": sql.SQL("CAST({} AS pg_catalog.text)").format(sql.Identifier(id_column)),
            "number": _NUMBER,
            "staged": _STAGED.name,
        }
        self._create, self._insert, self._insert_one, self._ids, self._empty, self._drop = (
            sql.SQL(statement).format(**parts)
            for statement in (
                "CREATE TEMPORARY TABLE {staged} ON COMMIT DROP AS"
                " SELECT CAST(0 AS pg_catalog.int4) AS {number}, {columns} FROM {table} WITH NO DATA",
                "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {staged}"
                " ORDER BY {number} ON CONFLICT DO NOTHING RETURNING {id}",
                "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {staged}"
                " WHERE {number} OPERATOR(pg_catalog.=) %s ON CONFLICT DO NOTHING",
                "SELECT {id} FROM {staged} ORDER BY {number}",
                "TRUNCATE {staged}",
                "DROP TABLE IF EXISTS {staged}",
            )
        )

    def add(self, rows: Sequence[Row]) -> Sequence[Row]:
        if self._staged is None:
            self.raw.execute(self._drop)  # that of an earlier load of this transaction
            self.raw.execute(self._create)
            self._staged = OriginCopier(self.raw, _STAGED, ["simsql number", *self.columns])
        of_rows = enumerate(cast(Sequence[RowWithOrigin], rows))
        self._staged.add([RowWithOrigin([number, *row], row.name, row.place) for number, row in of_rows])
        try:
            with self.raw.transaction():
                inserted = self.raw.execute(self._insert).fetchall()
        except psycopg.Error:
            self._find_refused(rows)
            raise
        if len(inserted) < len(rows):
            rows = self._leave_out(cast(Sequence[RowWithOrigin], rows), [id_ for (id_,) in inserted])
        self.raw.execute(self._empty)
        return rows

    def _find_refused(self, rows: Sequence[Row]) -> None:
        """Raise SimsqlError for the row that makes a batch fail; the error of the batch does not report it."""
        for number, row in enumerate(rows):
            try:
                self.raw.execute(self._insert_one, [number])
            except psycopg.Error as error:
                raise _refused(row, error) from error

    def _leave_out(self, rows: Sequence[RowWithOrigin], inserted: Sequence[str | None]) -> list[RowWithOrigin]:
        """Return the rows that were inserted, by their ids, and pass the others to `skip`."""
        ids = [id_ for (id_,) in self.raw.execute(self._ids)]
        left = Counter(inserted)  # shards return them in any order
        added: list[RowWithOrigin] = []
        having: dict[str | None, RowWithOrigin] = {}
        for row, id_ in zip(rows, ids, strict=True):
            if left[id_]:
                left[id_] -= 1
                added.append(row)
                having[id_] = row
            else:
                self._skip(row, having.get(id_))
        if len(added) < len(inserted):
            raise SimsqlError(
                "cannot tell which documents to skip: some ids are repeated, and a trigger of"
                f" {self.table.relation} changes them"
            )
        return added


def _refused(row: Row, error: psycopg.Error) -> Exception:
    row = cast(RowWithOrigin, row)
    named = "" if row.place == row.name else f"id {row.name!r}: "
    return SimsqlError(f"{row.place}: {named}PostgreSQL: {one_line(error)}")
