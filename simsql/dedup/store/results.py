"""Read the documents of a table to decide about them, and store, list and read the decisions."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Double,
    MetaData,
    Table,
    Text,
    any_,
    case,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.expression import cast

from simsql.database.transfer import copy_columns, raw_connection
from simsql.decide.verdicts import Documents, Verdicts
from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.table import DECIDED, MEMBERS, DocumentStore

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]

_HEADER = 19  # bytes of a binary COPY before the first row


class StoredDocument(NamedTuple):
    """A document of a cluster."""

    cluster: int
    id: int
    name: str
    place: str
    line: int | None
    """The line of a record; None for a whole file."""
    identity: str
    text_digest: str
    characters: int
    fingerprint: int
    """A bigint."""
    seen: bool
    """Whether this run has read it in its input. If so, `name` and `place` are from this run."""
    present: bool
    """Whether this run has read it, in its input or again at its place."""
    shared: bool
    """Whether other documents have this name, too."""
    misleading: bool
    """Whether the place is the name of another document."""
    mistakable: bool
    """Whether the name is the place of another document, which has another name."""
    kept: int
    """The id of the document that is kept in its favour: its own if it is kept."""
    representative: int
    """The id of the document that represents the cluster."""
    kept_similarity: float | None
    representative_similarity: float | None
    """None if no texts were compared."""

    @property
    def label(self) -> str:
        """The name or, if other documents have it, too, the place."""
        return self.place if self.shared else self.name

    @property
    def reference(self) -> Reference:
        """Where to find it."""
        return Reference(self.id, self.name, self.place, self.line, self.identity, self.text_digest)


class Rows(NamedTuple):
    """The documents that have a fingerprint, one per array position, by ascending id."""

    documents: Documents
    ordinal: I64
    """Position in the order of reading of this run; -1 for documents that it has not read."""
    words: I64
    """The number of words that the table has of each document."""


class Results:
    """The decisions about the documents of a table. Use it in the transaction that has merged the documents."""

    def __init__(self, store: DocumentStore, connection: Connection) -> None:
        self._store = store
        self._connection = connection

    def read(self, *, decided: bool) -> Rows:
        """Read all documents that have a fingerprint. Unless `decided`, none has an earlier decision.

        In a table for one run, the words of documents are not known.
        """
        rows = self._read_columns()
        ids = rows["id"].astype(np.int64)
        ordinal = rows["ordinal"].astype(np.int64)
        empty = np.full(len(ids), np.nan)
        own: dict[str, Any] = {
            "words": np.zeros((len(ids), 2), dtype=np.uint64),
            "compared": np.ones(len(ids), dtype=bool),
            "kept": ids,
            "representative": ids,
            "kept_similarity": empty,
            "representative_similarity": empty,
            "fresh": np.ones(len(ids), dtype=bool),
            "undecided": np.zeros(len(ids), dtype=bool),
        }
        if self._store.kept:
            own |= {"words": rows["words"].astype(np.uint64)}
            own |= {name: rows[name] for name in ("compared", "undecided")}
            if decided:
                own |= {name: rows[name].astype(own[name].dtype) for name in _DECISIONS}
                own["fresh"] = ~rows["known"] | own["undecided"]
        documents = Documents(
            id=ids,
            fingerprint=rows["fingerprint"].astype(np.uint64),
            characters=rows["characters"].astype(np.int64),
            seen=ordinal >= 0,
            **own,
        )
        words = rows["number"].astype(np.int64) if self._store.kept else np.zeros(len(ids), dtype=np.int64)
        return Rows(documents, ordinal, words)

    def _read_columns(self) -> NDArray[Any]:
        """Return the columns of all documents with a fingerprint, without a Python object for each value."""
        stored = _COLUMNS | (_KEPT_COLUMNS if self._store.kept else {})
        columns = stored | _STAGED_COLUMNS
        fields: list[tuple[str, str]] = [("columns", ">i2")]
        for name, (_, kind) in columns.items():
            fields += [(f"size of {name}", ">i4"), (name, kind)]
        # OFFSET keeps the words, which may be long, out of the join.
        statement = sql.SQL(
            "COPY (SELECT {} FROM (SELECT t.identity, {} FROM {} AS t WHERE t.fingerprint IS NOT NULL OFFSET 0)"
            " AS t LEFT JOIN pg_temp.{} AS s ON s.identity OPERATOR(pg_catalog.=) t.identity)"
            " TO STDOUT (FORMAT BINARY)"
        ).format(
            sql.SQL(", ").join(
                [
                    *(sql.Identifier("t", name) for name in stored),
                    *(sql.SQL(expression) for expression, _ in _STAGED_COLUMNS.values()),
                ]
            ),
            sql.SQL(", ").join(
                sql.SQL(expression + " AS {}").format(sql.Identifier(name))
                for name, (expression, _) in stored.items()
            ),
            self._store.identifier,
            sql.Identifier(self._store.staged.name),
        )
        with raw_connection(self._connection).cursor() as cursor, cursor.copy(statement) as copy:
            data = b"".join(copy)
        row = np.dtype(fields)
        rows = np.frombuffer(data, row, offset=_HEADER, count=(len(data) - _HEADER) // row.itemsize)
        return rows[np.argsort(rows["id"])]

    def read_words(self, ids: I64) -> U64:
        """Return the hashes of the words of documents, one document after the other."""
        statement = sql.SQL(
            "SELECT t.words FROM pg_catalog.unnest(CAST(%s AS pg_catalog.int8[])) WITH ORDINALITY AS w (id, n)"
            " JOIN {} AS t ON t.id OPERATOR(pg_catalog.=) w.id ORDER BY w.n"
        ).format(self._store.identifier)
        with raw_connection(self._connection).cursor(binary=True) as cursor:
            words = b"".join(row[0] for row in cursor.execute(statement, [ids.tolist()]))
        return np.frombuffer(words, dtype="<u8").astype(np.uint64)

    def read_values(self) -> dict[int, str]:
        """Return the values that decide which documents are kept, by id."""
        table = self._store.table.c
        rows = self._connection.execute(select(table.id, table.value).where(table.value.is_not(None)))
        return {row[0]: row[1] for row in rows}

    def order_by_name(self, ids: I64) -> I64:
        """Return ids in the order of the names of their documents."""
        table = self._store.table.c
        rows = self._connection.execute(
            select(table.id).where(_is_one_of(table.id, ids)).order_by(table.name.collate("C"), table.id)
        )
        return np.array(rows.scalars().all(), dtype=np.int64)

    def read_references(self, ids: I64) -> Iterator[Reference]:
        """Yield where to find documents that this run has not read."""
        table = self._store.table.c
        columns = [table[name] for name in Reference._fields]
        for row in self._connection.execute(select(*columns).where(_is_one_of(table.id, ids))):
            yield Reference(row.id, row.name, row.place, row.line, row.identity.hex, row.text_digest.hex)

    def store(self, documents: Documents, verdicts: Verdicts) -> None:
        """Write the decisions that have changed into a table that is kept, and list the members of clusters."""
        kept, representative = documents.id[verdicts.kept], documents.id[verdicts.representative]
        stored = np.zeros(len(documents.id), dtype=bool)
        if self._store.kept:
            stored = (
                documents.fresh  # it may have had a decision
                | (kept != documents.kept)
                | (representative != documents.representative)
                | verdicts.undecided
            )
        listed = np.flatnonzero(stored | (verdicts.cluster > 0))
        decided = Table(
            DECIDED,
            MetaData(),
            *(
                Column(name, BigInteger)
                for name in ("id", "cluster", "kept", "representative", "undecided", "present", "stored")
            ),
            *(Column(name, Double) for name in ("kept_similarity", "representative_similarity")),
            prefixes=["TEMPORARY"],
        )
        decided.create(self._connection)
        values = {
            "id": documents.id,
            "cluster": verdicts.cluster,
            "kept": kept,
            "representative": representative,
            "undecided": verdicts.undecided.astype(np.int64),
            "present": verdicts.present.astype(np.int64),
            "stored": stored.astype(np.int64),
            # As bits: the same eight bytes in a binary COPY.
            "kept_similarity": verdicts.kept_similarity.view(np.int64),
            "representative_similarity": verdicts.representative_similarity.view(np.int64),
        }
        copy_columns(
            self._connection,
            sql.Identifier("pg_temp", DECIDED),
            {name: array[listed] for name, array in values.items()},
        )
        # Autovacuum does not see temporary tables, and without a number of rows the planner would loop.
        self._connection.execute(text(f"ANALYZE pg_temp.{DECIDED}"))
        if stored.any():
            self._update(decided)
        self._list_members(decided)

    def clusters(self) -> Iterator[list[StoredDocument]]:
        """Yield the documents of each cluster, the largest first. Works in later transactions, too."""
        members = _members()
        rows = self._connection.execute(
            select(members).order_by(members.c.cluster, members.c.id).execution_options(yield_per=10_000)
        )
        documents = (StoredDocument(*row) for row in rows)
        for _, cluster in groupby(documents, key=attrgetter("cluster")):
            yield list(cluster)

    def find_named(self, name: str) -> Sequence[int]:
        """Return the ids of the documents of this name or, if there are none, at this place."""
        wanted = cast(name, Text)
        found = self._read_names(lambda names: names.c.name == wanted)
        return [row.id for row in found or self._read_names(lambda names: names.c.place == wanted)]

    def read_labels(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the names of documents by id or, of documents that share theirs, the places."""
        rows = self._read_names(lambda names: names.c.id.in_(list(ids)))
        return {row.id: row.place if len(self.find_named(row.name)) > 1 else row.name for row in rows}

    def _read_names(self, chosen: Callable[[Any], ColumnElement[bool]]) -> Sequence[Any]:
        """Return id, name and place of documents: those of this run, or else of an earlier one."""
        table, staged = self._store.table, self._store.staged
        found = table.outerjoin(staged, staged.c.identity == table.c.identity)
        own = (func.coalesce(staged.c[name], table.c[name]).label(name) for name in ("name", "place"))
        names = select(table.c.id, *own).select_from(found).subquery()
        return self._connection.execute(select(names).where(chosen(names)).order_by(names.c.id)).all()

    def _update(self, decided: Table) -> None:
        table = self._store.table
        values: dict[str, ColumnElement[Any]] = {
            name: func.nullif(decided.c[name], table.c.id) for name in ("kept", "representative")
        }
        for name in ("kept_similarity", "representative_similarity"):
            values[name] = func.nullif(decided.c[name], cast("NaN", Double))
        values["undecided"] = decided.c.undecided == 1
        differs = [table.c[name].is_distinct_from(value) for name, value in values.items()]
        statement = update(table).values(values).where(table.c.id == decided.c.id, decided.c.stored == 1)
        self._connection.execute(statement.where(or_(*differs)))

    def _list_members(self, decided: Table) -> None:
        members = _members()
        members.create(self._connection)
        table, staged = self._store.table, self._store.staged
        known = table.outerjoin(staged, staged.c.identity == table.c.identity)
        name = func.coalesce(staged.c.name, table.c.name)
        place = func.coalesce(staged.c.place, table.c.place)
        seen = staged.c.ordinal.is_not(None)
        # What came from standard input in earlier runs is not there any more.
        there = or_(seen, not_(func.pg_catalog.starts_with(table.c.place, cast("stdin:", Text))))
        names = select(name.label("name"), func.count().label("documents")).select_from(known).where(there)
        named = names.group_by(name).cte("named")
        same, placed = named.alias("same"), named.alias("placed")
        # A place that is also the name of its document counts among the names.
        taken = select(place.label("place")).distinct().select_from(known).where(there, place != name).cte("taken")
        found = decided.join(known, table.c.id == decided.c.id)
        found = found.outerjoin(same, same.c.name == name).outerjoin(placed, placed.c.name == place)
        found = found.outerjoin(taken, taken.c.place == name)
        itself = case((there, 1), else_=0)
        shared = func.coalesce(same.c.documents, 0) > itself
        misleading = func.coalesce(placed.c.documents, 0) > case((place == name, itself), else_=0)
        values = {
            "name": name,
            "place": place,
            "line": table.c.line,
            "identity": func.pg_catalog.replace(cast(table.c.identity, Text), "-", ""),
            "text_digest": func.pg_catalog.replace(cast(table.c.text_digest, Text), "-", ""),
            "seen": seen,
            "present": decided.c.present == 1,
            "shared": shared,
            "misleading": misleading,
            "mistakable": taken.c.place.is_not(None),
            "kept_similarity": func.nullif(decided.c.kept_similarity, cast("NaN", Double)),
            "representative_similarity": func.nullif(decided.c.representative_similarity, cast("NaN", Double)),
        }
        values |= {name: table.c[name] for name in ("id", "characters", "fingerprint")}
        values |= {name: decided.c[name] for name in ("cluster", "kept", "representative")}
        listed = select(*(values[name] for name in StoredDocument._fields))
        self._connection.execute(
            insert(members).from_select(
                StoredDocument._fields, listed.select_from(found).where(decided.c.cluster > 0)
            )
        )


_COLUMNS = {
    "id": ("t.id", ">i8"),
    "fingerprint": ("t.fingerprint", ">u8"),
    "characters": ("t.characters", ">i8"),
}
_STAGED_COLUMNS = {
    "ordinal": ("coalesce(s.ordinal, -1)", ">i8"),
    "known": ("coalesce(s.known, true)", "?"),
}
_KEPT_COLUMNS = {
    "words": ("coalesce(t.words_digest, '00000000-0000-0000-0000-000000000000')", "(2,)>u8"),
    "compared": ("t.words_digest IS NOT NULL", "?"),
    "number": ("coalesce(pg_catalog.octet_length(t.words), 0) / 8", ">i4"),
    "kept": ("coalesce(t.kept, t.id)", ">i8"),
    "representative": ("coalesce(t.representative, t.id)", ">i8"),
    "kept_similarity": ("coalesce(t.kept_similarity, 'NaN')", ">f8"),
    "representative_similarity": ("coalesce(t.representative_similarity, 'NaN')", ">f8"),
    "undecided": ("t.undecided", "?"),
}
_DECISIONS = ("kept", "representative", "kept_similarity", "representative_similarity")


def _members() -> Table:
    return Table(
        MEMBERS,
        MetaData(),
        *(Column(name, _TYPES.get(name, BigInteger)) for name in StoredDocument._fields),
        prefixes=["TEMPORARY"],
    )


_TYPES = {
    **dict.fromkeys(("name", "place", "identity", "text_digest"), Text),
    **dict.fromkeys(("seen", "present", "shared", "misleading", "mistakable"), Boolean),
    **dict.fromkeys(("kept_similarity", "representative_similarity"), Double),
}


def _is_one_of(column: Column[int], ids: I64) -> ColumnElement[bool]:
    return column == any_(literal(ids.tolist(), ARRAY(BigInteger)))
