"""The documents and decisions of a run in a table of PostgreSQL."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simsql.database.transfer import to_bigints
from simsql.decide.documents import Flags
from simsql.decide.rules import Rules
from simsql.dedup.safety.confirming import Reference
from simsql.dedup.store.columns import Columns, Origin, spell_digests, spell_places
from simsql.dedup.store.destination import Destination
from simsql.dedup.store.forgetting import find_unread, forget
from simsql.dedup.store.merging import drop_duplicates, find_known, merge, stage
from simsql.dedup.store.results import Results
from simsql.dedup.store.rows import ReadColumns, TableRows
from simsql.dedup.store.store import Loaded, read_twice
from simsql.dedup.store.table import DECIDED, MEMBERS, STAGED, DocumentTable, StagedDocument
from simsql.documents import Skip, Stages
from simsql.documents.spool import TokenSpool
from simsql.errors import UsageError
from simsql.fingerprint import Recipe

DEFAULT_TABLE = "simsql_documents"
_LONGEST_NAME = 63  # bytes of a name in PostgreSQL


class TableStore(Results):
    """The documents and decisions of a run in a table that is open for it."""

    def __init__(self, table: DocumentTable) -> None:
        super().__init__(table)
        self.rules = table.rules
        self.recipe = table.recipe
        self.holds_documents = table.holds_documents
        self._read: list[ReadColumns] = []

    def find_known(self, identities: NDArray[np.void], text_digests: NDArray[np.void]) -> Flags:
        """Return which documents need not be fingerprinted again, given their digests."""
        return find_known(self._table, identities, text_digests)

    def take(self, batches: Iterable[Columns], origins: Sequence[Origin], tokens: TokenSpool | None) -> None:
        """Stage the documents of the run, in the order of reading."""
        self._tokens = tokens
        stage(self._table, self._rows(batches, origins))

    def merge(self, stages: Stages, skip: Callable[[Skip], None]) -> Loaded:
        """Add the documents of the run to those of earlier runs. Skip those that were read twice."""
        with stages.stage("load"):
            for place, first in drop_duplicates(self._table):
                skip(read_twice(place, first))
            return merge(self._table)

    def find_unread(self, paths: Sequence[str]) -> Iterator[Reference]:
        """Yield documents of earlier runs in these files and folders that this run has not read."""
        return find_unread(self._table, paths)

    def forget(self, documents: Iterable[Reference]) -> None:
        """Remove documents of earlier runs."""
        forget(self._table, documents)

    def read_rows(self) -> TableRows:
        """Return the documents to decide about."""
        return TableRows(self._table, self._read, self._tokens)

    def commit(self, stages: Stages) -> None:
        """Index the table, if it is new, and commit."""
        with stages.stage("index"):
            self._table.keep_rules()
        self._table.commit()

    def count(self) -> int:
        """Return the number of documents."""
        return self._table.count()

    def _rows(self, batches: Iterable[Columns], origins: Sequence[Origin]) -> Iterator[StagedDocument]:
        ordinal = 0
        for batch in batches:
            self._read.append(
                ReadColumns(
                    batch.token_start,
                    batch.token_count,
                    batch.text_size,
                    batch.text_start,
                    (~batch.known).astype(np.int64),
                    batch.token_digest,
                    batch.sketch.filled(0),
                    batch.protected,
                )
            )
            names = batch.names.to_list()
            values = zip(batch.values.to_list(), batch.valued.tolist(), strict=True)
            columns: tuple[Iterable[Any], ...] = (
                range(ordinal, ordinal + len(names)),
                names,
                spell_digests(batch.identity),
                spell_places(names, batch.origin, batch.line, origins),
                (line or None for line in batch.line.tolist()),
                spell_digests(batch.text_digest),
                batch.characters.tolist(),
                to_bigints(batch.fingerprint),
                batch.known.tolist(),
                (value if valued else None for value, valued in values),
                *self._words(batch),
                to_bigints(batch.sketch),
            )
            yield from map(StagedDocument._make, zip(*columns, strict=True))
            ordinal += len(names)

    def _words(self, batch: Columns) -> tuple[Iterable[bytes | None], Iterable[str | None]]:
        """Return the hashes of the words of documents, and their digests."""
        if self._tokens is None:
            return [None] * len(batch.known), [None] * len(batch.known)
        hashes = self._tokens.read_at(batch.token_start, batch.token_count).astype("<u8")
        words = np.split(hashes, np.cumsum(batch.token_count)[:-1])
        counts, known = batch.token_count.tolist(), batch.known.tolist()
        digests = zip(spell_digests(batch.token_digest), counts, strict=True)
        return (
            [None if is_known else hashes.tobytes() for hashes, is_known in zip(words, known, strict=True)],
            [digest if count else None for digest, count in digests],
        )


@contextmanager
def open_table(
    destination: Destination, recipe: Recipe, rules: Rules, stages: Stages, *, redecide: bool, create: bool
) -> Iterator[TableStore]:
    """Open the table of documents: see `open_store`."""
    name = _split_name(destination.table or DEFAULT_TABLE)
    with ExitStack() as stack:
        with stages.stage("connect" if destination.database else "start the server"):
            engine = stack.enter_context(destination.open())
            table = DocumentTable(engine, *name, recipe=recipe)
            stack.enter_context(table.opened(rules, redecide=redecide, create=create))
        yield TableStore(table)


def _split_name(table: str) -> tuple[str, str | None]:
    """Split `schema.table`, without SQL's quoting and case folding. A bare name has no schema."""
    schema, _, name = table.rpartition(".")
    if not name or "\0" in table:
        raise UsageError(f"{table!r} is not a table name")
    if (
        schema in ("simsql", "information_schema")
        or table in (STAGED, DECIDED, MEMBERS)
        or (schema or name).startswith("pg_")
    ):
        raise UsageError(f"{table!r} is reserved by simsql or PostgreSQL: choose another name with --table")
    for part in (schema, name):
        if len(part.encode()) > _LONGEST_NAME:
            raise UsageError(f"{part!r} is longer than {_LONGEST_NAME} bytes: PostgreSQL would truncate the name")
    return name, schema or None
