"""No setting of a session changes what simsql does or finds, under the setting or after it.

All settings have another value at once, and once each of theirs; if that makes a difference, one by one.
"""

import itertools
import json

import pytest
from internals import begin_build, build_batch, set_batch_size
from psycopg import errors
from similar import like_near

ROWS = [(number, f"2026-0{1 + number % 2}-11", number % 3 and 'it\'s \\ "%s"', number * 5) for number in range(40)]
QUERIES = list(range(0, 60, 3))
SCOPE = {"scope": json.dumps({"day": "2026-01-11", "NULL": 'it\'s \\ "%s"', "share": 0.1})}
# pg_settings lists no values of texts.
TEXTS = {
    "client_encoding": ["LATIN1"],
    "DateStyle": ["SQL, DMY", "German", "Postgres, MDY"],
    "TimeZone": ["Asia/Kathmandu"],
    "search_path": ["", "pg_temp"],
    "createrole_self_grant": ["set, inherit"],
    "default_tablespace": ["pg_default"],
}
# The others are about logs, files, connections and the development of PostgreSQL.
CATEGORIES = "^(Client Connection Defaults|Query Tuning|Version and Platform|Resource Usage)"
EXCLUDED = [
    "transaction_.*",  # the transaction has begun
    "default_transaction_(isolation|read_only)",  # what needs another transaction says so
    "(client_min_messages|icu_validation_level)",  # messages
    ".*_timeout",  # those of the tests
    "max_stack_depth",  # PostgreSQL itself fails with the least
    ".*_cost|jit",  # with no kind of plan preferred, statements take minutes
]
FUNCTIONS = {
    "near": "SELECT fingerprint, distance FROM unnest({queries}) AS q, simsql.near({table}, q, 7, {scope})",
    "scan": "SELECT count(*) FROM simsql.near({table}, 0, 40, {scope})",
    "similar_candidates": "SELECT s.fingerprint, s.cost FROM unnest({queries}) AS q,"
    f" simsql.similar_candidates({{table}}, {like_near('q', 7, '{table}')}, {{scope}}) AS s",
    "near_rows": "SELECT id FROM simsql.near_rows(NULL::public.{name}, 0, 7, {scope})",
    "near_many": "SELECT query, fingerprint FROM simsql.near_many({table}, {queries}, 5, {scope}) ORDER BY 1, 2",
    "near_wide": "SELECT f.* FROM simsql.near_wide({table}, ARRAY[0], 7, ARRAY['fingerprint'], {scope}) AS f",
    "pairs": "SELECT a, b FROM simsql.pairs({table}, 2, {scope}) ORDER BY 1, 2",
    "clusters": "SELECT cluster, fingerprint FROM simsql.clusters({table}, 2, {scope})",
    "claim": "SELECT fingerprint FROM simsql.claim({table}, 3, 5, {scope})",
    "explain_near": "SELECT count(*) FROM simsql.explain_near({table}, 0, 7, {scope}) AS l WHERE l ~ '^strategy'",
    "explain_similar": "SELECT count(*) FROM simsql.explain_similar({table},"
    f" {like_near(0, 7, '{table}')}, {{scope}}) AS l WHERE l ~ '^strategy'",
    "verify": "SELECT problem, object FROM simsql.verify({table})",
    "indexes": "SELECT scope, state, column_name FROM simsql.indexes WHERE table_name = {table}",
    "superfluous_keys": "SELECT simsql.superfluous_keys({table})",
    "vacuum": "SELECT removed FROM simsql._vacuum_batch({table}, NULL, NULL)",
    "repair": "SELECT problem, object FROM simsql.repair({table})",
}
CREATE = (
    "SELECT simsql.create_index({table}, 'fingerprint', blocks => 2, scope => {columns}, storage => '{storage}')"
)
COLUMNS = ["day", "NULL", "share"]


@pytest.fixture
def tables(connection):
    for storage in ("tables", "expression", "created", "built"):
        connection.execute(
            f'CREATE TABLE {storage} (id integer PRIMARY KEY, day date, "NULL" text, share double precision,'
            " fingerprint bigint)"
        )
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {storage} VALUES (%s, %s, nullif(%s, '0'), 0.1, %s)", ROWS)
        if storage in ("tables", "expression"):
            connection.execute(call(CREATE, storage, storage))
    connection.execute('CREATE INDEX ON built (day, "NULL", share, fingerprint)')
    set_batch_size(connection, 30)
    return connection


def call(statement, table, storage=None):
    return statement.format(
        table=f"'public.{table}'",
        name=table,
        scope="scope => %(scope)s::jsonb",
        queries=f"ARRAY{QUERIES}::bigint[]",
        columns=f"ARRAY{COLUMNS}",
        storage=storage,
    )


def work(connection, table):
    connection.execute(f"UPDATE public.{table} SET fingerprint = fingerprint + 1, day = day + 1 WHERE id < 9")
    connection.execute(f"DELETE FROM public.{table} WHERE id = 12")
    yield from ((name, connection.execute(call(FUNCTIONS[name], table), SCOPE).fetchall()) for name in FUNCTIONS)


def results(connection, settings):
    """What everything finds under these settings, and afterwards."""
    found = []
    with connection.transaction(force_rollback=True):
        for name, value in settings:
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        for table in ("tables", "expression"):
            found += work(connection, table)
        for storage in ("tables", "expression"):
            connection.execute(call(CREATE, "created", storage))
            found += work(connection, "created")
            if storage == "tables":
                connection.execute("SELECT simsql.drop_index('public.created')")
        begin_build(connection, "public.built", blocks=2, scope=COLUMNS)
        while not build_batch(connection, "public.built"):
            pass
        for name, _ in settings:
            connection.execute(f"RESET {name}")
        for table in ("tables", "expression", "created", "built"):
            found += work(connection, table)
    return found


def rounds(connection):
    """Each setting with each of its values, or its least."""
    names = connection.execute(
        "SELECT name, setting, vartype, enumvals, min_val FROM pg_settings"
        " WHERE context IN ('user', 'superuser') AND category ~ %s AND name !~* %s ORDER BY name",
        [CATEGORIES, f"^({'|'.join(EXCLUDED)})$"],
    ).fetchall()
    values = []
    for name, setting, kind, options, least in names:
        others = {"bool": ["on", "off"], "enum": options, "string": TEXTS.get(name, [])}.get(kind, [least])
        values.append([(name, value) for value in others if value != setting])
    return [[value for value in values if value] for values in itertools.zip_longest(*values)]


def test_no_setting_changes_anything(tables):
    expected = results(tables, [])
    assert all(bool(found) == (name not in ("verify", "repair")) for name, found in expected)

    def differs(settings):
        try:
            return results(tables, settings) != expected
        except errors.Error:
            return True

    for settings in rounds(tables):
        if differs(settings):
            assert not [setting for setting in settings if differs([setting])]
            assert results(tables, settings) == expected
