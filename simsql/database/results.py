"""What a search of a whole table finds: pairs, clusters and matches, row by row, in arrays, or in a table.

Pairs and clusters are found in numpy: for many rows, several times faster than in SQL. Fingerprints are read in
large pieces, in the caller's snapshot and with the caller's privileges, and `simsql.hamming` searches them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import Connection

from simsql.arrays.positions import first_of_equals, gather
from simsql.database.bigint import Scope
from simsql.database.transfer import copy_columns, fetch_fingerprints, raw_connection, sqlalchemy_errors
from simsql.errors import UsageError
from simsql.hamming import find_clusters, find_matches, find_pairs

Fingerprints = NDArray[np.uint64]
Batch = dict[str, NDArray[Any]]
"""Arrays of equal length by the fields of a row: uint64 for fingerprints and clusters, uint8 for distances."""

# Rows of a COPY, at least: each is a statement.
_COPY_ROWS = 1 << 16


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


Row = TypeVar("Row", QueryMatch, Pair, Member)


@dataclass(frozen=True, eq=False, repr=False)
class Results(Generic[Row]):
    """The results of a search: iterate over its rows, take them in batches of arrays, or copy them into a table.

    Each iteration searches again, with a new snapshot if the transaction is READ COMMITTED. Meanwhile you can use
    the connection for other statements. With an engine, each iteration and each copy runs in its own transaction.
    """

    _connect: Callable[[], AbstractContextManager[Connection]]
    _row: type[Row]
    _search: Callable[[Connection], Iterator[Batch]]

    def __iter__(self) -> Iterator[Row]:
        for batch in self.batches():
            yield from map(self._row._make, zip(*(array.tolist() for array in batch.values()), strict=True))

    def batches(self) -> Iterator[Batch]:
        """Yield the rows in batches: arrays of equal length, by the names of the fields.

        Fingerprints, queries and clusters are uint64, distances uint8, all of shape (n,).
        """
        with self._connect() as connection:
            yield from self._search(connection)

    def copy_into(self, table: str) -> int:
        """Create a table and COPY the results into it; return the number of rows.

        `table` is a name as in SQL. Its columns are those of the batches: fingerprints and clusters are bigint,
        distances integer. The table is created in the connection's transaction; with an engine, it is committed.
        Raises sqlalchemy.exc.DBAPIError with PostgreSQL's message: the table exists, or the privilege to create it
        is missing. Then it is not created.
        """
        columns = sql.SQL(", ").join(
            sql.SQL("{} {} NOT NULL").format(
                sql.Identifier(field), sql.SQL("integer" if field == "distance" else "bigint")
            )
            for field in self._row._fields
        )
        with self._connect() as connection, sqlalchemy_errors():
            raw, described = raw_connection(connection), "SELECT pg_catalog.parse_ident(%s), current_schema()"
            parts, schema = raw.execute(described, [table]).fetchall()[0]
            if len(parts) > 2:
                raise UsageError(f"{table} is not a table name: use name or schema.name")
            # In full: a temporary table would come before another one of its bare name.
            name = sql.Identifier(*([schema] if schema and len(parts) == 1 else []), *parts)
            batches = gather(self._search(connection), lambda batch: len(next(iter(batch.values()))), _COPY_ROWS)
            with raw.transaction():
                raw.execute(sql.SQL("CREATE TABLE {} ({})").format(name, columns))
                return sum(copy_columns(connection, name, _join(batch)) for batch in batches)


class SearchedRows(NamedTuple):
    """The rows that a search reads, and its distance."""

    connection: Connection
    table: str
    column: str
    scope: Scope | None
    distance: int

    def read(self) -> Iterator[Fingerprints]:
        """Yield their fingerprints in arrays, in table order."""
        return fetch_fingerprints(self.connection, self.table, self.column, self.scope)

    def read_all(self) -> Fingerprints:
        """Return their fingerprints in one array."""
        return np.concatenate([*self.read(), np.empty(0, dtype=np.uint64)])


def find_pairs_of_rows(rows: SearchedRows) -> Iterator[Batch]:
    """Yield every pair of different fingerprints of live rows within the distance, in no particular order."""
    for pairs in find_pairs(rows.read_all(), rows.distance, batches=True):
        bigints = pairs.view(np.int64)
        a, b = (side.view(np.uint64) for side in (bigints.min(axis=1), bigints.max(axis=1)))
        yield {"a": a, "b": b, "distance": np.bitwise_count(a ^ b)}


def find_clusters_of_rows(rows: SearchedRows) -> Iterator[Batch]:
    """Yield one batch with the members of all clusters, ordered by cluster and fingerprint, both as bigints."""
    fingerprints = rows.read_all()
    fingerprints.sort()
    yield _members(fingerprints, find_clusters(fingerprints, rows.distance))


def find_matches_of_rows(rows: SearchedRows, *, queries: Fingerprints) -> Iterator[Batch]:
    """Yield the matches of each query, in no particular order. Reads the rows once."""
    for found in find_matches(queries, rows.read(), rows.distance):
        yield {"query": found.queries, "fingerprint": found.fingerprints, "distance": found.distances}


def _join(batches: Sequence[Batch]) -> Batch:
    return {name: np.concatenate([part[name] for part in batches]) for name in batches[0]}


def _members(fingerprints: Fingerprints, clusters: list[Fingerprints]) -> Batch:
    """Return the members of these clusters, and fingerprints without neighbours that several rows share.

    `fingerprints` are sorted.
    """
    repeated = fingerprints[~first_of_equals(fingerprints)]
    members = np.concatenate([*clusters, np.empty(0, dtype=np.uint64)]).view(np.int64)
    sizes = np.array([len(cluster) for cluster in clusters], dtype=np.intp)
    names = np.repeat(np.minimum.reduceat(members, np.cumsum(sizes) - sizes), sizes) if clusters else members
    alone = np.setdiff1d(repeated.view(np.int64), members)
    members, names = np.concatenate([members, alone]), np.concatenate([names, alone])
    order = np.lexsort((members, names))
    return {"cluster": names[order].view(np.uint64), "fingerprint": members[order].view(np.uint64)}
