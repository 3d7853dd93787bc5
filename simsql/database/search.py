"""Search an index and list its pairs and clusters: thin calls of the SQL functions, with unsigned fingerprints."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, REGCLASS

from simsql.database.bigint import OneFingerprint, from_bigint, to_bigint
from simsql.database.scope import Scope, scope_argument


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


def near(
    connection: Connection,
    table: str,
    fingerprint: OneFingerprint,
    distance: int | None = None,
    column: str | None = None,
    *,
    scope: Scope | None = None,
) -> list[Match]:
    """Return every fingerprint of a live row within the distance (0 to 64), once each, nearest first.

    Nothing is near to None or to a masked element, which stand for a text without features. `table` is a name as
    SQL writes it. Without a distance the index's own is taken; without a column, the only index of the table. An
    index with a scope is searched within one: `scope` names a value for each of
    its scope columns. Raises ValueError for a number that is no fingerprint, TypeError for a value that no scope
    holds, and sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, more than one, a distance out of
    range, another scope than the index has.
    """
    arguments = cast(table, REGCLASS), _bigint(fingerprint), distance, column, scope_argument(scope)
    matches = func.simsql.near(*arguments).table_valued("fingerprint", "distance")
    rows = connection.execute(select(matches.c.fingerprint, matches.c.distance))
    return [Match(from_bigint(found), bits) for found, bits in rows]


def claim(
    connection: Connection,
    table: str,
    fingerprint: OneFingerprint,
    distance: int | None = None,
    column: str | None = None,
    *,
    scope: Scope | None = None,
) -> Match | None:
    """Before an insert: wait for other claims of what is near, then return the nearest of a live row, or None.

    Of two transactions that claim near fingerprints and then insert, the second one waits until the first has
    ended. So exactly one of them finds nothing. The transaction has to be READ COMMITTED. Arguments and errors as
    `near`.
    """
    arguments = cast(table, REGCLASS), _bigint(fingerprint), distance, column, scope_argument(scope)
    found = func.simsql.claim(*arguments).table_valued("fingerprint", "distance")
    row = connection.execute(select(found.c.fingerprint, found.c.distance)).one_or_none()
    return None if row is None else Match(from_bigint(row.fingerprint), row.distance)


def near_rows(
    connection: Connection,
    table: str,
    fingerprint: OneFingerprint,
    distance: int | None = None,
    column: str | None = None,
    *,
    scope: Scope | None = None,
) -> list[MatchingRow]:
    """Return the rows whose fingerprint is within the distance, nearest first. Arguments and errors as `near`."""
    arguments = cast(table, REGCLASS), _bigint(fingerprint), distance, column, scope_argument(scope)
    found = func.simsql._near_documents(*arguments).table_valued("fingerprint", "distance", "document")
    rows = connection.execute(select(found.c.fingerprint, found.c.distance, found.c.document))
    return [MatchingRow(from_bigint(fingerprint), bits, row) for fingerprint, bits, row in rows]


def near_many(
    connection: Connection,
    table: str,
    fingerprints: Iterable[OneFingerprint],
    distance: int | None = None,
    column: str | None = None,
    *,
    scope: Scope | None = None,
) -> Iterator[QueryMatch]:
    """Yield what `near` finds for each of these fingerprints, all of them in one statement, in no order.

    A fingerprint that is given twice is searched for once, and None and masked elements not at all. Arguments and
    errors as `near`; PostgreSQL gives up after 100 million matches. For a million queries `stream_matches` is
    several times faster.
    """
    bigints = (to_bigint(fingerprint) for fingerprint in fingerprints)
    queries = cast([bigint for bigint in bigints if bigint is not None], ARRAY(BIGINT))
    arguments = cast(table, REGCLASS), queries, distance, column, scope_argument(scope)
    found = func.simsql.near_many(*arguments).table_valued("query", "fingerprint", "distance")
    statement = select(found.c.query, found.c.fingerprint, found.c.distance)
    for query, fingerprint, bits in connection.execute(statement.execution_options(yield_per=10_000)):
        yield QueryMatch(from_bigint(query), from_bigint(fingerprint), bits)


def pairs(
    connection: Connection,
    table: str,
    distance: int | None = None,
    column: str | None = None,
    *,
    scope: Scope | None = None,
) -> Iterator[Pair]:
    """Yield every pair of different fingerprints within the distance that live rows have, once each.

    On an index with a scope, those of the rows of one scope. Arguments and errors as `near`.
    """
    function = func.simsql.pairs(cast(table, REGCLASS), distance, column, scope_argument(scope))
    found = function.table_valued("a", "b", "distance")
    statement = select(found.c.a, found.c.b, found.c.distance).execution_options(yield_per=10_000)
    for a, b, bits in connection.execute(statement):
        yield Pair(from_bigint(a), from_bigint(b), bits)


def clusters(
    connection: Connection,
    table: str,
    distance: int | None = None,
    column: str | None = None,
    *,
    scope: Scope | None = None,
) -> Iterator[Member]:
    """Yield the members of all clusters, cluster by cluster: fingerprints with a neighbour or on two rows.

    On an index with a scope, those of the rows of one scope. Arguments and errors as `near`.
    """
    function = func.simsql.clusters(cast(table, REGCLASS), distance, column, scope_argument(scope))
    found = function.table_valued("cluster", "fingerprint")
    statement = select(found.c.cluster, found.c.fingerprint).execution_options(yield_per=10_000)
    for cluster, fingerprint in connection.execute(statement):
        yield Member(from_bigint(cluster), from_bigint(fingerprint))


def _bigint(fingerprint: OneFingerprint) -> ColumnElement[int | None]:
    """Return an argument of type bigint; PostgreSQL has to be told the type of NULL."""
    return cast(to_bigint(fingerprint), BIGINT)
