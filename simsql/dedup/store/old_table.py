"""Tables of documents that identify records by their ids alone, as version 0.1.0 did."""

import re
from typing import Any

from psycopg import Connection, sql

from simsql.dedup.safety.identity import hash_key, identities_of_record, real_path
from simsql.documents import printable

OLD_IDENTITY = "name_digest"
"""The column of the identity in these tables."""

_RECORDS = re.compile(r"(^stdin|\.(jsonl|ndjson|csv|tsv)(\.(gz|xz|bz2))?)$", re.IGNORECASE)


def identify_anew(connection: Connection[Any], table: sql.Identifier) -> None:
    """Rename the column of the identity, and identify records by their files, too.

    Files of one document have the same identity as before. A record that cannot be identified keeps its own: if it
    is read again, it is a new document.
    """
    rename = sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO identity").format(table, sql.Identifier(OLD_IDENTITY))
    connection.execute(rename)
    records = sql.SQL(
        "SELECT id, name, place, identity, text_digest FROM {}"
        " WHERE place OPERATOR(pg_catalog.~) ':[0-9]+$' ORDER BY id"
    ).format(table)
    found: dict[str, tuple[int, int]] = {}
    for id_, name, place, identity, text_digest in connection.execute(records):
        if record := _identify(name, place, identity.hex, text_digest.hex):
            found.setdefault(record[0], (id_, record[1]))
    change = sql.SQL(
        "UPDATE {} AS t SET identity = CAST(n.identity AS pg_catalog.uuid), line = n.line"
        " FROM ROWS FROM (pg_catalog.unnest(CAST(%s AS pg_catalog.text[])),"
        " pg_catalog.unnest(CAST(%s AS pg_catalog.int8[])), pg_catalog.unnest(CAST(%s AS pg_catalog.int8[])))"
        " AS n (identity, id, line) WHERE t.id OPERATOR(pg_catalog.=) n.id"
    ).format(table)
    ids, lines = [row[0] for row in found.values()], [row[1] for row in found.values()]
    connection.execute(change, [list(found), ids, lines])


def _identify(name: str, place: str, identity: str, text_digest: str) -> tuple[str, int] | None:
    """Return the identity and the line of a record; None for a file of one document."""
    file, line = place.rsplit(":", 1)
    label = name if identity == hash_key(name.encode()) and place != printable(name) else None
    if label is None and not _RECORDS.search(file):
        return None
    real = b"" if file == "stdin" else real_path(file)
    return next(identities_of_record(real, label, int(line), text_digest)), int(line)
