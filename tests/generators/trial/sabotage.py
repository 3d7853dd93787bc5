"""What a trial has to notice within seconds: indexes and rows that are broken on purpose."""

import re
from collections.abc import Callable

import psycopg

from trial.tables import KINDS as ALL_KINDS


def _delete_keys(connection: psycopg.Connection) -> None:
    connection.execute("DELETE FROM simsql.keys_1_0 WHERE key % 9 = 0")


def _ignore_updates(connection: psycopg.Connection) -> None:
    # Disabling the trigger would make searches refuse.
    connection.execute(
        "CREATE OR REPLACE FUNCTION simsql.add_on_update_1() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RETURN NULL; END'"
    )
    _stamp(connection)


def _stamp(connection: psycopg.Connection) -> None:
    """Hide that the functions of triggers have been replaced."""
    connection.execute("SELECT simsql._stamp(1)")


def _look_first(connection: psycopg.Connection) -> None:
    for event in ("insert", "update"):
        (definition,) = connection.execute(
            "SELECT pg_get_functiondef(%s::regproc)", [f"simsql.add_on_{event}_1"]
        ).fetchone() or ("",)
        look = ") AS f WHERE NOT EXISTS (SELECT FROM simsql.keys_1_0 AS k WHERE k.key = f.fp)"
        assert ") AS f" in definition
        # The triggers themselves notice that one table gets fewer keys than the others.
        unnoticed = definition.replace("simsql.stored <> simsql.stored_before", "false")
        assert unnoticed != definition
        connection.execute(unnoticed.replace(") AS f", look, 1))
    _stamp(connection)


def _keep_no_equal_keys(connection: psycopg.Connection) -> None:
    """Let a vacuum remove all of equal keys, not all but one."""
    connection.execute(
        "CREATE OR REPLACE PROCEDURE simsql.vacuum(table_name regclass, column_name text DEFAULT NULL)"
        " LANGUAGE sql AS 'DELETE FROM simsql.keys_1_0 WHERE key IN"
        " (SELECT key FROM simsql.keys_1_0 GROUP BY key HAVING count(*) > 1)'"
    )


def _find_less(connection: psycopg.Connection) -> None:
    """Let searches leave out one fingerprint of nine."""
    _wrap_near(connection, "SELECT * FROM found WHERE fingerprint % 9 <> 0")


def _find_more(connection: psycopg.Connection) -> None:
    """Let searches repeat what is nearest."""
    _wrap_near(connection, "TABLE found UNION ALL (TABLE found LIMIT 1)")


def _find_dead_rows(connection: psycopg.Connection) -> None:
    """Let searches for similar texts find keys whose rows are gone."""
    (similar,) = connection.execute("SELECT pg_get_functiondef('simsql.similar_1'::regproc)").fetchone() or ("",)
    connection.execute(re.sub(r" CROSS JOIN LATERAL \(SELECT FROM ONLY [^()]*\) AS live", "", similar))


def _wrap_near(connection: psycopg.Connection, statement: str) -> None:
    (near,) = connection.execute("SELECT pg_get_functiondef('simsql.near'::regproc)").fetchone() or ("",)
    connection.execute(near.replace("simsql.near(", "simsql.near_all(").replace(" near.", " near_all."))
    head = near[: near.index("AS $function$")].replace("plpgsql", "sql")
    found = f"WITH found AS (SELECT * FROM simsql.near_all($1, $2, $3, $4, $5)) {statement}"
    connection.execute(f"{head} AS '{found}'")


def _lose_rows(connection: psycopg.Connection) -> None:
    """Let rows be gone that were committed."""
    connection.execute(
        "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF pg_trigger_depth() = 1 THEN DELETE FROM ordinary WHERE id < 1000 AND id % 7 = 0; END IF;"
        " RETURN NULL; END'"
    )
    connection.execute("CREATE TRIGGER lose AFTER DELETE ON ordinary EXECUTE FUNCTION lose()")


def _forget_claims(connection: psycopg.Connection) -> None:
    """Let claims not see each other within one statement."""
    (claim,) = connection.execute("SELECT pg_get_functiondef('simsql.claim'::regproc)").fetchone() or ("",)
    assert "IF claimed IS NOT NULL" in claim
    connection.execute(claim.replace("IF claimed IS NOT NULL", "IF false"))


# What they break: the index 1, which is that of the table `ordinary`, and claims.
KINDS = tuple(kind for kind in ALL_KINDS if kind.name == "ordinary" or kind.claimed)
SABOTAGES: dict[str, Callable[[psycopg.Connection], None]] = {
    "deleted-keys": _delete_keys,
    "no-keys-on-update": _ignore_updates,
    "writers-that-look": _look_first,
    "greedy-vacuum": _keep_no_equal_keys,
    "missing-matches": _find_less,
    "repeated-matches": _find_more,
    "dead-rows": _find_dead_rows,
    "lost-rows": _lose_rows,
    "forgotten-claims": _forget_claims,
}
