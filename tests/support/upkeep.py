"""Small batches for vacuum and build, and the keys that there should be after them."""

import psycopg


def set_batch_size(connection: psycopg.Connection, size: int) -> None:
    connection.execute(
        "CREATE OR REPLACE FUNCTION simsql._batch_size() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE"
        f" RETURN {size}"
    )


def stored_fingerprints(connection: psycopg.Connection, table: str = "article") -> list[list[int]]:
    """The fingerprints in each key table of a table's indexes, sorted, each as often as its key is stored."""
    statements = connection.execute(
        "SELECT format('SELECT array_agg(f ORDER BY f) FROM (SELECT %%s FROM simsql.keys_%%s_%%s AS k) AS s (f)',"
        " simsql._unpermute('k.key', p.lead_mask), r.id, p.number)"
        " FROM simsql.registry AS r CROSS JOIN simsql._permutations(r.blocks, r.lead, r.inner_blocks) AS p"
        " WHERE r.table_id = %s::regclass ORDER BY r.id, p.number",
        [table],
    ).fetchall()
    return [connection.execute(statement).fetchone()[0] or [] for (statement,) in statements]


def problems(connection: psycopg.Connection, table: str | None = "article") -> set[tuple[str, str]]:
    """(problem, object) of each finding of simsql.verify."""
    found = connection.execute("SELECT problem, object FROM simsql.verify(%s::regclass)", [table])
    return set(found.fetchall())


def notices(connection: psycopg.Connection) -> list[str]:
    """A list to which the connection's notices will be appended."""
    heard: list[str] = []
    connection.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))
    return heard
