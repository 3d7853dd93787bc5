"""What upkeep says and leaves behind: keys, findings and notices."""

import psycopg
from internals import key_tables
from program import wait_until


def stored_fingerprints(connection: psycopg.Connection, table: str = "article") -> list[list[int]]:
    """The fingerprints in each key table of a table's indexes, sorted, each as often as its key is stored."""
    select = "SELECT array_agg(f ORDER BY f) FROM (SELECT {} FROM simsql.{} AS k WHERE key IS NOT NULL) AS s (f)"
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


def flush_statistics(connection: psycopg.Connection) -> None:
    """Wait until every session sees the statistics of what this one has done."""
    if connection.info.server_version >= 150000:
        connection.execute("SELECT pg_stat_force_next_flush()")
        return
    # In PostgreSQL 14, a session reports to a process after a statement, at most every half second. Other sessions
    # read what that process has last written to a file.
    connection.execute("SELECT pg_sleep(0.6)")
    (reported,) = connection.execute("SELECT clock_timestamp()").fetchone()
    written = "SELECT pg_stat_get_snapshot_timestamp() > %s"
    wait_until(lambda: connection.execute(written, [reported]).fetchone() == (True,), "the statistics are written")
