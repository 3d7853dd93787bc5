"""SearchIndex: one simhash index of a table, to search it, list its pairs and clusters, and look after it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, Engine, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, REGCLASS
from sqlalchemy.sql.selectable import TableValuedAlias

from simsql.database.backfill import Filled, fill_fingerprints
from simsql.database.bigint import NOT_GIVEN, NotGiven, OneFingerprint, from_bigint, to_bigint
from simsql.database.connect import READ_COMMITTED, check_engine
from simsql.database.numpy_search import (
    Batch,
    Fingerprints,
    MatchBatch,
    MemberBatch,
    PairBatch,
    Stream,
    find_match_batches,
    find_member_batches,
    find_pair_batches,
)
from simsql.database.recipes import recipe_of
from simsql.database.scope import Scope, scope_argument
from simsql.database.upkeep import Finding, Report, repair, vacuum, verify
from simsql.errors import UsageError
from simsql.fingerprint import Recipe, simhash


class Match(NamedTuple):
    """A fingerprint, in [0, 2**64), that a live row has, and its distance in bits from the one searched for."""

    fingerprint: int
    distance: int


class MatchingRow(NamedTuple):
    """A row of the indexed table as a JSON object, with its fingerprint and its distance in bits."""

    fingerprint: int
    distance: int
    row: dict[str, Any]


class QueryMatch(NamedTuple):
    """A match of one of many queries: the fingerprint searched for, the one found and their distance in bits."""

    query: int
    fingerprint: int
    distance: int


class Pair(NamedTuple):
    """Two different fingerprints of live rows and their distance in bits; `a` is smaller as a bigint."""

    a: int
    b: int
    distance: int


class Member(NamedTuple):
    """A fingerprint of live rows and its cluster, named by the member that is smallest as a bigint."""

    cluster: int
    fingerprint: int


class SearchIndex:
    """The simhash index on a column of a table. Nothing is looked up before a method is called.

    engine_or_connection
        With a connection every method works in its transaction, and commits nothing. With an engine every call
        opens a connection of its own and ends its transaction. `claim` needs a connection; `vacuum` and
        `backfill`, which commit as they go, need an engine.
    table
        A name as SQL writes it, with its schema and quotes where needed.
    column
        The unquoted name of the column of fingerprints; it may be left out where the table has one index.
    scope
        For an index with a scope, a value for each of its scope columns: searches find rows with these values.
    recipe
        The recipe of the index, where its id does not say all of it, as with a list of words or a table.

    `near`, `near_rows` and `claim` take a fingerprint, or a text, which they fingerprint by the recipe of the
    index, asked for at each call. Nothing is near to a text without features, nor to None or a masked element,
    which stand for its fingerprint. They raise UsageError unless exactly one of the two is given, and where the
    recipe is not that of the index or has to be given. For an index over several weighted columns pass what
    `simsql.fingerprint.simhash_parts` returns.

    Methods raise sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such table, no index, more than one, a
    distance out of range, another scope than the index has, missing privileges. Searches raise ValueError for a
    number that is not a fingerprint and TypeError for a value that no scope holds. A distance that is left out is
    that of the index.
    """

    def __init__(
        self,
        engine_or_connection: Engine | Connection,
        table: str,
        column: str | None = None,
        *,
        scope: Scope | None = None,
        recipe: Recipe | None = None,
    ) -> None:
        self._bind = engine_or_connection
        self._table = table
        self._column = column
        self._scope = scope
        self._recipe = recipe

    def near(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        *,
        text: str | None = None,
    ) -> list[Match]:
        """Return every fingerprint of a live row within the distance (0 to 64), once each, nearest first."""
        with self._connection() as connection:
            query = self._query(connection, fingerprint, text)
            found = self._call("near", query, distance).table_valued("fingerprint", "distance")
            rows = connection.execute(select(found.c.fingerprint, found.c.distance))
            return [Match(from_bigint(match), bits) for match, bits in rows]

    def near_rows(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        *,
        text: str | None = None,
    ) -> list[MatchingRow]:
        """Return the rows whose fingerprint is within the distance, nearest first."""
        with self._connection() as connection:
            query = self._query(connection, fingerprint, text)
            call = self._call("_near_documents", query, distance)
            found = call.table_valued("fingerprint", "distance", "document")
            rows = connection.execute(select(found.c.fingerprint, found.c.distance, found.c.document))
            return [MatchingRow(from_bigint(match), bits, row) for match, bits, row in rows]

    def claim(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        *,
        text: str | None = None,
    ) -> Match | None:
        """Before an insert: wait for other claims of what is near, then return the nearest of a live row, or None.

        Of two transactions that claim near fingerprints and then insert, the second one waits until the first has
        ended. So exactly one of them finds nothing. The transaction has to be READ COMMITTED. Raises UsageError
        for an engine: a claim lasts until the end of a transaction, which has to be that of the insert.
        """
        if not isinstance(self._bind, Connection):
            raise UsageError(
                "a claim lasts until its transaction ends: pass the Connection of the insert, not an Engine"
            )
        query = self._query(self._bind, fingerprint, text)
        found = self._call("claim", query, distance).table_valued("fingerprint", "distance")
        row = self._bind.execute(select(found.c.fingerprint, found.c.distance)).one_or_none()
        return None if row is None else Match(from_bigint(row.fingerprint), row.distance)

    def near_many(
        self, fingerprints: Iterable[OneFingerprint], distance: int | None = None
    ) -> Iterator[QueryMatch]:
        """Yield what `near` finds for each of these fingerprints, all of them in one statement, in no order.

        A fingerprint that is given twice is searched for once, and None and masked elements not at all. PostgreSQL
        gives up after 100 million matches. For a million queries `stream_matches` is several times faster.
        """
        bigints = (to_bigint(fingerprint) for fingerprint in fingerprints)
        queries = cast([bigint for bigint in bigints if bigint is not None], ARRAY(BIGINT))
        found = self._call("near_many", queries, distance).table_valued("query", "fingerprint", "distance")
        for query, match, bits in self._rows(found):
            yield QueryMatch(from_bigint(query), from_bigint(match), bits)

    def pairs(self, distance: int | None = None) -> Iterator[Pair]:
        """Yield every pair of different fingerprints within the distance that live rows have, once each."""
        for a, b, bits in self._rows(self._call("pairs", distance).table_valued("a", "b", "distance")):
            yield Pair(from_bigint(a), from_bigint(b), bits)

    def clusters(self, distance: int | None = None) -> Iterator[Member]:
        """Yield the members of all clusters, cluster by cluster: fingerprints with a neighbour or on two rows."""
        for cluster, member in self._rows(self._call("clusters", distance).table_valued("cluster", "fingerprint")):
            yield Member(from_bigint(cluster), from_bigint(member))

    def stream_matches(
        self, fingerprints: Iterable[int | None] | Fingerprints, distance: int | None = None
    ) -> Stream[MatchBatch]:
        """Find what `near_many` finds, in numpy, for millions of queries.

        The rows are read once, and looked up in tables made of the queries, so memory grows with the queries and
        the fingerprints that have a match, not with the rows.
        """
        queries = fingerprints if isinstance(fingerprints, np.ndarray) else list(fingerprints)
        return self._stream(MatchBatch, partial(find_match_batches, queries=queries), distance)

    def stream_pairs(self, distance: int | None = None) -> Stream[PairBatch]:
        """Find what `pairs` finds, in numpy and in no order.

        Memory grows with the rows (some 60 bytes each), not with the pairs.
        """
        return self._stream(PairBatch, find_pair_batches, distance)

    def stream_clusters(self, distance: int | None = None) -> Stream[MemberBatch]:
        """Find what `clusters` finds, in numpy and in the same order; all members are one batch.

        Memory grows with the rows (some 80 bytes each), not with the pairs.
        """
        return self._stream(MemberBatch, find_member_batches, distance)

    def recipe(self) -> Recipe:
        """Return the recipe that the index was created with: the one to fingerprint a text with for a search.

        An index that was created without naming one counts as made by the default recipe. Raises UsageError if
        the recipe that was given is not that of the index, and if none was and the id does not say all of it.
        """
        with self._connection() as connection:
            return recipe_of(connection, self._table, self._column, self._recipe)

    def verify(self) -> list[Finding]:
        """Return what is wrong with the index, or with all indexes of the table if no column was named.

        Reads all keys and all fingerprints, with one snapshot, and changes nothing.
        """
        with self._connection() as connection:
            return verify(connection, self._table, self._column)

    def repair(self) -> list[Finding]:
        """Mend all indexes of the table; return what was wrong.

        Writers of the table wait until the transaction ends, which has to be READ COMMITTED. Superfluous keys are
        left to `vacuum`.
        """
        with self._connection(**READ_COMMITTED) as connection:
            return repair(connection, self._table)

    def vacuum(self, *, report: Report | None = None) -> int:
        """Remove the keys that no row has any more, and all but one of equal keys; return how many.

        It commits as it goes, and others read and write meanwhile. `report` is called with the share of the work
        that is done. Raises UsageError for a connection.
        """
        return vacuum(check_engine(self._bind, "vacuum"), self._table, self._column, report=report)

    def backfill(
        self,
        source: str | Mapping[str, int],
        *,
        all_rows: bool = False,
        batch_rows: int = 1_000,
        workers: int | None = None,
        report: Report | None = None,
    ) -> Filled:
        """Give a fingerprint to each row that has a text and none yet, while others read and write.

        `source` is the unquoted name of the column of the texts, or of several with their weights, as for
        `simsql.fingerprint.simhash_parts`. The recipe is that of the index; the table needs none if the column was
        named, and the recipe is then the one given or the default. With `all_rows` every row gets the fingerprint
        of its text, null where there is none. It commits a batch of `batch_rows` at a time, and what has been
        committed stays if it is interrupted. `workers` processes fingerprint a single source. `report` is called
        with the share of the rows that is done.

        Raises UsageError for a connection, a recipe that is not that of the index, and if no column is named and
        the table has no index or several; ValueError for a batch of no rows, no source or a weight out of range;
        psycopg.Error with PostgreSQL's message: no such table or column, no primary key, missing privileges.
        """
        return fill_fingerprints(
            check_engine(self._bind, "backfill"),
            self._table,
            source,
            column=self._column,
            recipe=self._recipe,
            all_rows=all_rows,
            batch_rows=batch_rows,
            workers=workers,
            report=report,
        )

    @contextmanager
    def _connection(self, **options: Any) -> Iterator[Connection]:
        """Yield the connection, or one of the engine with these options, in a transaction."""
        if isinstance(self._bind, Connection):
            yield self._bind
            return
        with self._bind.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def _query(
        self, connection: Connection, fingerprint: OneFingerprint | NotGiven, text: str | None
    ) -> ColumnElement[int | None]:
        """Return the fingerprint to search for as an argument; PostgreSQL has to be told the type of NULL."""
        if isinstance(fingerprint, NotGiven):
            if text is None:
                raise UsageError("say what to search for: a fingerprint or text=")
            fingerprint = simhash(text, recipe_of(connection, self._table, self._column, self._recipe))
        elif text is not None:
            raise UsageError("search for a fingerprint or for a text, not for both")
        return cast(to_bigint(fingerprint), BIGINT)

    def _call(self, function: str, *arguments: Any) -> Any:
        scope = scope_argument(self._scope)
        return getattr(func.simsql, function)(cast(self._table, REGCLASS), *arguments, self._column, scope)

    def _rows(self, found: TableValuedAlias) -> Iterator[Any]:
        """Yield the rows of a call that may find many."""
        statement = select(*found.c).execution_options(yield_per=10_000)
        with self._connection() as connection, connection.execute(statement) as rows:
            yield from rows

    def _stream(
        self, batch: type[Batch], search: Callable[..., Iterator[Batch]], distance: int | None
    ) -> Stream[Batch]:
        with self._connection() as connection:
            column, within = self._check(connection, distance)
        return Stream(
            self._connection, batch, lambda reader: search(reader, self._table, column, self._scope, within)
        )

    def _check(self, connection: Connection, distance: int | None) -> tuple[str, int]:
        """Return the column of an index that can be searched, and the distance to search at."""
        index = self._call("_searched_index").table_valued("column_name", "distance")
        within = func.simsql._distance(distance, index.c.distance)
        column, bits = connection.execute(select(index.c.column_name, within)).one()
        return column, bits
