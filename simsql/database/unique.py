"""Load only the documents that have no near-duplicate: the crawler of Manku, Jain and Das Sarma (WWW 2007).

A near-duplicate is a row within a distance whose text is similar enough. A large part of the load is searched for
at once, and its batches compare texts, all without locks. Then a batch takes the lock that claims share, looks for
rows that were added since the search, locks the rows in whose favour it leaves documents out, looks at them again,
inserts, and commits. While it has the lock, it waits for anything else only for an instant, and then begins again:
whoever holds what it needs may be waiting for the lock.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import errors, sql
from sqlalchemy import Connection, Engine

from simsql.arrays.positions import gather
from simsql.database.bigint import Scope, encode_scope
from simsql.database.binds import READ_COMMITTED, check_engine
from simsql.database.connect import one_line
from simsql.database.load import Target, find_table, find_target
from simsql.database.query import RowQuery
from simsql.database.rows_with_origin import OriginCopier, RowWithOrigin
from simsql.database.sketches import check_compared_columns, find_column
from simsql.database.transfer import raw_connection, sqlalchemy_errors
from simsql.errors import SimsqlError, UsageError
from simsql.fingerprint import Recipe, compares_features, similarities, sketch_distance
from simsql.hamming.match import cheapest_search

Raw = psycopg.Connection[tuple[Any, ...]]

# Documents that are searched for at once, since a search reads all fingerprints; and characters that limit them.
_SEARCHED, _SEARCHED_CHARACTERS = 10_000, 1 << 25
_BATCH_CHARACTERS = 1 << 22
# Seconds to wait for claims, at first and at most: other claims queue behind. With the lock, seconds to wait for
# anything else: a session that waits for the lock meanwhile would be in deadlock with this one.
_WAIT, _LONGEST_WAIT, _INSTANT = 0.1, 5.0, 0.001
# Errors that mean that the table or the index has just changed, and how often to try again.
_CHANGES, _ATTEMPTS = (errors.UniqueViolation, errors.ObjectNotInPrerequisiteState), 5

_TABLE = "CAST(%s AS pg_catalog.regclass)"
_INDEX = f"{_TABLE}, %s, CAST(%s AS pg_catalog.jsonb)"
_LOADED_TABLE = f"SELECT type, rows, lock FROM simsql._loaded_table({_INDEX}, %s)"  # noqa: S608
_ADDED_FINGERPRINTS = f"SELECT simsql._added_fingerprints({_INDEX}, CAST(%s AS pg_catalog.pg_snapshot))"
# A planner that expects many rows would read the whole table for a few.
_SETTINGS = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off"


class NewDocument(NamedTuple):
    """A document to load."""

    id: str
    text: str
    place: str = ""
    """Where it was read, for messages."""


Outcome = Literal["loaded", "loaded before", "replaced"]


class Decision(NamedTuple):
    """What has become of a document."""

    document: NewDocument
    outcome: Outcome | Literal["left out"]
    has_fingerprint: bool = True
    """Whether its text has words. Without them, nothing is like it."""
    kept: str | None = None
    """The id of the row, or of the document loaded before, in whose favour it was left out."""
    distance: int | None = None
    similarity: float | None = None


class _Kept(NamedTuple):
    """A row or a document of the load that is a near-duplicate of an item."""

    id: str
    text: str
    distance: int
    similarity: float
    item: "_Item | None" = None
    """The document, if it is one of the load."""


@dataclass(eq=False)
class _Item:
    """A document on its way, with its fingerprint and, if there is a column for it, its sketch, as bigints."""

    document: NewDocument
    values: tuple[int | None, ...]
    order: int
    id: str = ""
    """Its id as the column shows it."""
    outcome: Outcome = "loaded"
    row: _Kept | None = None
    """The oldest row that is a near-duplicate."""
    earlier: list[_Kept] = field(default_factory=list)
    """The documents of the load that are near-duplicates, those that came first first."""
    kept: _Kept | None = None
    """In whose favour it is left out."""

    @property
    def fingerprint(self) -> int | None:
        return self.values[0]

    def decision(self) -> Decision:
        has_fingerprint = self.fingerprint is not None
        if self.kept is None:
            return Decision(self.document, self.outcome, has_fingerprint)
        return Decision(self.document, "left out", True, self.kept.id, self.kept.distance, self.kept.similarity)


class _ChangedError(Exception):
    """Others have changed what the search has found."""


def load_unique(
    engine: Engine,
    table: str,
    documents: Iterable[NewDocument],
    *,
    id_column: str,
    text_column: str,
    column: str | None = None,
    sketch_column: str | None = None,
    scope: Scope | None = None,
    recipe: Recipe | None = None,
    distance: int = 12,
    similarity: float = 0.6,
    replace: bool = False,
    dry_run: bool = False,
    batch_rows: int = 500,
    workers: int | None = None,
    waits: Callable[[str], None] | None = None,
) -> Iterator[Decision]:
    """Load the documents without a near-duplicate; yield what has become of each one, once that is committed.

    A near-duplicate is a row, or a document loaded before, within `distance` (0 to 64) whose text is at least as
    similar as `similarity`, as `SearchIndex.similar` compares them. Of several, the oldest counts. Among loaders,
    none is let in; between a loader and `claim`, none within the distance of the claim. Other writers are not held
    up.

    A document whose id is in the table was loaded before. With another text, it is an error or, with `replace`,
    takes the place of its row, unless it is a near-duplicate of another one. With a `scope`, a value for each
    scope column of the index, rows get these values and are compared with each other alone. With `dry_run`,
    nothing is loaded, and the texts that would be stay in memory.

    Each batch of `batch_rows` is committed; claims wait meanwhile. After an interruption, load again. `waits` gets
    a message when a batch has to wait for other sessions; a `lock_timeout` limits how long. The other arguments
    are as for `load_rows`.

    Raises UsageError for invalid arguments; SimsqlError for an id with another text and a document that PostgreSQL
    refuses; sqlalchemy.exc.DBAPIError with PostgreSQL's message, also for an id column without a unique index and
    a table that Citus distributes. Batches that are committed stay.
    """
    if batch_rows < 1:
        raise UsageError(f"batch_rows must be at least 1, not {batch_rows}")
    RowQuery(text="", distance=distance, similarity=similarity)  # checks them
    engine = check_engine(engine, "load_unique").execution_options(**READ_COMMITTED)
    with sqlalchemy_errors(), engine.connect() as connection:
        with connection.begin():
            target = find_target(connection, table, column, sketch_column)
            check_compared_columns(connection, table, [text_column], None)
            find_column(connection, table, id_column)
        target.weights({text_column: 1})
        if not target.indexed:
            raise UsageError(f"{table}({target.column}) has no simhash index: create it first")
        if target.extract() is not None:
            raise UsageError(
                f"{table}({target.column}) has fingerprints of extracted texts: load without --unique"
            )
        made_by = target.recipe(recipe)
        if made_by.of_pictures:
            raise UsageError(f"{table}({target.column}) has fingerprints of pictures: only texts can be compared")
        loader = _Loader(
            connection,
            target,
            made_by,
            id_column,
            text_column,
            scope or {},
            distance,
            similarity,
            replace,
            dry_run,
            waits,
        )
        found = target.compute(((document, document.text) for document in documents), made_by, workers)
        items = (_Item(document, values, order) for order, (document, values) in enumerate(found))
        for part in _parts(items, _SEARCHED, _SEARCHED_CHARACTERS):
            yield from loader.load(part, batch_rows)


def _parts(items: Iterable[_Item], count: int, characters: int) -> Iterator[list[_Item]]:
    return gather(items, lambda item: len(item.document.text), characters, count)


@dataclass
class _Loader:
    connection: Connection
    target: Target
    recipe: Recipe
    id_column: str
    text_column: str
    scope: Scope
    distance: int
    similarity: float
    replace: bool
    dry_run: bool
    waits: Callable[[str], None] | None

    def __post_init__(self) -> None:
        self._let_in: dict[int, list[_Item]] = defaultdict(list)
        """The documents that were let in since the search or, in a dry run, since the start, by fingerprint."""
        self._let_in_ids: dict[str, _Item] = {}
        self._places: dict[str, int] = {}
        """The places of documents in this part of the load, by id."""
        self._own: list[str] = []
        """The numbers of the transactions of this loader."""
        self._index = [self.target.table, self.target.column, encode_scope(self.scope) if self.scope else None]
        self._scope_values = list(map(str, self.scope.values()))
        columns = [self.id_column, self.text_column, *self.scope, *self.target.columns]
        with self.connection.begin():
            raw = raw_connection(self.connection)
            self._copier = OriginCopier(raw, find_table(raw, self.target.table), columns)
            parameters = [*self._index, self.id_column]
            ((type_name, rows, self._lock),) = raw.execute(_LOADED_TABLE, parameters).fetchall()
        sketch = self.target.sketch_column
        parts = {
            "rows": sql.SQL(rows),
            "id": sql.Identifier(self.id_column),
            "text": sql.Identifier(self.text_column),
            "fingerprint": sql.Identifier(self.target.column),
            "type": sql.SQL(type_name),
            "sketch": sql.SQL("CAST({} AS int8)").format(sql.Identifier("t", sketch) if sketch else sql.NULL),
            # Sketches are of words.
            "differing": sql.Literal(64 if compares_features(self.recipe) else sketch_distance(self.similarity)),
            "values": sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in columns[1:]),
            "in_scope": sql.SQL("").join(
                sql.SQL(" AND t.{} = {}").format(sql.Identifier(name), sql.Literal(value))
                for name, value in zip(self.scope, self._scope_values, strict=True)
            ),
        }
        self._find_ids, self._find_rows, self._read_rows, self._replace = (
            sql.SQL(statement).format(**parts)
            for statement in (
                "SELECT CAST(CAST(q.id AS {type}) AS pg_catalog.text), t.{id} IS NOT NULL, t.{text},"
                " (true{in_scope}) IS TRUE"
                " FROM pg_catalog.unnest(CAST(%s AS pg_catalog.text[])) WITH ORDINALITY AS q (id, number)"
                " LEFT JOIN {rows} AS t ON t.{id} = CAST(q.id AS {type}) ORDER BY q.number",
                "SELECT q.number, CAST(t.{id} AS pg_catalog.text), t.{fingerprint}, pg_catalog.age(t.xmin)"
                " FROM ROWS FROM (pg_catalog.unnest(CAST(%s AS int4[])), pg_catalog.unnest(CAST(%s AS int8[])),"
                " pg_catalog.unnest(CAST(%s AS int8[]))) AS q (number, fingerprint, sketch)"
                " JOIN {rows} AS t ON t.{fingerprint} OPERATOR(pg_catalog.=) q.fingerprint{in_scope}"
                " WHERE coalesce(pg_catalog.bit_count(CAST({sketch} OPERATOR(pg_catalog.#) q.sketch"
                " AS pg_catalog.bit(64))) OPERATOR(pg_catalog.<=) {differing}, true)",
                "SELECT CAST(t.{id} AS pg_catalog.text), t.{fingerprint}, t.{text} FROM {rows} AS t"
                " WHERE t.{id} = ANY (CAST(CAST(%s AS pg_catalog.text[]) AS {type}[])){in_scope}",
                "UPDATE {rows} AS t SET {values} WHERE t.{id} = CAST(CAST(%s AS pg_catalog.text) AS {type})"
                "{in_scope}",
            )
        )

    def load(self, part: list[_Item], batch_rows: int) -> Iterator[Decision]:
        attempts = 0
        self._places.clear()
        while part:
            if not self.dry_run:
                self._let_in.clear()
                self._let_in_ids.clear()
            try:
                with self._transaction() as raw:
                    before = _one(raw, "SELECT CAST(pg_catalog.pg_current_snapshot() AS pg_catalog.text)")
                    near = self._candidates(raw, part)
                while part:
                    batch = self._look_up(next(_parts(part, batch_rows, _BATCH_CHARACTERS)))
                    new = [item for item in batch if item.outcome != "loaded before"]
                    with self._transaction() as raw:
                        self._compare_with_rows(raw, new, near)
                    self._compare_within(new)
                    _leave_out(new)
                    if new and not self.dry_run:
                        self._commit(new, before)
                    self._note_let_in(new)
                    part, attempts = part[len(batch) :], 0
                    yield from (item.decision() for item in batch)
            except (_ChangedError, psycopg.Error, SimsqlError) as error:
                # A row was inserted without a claim, or the index has changed.
                is_lasting = not isinstance(_cause(error), (_ChangedError, *_CHANGES))
                attempts += not isinstance(error, _ChangedError)
                if is_lasting or attempts == _ATTEMPTS:
                    raise
                time.sleep(_WAIT)

    @contextmanager
    def _transaction(self) -> Iterator[Raw]:
        """Begin a transaction, and wait for the table: a search that has to wait is refused."""
        with self.connection.begin():
            raw = raw_connection(self.connection)
            raw.execute(_SETTINGS)
            raw.execute(f"SELECT simsql._wait_for({_TABLE})", self._index[:1])
            yield raw

    def _candidates(self, raw: Raw, items: Iterable[_Item], since: str | None = None) -> Mapping[int, list[int]]:
        """Return the fingerprints of rows, some of which may be gone, that are near enough to those of the items.

        With `since`, only those that transactions which this snapshot does not see have added, and a few more.
        """
        pieces = raw.execute(_ADDED_FINGERPRINTS, [*self._index, since], binary=True)
        return self._match(items, (np.frombuffer(piece, dtype=">u8").astype(np.uint64) for (piece,) in pieces))

    def _match(self, items: Iterable[_Item], stored: Iterable[NDArray[np.uint64]]) -> Mapping[int, list[int]]:
        """Return the stored fingerprints that are near enough to those of the items."""
        near: dict[int, list[int]] = defaultdict(list)
        queries = np.unique(_words(item.fingerprint for item in items))
        for fingerprints in map(np.unique, stored):
            if queries.size and fingerprints.size:
                for places, owners in cheapest_search(queries, fingerprints, self.distance)(fingerprints):
                    found = queries[owners].view(np.int64).tolist(), fingerprints[places].view(np.int64).tolist()
                    for query, fingerprint in zip(*found, strict=True):
                        near[query].append(fingerprint)
        return near

    def _look_up(self, batch: list[_Item]) -> list[_Item]:
        """Look up the ids; return the batch up to one that is repeated or that replaces a row."""
        try:
            with self._transaction() as raw:
                found = raw.execute(self._find_ids, [[item.document.id for item in batch]]).fetchall()
        except psycopg.DataError as error:
            for item in batch if len(batch) > 1 else ():
                self._look_up([item])
            document = batch[0].document
            raise SimsqlError(f"{document.place}: id {document.id!r}: PostgreSQL: {one_line(error)}") from error
        ids: set[str] = set()
        for number, (item, (item.id, exists, stored, in_scope)) in enumerate(zip(batch, found, strict=True)):
            if item.id in ids:
                return batch[:number]
            ids.add(item.id)
            self._places.setdefault(item.id, len(self._places))
            item.outcome, item.row, item.kept = "loaded", None, None
            known = self._let_in_ids.get(item.id) if self.dry_run else None
            if not exists and known is None:
                continue
            place = f"{item.document.place}: " if item.document.place else ""
            if exists and not in_scope:
                raise SimsqlError(
                    f"{place}id {item.id!r} is in {self._index[0]} in another scope: choose another id"
                )
            if item.document.text == (known.document.text if known else stored):
                item.outcome = "loaded before"
            elif self.replace:
                item.outcome = "replaced"
                return batch[: number + 1]  # the others are compared with its new text
            else:
                text = "without a text" if known is None and stored is None else "with another text"
                raise SimsqlError(
                    f"{place}id {item.id!r} is in {self._index[0]} {text}: use --replace to replace it"
                )
        return batch

    def _compare_with_rows(self, raw: Raw, items: Sequence[_Item], near: Mapping[int, list[int]]) -> None:
        """Find the oldest near-duplicate of each item among the rows with these fingerprints."""
        wanted = [
            (number, fingerprint, item.values[-1] if len(item.values) > 1 else None)
            for number, item in enumerate(items)
            if item.fingerprint is not None and item.row is None
            for fingerprint in near.get(item.fingerprint, ())
        ]
        found: dict[int, list[tuple[int, int, int, str]]] = defaultdict(list)
        for number, id_, fingerprint, age in raw.execute(self._find_rows, _columns(wanted, 3)) if wanted else ():
            item, place = items[number], self._places.get(id_, -1)
            if id_ != item.id and id_ not in self._let_in_ids:
                # Rows of one transaction are as old as each other. Those of an interrupted load are in its order.
                found[number].append((-age, place, _differing(item.fingerprint, fingerprint), id_))
        first, count = 0, 1
        while found := {number: sorted(rows) for number, rows in found.items() if len(rows) > first}:
            pairs = [(number, row[-1]) for number, rows in found.items() for row in rows[first : first + count]]
            ids = list({id_ for _, id_ in pairs})
            rows = {id_: (fingerprint, text) for id_, fingerprint, text in raw.execute(self._read_rows, [ids])}
            pairs = [pair for pair in pairs if pair[1] in rows]
            texts = [[items[number].document.text for number, _ in pairs], [rows[id_][1] for _, id_ in pairs]]
            alike = similarities(texts[0], texts[1], self.recipe).tolist()
            for (number, id_), similarity in zip(pairs, alike, strict=True):
                item, (fingerprint, text) = items[number], rows[id_]
                bits = _differing(item.fingerprint, fingerprint)
                if similarity is None or similarity < self.similarity or bits > self.distance:
                    continue
                if number in found:
                    del found[number]
                    item.row = _Kept(id_, text, bits, similarity)
            first, count = first + count, 4 * count

    def _compare_within(self, batch: Sequence[_Item]) -> None:
        """Find the near-duplicates of each document among those before it."""
        near = self._match(batch, [_words([*self._let_in, *(item.fingerprint for item in batch)])])
        before = defaultdict(list, {fingerprint: [*items] for fingerprint, items in self._let_in.items()})
        pairs: list[tuple[_Item, _Item]] = []
        for item in batch:
            item.earlier = []
            if item.fingerprint is not None:
                others = (other for found in near[item.fingerprint] for other in before[found])
                pairs += [(item, other) for other in sorted(others, key=lambda other: other.order)]
                before[item.fingerprint].append(item)
        texts = [[item.document.text for item in side] for side in (_columns(pairs, 2))]
        alike = similarities(texts[0], texts[1], self.recipe).tolist()
        for (item, other), similarity in zip(pairs, alike, strict=True):
            if similarity is not None and similarity >= self.similarity:
                bits = _differing(item.fingerprint, other.fingerprint)
                item.earlier.append(_Kept(other.id, other.document.text, bits, similarity, other))

    def _commit(self, batch: list[_Item], before: str) -> None:
        """Load what is left of a batch, as soon as nobody claims in the table."""
        wait, limit, begun, said = _WAIT, 0.0, time.monotonic(), ""
        while True:
            try:
                with self.connection.begin():
                    raw = raw_connection(self.connection)
                    limit = _one(raw, "SELECT simsql._lock_timeout()")
                    raw.execute(f"SET LOCAL lock_timeout = {int(1000 * min(wait, limit or wait))}")
                    raw.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [self._lock])
                    raw.execute(f"SET LOCAL lock_timeout = {int(1000 * _INSTANT)}")
                    self._load_alone(raw, batch, before)
                break
            except (psycopg.Error, SimsqlError) as error:
                if not isinstance(_cause(error), errors.LockNotAvailable | errors.DeadlockDetected):
                    raise
                if limit and time.monotonic() - begun > limit:
                    raise
            with self.connection.begin():
                raw = raw_connection(self.connection)
                sessions = _one(raw, f"SELECT simsql._blockers_of_load({_TABLE})", self._index[:1])
            if sessions and sessions != said and self.waits:
                self.waits(f"waiting for sessions that claim in {self._index[0]} or have locked rows: {sessions}")
            said = sessions
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _load_alone(self, raw: Raw, batch: list[_Item], before: str) -> None:
        """Load what is left of a batch in a transaction that keeps claims and other loaders out."""
        raw.execute(_SETTINGS)
        raw.execute(f"SELECT simsql._wait_for({_TABLE})", self._index[:1])
        if _one(
            raw, "SELECT simsql._others_committed(CAST(%s AS pg_catalog.pg_snapshot), %s)", [before, self._own]
        ):
            left = [item for item in batch if item.row is None]
            self._compare_with_rows(raw, left, self._candidates(raw, left, before))
            _leave_out(batch)
        kept = {item.kept.id: item.kept for item in batch if item.kept and item.kept.item not in batch}
        # Nobody deletes or changes them until the decision is made.
        rows = raw.execute(self._read_rows + sql.SQL(" FOR SHARE"), [list(kept)]).fetchall() if kept else []
        if {(id_, text) for id_, _, text in rows} != {(id_, row.text) for id_, row in kept.items()}:
            raise _ChangedError
        added = []
        for item in batch:
            values = [item.document.text, *self._scope_values, *item.values]
            if item.kept is None and item.outcome == "replaced":
                if not raw.execute(self._replace, [*values, item.id]).rowcount:
                    raise _ChangedError
            elif item.kept is None:
                added.append(RowWithOrigin([item.id, *values], item.document.id, item.document.place))
        if added:
            self._copier.add(added)
        self._own.append(_one(raw, "SELECT CAST(pg_catalog.pg_current_xact_id() AS pg_catalog.text)"))

    def _note_let_in(self, batch: Sequence[_Item]) -> None:
        for item in batch:
            if item.kept is None:
                old = self._let_in_ids.pop(item.id, None)
                if old is not None and old.fingerprint is not None:
                    self._let_in[old.fingerprint].remove(old)
                self._let_in_ids[item.id] = item
                if item.fingerprint is not None:
                    self._let_in[item.fingerprint].append(item)


def _leave_out(batch: Sequence[_Item]) -> None:
    """Leave out near-duplicates of rows and of documents that came before and are kept themselves."""
    for item in batch:
        kept = (earlier for earlier in item.earlier if earlier.item is None or earlier.item.kept is None)
        item.kept = item.row or next(kept, None)


def _cause(error: BaseException) -> BaseException | None:
    """Return the error of PostgreSQL, also of one that tells where a document was read."""
    return error.__cause__ if isinstance(error, SimsqlError) else error


def _words(bigints: Iterable[int | None]) -> NDArray[np.uint64]:
    return np.array([bigint for bigint in bigints if bigint is not None], np.int64).view(np.uint64)


def _differing(one: int | None, other: int | None) -> int:
    return (((one or 0) ^ (other or 0)) % (1 << 64)).bit_count()


def _one(raw: Raw, statement: str, parameters: Sequence[Any] = ()) -> Any:
    ((value,),) = raw.execute(statement, parameters).fetchall()
    return value


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
