"""What the index costs those who write: the same writes with and without it, in turns.

It leaves the table with dead rows.
"""

import time
from collections.abc import Callable

import numpy as np
from psycopg.types.numeric import Int8

from benchmarks.data import Fingerprints, make_fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, Target
from benchmarks.oracle import Oracle
from benchmarks.searches import near

SECTION = "writes"
_PLAIN = "no index"
_ROUNDS = 3
_UPDATED = 300_000

# Inserts fingerprints into a table, ids counted down from a first one, and returns the seconds that each took.
Insert = Callable[[str, int, Fingerprints], float]


def run(bench: Bench) -> None:
    """Measure a table with the index and its twin without, both with a primary key and a B-tree on the column."""
    target = bench.main
    bench.use(target)
    bench.create("plain", target.oracle.values)
    bench.execute("CREATE INDEX ON {} (fingerprint)", "plain")
    bench.execute("VACUUM (ANALYZE) {}", "plain")
    bench.connection.execute("SET synchronous_commit = off")
    added = make_fingerprints(2 * _ROUNDS * bench.options.queries, bench.options.seed + 1)
    _insert_in_server(bench, target, added[: added.size // 2])
    _insert_through_psycopg(bench, target, added[added.size // 2 :])
    _check_found(bench, target, added)
    bench.connection.execute("RESET synchronous_commit")
    bench.execute("DELETE FROM {} WHERE id <= 0", target.table)
    _update(bench, target)
    bench.execute("DROP TABLE {}", "plain")
    bench.drop(target)  # its keys are more than its rows now


def _insert_in_server(bench: Bench, target: Target, added: Fingerprints) -> None:
    """Insert row by row, each in a transaction of its own, in a procedure."""
    bench.connection.execute(
        "CREATE PROCEDURE insert_rows(table_name text, first_id bigint, fingerprints bigint[])"
        " LANGUAGE plpgsql AS $$\n"
        "DECLARE\n"
        "    fingerprint bigint;\n"
        "BEGIN\n"
        "    FOREACH fingerprint IN ARRAY fingerprints LOOP\n"
        "        IF table_name = 'plain' THEN INSERT INTO plain VALUES (first_id, fingerprint);\n"
        f"        ELSE INSERT INTO {target.table} VALUES (first_id, fingerprint);\n"
        "        END IF;\n"
        "        first_id := first_id - 1;\n"
        "        COMMIT;\n"
        "    END LOOP;\n"
        "END $$".encode()
    )

    def insert(table: str, first_id: int, values: Fingerprints) -> float:
        arguments = (table, first_id, values.view(np.int64).tolist())
        start = time.perf_counter()
        bench.connection.execute("CALL insert_rows(%s, %s::bigint, %s::bigint[])", arguments)
        return (time.perf_counter() - start) / values.size

    _compare_inserts(bench, "a row inserted", target, added, 0, insert)


def _insert_through_psycopg(bench: Bench, target: Target, added: Fingerprints) -> None:
    """Insert row by row from a client, each a prepared statement and a transaction of its own."""

    def insert(table: str, first_id: int, values: Fingerprints) -> float:
        statement = f"INSERT INTO {table} VALUES (%s, %s)".encode()
        rows = [
            (Int8(first_id - place), Int8(value)) for place, value in enumerate(values.view(np.int64).tolist())
        ]
        start = time.perf_counter()
        for row in rows:
            bench.connection.execute(statement, row, prepare=True)
        return (time.perf_counter() - start) / values.size

    _compare_inserts(bench, "a row inserted through psycopg", target, added, -added.size, insert)


def _compare_inserts(
    bench: Bench, what: str, target: Target, added: Fingerprints, first_id: int, insert: Insert
) -> None:
    seconds: dict[str, list[float]] = {target.table: [], "plain": []}
    for values in np.array_split(added, _ROUNDS):
        for table, found in seconds.items():
            found.append(insert(table, first_id, values))
        first_id -= values.size
    indexed, plain = (1000 * float(np.median(found)) for found in seconds.values())
    note = "synchronous_commit = off, a transaction each"
    bench.add(SECTION, what, SIMSQL, indexed, "ms", calls=added.size, note=note)
    bench.add(SECTION, what, _PLAIN, plain, "ms", calls=added.size, note=note)
    bench.add(SECTION, f"{what}: more than without an index", SIMSQL, indexed - plain, "ms", calls=added.size)


def _check_found(bench: Bench, target: Target, added: Fingerprints) -> None:
    """Compare what is found of the new rows with brute force over old and new ones."""
    oracle = Oracle(np.union1d(target.oracle.values, added))
    for query in added[:: max(1, added.size // bench.options.sample)].tolist():
        oracle.check_near(f"{SIMSQL}, rows just inserted", query, 3, near(bench, target.table, query, 3))


def _update(bench: Bench, target: Target) -> None:
    """Update another column of fresh rows, as many in each round: packed pages have no room for new versions."""
    count = min(_UPDATED, target.rows // (_ROUNDS + 1))
    keys = bench.key_tables(target.table)
    before = sum(bench.value("SELECT count(*) FROM {}", name) for name in keys)
    seconds: dict[str, list[float]] = {target.table: [], "plain": []}
    for number in range(_ROUNDS):
        for table, found in seconds.items():
            first = number * count
            start = time.perf_counter()
            bench.execute(
                f"UPDATE {{}} SET visits = visits + 1 WHERE id > {first} AND id <= {first + count}",
                table,
            )
            found.append(time.perf_counter() - start)
    after = sum(bench.value("SELECT count(*) FROM {}", name) for name in keys)
    indexed, plain = (float(np.median(found)) for found in seconds.values())
    what = "another column updated"
    bench.add(SECTION, what, SIMSQL, indexed, "s", calls=_ROUNDS, note=f"{count:,} rows in one statement")
    bench.add(SECTION, what, _PLAIN, plain, "s", calls=_ROUNDS, note=f"{count:,} rows in one statement")
    bench.add(SECTION, f"{what}: times as long as without", SIMSQL, indexed / plain, "x", calls=_ROUNDS)
    bench.add(SECTION, f"{what}: keys added", SIMSQL, after - before, "", calls=_ROUNDS)
