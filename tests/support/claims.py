"""Claims, as a service makes them before it inserts, and the locks that they hold."""

from sessions import blocked, started

CENTRE = 0x0123456789ABCDEF
HELD = (
    "SELECT DISTINCT classid::bigint << 32 | objid::bigint FROM pg_locks"
    " WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def claim(connection, fingerprint, within=None):
    statement = "SELECT fingerprint, distance FROM simsql.claim('article', %s::bigint, %s::integer)"
    return connection.execute(statement, [fingerprint, within]).fetchall()


def post(connection, fingerprint, within=None):
    """What a service does: insert what has no near-duplicate yet. Returns those that it has found."""
    with connection.transaction():
        found = claim(connection, fingerprint, within)
        if not found:
            connection.execute("INSERT INTO article (fingerprint) VALUES (%s)", [fingerprint])
        return found


def held(connection):
    """The numbers of the advisory locks that are held in the database, as any role can read them."""
    return {lock for (lock,) in connection.execute(HELD)}


def check_waiting_claim(connection, connect, change):
    """While a claim waits for its locks, change(another connection) changes the index: no other claim passes."""
    with connection.transaction(force_rollback=True):
        claim(connection, CENTRE)
        numbers = held(connection)
    # In the way of the first claim, without a lock on the table.
    connection.execute("SELECT pg_advisory_lock(l) FROM unnest(%s::bigint[]) AS l", [list(numbers)])

    def claim_and_insert(session):
        session.execute("BEGIN")
        return session, post(session, CENTRE)

    with blocked(connect, claim_and_insert) as first, started(connect, change) as changed:
        connection.execute("SELECT pg_advisory_unlock_all()")
        session, found = first.result()
        with started(connect, lambda other: post(other, CENTRE)) as second:
            session.execute("COMMIT")
    changed.result()
    assert (found, second.result()) == ([], [(CENTRE, 0)]), "two claims were free"
