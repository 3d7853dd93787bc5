"""Read the documents of the table, to decide about them."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import BigInteger, Column, ColumnElement, Text, any_, func, literal, or_, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.expression import cast

from simsql.database.transfer import raw_connection
from simsql.decide.criteria import criterion, rank_values
from simsql.decide.documents import I64, U64, Documents, Flags
from simsql.dedup.candidates import Tokens
from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.columns import DIGEST
from simsql.dedup.store.table import DECISIONS, DocumentTable
from simsql.documents import printable
from simsql.documents.spool import TokenSpool

_HEADER = 19  # bytes of a binary COPY before the first row

_COLUMNS = {
    "id": ("t.id", ">i8"),
    "fingerprint": ("t.fingerprint", ">u8"),
    "characters": ("t.characters", ">i8"),
    "words": ("coalesce(t.words_digest, '00000000-0000-0000-0000-000000000000')", "(2,)>u8"),
    "sketch": ("coalesce(t.sketch, 0)", ">u8"),
    "compared": ("t.sketch IS NOT NULL", "?"),
    "number": ("coalesce(pg_catalog.octet_length(t.words), 0) / 8", ">i4"),
    "kept": ("coalesce(t.kept, t.id)", ">i8"),
    "representative": ("coalesce(t.representative, t.id)", ">i8"),
    "kept_similarity": ("coalesce(t.kept_similarity, 'NaN')", ">f8"),
    "representative_similarity": ("coalesce(t.representative_similarity, 'NaN')", ">f8"),
    "line": ("coalesce(t.line, 0)", ">i8"),
}
_STAGED_COLUMNS = {
    "ordinal": ("coalesce(s.ordinal, -1)", ">i8"),
    "known": ("coalesce(s.known, true)", "?"),
}


class ReadColumns(NamedTuple):
    """What the table does not have of the documents that a run has read: see `Columns`."""

    token_start: I64
    token_count: I64
    text_size: I64
    text_start: I64
    new: I64
    """1 for documents that were not known at the look-up."""
    token_digest: NDArray[np.void]
    sketch: U64
    protected: Flags


class TableRows:
    """The documents that have a fingerprint, one per array position, by ascending id.

    Use it in the transaction that has merged the documents. They have the decisions of earlier runs, if the table
    holds decisions that count. `read` has the columns of the documents of this run, in the order of reading.
    """

    def __init__(self, store: DocumentTable, read: Sequence[ReadColumns], spool: TokenSpool | None) -> None:
        self._store = store
        self._spool = spool
        rows = self._read_columns()
        ids = rows["id"].astype(np.int64)
        ordinal = rows["ordinal"].astype(np.int64)
        # The last one is for documents that this run has not read.
        none = np.zeros(1, dtype=np.int64)
        digest, sketch, no = np.zeros(1, DIGEST), none.astype(np.uint64), none.astype(bool)
        last = ReadColumns(none, none, none - 1, none, none, digest, sketch, no)
        found = ReadColumns._make(np.concatenate(columns)[ordinal] for columns in zip(*read, last, strict=True))
        self.text_start, self.text_size = found.text_start, found.text_size
        self.here = (found.new == 1) & (spool is not None)
        self._token_start = found.token_start
        self.tokens = Tokens(
            np.where(self.here, found.token_count, rows["number"]), self._read_tokens, store.recipe.of_pictures
        )
        words = found.token_digest.view(">u8").reshape(-1, 2)
        compared = np.where(self.here, found.token_count > 0, rows["compared"])
        documents = Documents.without_decisions(
            ids,
            rows["fingerprint"].astype(np.uint64),
            np.where(self.here, found.sketch, rows["sketch"]),
            np.where(self.here[:, np.newaxis], words, rows["words"]).astype(np.uint64),
            compared if store.rules.checks_texts else np.ones(len(ids), dtype=bool),
            rows["characters"].astype(np.int64),
            ordinal >= 0,
            found.protected | ((ordinal < 0) & self._are_protected(ids)),
        )
        if store.holds_decisions():  # asked again: another run may have decided since
            own = {name: rows[name].astype(getattr(documents, name).dtype) for name in DECISIONS}
            documents = documents._replace(fresh=~rows["known"], **own)
        self.documents = documents
        line, values = rows["line"].astype(np.int64), self._rank_values(ids)
        self.criterion = criterion(store.rules, ids, documents.characters, values, line)

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
        if not self._store.rules.by_value:
            return np.zeros(len(ids), dtype=np.int64)
        table = self._store.table.c
        chosen = select(table.id, table.value).where(table.value.is_not(None))
        found = {row.id: row.value for row in self._store.connection.execute(chosen)}
        ranks = rank_values(found.values())
        return np.array([ranks[found[id_]] if id_ in found else 0 for id_ in ids.tolist()], dtype=np.int64)

    def _are_protected(self, ids: I64) -> Flags:
        """Return which documents the rules protect by their places: nobody has looked where links lead."""
        table = self._store.table.c
        below = [
            or_(
                func.pg_catalog.starts_with(table.place, cast(f"{printable(path).rstrip('/')}/", Text)),
                table.place == printable(path),
                func.pg_catalog.starts_with(table.place, cast(f"{printable(path)}:", Text)),
            )
            for path in self._store.rules.keep_under
        ]
        found = np.zeros(len(ids), dtype=bool)
        if below:
            chosen = select(table.id).where(or_(*below))
            found = np.isin(ids, np.array(self._store.connection.execute(chosen).scalars().all(), dtype=np.int64))
        return found

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
        counts = self.tokens.counts[positions]
        tokens = np.empty(int(counts.sum()), dtype=np.uint64)
        spooled = np.repeat(here, counts)
        if self._spool and here.any():
            tokens[spooled] = self._spool.read_at(self._token_start[positions[here]], counts[here])
        if not here.all():
            tokens[~spooled] = self._read_words(self.documents.id[positions[~here]])
        return tokens

    def _read_words(self, ids: I64) -> U64:
        """Return the hashes of the words of documents, one document after the other."""
        statement = sql.SQL(
            "SELECT t.words FROM pg_catalog.unnest(CAST({} AS pg_catalog.int8[])) WITH ORDINALITY AS w (id, n)"
            " JOIN {} AS t ON t.id OPERATOR(pg_catalog.=) w.id ORDER BY w.n"
        ).format(ids.tolist(), self._store.identifier)  # no parameter: the name may have a percent sign
        with raw_connection(self._store.connection).cursor(binary=True) as cursor:
            words = b"".join(row[0] for row in cursor.execute(statement))
        return np.frombuffer(words, dtype="<u8").astype(np.uint64)

    def _read_columns(self) -> NDArray[Any]:
        """Return the columns of all documents with a fingerprint, without a Python object for each value."""
        columns = _COLUMNS | _STAGED_COLUMNS
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
                    *(sql.Identifier("t", name) for name in _COLUMNS),
                    *(sql.SQL(expression) for expression, _ in _STAGED_COLUMNS.values()),
                ]
            ),
            sql.SQL(", ").join(
                sql.SQL(expression + " AS {}").format(sql.Identifier(name))
                for name, (expression, _) in _COLUMNS.items()
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
