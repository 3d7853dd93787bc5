"""Tables with a scoped index: made, filled, searched and compared with brute force."""

import json
from uuid import UUID

import oracle
from articles import missing_keys
from psycopg import sql
from similar import like_near

UNIQUE = [UUID(int=1), UUID("ffffffff-0000-4000-8000-00000000abcd")]
# Names that are called like simsql's own or break what is quoted once too often or not at all.
COLUMNS = {
    'Ten\'ant "name" %s': ("text", ["a", "A", "it's", 'a "b"', "%s", "", "$1", "null", "ä\\"]),
    "scope_1": ("integer", [-1, 0, 7, 2**31 - 1]),
    "key $3": ("uuid", UNIQUE),
    "fp": ("varchar(4)", ["x", "X", "xyzz"]),
}
RENAMED = r"column tenant of public\.article was renamed or dropped"
SEARCHES = ["near", "similar_candidates", "near_many", "pairs", "clusters"]


def create_scoped(
    connection, columns=("tenant integer",), scope=("tenant",), rows=(), design=(4, 1, 0), storage=None
):
    """The table `article` with these columns and a fingerprint behind them, filled and then indexed."""
    id_ = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
    connection.execute(f"CREATE TABLE article ({id_}, {', '.join(columns)}, print bigint)")
    insert(connection, rows)
    create_index(connection, scope, design, storage)


def create_tenants(connection):
    """`article` with the tenants 1 and 2, who share a fingerprint, rows of no tenant and one without one."""
    rows = [(1, 0), (1, 1), (1, 7), (2, 1), (2, 3), (2, -1), (None, 0), (None, 1), (1, None), (2, 3)]
    create_scoped(connection, rows=rows)


def create_index(connection, scope, design=(4, 1, 0), storage=None):
    statement = (
        "SELECT simsql.create_index('article', 'print', blocks => %s, lead => %s, inner_blocks => %s, scope => %s,"
        " storage => %s)"
    )
    connection.execute(statement, [*design, list(scope), storage])


def insert(connection, rows):
    """Add rows: the values of all columns but the id."""
    names = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'article'::regclass AND attnum > 1"
        " AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"
    ).fetchall()
    columns = sql.SQL(", ").join(sql.Identifier(name) for (name,) in names)
    with connection.cursor().copy(sql.SQL("COPY article ({}) FROM STDIN").format(columns)) as copy:
        for row in rows:
            copy.write_row(row)


def search(connection, function, scope, within, queries=(0,)):
    """What a function finds, sorted, fingerprints as bigint; for near the matches of all queries."""
    value = None if scope is None else json.dumps(scope, default=str)
    queries = set(queries)
    if function == "near":
        statement = (
            "SELECT q, n.fingerprint, n.distance FROM unnest(%s::bigint[]) AS q,"
            " simsql.near('article', q, %s, scope => %s::jsonb) AS n"
        )
        arguments = [list(queries), within, value]
    elif function == "similar_candidates":
        statement = (
            "SELECT q, n.fingerprint, n.distance FROM unnest(%s::bigint[]) AS q,"
            f" simsql.similar_candidates('article', {like_near('q', within)}, scope => %s::jsonb) AS n"
            " WHERE n.distance <= %s"
        )
        arguments = [list(queries), value, within]
    elif function == "near_many":
        statement = "SELECT * FROM simsql.near_many('article', %s::bigint[], %s, scope => %s::jsonb)"
        arguments = [list(queries), within, value]
    else:
        statement = f"SELECT * FROM simsql.{function}('article', %s, scope => %s::jsonb)"
        arguments = [within, value]
    return sorted(connection.execute(statement, arguments).fetchall())


def expected(function, fingerprints, within, queries=(0,)):
    if function in ("near", "similar_candidates", "near_many"):
        return sorted((q, *found) for q in set(queries) for found in oracle.near(fingerprints, q, within))
    return (oracle.pairs if function == "pairs" else oracle.clusters)(fingerprints, within)


def check(connection, scope, fingerprints, within=3, queries=(0,)):
    for function in SEARCHES:
        found = search(connection, function, scope, within, queries)
        assert found == expected(function, fingerprints, within, queries), function


def check_tenants(connection, distances=(0, 3, 64)):
    """Every search, in every scope there is, against brute force; and the invariant."""
    assert missing_keys(connection) == []
    rows = connection.execute("SELECT tenant, print FROM article").fetchall()
    tenants = {tenant for tenant, _ in rows} - {None}
    for tenant in [*tenants, 999]:
        fingerprints = [found for of, found in rows if of == tenant]
        for within in distances:
            check(connection, {"tenant": tenant}, fingerprints, within, {0, *fingerprints[:2]} - {None})


def stored_keys(connection):
    """The rows of every key table, sorted."""
    names = connection.execute(
        "SELECT relname FROM pg_class WHERE relname ~ '^keys_\\d+_\\d+$' ORDER BY length(relname), relname"
    ).fetchall()
    return [
        sorted(
            connection.execute(
                sql.SQL("SELECT k::text FROM simsql.{} AS k WHERE key IS NOT NULL").format(sql.Identifier(name))
            ).fetchall()
        )
        for (name,) in names
    ]


def explain(connection, scope, within, query=0):
    rows = connection.execute(
        "SELECT simsql.explain_near('article', %s, %s, scope => %s::jsonb)", [query, within, json.dumps(scope)]
    ).fetchall()
    return rows[0][0], "\n".join(line for (line,) in rows[1:])
