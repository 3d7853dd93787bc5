"""Whatever a session, a role or a database sets, a search finds what brute force finds."""

import contextlib
import itertools
import json
import random

import oracle
import psycopg
import pytest
from articles import create_index

PRINTS = oracle.clustered(120, seed=31)
SCOPE = ["NULL", "x\\y"]
ROWS = [(number, SCOPE[number % 2], value, value) for number, value in enumerate(PRINTS)]
TEXTS = {
    "DateStyle": ["SQL, DMY", "German", "Postgres, MDY"],
    "TimeZone": ["Asia/Kathmandu"],
    "search_path": ["", "pg_temp", "hostile, pg_catalog"],
    "client_encoding": ["LATIN1"],
    "default_table_access_method": ["heap"],
    "default_tablespace": ["pg_default"],
    "default_toast_compression": ["pglz"],
    "temp_tablespaces": ["pg_default"],
    "plpgsql.extra_errors": ["all"],
    "plpgsql.extra_warnings": ["all"],
    **{f"lc_{name}": ["C"] for name in ("messages", "monetary", "numeric", "time")},
}
LEFT_OUT = (
    # Other tests; not of a session; those with which PostgreSQL itself fails, fills the log, waits or does damage.
    ".*_timeout|row_security|role|session_authorization|transaction_.*|seed"
    "|max_stack_depth|geqo_.*|temp_file_limit"
    "|log_.*|debug_print_.*|client_min_messages|debug_discard_caches|post_auth_delay|trace_.*"
    "|zero_damaged_pages|ignore_checksum_failure|wal_consistency_checking|exit_on_error"
)


def values(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Each setting that a session may change, with its values: all of a choice, both ends of a range."""
    connection.execute("LOAD 'plpgsql'")
    settings = connection.execute(
        "SELECT name, setting, vartype, enumvals, min_val, max_val FROM pg_settings"
        " WHERE context IN ('user', 'superuser') AND name !~ %s ORDER BY name",
        [f"^({LEFT_OUT})$"],
    )
    found = {}
    for name, setting, kind, options, least, most in settings:
        choices = {"bool": ["on", "off"], "enum": options, "string": TEXTS.get(name, [])}.get(kind, [least, most])
        if others := [value for value in choices if value != setting]:
            found[name] = others
    return found


@pytest.fixture
def tables(connection, new_role):
    """`article` and `other`, in either storage, which a role may read half of; the connection and the role."""
    reader = new_role()
    for table, storage in (("article", "tables"), ("other", "expression")):
        connection.execute(
            f'CREATE TABLE {table} (id int PRIMARY KEY, "NULL" text, fingerprint bigint, other bigint)'
        )
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)", ROWS)
        create_index(connection, table, storage=storage)
        connection.execute(
            "SELECT simsql.create_index(%s, 'other', blocks => 3, scope => '{\"NULL\"}', storage => %s)",
            [table, storage],
        )
        connection.execute(
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY; CREATE POLICY even ON {table} USING (id % 2 = 0);"
            f"GRANT SELECT ON {table} TO {reader}"
        )
    return connection, reader


def differences(connect, reader, settings, queries):
    """(lost, wrong) matches under these settings, as a superuser and as the reader."""
    lost = wrong = 0
    with contextlib.closing(connect()) as session:
        for name, value in settings:
            session.execute("SELECT set_config(%s, %s, false)", [name, value])
        for visible in (ROWS, ROWS[::2]):
            for (table, query, within), scope in itertools.product(queries, (None, SCOPE[1])):
                live = [row[2] for row in visible if scope in (None, row[1])]
                column = "other" if scope else "fingerprint"
                found = session.execute(
                    "SELECT fingerprint, distance FROM simsql.near(%s, %s, %s, %s, %s::jsonb)",
                    [f"public.{table}", query, within, column, scope and json.dumps({"NULL": scope})],
                ).fetchall()
                expected = oracle.near(live, query, within)
                lost += len(set(expected) - set(found))
                wrong += len(set(found) - set(expected)) + (found != sorted(found, key=lambda match: match[::-1]))
            session.execute(f"SET ROLE {reader}")
    return lost, wrong


def combinations(choices, number, seed):
    """Random values of random settings: many at a time, and each value at least once."""
    chosen = random.Random(seed)
    single = [(name, value) for name, values in choices.items() for value in values]
    chosen.shuffle(single)
    size = -(-len(single) // number)
    for start in range(0, len(single), size):
        first = dict(single[start : start + size])
        for name in chosen.sample(sorted(choices), chosen.choice([0, 10, 40])):
            if not name.endswith("_cost"):
                first.setdefault(name, chosen.choice(choices[name]))
        yield list(first.items())


def compare(connect, connection, reader, tally, number, seed):
    chosen = random.Random(seed)
    for settings in combinations(values(connection), number, seed):
        queries = [("article", chosen.choice(PRINTS), within) for within in (3, 7)]
        queries.append(("other", chosen.choice(PRINTS), chosen.choice([5, 40])))
        lost, wrong = differences(connect, reader, settings, queries)
        tally(tried=len(settings), lost=lost, wrong=wrong)


@pytest.mark.oldest_version
@pytest.mark.fault("settings of a session that change results or plans")
def test_settings_change_no_search(tables, connect, tally):
    connection, reader = tables
    compare(connect, connection, reader, tally, 3, 1)


@pytest.mark.oldest_version
@pytest.mark.fault("settings of a session that change results or plans")
def test_a_parallel_plan_does_not_pass_for_a_change(tables, connect):
    connection, reader = tables
    names = "name IN ('debug_parallel_query', 'force_parallel_mode')"  # of PostgreSQL 16 and later, and before
    (name,) = connection.execute(f"SELECT name FROM pg_settings WHERE {names}").fetchone()
    settings = [(name, "on"), ("default_transaction_isolation", "repeatable read")]
    assert differences(connect, reader, settings, [("article", PRINTS[0], 7)]) == (0, 0)


@pytest.mark.slow
@pytest.mark.oldest_version
@pytest.mark.fault("settings of a session that change results or plans")
@pytest.mark.parametrize("seed", range(3))
def test_each_setting_and_many_together_change_no_search(tables, connect, tally, seed):
    connection, reader = tables
    compare(connect, connection, reader, tally, 200, seed)


@pytest.mark.fault("settings of a session that change results or plans", sabotage=True)
def test_lost_keys_are_noticed_whatever_is_set(tables, connect):
    connection, reader = tables
    for number in range(4):
        connection.execute(f"DELETE FROM simsql.keys_1_{number}")
    lost, wrong = differences(connect, reader, [("enable_seqscan", "off")], [("article", PRINTS[0], 3)])
    assert lost > 0 == wrong


@pytest.mark.fault("settings of a session that change results or plans")
def test_settings_with_which_postgresql_refuses(tables, connect):
    _, reader = tables
    session = connect(reader)
    session.execute("SET row_security = off")
    with pytest.raises(psycopg.Error, match="would be affected by row-level security"):
        session.execute("SELECT * FROM simsql.near('article', 0, 3, 'fingerprint')")


@pytest.mark.oldest_version
@pytest.mark.fault("settings of a role or a database, such as `default_transaction_read_only`")
def test_settings_of_roles_and_databases(connection, connect, new_role, examine):
    role = new_role()
    connection.execute("CREATE TABLE article (id int, fingerprint bigint)")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO article VALUES (%s, %s)", list(enumerate(PRINTS)))
    create_index(connection)
    connection.execute(f"GRANT ALL ON article TO {role}")
    for setting in (
        "default_transaction_read_only = on",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_deferrable = on",
        "plan_cache_mode = 'force_custom_plan'",
        "transform_null_equals = on",
        "search_path = ''",
        "standard_conforming_strings = off",
        "session_replication_role = 'replica'",
    ):
        for target in (f"ROLE {role}", f"DATABASE {connection.info.dbname}"):
            connection.execute(f"ALTER {target} SET {setting}")
            session = connect(role)
            for query in PRINTS[::20]:
                found = session.execute("SELECT * FROM simsql.near('public.article', %s, 7)", [query]).fetchall()
                assert found == oracle.near(PRINTS, query, 7)
            session.close()
            connection.execute(f"ALTER {target} RESET ALL")
    examine(connection, dict(enumerate(PRINTS)), tried=16)
