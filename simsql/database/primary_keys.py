"""Look up the primary keys of the rows that have a fingerprint."""

from collections.abc import Collection
from typing import Any

from psycopg import sql
from sqlalchemy import Connection

from simsql.database.bigint import from_bigint, to_bigint
from simsql.database.bulk_transfer import raw_connection
from simsql.database.scope import Scope, encode_scope
from simsql.errors import UsageError

_TABLE = """
    SELECT n.nspname, c.relname, s.column_name,
        ARRAY(
            SELECT a.attname
            FROM pg_catalog.pg_index AS i, pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k (number, place)
            JOIN pg_catalog.pg_attribute AS a ON a.attnum = k.number
            WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid
            ORDER BY k.place
        )::text[]
    FROM simsql._searched_index(CAST(%(table)s AS pg_catalog.regclass), %(column)s,
        CAST(%(scope)s AS pg_catalog.jsonb)) AS s
    JOIN pg_catalog.pg_class AS c ON c.oid = CAST(%(table)s AS pg_catalog.regclass)
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
"""
_KEYS = """
    SELECT {column}, pg_catalog.jsonb_build_array({keys}) FROM {table}
    WHERE {column} = ANY (CAST(%s AS pg_catalog.int8[])) {scope}
    ORDER BY {keys}
"""


class PrimaryKeys:
    """Look up the primary keys of the rows of an indexed table that have a fingerprint.

    Takes the arguments and raises the errors of `near`, and UsageError for a table without a primary key.
    """

    def __init__(
        self, connection: Connection, table: str, column: str | None = None, *, scope: Scope | None = None
    ) -> None:
        self._raw = raw_connection(connection)
        arguments = {"table": table, "column": column, "scope": encode_scope(scope)}
        schema, name, found_column, keys = self._raw.execute(_TABLE, arguments).fetchall()[0]
        if not keys:
            raise UsageError(f"{table} has no primary key: leave out --keys")
        self._alone = len(keys) == 1
        self._scope = list((scope or {}).values())
        self._statement = sql.SQL(_KEYS).format(
            table=sql.Identifier(schema, name),
            column=sql.Identifier(found_column),
            keys=sql.SQL(", ").join(map(sql.Identifier, keys)),
            scope=sql.Composed([sql.SQL(" AND {} = %s").format(sql.Identifier(part)) for part in scope or ()]),
        )

    def find(self, fingerprints: Collection[int]) -> dict[int, list[Any]]:
        """Return the keys, as JSON values, of the rows that have each of these fingerprints, in the same order.

        The key of a row is a value, or a list if the primary key has several columns.
        """
        found: dict[int, list[Any]] = {fingerprint: [] for fingerprint in fingerprints}
        bigints = [to_bigint(fingerprint) for fingerprint in found]
        for bigint, key in self._raw.execute(self._statement, [bigints, *self._scope]):
            found[from_bigint(bigint)].append(key[0] if self._alone else key)
        return found
