"""Bad arguments of every function and procedure of SQL: an answer as brute force gives it, or an error of ours.

The functions are those that the catalogue lists, so a new one is tried, too.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import psycopg
from fuzzing import Attempt, Target, WrongError
from psycopg import sql
from servers import find_programs, run_server
from similar import like_near

TABLES = """
    CREATE TABLE article (id bigint PRIMARY KEY, body text, fingerprint bigint, other bigint, sketch bigint);
    INSERT INTO article SELECT n, 'a text', n * 1000003 % 977, -n, n FROM generate_series(1, 60) AS n;
    INSERT INTO article VALUES (1001, '', NULL, 0, 0), (1002, NULL, x'8000000000000000'::bigint, NULL, NULL),
        (1003, '', -1, -1, -1);
    SELECT simsql.create_index('article', 'fingerprint', recipe => 'words12-log-1');
    SELECT simsql.create_index('article', 'other', distance => 12, recipe => 'words12-log-1');
    SELECT simsql.set_default_index('article', 'fingerprint', missing => 10);
    CREATE TABLE scoped (id bigint, tenant integer, lang text, day timestamptz, fingerprint bigint);
    INSERT INTO scoped
        SELECT n, n % 3, CASE n % 2 WHEN 0 THEN 'en' ELSE '' END, '2025-01-01', n FROM generate_series(1, 40) AS n;
    SELECT simsql.create_index('scoped', 'fingerprint', scope => '{tenant,lang}');
    CREATE TABLE wide (id bigint, a bigint, b bigint);
    INSERT INTO wide SELECT n, n, -n FROM generate_series(1, 30) AS n;
    SELECT simsql.create_index('wide', 'a'), simsql.create_index('wide', 'b', blocks => 5, lead => 2);
    CREATE TABLE parted (id bigint, tenant integer, fingerprint bigint) PARTITION BY LIST (tenant);
    CREATE TABLE part_1 PARTITION OF parted FOR VALUES IN (1);
    CREATE TABLE part_2 PARTITION OF parted DEFAULT;
    INSERT INTO parted SELECT n, n % 4, n * 77 FROM generate_series(1, 40) AS n;
    SELECT simsql.create_index('parted', 'fingerprint');
    CREATE TABLE expressed (fingerprint bigint, "wEird ""col's" bigint, tenant uuid);
    INSERT INTO expressed SELECT n, n, gen_random_uuid() FROM generate_series(1, 40) AS n;
    SELECT simsql.create_index('expressed', 'wEird "col''s', storage => 'expression');
    CREATE TABLE plain (id bigint, fingerprint bigint, wrong text, small integer, list bigint[]);
    CREATE INDEX ON plain (fingerprint);
    INSERT INTO plain SELECT n, n FROM generate_series(1, 20) AS n;
    CREATE TABLE "Odd ""name' %s" ("finger print" bigint, "{fingerprint}" bigint);
    SELECT simsql.create_index('"Odd ""name'' %s"', 'finger print');
    CREATE TABLE empty ();
    CREATE TABLE renamed (fingerprint bigint);
    SELECT simsql.create_index('renamed', 'fingerprint');
    ALTER TABLE renamed RENAME fingerprint TO fp;
    CREATE TABLE crippled (fingerprint bigint);
    SELECT simsql.create_index('crippled', 'fingerprint');
    ALTER TABLE crippled DISABLE TRIGGER ALL;
    CREATE TABLE parent (fingerprint bigint);
    CREATE TABLE child () INHERITS (parent);
    CREATE UNLOGGED TABLE unlogged (fingerprint bigint);
    CREATE TABLE generated (a bigint, fingerprint bigint GENERATED ALWAYS AS (a + 1) STORED);
    CREATE VIEW seen AS SELECT fingerprint FROM article;
    CREATE MATERIALIZED VIEW matter AS SELECT fingerprint FROM article;
    CREATE SEQUENCE numbers;
    CREATE TYPE pair AS (fingerprint bigint, b text);
    CREATE DOMAIN finger AS bigint;
    CREATE TABLE domained (fingerprint finger);
    CREATE TABLE typed OF pair;
    CREATE FOREIGN DATA WRAPPER nowhere;
    CREATE SERVER far FOREIGN DATA WRAPPER nowhere;
    CREATE FOREIGN TABLE foreign_table (fingerprint bigint) SERVER far;
    CREATE TABLE secured (fingerprint bigint);
    INSERT INTO secured VALUES (1), (2);
    SELECT simsql.create_index('secured', 'fingerprint');
    ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
    GRANT SELECT ON article, secured, wide TO {role};
"""
# fmt: off
RELATIONS = [
    *(["article", "scoped", "wide", "parted", "expressed"] * 4),
    *("plain", '"Odd ""name\'\' %s"', "empty", "renamed", "crippled", "parent", "child", "unlogged", "generated"),
    *("seen", "matter", "numbers", "pair", "domained", "typed", "foreign_table", "secured", "part_1", "part_2"),
    *("article_pkey", "pg_class", "pg_authid", "simsql.registry", "simsql.keys_1_0", "simsql.indexes", "pg_locks"),
    *("information_schema.tables", "pg_toast.pg_toast_1255", "0", "999999", "4294967295", "temporary"),
]
TEXTS = [
    *("", "fingerprint", "other", "a", "b", 'wEird "col\'s', "finger print", "{fingerprint}", "id", "body", "fp"),
    *("tenant", "lang", "day", "tables", "expression", "words12-log-1", "nonsense", "ctid", "tableoid", "xmin",
    "%s"),
    *("\"fingerprint\"", "'; DROP TABLE article; --", "$$", "$body$", "\\", "x" * 64, "é" * 40, "x" * 100_000,
    " ", "\n"),
]
NUMBERS = [
    *(0, 1, 2, 3, 4, 7, 12, 20, 32, 63, 64, 65, -1, 100, 128, 1000, 2**31 - 1, -(2**31), 2**31, 2**63 - 1,
    -(2**63)),
]
ODD_NUMBERS = ["NaN", "Infinity", "-Infinity", "1.5", "18446744073709551615", "18446744073709551616", "1e100"]
SCOPES = [
    *("{}", "[]", "null", "1", '"tenant"', "[[1]]", '{"tenant": 1, "lang": "en"}', '{"tenant": 1}',
    '{"lang": "en"}'),
    *('{"tenant": "1", "lang": ""}', '{"tenant": null, "lang": "en"}', '{"tenant": [1], "lang": {}}', '{"": 1}'),
    *('{"tenant": 1e300, "lang": "en"}', '{"tenant": "abc", "lang": true}', '{"tenant": 1.5, "lang": 2}'),
    *('{"tenant": 1, "lang": "en", "day": 1}', '{"tenant": 1, "tenant": 2, "lang": "en"}',
    '{"Tenant": 1, "lang": 1}'),
    *('{"tenant": true, "lang": "' + "x" * 9000 + '"}', '{"tenant": "$1", "lang": "\'\'"}', "[" * 900 + "]" * 900),
]
# fmt: on


# What PostgreSQL says well enough itself, wherever it says it.
_PLAIN = re.compile(
    "permission denied|must be owner|invalid input syntax for type|out of range for type"
    r"|value too long for type|null value cannot be assigned"
    "|PL/pgSQL functions cannot accept type|cannot open relation"
)


class Routine(NamedTuple):
    """A function or procedure."""

    name: str
    is_procedure: bool
    parameters: list[tuple[str, str, bool]]
    """Name, type, and whether it may be left out."""


def find_routines(connection: psycopg.Connection) -> list[Routine]:
    """All public ones; none whose name begins with _, that belongs to an index, or that is for triggers."""
    rows = connection.execute(
        "SELECT p.proname, p.prokind = 'p', p.proargnames, p.pronargdefaults, p.pronargs,"
        " ARRAY(SELECT format_type(t.oid, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (oid, n)"
        " JOIN pg_type AS t ON t.oid = a.oid ORDER BY a.n)"
        " FROM pg_proc AS p WHERE p.pronamespace = 'simsql'::regnamespace AND p.proname !~ '^_|_[0-9]+$'"
        " AND p.prorettype <> 'trigger'::regtype ORDER BY p.oid"
    ).fetchall()
    return [
        Routine(
            name,
            is_procedure,
            [
                (each, kind, n >= count - defaults)
                for n, (each, kind) in enumerate(zip((names or [])[:count], kinds, strict=True))
            ],
        )
        for name, is_procedure, names, defaults, count, kinds in rows
    ]


def _quote(text: str) -> str:
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _value(random: Random, kind: str) -> str:
    """A value of a type, as SQL."""
    if random.random() < 0.06:
        return "NULL" if kind == "anyelement" else f"NULL::{kind}"
    if kind.endswith("[]"):
        return _array(random, kind)
    return _MAKERS[kind](random)


def _array(random: Random, kind: str) -> str:
    some = ", ".join(_value(random, kind[:-2]) for _ in range(random.choice((0, 1, 1, 2, 2, 3, 40))))
    text = "5,6" if "int" in kind else random.choice(("1,2", "NULL,3", "tenant,lang"))
    return random.choice(
        [
            *[f"ARRAY[{some}]::{kind}"] * 8,
            f"ARRAY[ARRAY[{some}], ARRAY[{some}]]::{kind}",
            f"'[5:6]={{{text}}}'::{kind}",
            f"array_fill({_value(random, kind[:-2])}, ARRAY[{random.choice((0, 5, 3000))}])",
        ]
    )


def _relation(random: Random) -> str:
    relation = random.choice(RELATIONS)
    return f"{relation}::oid::regclass" if relation.isdigit() else f"'{relation}'::regclass"


def _row_type(random: Random) -> str:
    relation = random.choice(RELATIONS[:20] if random.random() < 0.8 else RELATIONS).replace("''", "'")
    odd = ["1::integer", "''::text", "ROW(1, 2)", "ARRAY[1]", "NULL::void", "NULL::record", "now()"]
    return random.choice(odd) if relation.isdigit() or random.random() < 0.1 else f"NULL::{relation}"


def _number(random: Random, kind: str, least: int) -> str:
    odd = ODD_NUMBERS if kind in ("numeric", "double precision") and random.random() < 0.3 else []
    numbers = odd or [number for number in NUMBERS if -least <= number < least]
    return f"'{random.choice(numbers)}'::{kind}"


# A type without values is an error, so that those of a new function are added.
_MAKERS: dict[str, Callable[[Random], str]] = {
    "regclass": _relation,
    "anyelement": _row_type,
    "bigint": partial(_number, kind="bigint", least=2**63),
    "integer": partial(_number, kind="integer", least=2**31),
    "numeric": partial(_number, kind="numeric", least=10**40),
    "double precision": partial(_number, kind="double precision", least=10**40),
    "text": lambda random: f"{_quote(random.choice(TEXTS))}::text",
    "name": lambda random: f"{_quote(random.choice(TEXTS))}::name",
    "jsonb": lambda random: f"{_quote(random.choice(SCOPES))}::jsonb",
    "boolean": lambda random: random.choice(("true", "false")),
    "interval": lambda random: f"'{random.choice(('0', '-1 s', '1 ms', '1 s', '178000000 years'))}'::interval",
}

_LIKELY = {
    "column_name": ["fingerprint", "other", "a", "wEird \"col's", "b"],
    "query_column": ["fingerprint", "id", "a"],
    "storage": ["tables", "expression"],
}


def make_call(random: Random, routine: Routine) -> tuple[str, dict[str, str]]:
    """A call, as SQL, and its arguments."""
    given: dict[str, str] = {}
    for name, kind, optional in routine.parameters:
        if optional and random.random() < 0.55:
            continue
        value = _value(random, kind)
        if name in _LIKELY and random.random() < 0.6:
            value = f"{_quote(random.choice(_LIKELY[name]))}::text"
        elif name == "query" and random.random() < 0.9:
            value = _query(random, given["table_name"])
        elif name == "column_names" and random.random() < 0.6:
            value = "'{a,b}'::text[]"
        elif name in ("distance", "blocks", "lead", "inner_blocks") and random.random() < 0.5:
            value = str(random.randrange(0, 14))
        given[name] = value
    arguments = ", ".join(f"{name} => {value}" for name, value in given.items())
    return f"simsql.{routine.name}({arguments})", given


def _query(random: Random, relation: str) -> str:
    query = like_near(_value(random, "bigint"), random.randrange(9), relation)
    if random.random() < 0.5:
        return query
    changed = random.choice(
        ["fingerprint", "cost", "screen", "planes", "flips", "design", "recipe", "recipe_names"]
    )
    value = random.choice(
        [*SCOPES, "1.5", "1e30", "9223372036854775808", "[1, 2, 3, 4]", '["{0}", "{0}", "{0}", "{9}"]']
    )
    return f"jsonb_set({query}, '{{{changed}}}', {_quote(value)}::jsonb)"


@contextmanager
def trying_calls(connect: Callable[[], psycopg.Connection], role: str) -> Iterator[Attempt]:
    """Attempts in a database with simsql, which this fills; the role may log in and has been granted nothing."""
    with contextlib.closing(connect()) as connection:
        connection.execute(TABLES.replace("{role}", role))
        routines = find_routines(connection)
    state: dict[str, Any] = {"connection": None}

    def attempt(random: Random) -> bool:
        connection = state["connection"]
        if connection is None or connection.closed:
            connection = state["connection"] = connect()
            connection.execute("SET statement_timeout = '30s'; SET client_min_messages = error")
            connection.execute("CREATE TEMPORARY TABLE temporary (fingerprint bigint)")
        routine = random.choice(routines)
        call, given = make_call(random, routine)
        return _try_call(connection, routine, call, given, role if random.random() < 0.15 else None)

    try:
        yield attempt
    finally:
        if state["connection"]:
            state["connection"].close()


def _try_call(
    connection: psycopg.Connection, routine: Routine, call: str, given: dict[str, str], role: str | None
) -> bool:
    if routine.is_procedure:
        try:
            connection.execute(f"CALL {call}")
        except psycopg.Error as error:
            check_error(error, call)
            return False
        finally:
            _drop_new(connection)
        return True
    try:
        with connection.transaction(force_rollback=True):
            if role:
                connection.execute(f"SET LOCAL ROLE {role}")
            rows = connection.execute(f"SELECT * FROM {call} LIMIT 100000").fetchall()
            if oracle := ORACLES.get(routine.name):
                oracle(connection, given, rows)
            if routine.name in ("create_index", "repair", "change_storage", "set_default_index"):
                check_tables(connection, call)
    except psycopg.Error as error:
        check_error(error, call)
        return False
    return True


def _drop_new(connection: psycopg.Connection) -> None:
    for relation, column in connection.execute(
        "SELECT table_name, column_name FROM simsql.registry"
        " WHERE table_id IN ('plain'::regclass, 'unlogged'::regclass, 'generated'::regclass)"
    ).fetchall():
        connection.execute("SELECT simsql.drop_index(%s::regclass, %s)", [relation, column])


def check_error(error: psycopg.Error, call: str) -> None:
    """An error is one that simsql raises on purpose, or one of PostgreSQL that users understand."""
    said = error.diag
    message = said.message_primary or str(error)
    SAID.setdefault(_kind(message), (call[:300], message[:300], said.message_hint))
    raised = said.source_function == "exec_stmt_raise" and error.sqlstate != "P0001"
    internal = said.context and not raised and not _PLAIN.search(message)
    if error.sqlstate is None or error.sqlstate[:2] == "XX" or error.sqlstate == "57014" or internal:
        shown = f"{call:.600}\n{error.sqlstate} {message:.600}\nHINT: {said.message_hint}\n{said.context or ''}"
        raise WrongError(f"{error.sqlstate} {_kind(message)}", shown)


def _kind(message: str) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'|-?\d+", "_", message)[:80]


SAID: dict[str, tuple[str, str, str | None]] = {}
"""The first call with each message, the message and its hint."""


# Answers


def _searched(
    connection: psycopg.Connection, relation: str, given: dict[str, str]
) -> tuple[str, list[str], int] | None:
    """The column, the scope columns and the distance of the index that a search uses."""
    column = given.get("column_name", "NULL::text")
    row = connection.execute(
        "SELECT column_name, scope, distance FROM simsql.indexes"
        " WHERE table_name = (SELECT n.nspname || '.' || quote_ident(c.relname) FROM pg_class AS c"
        f" JOIN pg_namespace AS n ON n.oid = relnamespace WHERE c.oid = {relation}::oid)"
        f" AND column_name = coalesce({column}, column_name) ORDER BY is_default DESC NULLS LAST LIMIT 1"
    ).fetchone()
    return row and (row[0], list(row[1] or []), row[2])


def _rows_in_scope(
    connection: psycopg.Connection, relation: str, given: dict[str, str]
) -> tuple[str, sql.Composable, int]:
    """A condition and the column of the rows that a search is about."""
    found = _searched(connection, relation, given)
    assert found, "an index was searched that is not there"
    column, scope, distance = found
    passed = given.get("scope", "NULL::jsonb")
    assert not scope or passed != "NULL::jsonb", "an index with a scope was searched without one"
    conditions = [sql.SQL("{} IS NOT NULL").format(sql.Identifier(column))]
    for each in scope:
        kind = connection.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
            f" WHERE attrelid = {relation}::oid AND attname = {_quote(each)}"
        ).fetchone()[0]
        conditions.append(
            sql.SQL("{} = ({}::jsonb ->> {})::{}").format(
                sql.Identifier(each), sql.SQL(passed), sql.Literal(each), sql.SQL(kind)
            )
        )
    return sql.SQL(" AND ").join(conditions), sql.Identifier(column), distance


def _near(
    connection: psycopg.Connection, relation: str, query: int | None, given: dict[str, str]
) -> list[tuple[int, int]]:
    """Brute force."""
    where, column, usual = _rows_in_scope(connection, relation, given)
    distance = connection.execute(
        f"SELECT coalesce({given.get('distance', 'NULL')}::integer, %s)", [usual]
    ).fetchone()[0]
    if query is None:
        return []
    name = connection.execute(f"SELECT {relation}::oid::regclass::text").fetchone()[0]
    statement = sql.SQL("SELECT {column} FROM {table} WHERE {where}").format(
        column=column, table=sql.SQL(name), where=where
    )
    values = [row[0] for row in connection.execute(statement.as_string(connection).encode()).fetchall()]
    return sorted(
        (each, found) for each in set(values) if (found := ((each ^ query) & (2**64 - 1)).bit_count()) <= distance
    )


def _computed(connection: psycopg.Connection, written: str) -> Any:
    return connection.execute(f"SELECT {written}").fetchone()[0]


def _check_near(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    expected = _near(connection, given["table_name"], _computed(connection, given["fingerprint"]), given)
    assert sorted(rows) == expected, f"{rows[:5]} not {expected[:5]}: {given}"
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


def _check_similar(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    query = _computed(connection, f"({given['query']} ->> 'fingerprint')::bigint")
    everything = _near(connection, given["table_name"], query, {**given, "distance": "64"})
    found = {row[:2] for row in rows}
    # At this distance no design flips a prefix.
    assert {match for match in everything if match[1] <= 1} <= found <= set(everything), f"{rows[:5]}: {given}"
    assert [row[2] for row in rows] == sorted(row[2] for row in rows)


def _check_claim(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    expected = _near(connection, given["table_name"], _computed(connection, given["fingerprint"]), given)
    if not expected:
        assert not rows
    else:
        assert [row[1] for row in rows] == [min(each[1] for each in expected)], f"{rows} {expected[:3]} {given}"


def _check_many(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    if "fingerprints" not in given:
        return
    queries = _computed(connection, f"ARRAY(SELECT DISTINCT unnest({given['fingerprints']}))") or []
    queries = [each for each in queries if each is not None][:50]
    for query in queries:
        expected = _near(connection, given["table_name"], query, given)
        got = sorted((b, c) for a, b, c in rows if a == query)
        assert got == expected, f"{query}: {got[:5]} not {expected[:5]}: {given}"


def _check_pairs(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    _, _, usual = _rows_in_scope(connection, given["table_name"], given)
    distance = _computed(connection, f"coalesce({given.get('distance', 'NULL')}::integer, {usual})")
    everything = _near(connection, given["table_name"], 0, {**given, "distance": "64"})
    values = [each for each, _ in everything]
    expected = {
        (a, b) for a in values for b in values if a < b and ((a ^ b) & (2**64 - 1)).bit_count() <= distance
    }
    if len(rows) < 100_000:
        assert {(min(row[:2]), max(row[:2])) for row in rows} == expected, given
        assert len(rows) == len(expected), given


def _check_rows(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    written = given["row_type"]
    if not written.startswith("NULL::"):
        return
    relation = "'" + written.removeprefix("NULL::").replace("'", "''") + "'::regclass"
    found = _searched(connection, relation, given)
    expected = _near(connection, relation, _computed(connection, given["fingerprint"]), given)
    position = connection.execute(
        f"SELECT count(*) FROM pg_attribute WHERE attrelid = {relation} AND attnum > 0 AND NOT attisdropped"
        f" AND attnum < (SELECT attnum FROM pg_attribute WHERE attrelid = {relation}"
        f" AND attname = {_quote(found[0])})"
    ).fetchone()[0]
    assert {row[position] for row in rows} == {each for each, _ in expected}, given


def _check_fp(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    number = _computed(connection, given["fingerprint"])
    if number is None:
        assert rows == [(None,)]
    else:
        assert number == int(number), given
        assert rows[0][0] % 2**64 == int(number) % 2**64, given
        assert -(2**63) <= number < 2**64, given


def _check_distance(connection: psycopg.Connection, given: dict[str, str], rows: list[Any]) -> None:
    a, b = (_computed(connection, given[name]) for name in "ab")
    expected = None if a is None or b is None else ((a ^ b) & (2**64 - 1)).bit_count()
    assert rows == [(expected,)], given


def check_tables(connection: psycopg.Connection, call: str) -> None:
    """Every index that searches do not refuse finds all fingerprints of its table."""
    for name, column, scope, state in connection.execute(
        "SELECT table_name, column_name, scope, state FROM simsql.indexes"
    ).fetchall():
        if state == "ready" and not scope:
            query = sql.SQL(
                "SELECT (SELECT count(DISTINCT {c}) FROM {t}),"
                " (SELECT count(*) FROM simsql.near({n}::regclass, 0, 64, {l}))"
            ).format(c=sql.Identifier(column), t=sql.SQL(name), n=sql.Literal(name), l=sql.Literal(column))
            try:
                with connection.transaction():
                    expected, got = connection.execute(query.as_string(connection).encode()).fetchone()
            except psycopg.errors.InsufficientPrivilege:
                continue
            assert expected == got, f"{call}: {name}: {got} of {expected}"


ORACLES: dict[str, Callable[[psycopg.Connection, dict[str, str], list[Any]], None]] = {
    "near": _check_near,
    "similar_candidates": _check_similar,
    "near_rows": _check_rows,
    "near_many": _check_many,
    "pairs": _check_pairs,
    "claim": _check_claim,
    "fp": _check_fp,
    "hamming_distance": _check_distance,
}


@contextmanager
def _on_server(folder: Path) -> Iterator[Attempt]:
    with run_server(find_programs()[0]) as server, server.new_database() as url:
        server.execute("DROP ROLE IF EXISTS fuzz_role")
        server.execute("CREATE ROLE fuzz_role")
        with trying_calls(lambda: server.connect(url.database), "fuzz_role") as attempt:
            yield attempt


SQL = [Target("SQL", _on_server, 3)]
