"""Compute missing or all fingerprints and sketches of a table, and write them in committed batches by primary key.

Rows are read without a lock, each with its version: xmin, the transaction that wrote it. Values are written only
if the row still has the version that was read, and only if no other transaction has locked it. So a backfill
overwrites no change by another writer, waits for none, and cannot deadlock with one. It retries the skipped rows
at the end. If it is interrupted, the committed batches stay, and the next call skips them.

A backfill that follows another reads the rows without a fingerprint from the B-tree of the column, and leaves out
those that the other has seen. What it had not seen was written by a transaction that had not ended when it began.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from psycopg import sql
from psycopg.rows import dict_row
from sqlalchemy import Connection

from simsql.database.bigint import to_bigint
from simsql.database.index import Finding, Report
from simsql.database.load import Target
from simsql.database.sources import text_of
from simsql.database.transfer import raw_connection
from simsql.errors import UsageError, warn_caller
from simsql.fingerprint import Recipe, simhash_parts, sketch

NOT_UTF8 = "text not in UTF-8"
_NAMED = 10  # such rows
# What the values of a row for its columns are called in the statements.
_VALUES = ("fingerprint", "sketch")
# How many times to retry rows that were being written.
_LOOKS = 3
# If there are more new rows than this, all rows are read, by primary key.
_NEW_ROWS = 100_000


class DamagedTextWarning(UserWarning):
    """Rows have a text that is not UTF-8, as it may be in a database with the encoding SQL_ASCII."""


class Filled(NamedTuple):
    """The result of a backfill."""

    written: int
    """Rows that have got a fingerprint, or another one than before."""
    without_features: int
    """Rows whose text has no features: their fingerprint is null."""
    busy: int
    """Rows that others were writing each time it looked. Another backfill finds them, if they still need it."""
    unchanged: int
    """Rows that had the values of their text already: only `all_rows` looks at such rows."""
    sketched: int
    """Rows that have got a sketch, or another one than before."""


class Compared(NamedTuple):
    """The result of a comparison of rows with their texts."""

    rows: int
    """Rows whose values were computed again. A row counts once for each index."""
    differing: int
    """Rows with another value, or without one although their text has features."""
    findings: list[Finding]
    """Some of them, with the primary key as `object`: "stale fingerprint", "missing sketch" and so on."""


_Values = Sequence[int | None]


class _Row(NamedTuple):
    key: str
    version: str
    values: _Values
    texts: Sequence[Any] | None
    """None if one is not UTF-8."""


_COUNT = "SELECT pg_catalog.count(*) FROM {rows_of} AS t WHERE {needs_one}"
_ROW = "{key}, CAST(t.xmin AS pg_catalog.text), ARRAY[{columns}], {texts}"
_FIRST = "SELECT {row} FROM {rows_of} AS t WHERE {needs_one} ORDER BY {key_order} LIMIT %(rows)s"
_NEXT = (
    "SELECT {row} FROM {rows_of} AS t CROSS JOIN (SELECT CAST(%(after)s AS pg_catalog.jsonb) AS key) AS v"
    " WHERE {needs_one} AND {later_key} ORDER BY {key_order} LIMIT %(rows)s"
)
_AGAIN = (
    "SELECT {row} FROM pg_catalog.unnest(CAST(%(keys)s AS pg_catalog.jsonb[])) AS v (key)"
    " JOIN {rows_of} AS t ON {same_key} WHERE {needs_one}"
)
# In no order: with that of the primary key, PostgreSQL might read the whole table.
_NEW = (
    "SELECT {key} FROM {rows_of} AS t WHERE t.{fingerprint} IS NULL AND {needs_one}"
    " AND pg_catalog.age(t.xmin) OPERATOR(pg_catalog.<=) pg_catalog.age(CAST(%(since)s AS pg_catalog.xid))"
    " LIMIT %(rows)s"
)
# Of random pages, if PostgreSQL has counted them: as many as have twice the rows that are wanted, and at least
# twenty, for each page is drawn by itself, and a small sample could have none.
_SAMPLE = (
    "SELECT {key} FROM {rows_of} AS t TABLESAMPLE system ((SELECT coalesce(least(100.0, greatest("
    "200.0 OPERATOR(pg_catalog.*) %(rows)s OPERATOR(pg_catalog./) nullif(pg_catalog.sum(c.reltuples), 0),"
    " 2000.0 OPERATOR(pg_catalog./) nullif(pg_catalog.sum(c.relpages), 0))), 100)"
    " FROM simsql._with_partitions(CAST(%(table)s AS pg_catalog.regclass)) AS p"
    " JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) p AND c.relkind OPERATOR(pg_catalog.=) 'r'"
    " AND c.reltuples OPERATOR(pg_catalog.>) 0)) WHERE {needs_one} ORDER BY pg_catalog.random() LIMIT %(rows)s"
)
# Skips rows that have changed since they were read (another version) or, if {only_free} says so, that are locked.
_WRITE = (
    "WITH free AS ("
    "SELECT v.* FROM ROWS FROM ("
    "pg_catalog.unnest(CAST(%(keys)s AS pg_catalog.jsonb[])),"
    " pg_catalog.unnest(CAST(%(versions)s AS pg_catalog.xid[])), {arrays}"
    ") WITH ORDINALITY AS v (key, version, {values}, number) {only_free})"
    " UPDATE {rows_of} AS t SET {assignments} FROM free AS v"
    " WHERE {same_key} AND t.xmin OPERATOR(pg_catalog.=) v.version RETURNING v.number"
)


def _find_parts(
    connection: Connection, target: Target, text_columns: list[str], *, all_rows: bool, decoded: bool
) -> dict[str, sql.Composable]:
    raw = raw_connection(connection)

    def literally(part: str) -> sql.SQL:
        return sql.SQL(part.replace("%", "%%"))  # for psycopg, a percent sign begins a parameter

    with raw.cursor(row_factory=dict_row) as cursor:
        cursor.execute(
            "SELECT *, CAST(CAST(pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot()) AS pg_catalog.xid)"
            " AS pg_catalog.text) AS began"
            " FROM simsql._backfill_parts(CAST(%s AS pg_catalog.regclass), %s, %s, %s, %s)",
            [target.table, target.columns, text_columns, all_rows, decoded],
        )
        (found,) = cursor.fetchall()
    parts: dict[str, sql.Composable] = {name: literally(part) for name, part in found.items()}
    columns = [literally(sql.Identifier(column).as_string(raw)) for column in target.columns]
    for name, form in (
        ("columns", "t.{column}"),
        ("arrays", "pg_catalog.unnest(CAST(%({value})s AS pg_catalog.int8[]))"),
        ("values", "{value}"),
        ("assignments", "{column} = v.{value}"),
    ):
        parts[name] = sql.SQL(", ").join(
            sql.SQL(form).format(column=column, value=sql.SQL(value))
            for column, value in zip(columns, _VALUES, strict=False)
        )
    parts["row"] = sql.SQL(_ROW).format(**parts)
    parts["fingerprint"] = columns[0]
    return parts


class Backfill:
    """A backfill of columns from columns with weights, created in a transaction. `run` it once."""

    def __init__(
        self,
        connection: Connection,
        target: Target,
        weights: Mapping[str, int] | None,
        sketched: str | None,
        recipe: Recipe | None,
        *,
        all_rows: bool,
        batch_rows: int = 1_000,
        report: Report | None,
    ) -> None:
        if batch_rows < 1:
            raise UsageError(f"batch_rows must be at least 1, not {batch_rows}")
        self._weights = weights = target.weights(weights)
        if target.sketch_column is not None and sketched is None:
            if len(weights) > 1:
                raise UsageError(
                    f"a sketch is of one text, not of {', '.join(weights)}: name the column of that text"
                )
            (sketched,) = weights
        self._connection = connection
        self._target = target
        self._sketched = sketched
        self._recipe = target.recipe(recipe)
        self._extract = extract = target.extract()
        # First those of the fingerprint.
        self._text_columns = list(dict.fromkeys([*weights, *filter(None, [sketched])]))
        decoded = extract is not None
        self._parts = _find_parts(connection, target, self._text_columns, all_rows=all_rows, decoded=decoded)
        self.began = self._parts["began"].as_string(None)
        self._all_rows = all_rows
        self._batch_rows = batch_rows
        self._report = report
        self._written = dict.fromkeys(_VALUES, 0)
        self._unchanged = self._empty = self._done = self._total = 0
        self._missed: list[str] = []
        self._damaged: list[str] = []

    def run(self, workers: int | None, since: str | None = None) -> Filled:
        """Write the values, and return the counts: of rows that are new since another one `began`, or all."""
        keys = None if since is None else self._find_new(since)
        if self._report and keys is None:
            ((self._total,),) = self._execute(_COUNT)
        self._fill(self._read() if keys is None else self._read_again(keys), workers)
        for _ in range(_LOOKS):
            keys, self._missed = self._missed, []
            self._fill(self._read_again(keys), None)
        if self._damaged:
            count = "1 row is" if len(self._damaged) == 1 else f"{len(self._damaged):,} rows are"
            named = "; ".join(self._damaged[:_NAMED]) + "; ..." * (len(self._damaged) > _NAMED)
            warn_caller(f"{count} left as before, because the text is not UTF-8: {named}", DamagedTextWarning)
        fingerprinted, sketched = self._written.values()
        return Filled(fingerprinted, self._empty, len(self._missed), self._unchanged, sketched)

    def compare(self, sample: int | None, named: int, workers: int | None) -> Compared:
        """Compute the values of a sample of the rows, or of all, and compare them. Writes nothing."""
        rows = self._read()
        if sample is not None:
            keys = [key for (key,) in self._execute(_SAMPLE, rows=sample, table=self._target.table)]
            self._total = len(keys) or sample
            # The rows may be on other pages than when PostgreSQL counted them.
            rows = self._read_again(keys) if keys else islice(rows, sample)
        elif self._report:
            ((self._total,),) = self._execute(_COUNT)
        differing, findings = 0, list[Finding]()
        target = self._target
        for row, made in self._make(rows, workers):
            self._done += 1
            if self._report:
                self._report(min(self._done / max(self._total, 1), 1.0))
            if list(made) == list(row.values):
                continue
            differing += 1
            if differing <= named:
                key = ", ".join(json.loads(row.key))
                findings += [
                    Finding(target.table, target.column, f"{problem} {name}", key, None, True, None)
                    for name, value, before in zip(_VALUES, made, row.values, strict=False)
                    if value != before and (problem := "missing" if before is None else "stale")
                ]
        findings += [
            Finding(target.table, target.column, NOT_UTF8, key, None, True, None)
            for key in self._damaged[: max(named - differing, 0)]
        ]
        return Compared(self._done, differing, findings)

    def _find_new(self, since: str) -> list[str] | None:
        """Return the keys of the rows that are new since then; None if there are many, or on Citus."""
        if not self._parts["only_free"].as_string(None):  # a shard has transaction numbers of its own
            return None
        with self._connection.begin():
            raw = raw_connection(self._connection)
            raw.execute("SET LOCAL enable_seqscan = off")  # whatever the statistics say: they may be old
            statement = sql.SQL(_NEW).format(**self._parts)
            keys = [key for (key,) in raw.execute(statement, {"since": since, "rows": _NEW_ROWS})]
        return keys if len(keys) < _NEW_ROWS else None

    def _read(self) -> Iterator[_Row]:
        """Yield the rows that need a value, by primary key."""
        rows = self._rows(_FIRST, rows=self._batch_rows)
        while rows:
            yield from rows
            rows = self._rows(_NEXT, rows=self._batch_rows, after=rows[-1].key)

    def _read_again(self, keys: Sequence[str]) -> Iterator[_Row]:
        """Yield those of the rows that still need a value."""
        for start in range(0, len(keys), self._batch_rows):
            yield from self._rows(_AGAIN, keys=keys[start : start + self._batch_rows])

    def _rows(self, statement: str, **parameters: Any) -> list[_Row]:
        rows = self._execute(statement, **parameters)
        return [_Row(*row, self._texts(texts)) for *row, texts in rows]  # type: ignore[call-arg]

    def _texts(self, found: Any) -> Sequence[Any] | None:
        """Return the texts of the values of a row; None if one is not UTF-8."""
        try:
            values = json.loads(found.decode()) if isinstance(found, bytes) else found
            decoded = [value.decode() if isinstance(value, bytes) else value for value in values]
        except UnicodeDecodeError:
            return None
        return [text_of(value, self._extract) for value in decoded]

    def _sound(self, rows: Iterable[_Row]) -> Iterator[tuple[_Row, Sequence[Any]]]:
        """Yield the rows with their texts, and keep the keys of those whose texts are not UTF-8."""
        for row in rows:
            if row.texts is None:
                self._damaged.append(", ".join(json.loads(row.key)))
            else:
                yield row, row.texts

    def _make(self, rows: Iterable[_Row], workers: int | None) -> Iterator[tuple[_Row, _Values]]:
        """Yield each row with the values for its columns. Reads rows ahead."""
        names = self._text_columns
        if len(names) == 1:
            items = ((row, text or "") for row, (text,) in self._sound(rows))
            yield from self._target.compute(items, self._recipe, workers)
            return
        for row, found in self._sound(rows):
            texts = dict(zip(names, found, strict=True))
            parts = [(text, weight) for name, weight in self._weights.items() if (text := texts[name]) is not None]
            values = [to_bigint(simhash_parts(parts, self._recipe))]
            if self._sketched is not None:
                text = texts[self._sketched]
                values.append(None if text is None else to_bigint(sketch(text, revision=self._recipe.revision)))
            yield row, values

    def _fill(self, rows: Iterable[_Row], workers: int | None) -> None:
        batch: list[tuple[_Row, _Values]] = []
        for row, made in self._make(rows, workers):
            # A fingerprint that is there may have another origin. A sketch beside a missing one may be stale.
            kept = None if self._all_rows else row.values[0]
            batch.append((row, [made[0] if kept is None else kept, *made[1:]]))
            if len(batch) == self._batch_rows:
                self._write(batch)
                batch = []
        self._write(batch)

    def _write(self, batch: Sequence[tuple[_Row, _Values]]) -> None:
        changed = [(row, values) for row, values in batch if values != row.values]
        missed: list[str] = []
        if changed:
            columns = zip(*(values for _, values in changed), strict=True)
            numbers = self._execute(
                _WRITE,
                keys=[row.key for row, _ in changed],
                versions=[row.version for row, _ in changed],
                **{name: list(column) for name, column in zip(_VALUES, columns, strict=False)},
            )
            written = {number for (number,) in numbers}
            missed = [row.key for number, (row, _) in enumerate(changed, 1) if number not in written]
            for number in written:
                row, values = changed[number - 1]
                for name, value, before in zip(_VALUES, values, row.values, strict=False):
                    self._written[name] += value != before
        self._missed += missed
        self._unchanged += sum(values[0] is not None and values == row.values for row, values in batch)
        left = set(missed)
        self._empty += sum(values[0] is None for row, values in batch if row.key not in left)
        self._done += len(batch) - len(missed)
        if self._report:
            # Others may have added rows meanwhile.
            self._report(min(self._done / max(self._total, 1), 1.0))

    def _execute(self, statement: str, **parameters: Any) -> list[tuple[Any, ...]]:
        composed = sql.SQL(statement).format(**self._parts)
        with self._connection.begin():
            return raw_connection(self._connection).execute(composed, parameters).fetchall()
