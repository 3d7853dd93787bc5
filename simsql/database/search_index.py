"""SearchIndex: search a simhash index, list its pairs and clusters, and maintain it."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, Engine, Integer, Select, Text, bindparam, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, JSONB, REGCLASS
from sqlalchemy.types import TypeEngine

from simsql.database.backfill import Filled, fill_fingerprints
from simsql.database.connect import READ_COMMITTED, check_engine
from simsql.database.index import Finding, Report, repair, vacuum, verify
from simsql.database.index_spec import check_distance, recipe_of
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
from simsql.database.transfer import (
    NOT_GIVEN,
    NotGiven,
    OneFingerprint,
    Scope,
    encode_scope,
    from_bigint,
    raw_connection,
    to_bigint,
)
from simsql.errors import UsageError
from simsql.fingerprint import Recipe, simhash

_COUNT = "SELECT pg_catalog.count(*) FROM simsql._primary_key(CAST(%s AS pg_catalog.regclass))"
_KEYS = (
    "SELECT fingerprint, key FROM simsql._keys_of_rows(CAST(%s AS pg_catalog.regclass),"
    " CAST(%s AS pg_catalog.int8[]), %s, CAST(%s AS pg_catalog.jsonb))"
)


def _call(function: str, *arguments: ColumnElement[Any]) -> Any:
    """Return a call of an SQL function for an index, with its arguments as parameters."""
    return getattr(func.simsql, function)(
        bindparam("in_table", type_=REGCLASS()),
        *arguments,
        bindparam("of_column", type_=Text()),
        # As text: the type JSONB would encode it once more, with what the engine encodes JSON with.
        cast(bindparam("scope", type_=Text()), JSONB),
    )


def _search(function: str, *columns: str, query: TypeEngine[Any] | None = None) -> Select[Any]:
    arguments = [] if query is None else [bindparam("query", type_=query)]
    found = _call(function, *arguments, _WITHIN).table_valued(*columns)
    return select(*found.c)


# Building such a statement takes longer than a search.
_WITHIN = bindparam("within", type_=Integer())
_NEAR = _search("near", "fingerprint", "distance", query=BIGINT())
_NEAR_ROWS = _search("_near_documents", "fingerprint", "distance", "document", query=BIGINT())
_NEAR_MANY = _search("near_many", "query", "fingerprint", "distance", query=ARRAY(BIGINT))
_CLAIM = _search("claim", "fingerprint", "distance", query=BIGINT())
_PAIRS = _search("pairs", "a", "b", "distance")
_CLUSTERS = _search("clusters", "cluster", "fingerprint")
_INDEX = _call("_searched_index").table_valued("column_name", "distance")
_CHECK = select(_INDEX.c.column_name, func.simsql._distance(_WITHIN, _INDEX.c.distance))


class Match(NamedTuple):
    """A fingerprint of a live row, in [0, 2**64), and its distance in bits from the query."""

    fingerprint: int
    distance: int


class MatchingRow(NamedTuple):
    """A row of the indexed table as a JSON object, with its fingerprint and its distance in bits."""

    fingerprint: int
    distance: int
    row: dict[str, Any]


class QueryMatch(NamedTuple):
    """A match of one of many queries: the query, the fingerprint and their distance in bits."""

    query: int
    fingerprint: int
    distance: int


class Pair(NamedTuple):
    """Two different fingerprints of live rows and their distance in bits; `a` is smaller as a bigint."""

    a: int
    b: int
    distance: int


class Member(NamedTuple):
    """A fingerprint of a live row and its cluster, named by its smallest member as a bigint."""

    cluster: int
    fingerprint: int


class SearchIndex:
    """The simhash index on a column of a table. Creating the object does not query the database.

    engine_or_connection
        With a connection, every method works in its transaction and does not commit. With an engine, every call
        opens a connection and ends its transaction. `claim` needs a connection; `vacuum` and `backfill`, which
        commit as they work, need an engine.
    table
        A name as in SQL, with schema and quotes if needed.
    column
        The unquoted name of the fingerprint column. If the table has only one index, omit it.
    scope
        A value for each scope column, if the index has a scope. Searches find only rows with these values.
    recipe
        The recipe of the index, if its id is not enough, as with a word list or table.

    `near`, `near_rows` and `claim` take a fingerprint or a text. They fingerprint the text with the recipe of the
    index, which each call looks up. A text without features matches nothing, and neither does its fingerprint,
    None or a masked element. The methods raise UsageError unless you pass exactly one of the two, if the recipe is
    not that of the index, and if its id is not enough. For an index on several weighted columns, pass the result
    of `simsql.fingerprint.simhash_parts`.

    Methods raise sqlalchemy.exc.DBAPIError with PostgreSQL's message: no such table, no index, several indexes, a
    scope that does not fit the index, missing privileges. Searches raise UsageError for a distance outside of 0 to
    64, ValueError for a number that is not a fingerprint, and TypeError for a text that is not a str, a distance
    that is not an integer, and a value that cannot be in a scope. The default distance is that of the index.
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
            rows = connection.execute(_NEAR, self._arguments(distance, query))
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
            rows = connection.execute(_NEAR_ROWS, self._arguments(distance, query))
            return [MatchingRow(from_bigint(match), bits, row) for match, bits, row in rows]

    def claim(
        self,
        fingerprint: OneFingerprint | NotGiven = NOT_GIVEN,
        distance: int | None = None,
        *,
        text: str | None = None,
    ) -> Match | None:
        """Wait for claims of similar fingerprints, then return the nearest match or None; call before an insert.

        If two transactions claim similar fingerprints and then insert, the second waits until the first ends. So
        exactly one of them gets None. The transaction must be READ COMMITTED. Raises UsageError for an engine,
        because a claim lasts until the end of its transaction, which must be that of the insert.
        """
        if not isinstance(self._bind, Connection):
            raise UsageError(
                "a claim lasts until its transaction ends: pass the Connection of the insert, not an Engine"
            )
        query = self._query(self._bind, fingerprint, text)
        row = self._bind.execute(_CLAIM, self._arguments(distance, query)).one_or_none()
        return None if row is None else Match(from_bigint(row.fingerprint), row.distance)

    def near_many(
        self, fingerprints: Iterable[OneFingerprint], distance: int | None = None
    ) -> Iterator[QueryMatch]:
        """Yield the matches of each fingerprint, found in one statement, in no particular order.

        Repeated fingerprints are searched for once; None and masked elements are ignored. PostgreSQL raises an
        error after 100 million matches. For a million queries, `stream_matches` is several times faster.
        """
        bigints = (to_bigint(fingerprint) for fingerprint in fingerprints)
        queries = [bigint for bigint in bigints if bigint is not None]
        for query, match, bits in self._rows(_NEAR_MANY, self._arguments(distance, queries)):
            yield QueryMatch(from_bigint(query), from_bigint(match), bits)

    def pairs(self, distance: int | None = None) -> Iterator[Pair]:
        """Yield every pair of different fingerprints of live rows within the distance, once each."""
        for a, b, bits in self._rows(_PAIRS, self._arguments(distance)):
            yield Pair(from_bigint(a), from_bigint(b), bits)

    def clusters(self, distance: int | None = None) -> Iterator[Member]:
        """Yield the members of all clusters by cluster: fingerprints with a neighbour or on several rows."""
        for cluster, member in self._rows(_CLUSTERS, self._arguments(distance)):
            yield Member(from_bigint(cluster), from_bigint(member))

    def stream_matches(
        self, fingerprints: Iterable[int | None] | Fingerprints, distance: int | None = None
    ) -> Stream[MatchBatch]:
        """Find the same matches as `near_many`, in numpy, for millions of queries.

        Reads the rows once and looks them up in tables built from the queries, so memory grows with the number of
        queries and of fingerprints that match, not with the number of rows.
        """
        queries = fingerprints if isinstance(fingerprints, np.ndarray) else list(fingerprints)
        return self._stream(MatchBatch, partial(find_match_batches, queries=queries), distance)

    def stream_pairs(self, distance: int | None = None) -> Stream[PairBatch]:
        """Find the same pairs as `pairs`, in numpy and in no particular order.

        Memory grows by about 60 bytes per row and does not depend on the number of pairs.
        """
        return self._stream(PairBatch, find_pair_batches, distance)

    def stream_clusters(self, distance: int | None = None) -> Stream[MemberBatch]:
        """Find the same clusters as `clusters`, in numpy and in the same order; all members form one batch.

        Memory grows by about 80 bytes per row and does not depend on the number of pairs.
        """
        return self._stream(MemberBatch, find_member_batches, distance)

    def recipe(self) -> Recipe:
        """Return the recipe of the index, to fingerprint texts for a search.

        An index without a recipe counts as having the default one. Raises UsageError if the given recipe is not
        that of the index, or if none was given and the id is not enough.
        """
        with self._connection() as connection:
            return recipe_of(connection, self._table, self._column, self._recipe)

    def verify(self) -> list[Finding]:
        """Return the faults of the index, or of all indexes of the table if no column was given.

        Reads all keys and all fingerprints in one snapshot, and changes nothing.
        """
        with self._connection() as connection:
            return verify(connection, self._table, self._column)

    def repair(self) -> list[Finding]:
        """Repair all indexes of the table; return the faults.

        Writers of the table wait until the transaction ends, which must be READ COMMITTED. Leaves superfluous keys
        to `vacuum`.
        """
        with self._connection(**READ_COMMITTED) as connection:
            return repair(connection, self._table)

    def vacuum(self, *, report: Report | None = None) -> int:
        """Remove keys without a row, and all but one of equal keys; return the number of removed keys.

        Commits as it works; others can read and write meanwhile. `report` is called with the completed share of
        the work. Raises UsageError for a connection.
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
        """Fingerprint the rows that have a text but no fingerprint, while others read and write.

        `source` is the unquoted name of the text column, or of several with their weights, as for
        `simsql.fingerprint.simhash_parts`. The recipe is that of the index. If you named the column, the table
        needs no index; the recipe is then the given or the default one. With `all_rows`, every row gets a new
        fingerprint, null if it has no text. Each batch of `batch_rows` is committed, and committed batches stay
        after an interruption. `workers` processes fingerprint a single source. `report` is called with the
        completed share of the rows.

        Raises UsageError for a connection, if the recipe is not that of the index, or if no column is given and
        the table has no index or several; ValueError if a batch has no rows, there is no source or a weight is out
        of range; psycopg.Error with PostgreSQL's message: no such table or column, no primary key, missing
        privileges.
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
        """Yield the connection, or a new one of the engine with these options, in a transaction."""
        if isinstance(self._bind, Connection):
            yield self._bind
            return
        with self._bind.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def _query(
        self, connection: Connection, fingerprint: OneFingerprint | NotGiven, text: str | None
    ) -> int | None:
        """Return the query fingerprint as a bigint."""
        if isinstance(fingerprint, NotGiven):
            if text is None:
                raise UsageError("pass either a fingerprint or text=")
            fingerprint = simhash(text, recipe_of(connection, self._table, self._column, self._recipe))
        elif text is not None:
            raise UsageError("pass either a fingerprint or text=, not both")
        return to_bigint(fingerprint)

    def _arguments(self, distance: int | None, query: int | list[int] | None = None) -> dict[str, object]:
        """Return the parameters of the statements above."""
        return {
            "in_table": self._table,
            "query": query,
            "within": check_distance(distance),
            "of_column": self._column,
            "scope": encode_scope(self._scope),
        }

    def _rows(self, statement: Select[Any], arguments: dict[str, object]) -> Iterator[Any]:
        """Yield the rows of a call that may find many."""
        options = {"yield_per": 10_000}
        with (
            self._connection() as connection,
            connection.execute(statement, arguments, execution_options=options) as rows,
        ):
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
        """Return the column of an index, if it can be searched, and the distance."""
        column, bits = connection.execute(_CHECK, self._arguments(distance)).one()
        return column, bits


class PrimaryKeys:
    """Look up the primary keys of the rows of an indexed table that have a fingerprint.

    Takes the arguments and raises the errors of `near`, and UsageError for a table without a primary key.
    """

    def __init__(
        self, connection: Connection, table: str, column: str | None = None, *, scope: Scope | None = None
    ) -> None:
        self._raw = raw_connection(connection)
        self._table, self._column, self._scope = table, column, encode_scope(scope)
        ((columns,),) = self._raw.execute(_COUNT, [table]).fetchall()
        if not columns:
            raise UsageError(f"{table} has no primary key: leave out --keys")
        self._alone = columns == 1

    def find(self, fingerprints: Collection[int]) -> dict[int, list[Any]]:
        """Return the keys, as JSON values, of the rows that have each of these fingerprints, in the same order.

        The key of a row is a value, or a list if the primary key has several columns.
        """
        found: dict[int, list[Any]] = {fingerprint: [] for fingerprint in fingerprints}
        bigints = [to_bigint(fingerprint) for fingerprint in found]
        for bigint, key in self._raw.execute(_KEYS, [self._table, bigints, self._column, self._scope]):
            found[from_bigint(bigint)].append(key[0] if self._alone else key)
        return found
