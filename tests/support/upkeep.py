"""What upkeep says and leaves behind: keys, findings and notices."""

import psycopg
from internals import key_tables


def stored_fingerprints(connection: psycopg.Connection, table: str = "article") -> list[list[int]]:
    """The fingerprints in each key table of a table's indexes, sorted, each as often as its key is stored."""
    select = "SELECT array_agg(f ORDER BY f) FROM (SELECT {} FROM simsql.{} AS k) AS s (f)"
    statements = [select.format(keys.fingerprint, keys.name) for keys in key_tables(connection, table)]
    return [connection.execute(statement).fetchone()[0] or [] for statement in statements]


def problems(connection: psycopg.Connection, table: str | None = "article") -> set[tuple[str, str]]:
    """(problem, object) of each finding of simsql.verify."""
    found = connection.execute("SELECT problem, object FROM simsql.verify(%s::regclass)", [table])
    return set(found.fetchall())


def notices(connection: psycopg.Connection) -> list[str]:
    """A list to which the connection's notices will be appended."""
    heard: list[str] = []
    connection.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))
    return heard
