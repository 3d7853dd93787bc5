"""A table of fingerprints with a simhash index, and a look at what the index holds."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import oracle
import psycopg
import pytest
from internals import key_tables
from psycopg import sql
from psycopg.pq import TransactionStatus
from similar import like_near

# (blocks, lead, inner blocks): one and several lead blocks, equal and unequal blocks, nested, most tables.
Layout = tuple[int, int, int]
DESIGNS: list[Layout] = [
    (4, 1, 0),
    (2, 1, 0),
    (3, 1, 0),
    (5, 2, 0),
    (6, 3, 0),
    (7, 3, 0),
    (4, 1, 4),
    (5, 2, 3),
    (64, 1, 0),
]


def create_articles(
    connection: psycopg.Connection,
    fingerprints: Iterable[int | None] = (),
    design: Layout = (4, 1, 0),
    storage: str | None = None,
) -> None:
    """The table `article` (id, body, fingerprint), filled and indexed; ids count from 1 in this order."""
    create_table(connection, fingerprints)
    create_index(connection, design=design, storage=storage)


def create_table(connection: psycopg.Connection, fingerprints: Iterable[int | None] = ()) -> None:
    connection.execute(
        "CREATE TABLE article (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, fingerprint bigint)"
    )
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [list(fingerprints)])


def create_index(
    connection: psycopg.Connection,
    table: str = "article",
    column: str = "fingerprint",
    design: Layout = (4, 1, 0),
    storage: str | None = None,
) -> int:
    """Create an index and return its id; without a storage, simsql chooses it."""
    statement = (
        "SELECT simsql.create_index(%s::regclass, %s, blocks => %s, lead => %s, inner_blocks => %s,"
        " recipe => 'words12-log-1'{})"
    )
    named = f", storage => '{storage}'" if storage else ""
    return connection.execute(statement.format(named), [table, column, *design]).fetchone()[0]


def near(
    connection: psycopg.Connection,
    query: int | None,
    within: int | None = None,
    table: str = "article",
    column: str | None = None,
) -> list[tuple[int, int]]:
    """What near finds. A query in which each bit costs 1 has to find the same, or to fail likewise."""
    values = {"query": query, "within": within, "table": table, "column": column}
    statement = "SELECT fingerprint, distance FROM simsql.near({}::regclass, {}::bigint, {}::integer, {})"
    given = [f"%({name})s" for name in ("table", "query", "within", "column")]
    try:
        found = connection.execute(statement.format(*given), values).fetchall()
    except psycopg.Error as error:
        if _has_similar(connection, values):
            with pytest.raises(type(error), match=re.escape(error.diag.message_primary or "")):
                _similar_like_near(connection, values)
        raise
    if _has_similar(connection, values):
        similar = _similar_like_near(connection, values)
        if similar != [(*match, match[1]) for match in found]:  # unless somebody wrote in between
            assert connection.execute(statement.format(*given), values).fetchall() != found, similar
    return found


def _has_similar(connection: object, values: dict[str, Any]) -> bool:
    if not isinstance(connection, psycopg.Connection) or values["query"] is None or (values["within"] or 0) > 7:
        return False
    if connection.info.transaction_status == TransactionStatus.INERROR:
        return False
    # Version 0.2.0 has no such search. With more than two flips there are too many prefixes.
    statement = (
        "SELECT to_regproc('simsql.similar_candidates') IS NOT NULL AND NOT EXISTS ("
        "SELECT FROM simsql.registry AS r WHERE r.table_id = to_regclass(%(table)s) AND simsql._radius("
        "r.blocks, r.lead, r.inner_blocks, 0, coalesce(%(within)s::integer, r.distance)) > 2)"
    )
    return connection.execute(statement, values).fetchone()[0]


def _similar_like_near(connection: psycopg.Connection, values: dict[str, Any]) -> list[tuple[int, int, int]]:
    query = like_near("%(query)s::bigint", "coalesce(%(within)s::integer, r.distance)", "%(table)s", "%(column)s")
    # It also finds everything within the exact distance.
    statement = (
        f"SELECT * FROM simsql.similar_candidates(%(table)s::regclass, {query}, %(column)s)"
        " WHERE %(within)s::integer IS NULL OR distance <= %(within)s::integer"
    )
    return connection.execute(statement, values).fetchall()


def fingerprints_of(connection: psycopg.Connection) -> list[int | None]:
    return [row[0] for row in connection.execute("SELECT fingerprint FROM article ORDER BY id")]


def count_keys(connection: psycopg.Connection, index: int = 1) -> list[int]:
    """How many keys each permutation table of an index holds, superfluous ones too."""
    tables = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'simsql'::regnamespace AND relkind = 'r'"
        " AND relname ~ %s ORDER BY length(relname), relname",
        [f"^keys_{index}_"],
    ).fetchall()
    count = sql.SQL("SELECT count(key) FROM simsql.{}")
    return [connection.execute(count.format(sql.Identifier(name))).fetchone()[0] for (name,) in tables]


def missing_keys(connection: psycopg.Connection, table: str = "article") -> Sequence[tuple[str, int]]:
    """(key table, fingerprint) for every key that a row of this snapshot should have: the invariant if empty.

    An index without key tables lacks none.
    """
    indexes = connection.execute("SELECT FROM simsql.registry WHERE table_id = %s::regclass", [table])
    assert indexes.fetchall(), f"{table} has no index"
    missing = sql.SQL(
        "SELECT {name}, t.f FROM (SELECT {columns} FROM ONLY {table}) AS t ({names}) WHERE t.f IS NOT NULL"
        " {in_scope} AND NOT EXISTS (SELECT FROM simsql.{keys} AS k WHERE k.key = {key} {same_scope})"
    )
    each = [
        missing.format(
            name=keys.name,
            columns=sql.SQL(", ").join(map(sql.Identifier, [keys.column, *keys.scope])),
            names=sql.SQL(", ".join(["f", *(f"s{number}" for number, _ in enumerate(keys.scope, 1))])),
            table=sql.SQL(table),
            in_scope=sql.SQL("".join(f" AND t.s{number} IS NOT NULL" for number, _ in enumerate(keys.scope, 1))),
            keys=sql.Identifier(keys.name),
            key=sql.SQL(keys.key),
            same_scope=sql.SQL(
                "".join(f" AND k.scope_{number} = t.s{number}" for number, _ in enumerate(keys.scope, 1))
            ),
        )
        for keys in key_tables(connection, table)
    ]
    # One statement, so that all is read with one snapshot.
    return connection.execute(sql.SQL(" UNION ALL ").join(each)).fetchall() if each else []


def searches_are_exact(
    connection: psycopg.Connection,
    live: Collection[int | None] | None = None,
    *,
    table: str = "article",
    column: str | None = None,
    queries: Iterable[int] = (0, -1),
    distances: Iterable[int] = (0, 3, 7, 10),
) -> None:
    """Compare searches with brute force over the rows of the table, or over `live`; and look for missing keys."""
    if live is None:
        rows = sql.SQL("SELECT {} FROM {}").format(sql.Identifier(column or "fingerprint"), sql.SQL(table))
        live = [fingerprint for (fingerprint,) in connection.execute(rows)]
    assert missing_keys(connection, table) == []
    for query in queries:
        for within in distances:
            assert near(connection, query, within, table, column) == oracle.near(live, query, within)
