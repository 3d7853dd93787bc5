"""Claims, as a service makes them before it inserts, and the locks that they hold."""

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
