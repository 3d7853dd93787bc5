"""The keys of the rows that have a fingerprint."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection

from simsql.database.bigint import Scope, encode_scope, from_bigint, to_bigint
from simsql.database.transfer import raw_connection, sqlalchemy_errors
from simsql.errors import UsageError

_KEYED = (
    "SELECT i.column_name, (SELECT pg_catalog.count(*) FROM simsql._primary_key(i.table_id))"
    " FROM simsql._searched_index(CAST(%s AS pg_catalog.regclass), %s, CAST(%s AS pg_catalog.jsonb)) AS i"
)
_KEYS = (
    "SELECT fingerprint, key FROM simsql._keys_of_rows(CAST(%s AS pg_catalog.regclass),"
    " CAST(%s AS pg_catalog.int8[]), %s, CAST(%s AS pg_catalog.jsonb))"
)

NO_KEY = "neither a primary key nor a unique index on NOT NULL columns"


class PrimaryKeys:
    """Look up the keys of the rows of an indexed table that have a fingerprint.

    A key is the primary key or, without one, a unique index on NOT NULL columns. Takes the arguments and raises
    the errors of `near`, and UsageError for a table without a key.
    """

    def __init__(
        self, connection: Connection, table: str, column: str | None = None, *, scope: Scope | None = None
    ) -> None:
        self._raw = raw_connection(connection)
        self._table, self._scope = table, encode_scope(scope)
        with sqlalchemy_errors():
            # From here on with a column: the default index may change.
            ((self._column, columns),) = self._raw.execute(_KEYED, [table, column, self._scope]).fetchall()
        if not columns:
            raise UsageError(f"{table} has {NO_KEY}: leave out --keys")

    def find(self, fingerprints: Collection[int]) -> dict[int, list[Any]]:
        """Return the keys, as JSON values or lists of them, of the rows that have each of these fingerprints."""
        found: dict[int, list[Any]] = {fingerprint: [] for fingerprint in fingerprints}
        bigints = [to_bigint(fingerprint) for fingerprint in found]
        with sqlalchemy_errors():
            for bigint, key in self._raw.execute(_KEYS, [self._table, bigints, self._column, self._scope]):
                found[from_bigint(bigint)].append(key[0] if len(key) == 1 else key)
        return found
