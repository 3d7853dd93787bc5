"""The internal SQL functions that tests call: a new name of one of them changes this module alone."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import psycopg


class KeyTable(NamedTuple):
    """A key table, and how its keys are made."""

    name: str
    key: str
    """SQL: the key of a fingerprint."""
    fingerprint: str
    """SQL: the fingerprint of a key `k.key`."""
    column: str
    scope: list[str]


def key_tables(connection: psycopg.Connection, table: str = "article", fingerprint: str = "t.f") -> list[KeyTable]:
    """The key tables of a table's indexes, by number; an index with the storage `expression` has none."""
    found = connection.execute(
        "SELECT format('keys_%%s_%%s', r.id, p.number), simsql._permute(%s, p.lead_mask),"
        " simsql._permute(%s, p.lead_mask, back => true), r.column_name, r.scope_columns"
        " FROM simsql.registry AS r CROSS JOIN simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p"
        " WHERE r.table_id = %s::regclass AND r.storage = 'tables'"
        " ORDER BY r.id, p.number",
        [fingerprint, "k.key", table],
    )
    return [KeyTable(*row) for row in found]


def set_batch_size(connection: psycopg.Connection, size: int) -> None:
    """Let a build or a vacuum take so many fingerprints or keys at a time."""
    _replace_constant(connection, "_batch_size", size)


def set_candidates(connection: psycopg.Connection, number: int) -> None:
    """Let searches begin again after so many candidates, in indexes that are created from now on."""
    _replace_constant(connection, "_candidates", number)


def _replace_constant(connection: psycopg.Connection, name: str, value: int) -> None:
    connection.execute(
        f"CREATE OR REPLACE FUNCTION simsql.{name}() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE"
        f" RETURN {value}"
    )


def stamp(connection: psycopg.Connection, index: int = 1) -> None:
    """Let an index count as complete, whatever a test has done to its triggers."""
    connection.execute("SELECT simsql._stamp(%s)", [index])


def replace_in_functions(connection: psycopg.Connection, changes: Iterable[tuple[str, str, str]]) -> None:
    """In each function, replace a text that it contains once, to put a fault of the past back."""
    for function, now, then in changes:
        (source,) = connection.execute("SELECT pg_get_functiondef(%s::regprocedure)", [function]).fetchone()
        assert source.count(now) == 1, f"{function} has changed: {now}"
        connection.execute(source.replace(now, then))


def begin_build(
    connection: psycopg.Connection,
    table: str = "article",
    column: str = "fingerprint",
    *,
    blocks: int = 4,
    scope: Sequence[str] = (),
    **options: str,
) -> None:
    """Register an index that is built batch by batch."""
    names = "".join(f", {name} => %s" for name in options)
    connection.execute(
        f"SELECT simsql._begin_build(%s::regclass, %s, 3, %s, 1, 0, NULL, %s{names})",
        [table, column, blocks, list(scope), *options.values()],
    )


def build_batch(connection: psycopg.Connection, table: str | int = "article", column: str = "fingerprint") -> bool:
    """Build one batch; return whether the index is ready."""
    statement = "SELECT ready FROM simsql._build_batch(%s::regclass, %s)"
    return connection.execute(statement, [str(table), column]).fetchone()[0]


def take_turn(connection: psycopg.Connection, what: str) -> None:
    """Hold the lock under which builds or vacuums of `article` take turns, until the transaction ends."""
    connection.execute("SELECT simsql._take_turn('article', %s)", [what])


def near_many_statements(
    connection: psycopg.Connection, queries: int, keys: int, within: int, scope: str | None = None
) -> tuple[str, list[str]]:
    """The strategy for so many queries and keys, and its statements with the parameters (queries, distance)."""
    return connection.execute(
        "SELECT s.* FROM simsql.registry AS r, simsql._near_many_statements(r, %s, %s, %s, %s::jsonb) AS s",
        [queries, keys, within, scope],
    ).fetchone()


def near_many_strategy(
    connection: psycopg.Connection, table: str, queries: int, within: int, scope: str | None = None
) -> str:
    """The strategy by which near_many searches for so many fingerprints now."""
    return connection.execute(
        "SELECT s.strategy FROM simsql.registry AS r, simsql._near_many_statements("
        "r, %(queries)s, simsql._expected_keys(r, %(queries)s, %(within)s, %(scope)s::jsonb), %(within)s,"
        " %(scope)s::jsonb) AS s WHERE r.table_id = %(table)s::regclass",
        {"table": table, "queries": queries, "within": within, "scope": scope},
    ).fetchone()[0]


def run_statements(
    connection: psycopg.Connection, statements: Iterable[str], fingerprints: Iterable[int], within: int
) -> list[tuple[Any, ...]]:
    """The sorted rows of statements with the parameters (fingerprints, distance)."""
    array = ",".join(map(str, set(fingerprints)))
    found: list[tuple[Any, ...]] = []
    for statement in statements:
        connection.execute(f"PREPARE found (bigint[], integer) AS {statement}")
        found += connection.execute(f"EXECUTE found ('{{{array}}}', {within})").fetchall()
        connection.execute("DEALLOCATE found")
    return sorted(found)
