"""Search an index and list its pairs and clusters: thin calls of the SQL functions, with unsigned fingerprints."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, SupportsIndex

from sqlalchemy import Column, Connection, MetaData, Table, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY, BIGINT, REGCLASS
from sqlalchemy.sql.selectable import TableValuedAlias

from simsql.database.bigint import from_bigint, to_bigint
from simsql.fingerprint import DEFAULT, Recipe


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
    fingerprint: int,
    distance: int | None = None,
    column: str | None = None,
) -> list[Match]:
    """Return every fingerprint of a live row within the distance (0 to 64), once each, nearest first.

    `table` is a name as SQL writes it. Without a distance the index's own is taken; without a column, the
    only index of the table. Raises ValueError for a number that is no fingerprint, and
    sqlalchemy.exc.DBAPIError with PostgreSQL's message: no index, more than one, a distance out of range.
    """
    matches = _near(table, fingerprint, distance, column)
    rows = connection.execute(select(matches.c.fingerprint, matches.c.distance))
    return [Match(from_bigint(found), bits) for found, bits in rows]


def near_rows(
    connection: Connection,
    table: str,
    fingerprint: int,
    distance: int | None = None,
    column: str | None = None,
) -> list[MatchingRow]:
    """Return the rows whose fingerprint is within the distance, nearest first. Arguments and errors as `near`."""
    index = _describe_index(connection, table, column)
    matches = _near(table, fingerprint, distance, index.column)
    documents = Table(index.table, MetaData(), Column(index.column, BIGINT), schema=index.schema)
    rows = connection.execute(
        select(matches.c.fingerprint, matches.c.distance, func.to_jsonb(documents.table_valued()))
        .join_from(matches, documents, documents.c[index.column] == matches.c.fingerprint)
        .order_by(matches.c.distance, matches.c.fingerprint)
    )
    return [MatchingRow(from_bigint(found), bits, row) for found, bits, row in rows]


def near_many(
    connection: Connection,
    table: str,
    fingerprints: Iterable[SupportsIndex],
    distance: int | None = None,
    column: str | None = None,
) -> Iterator[QueryMatch]:
    """Yield what `near` finds for each of these fingerprints, all of them in one statement, in no order.

    A fingerprint that is given twice is searched for once. Arguments and errors as `near`; PostgreSQL gives up
    after 100 million matches. For a million queries `stream_matches` is several times faster.
    """
    queries = cast([to_bigint(fingerprint) for fingerprint in fingerprints], ARRAY(BIGINT))
    arguments = cast(table, REGCLASS), queries, distance, column
    found = func.simsql.near_many(*arguments).table_valued("query", "fingerprint", "distance")
    statement = select(found.c.query, found.c.fingerprint, found.c.distance)
    for query, fingerprint, bits in connection.execute(statement.execution_options(yield_per=10_000)):
        yield QueryMatch(from_bigint(query), from_bigint(fingerprint), bits)


def pairs(
    connection: Connection, table: str, distance: int | None = None, column: str | None = None
) -> Iterator[Pair]:
    """Yield every pair of different fingerprints within the distance that live rows have, once each."""
    found = func.simsql.pairs(cast(table, REGCLASS), distance, column).table_valued("a", "b", "distance")
    statement = select(found.c.a, found.c.b, found.c.distance).execution_options(yield_per=10_000)
    for a, b, bits in connection.execute(statement):
        yield Pair(from_bigint(a), from_bigint(b), bits)


def clusters(
    connection: Connection, table: str, distance: int | None = None, column: str | None = None
) -> Iterator[Member]:
    """Yield the members of all clusters, cluster by cluster: fingerprints with a neighbour or on two rows."""
    function = func.simsql.clusters(cast(table, REGCLASS), distance, column)
    found = function.table_valued("cluster", "fingerprint")
    statement = select(found.c.cluster, found.c.fingerprint).execution_options(yield_per=10_000)
    for cluster, fingerprint in connection.execute(statement):
        yield Member(from_bigint(cluster), from_bigint(fingerprint))


def recipe_of(connection: Connection, table: str, column: str | None = None) -> Recipe:
    """Return the recipe that an index was created with: the one to fingerprint a text with for a search.

    An index that was created without naming one counts as made by the default recipe.
    """
    recipe = _describe_index(connection, table, column).recipe
    return DEFAULT if recipe is None else Recipe.from_id(recipe)


class _Index(NamedTuple):
    schema: str
    table: str
    column: str
    recipe: str | None


def _near(table: str, fingerprint: int, distance: int | None, column: str | None) -> TableValuedAlias:
    arguments = cast(table, REGCLASS), to_bigint(fingerprint), distance, column
    return func.simsql.near(*arguments).table_valued("fingerprint", "distance")


def _describe_index(connection: Connection, table: str, column: str | None) -> _Index:
    catalog = MetaData(schema="pg_catalog")
    class_ = Table("pg_class", catalog, Column("oid"), Column("relname"), Column("relnamespace"))
    namespace = Table("pg_namespace", catalog, Column("oid"), Column("nspname"))
    index = func.simsql._index(cast(table, REGCLASS), column).table_valued("table_id", "column_name", "recipe")
    row = connection.execute(
        select(namespace.c.nspname, class_.c.relname, index.c.column_name, index.c.recipe)
        .join_from(index, class_, class_.c.oid == index.c.table_id)
        .join(namespace, namespace.c.oid == class_.c.relnamespace)
    ).one()
    return _Index(*row)
