"""What simsql adds to a search, and to the first call of a session: CPU of the server, beside the last release.

Both versions are in databases of one server, and are measured in turns: the fastest round counts.
"""

from collections import Counter
from pathlib import Path

import psycopg
from psycopg import sql

from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench
from benchmarks.oracle import WrongResultError
from benchmarks.server import backend_seconds

SECTION = "calls"
_RELEASED = Path(__file__).parents[2] / "tests/released/0.2.0.sql"
_STORAGES = ("tables", "expression")
_ROUNDS = 7
_DISTANCE = 3
# The part of a call, and what it is compared with.
_CALLS = {
    "search function": "simsql.search_{id}(query, {distance})",
    "near": "simsql.near('{table}', query, {distance})",
    "near_rows": "simsql.near_rows(NULL::{table}, query, {distance})",
    "claim": "simsql.claim('{table}', query, {distance})",
}
_FIRST = {
    "SELECT by primary key": "SELECT FROM {table} WHERE id = 1",
    "near": "SELECT FROM simsql.near('{table}', 1, {distance})",
    "near_rows": "SELECT FROM simsql.near_rows(NULL::{table}, 1, {distance})",
    "claim": "SELECT FROM simsql.claim('{table}', 1, {distance})",
    "INSERT": "INSERT INTO {table} VALUES (-1, 1)",
}


def run(bench: Bench) -> None:
    """Measure all calls for each storage and version."""
    name = "calls_before"
    bench.connection.execute(f"CREATE DATABASE {name}")
    before = _connect(bench, name)
    try:
        before.execute(_RELEASED.read_bytes())
        versions = {"0.2.0": before, SIMSQL: bench.connection}
        for version in versions.values():
            _create(version, bench.options.rows)
        for storage in _STORAGES:
            _measure(bench, versions, storage)
            _measure_first(bench, versions, storage)
    finally:
        before.close()
        bench.connection.execute(f"DROP DATABASE {name}")
        for storage in _STORAGES:
            bench.connection.execute(f"SELECT simsql.drop_index('calls_{storage}')")
            bench.connection.execute(f"DROP TABLE calls_{storage}")


def _connect(bench: Bench, database: str) -> psycopg.Connection:
    info = bench.connection.info
    return psycopg.connect(host=info.host, port=info.port, user=info.user, dbname=database, autocommit=True)


def _create(connection: psycopg.Connection, rows: int) -> None:
    for storage in _STORAGES:
        table = f"calls_{storage}"
        connection.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, fingerprint bigint)")
        connection.execute(
            f"INSERT INTO {table} SELECT n, hashint8extended(n, 0) FROM generate_series(1, {rows}) AS n"
        )
        connection.execute(f"SELECT simsql.create_index('{table}', 'fingerprint', storage => '{storage}')")
        number = _value(
            connection,
            sql.SQL("SELECT id FROM simsql.registry WHERE table_id = {}::regclass").format(sql.Literal(table)),
        )
        for call, source in {"nothing": "(VALUES (1)) AS v", **_CALLS}.items():
            called = source.format(id=number, table=table, distance=_DISTANCE)
            connection.execute(
                sql.SQL(
                    "CREATE PROCEDURE pg_temp.{}(seed bigint, calls integer, INOUT matches bigint)"
                    " LANGUAGE plpgsql AS $$ DECLARE query bigint; rows bigint; BEGIN FOR n IN 1 .. calls LOOP"
                    " query := hashint8extended(seed + n, 0) # (1 << n % 7); SELECT count(*) INTO rows"
                    f" FROM {called}; matches := matches + rows; COMMIT; END LOOP; END $$"
                ).format(sql.Identifier(f"{call} {storage}"))
            )
    connection.execute("VACUUM ANALYZE")


def _measure(bench: Bench, versions: dict[str, psycopg.Connection], storage: str) -> None:
    calls = max(10, bench.options.queries // 20)
    least: dict[tuple[str, str], float] = {}
    for round_ in range(_ROUNDS):
        for call in ("nothing", *_CALLS):
            found = Counter[int]()
            for version, connection in versions.items():
                procedure = sql.Identifier(f"{call} {storage}")
                start = backend_seconds(connection)
                call_it = sql.SQL("CALL pg_temp.{}({}, {}, 0)").format(procedure, round_ * calls, calls)
                rows = _value(connection, call_it)
                used = 1e6 * (backend_seconds(connection) - start) / calls
                least[version, call] = min(used, least.get((version, call), used))
                found[rows] += 1
            if len(found) > 1:
                raise WrongResultError(f"{call}, {storage}: the versions have found {list(found)} rows")
    for version in versions:
        times = {call: least[version, call] - least[version, "nothing"] for call in _CALLS}
        for call, microseconds in times.items():
            bench.add(SECTION, f"{call}, {storage}: CPU", version, microseconds, "us", calls=calls * _ROUNDS)
        added = times["near"] - times["search function"]
        bench.add(SECTION, f"near without its search function, {storage}", version, added, "us")
        for call in ("near_rows", "claim"):
            ratio = times[call] / times["near"]
            bench.add(SECTION, f"{call}, {storage}: times as long as near", version, ratio, "x")


def _measure_first(bench: Bench, versions: dict[str, psycopg.Connection], storage: str) -> None:
    """Measure the first and the second call of new sessions, which a pooler keeps."""
    for call, template in _FIRST.items():
        statement = template.format(table=f"calls_{storage}", distance=_DISTANCE)
        least: dict[tuple[str, str], float] = {}
        for _ in range(2 * _ROUNDS):
            for version, connection in versions.items():
                with _connect(bench, connection.info.dbname) as session:
                    session.execute("SELECT 1")
                    for number in ("first", "second"):
                        start = backend_seconds(session)
                        with session.transaction(force_rollback=True):
                            session.execute(statement)
                        used = 1000 * (backend_seconds(session) - start)
                        least[version, number] = min(used, least.get((version, number), used))
        for (version, number), milliseconds in least.items():
            what = f"{call}, {storage}: CPU, {number} of a session"
            bench.add(SECTION, what, version, milliseconds, "ms", calls=2 * _ROUNDS)


def _value(connection: psycopg.Connection, statement: sql.Composed) -> int:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])
