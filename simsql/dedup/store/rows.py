"""Read the documents of the table, to decide about them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import BigInteger, Column, ColumnElement, any_, literal, select
from sqlalchemy.dialects.postgresql import ARRAY

from simsql.database.transfer import raw_connection
from simsql.decide.criteria import criterion, rank_values
from simsql.decide.documents import I64, U64, Documents
from simsql.dedup.candidates import Tokens
from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.intake import Intake
from simsql.dedup.store.table import DECISIONS, DocumentStore

_HEADER = 19  # bytes of a binary COPY before the first row

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
    "sketch": ("coalesce(t.sketch, 0)", ">u8"),
    "compared": ("t.sketch IS NOT NULL", "?"),
    "number": ("coalesce(pg_catalog.octet_length(t.words), 0) / 8", ">i4"),
    "kept": ("coalesce(t.kept, t.id)", ">i8"),
    "representative": ("coalesce(t.representative, t.id)", ">i8"),
    "kept_similarity": ("coalesce(t.kept_similarity, 'NaN')", ">f8"),
    "representative_similarity": ("coalesce(t.representative_similarity, 'NaN')", ">f8"),
    "undecided": ("t.undecided", "?"),
}


class Rows:
    """The documents that have a fingerprint, one per array position, by ascending id.

    Use it in the transaction that has merged the documents. They have the decisions of earlier runs, if the table
    holds decisions that count.
    """

    def __init__(self, store: DocumentStore, intake: Intake) -> None:
        self._store = store
        self._spool = intake.tokens
        rows = self._read_columns()
        ids = rows["id"].astype(np.int64)
        self.ordinal = rows["ordinal"].astype(np.int64)
        """Position in the order of reading of this run; -1 for documents that it has not read."""
        spooled = np.frombuffer(intake.ordinals, dtype=np.int64)
        positions = np.full(max(self.ordinal.max(initial=-1), spooled.max(initial=-1)) + 2, -1)
        positions[spooled] = np.arange(len(spooled))
        self._position = positions[self.ordinal]  # the last one is for documents that were not read
        self.here = self._position >= 0
        """Whether the tokens of a document were computed in this run."""
        counts = np.zeros(len(ids), dtype=np.int64)
        if self._spool and self.here.any():
            counts[self.here] = self._spool.counts[self._position[self.here]]
        sketch, words = np.zeros(len(ids), dtype=np.uint64), np.zeros((len(ids), 2), dtype=np.uint64)
        compared = np.ones(len(ids), dtype=bool)
        if store.kept:
            counts = np.where(self.here, counts, rows["number"])
            sketch, words = rows["sketch"].astype(np.uint64), rows["words"].astype(np.uint64)
            compared = rows["compared"] if store.rules.checks_texts else compared
        elif self._spool:
            words = self._spool.digests[self._position].view(">u8").reshape(-1, 2).astype(np.uint64)
            sketch = np.append(np.frombuffer(intake.sketches, dtype=np.uint64), np.uint64(0))[self._position]
            compared = counts > 0
        documents = Documents.without_decisions(
            ids,
            rows["fingerprint"].astype(np.uint64),
            sketch,
            words,
            compared,
            rows["characters"].astype(np.int64),
            self.ordinal >= 0,
        )
        if store.kept:
            documents = documents._replace(undecided=rows["undecided"])
            if store.holds_decisions():  # asked again: another run may have decided since
                own = {name: rows[name].astype(getattr(documents, name).dtype) for name in DECISIONS}
                documents = documents._replace(fresh=~rows["known"] | rows["undecided"], **own)
        self.documents = documents
        self.tokens = Tokens(counts, self._read_tokens)
        self.criterion = criterion(store.rules, ids, documents.characters, self._rank_values(ids))
        """A number for each document, which is higher for those that the rules prefer."""

    def order_by_name(self, positions: I64) -> I64:
        """Return positions in the order of the names of their documents."""
        table = self._store.table.c
        chosen = _is_one_of(table.id, self.documents.id[positions])
        rows = self._store.connection.execute(
            select(table.id).where(chosen).order_by(table.name.collate("C"), table.id)
        )
        return np.searchsorted(self.documents.id, np.array(rows.scalars().all(), dtype=np.int64))

    def _rank_values(self, ids: I64) -> I64:
        """Return the rank of the value of each document, 0 for those without one."""
        if self._store.rules.keep_field is None:
            return np.zeros(len(ids), dtype=np.int64)
        table = self._store.table.c
        chosen = select(table.id, table.value).where(table.value.is_not(None))
        found = {row.id: row.value for row in self._store.connection.execute(chosen)}
        ranks = rank_values(found.values())
        return np.array([ranks[found[id_]] if id_ in found else 0 for id_ in ids.tolist()], dtype=np.int64)

    def references(self, positions: I64) -> Iterator[Reference]:
        """Yield where to find the documents at these positions, in their order."""
        table = self._store.table.c
        columns = [table[name] for name in Reference._fields]
        chosen = _is_one_of(table.id, self.documents.id[positions])
        for row in self._store.connection.execute(select(*columns).where(chosen).order_by(table.id)):
            yield Reference(row.id, row.name, row.place, row.line, row.identity.hex, row.text_digest.hex)

    def _read_tokens(self, positions: I64) -> U64:
        """Return the tokens of documents, from this run or from the table."""
        here = self.here[positions]
        if self._spool and here.all():
            return self._spool.read(self._position[positions])
        stored = self._read_words(self.documents.id[positions[~here]])
        if not self._spool or not here.any():
            return stored
        counts = self.tokens.counts[positions]
        tokens = np.empty(int(counts.sum()), dtype=np.uint64)
        spooled = np.repeat(here, counts)
        tokens[spooled] = self._spool.read(self._position[positions[here]])
        tokens[~spooled] = stored
        return tokens

    def _read_words(self, ids: I64) -> U64:
        """Return the hashes of the words of documents, one document after the other."""
        statement = sql.SQL(
            "SELECT t.words FROM pg_catalog.unnest(CAST(%s AS pg_catalog.int8[])) WITH ORDINALITY AS w (id, n)"
            " JOIN {} AS t ON t.id OPERATOR(pg_catalog.=) w.id ORDER BY w.n"
        ).format(self._store.identifier)
        with raw_connection(self._store.connection).cursor(binary=True) as cursor:
            words = b"".join(row[0] for row in cursor.execute(statement, [ids.tolist()]))
        return np.frombuffer(words, dtype="<u8").astype(np.uint64)

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
        with raw_connection(self._store.connection).cursor() as cursor, cursor.copy(statement) as copy:
            data = b"".join(copy)
        row = np.dtype(fields)
        rows = np.frombuffer(data, row, offset=_HEADER, count=(len(data) - _HEADER) // row.itemsize)
        return rows[np.argsort(rows["id"])]


def _is_one_of(column: Column[int], ids: I64) -> ColumnElement[bool]:
    return column == any_(literal(ids.tolist(), ARRAY(BigInteger)))
