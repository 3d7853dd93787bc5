"""Try packed rows, one row per prefix with its keys side by side: python -m benchmarks.packed_rows FOLDER.

This is the SQL form of the paper's compressed tables (Manku, Jain, Das Sarma, section 3.2): the bits that the
keys of a block have in common are stored once. simsql does not use it; docs/scale.md says why.
"""

import signal
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.data import make_fingerprints, make_queries
from benchmarks.environment import describe_machine, describe_server
from benchmarks.figures import Report
from benchmarks.harness import Bench, Options, Target, copy_fingerprints
from benchmarks.oracle import Oracle, WrongResultError, as_bigint
from benchmarks.searches import time_in_server
from benchmarks.server import connect, run_kept_server
from benchmarks.tables import section_table
from simsql.database import open_engine
from simsql.errors import SimsqlError
from simsql.hamming import Design

SECTION = "packed rows"
_DISTANCES = (3, 7, 10)
_SOURCE = "packed_source"
_DESIGN = Design()
_PREFIX_BITS = 16
_INSERTED = 2_000


@dataclass(frozen=True)
class Packing:
    """How a row holds the keys of its prefix: the type of its column `keys`, and expressions.

    `key` is the key of a fingerprint f. `aggregate` makes a column of keys, and `added` adds that of the variable
    `added` to a row r. `rows` are the keys of a row r, as k.key; `bigint` is a key as a number, and `fingerprint`
    undoes `key`. {first} is the first byte of the prefix.
    """

    name: str
    column: str
    key: str
    aggregate: str
    added: str
    rows: str
    bigint: str
    fingerprint: str


# Without its prefix, a key has six bytes. PostgreSQL 18 casts bytea to bigint and back.
_SIX_BYTES = "overlay(f::bytea PLACING '' FROM {first} FOR 2)"
PACKINGS = {
    "array": Packing(
        "bigint[]",
        column="bigint[]",
        key="f",
        aggregate="array_agg(f ORDER BY f)",
        added="ARRAY(SELECT k FROM unnest(r.keys || added) AS k ORDER BY k)",
        rows="unnest(r.keys) AS k (key)",
        bigint="k.key",
        fingerprint="k.key",
    ),
    "bytes": Packing(
        "bytea, six bytes a key",
        column="bytea",
        key=f"({_SIX_BYTES})::bigint",
        aggregate=f"string_agg({_SIX_BYTES}, '' ORDER BY f)",
        added=f"r.keys || {_SIX_BYTES.replace('f::', 'added::')}",
        rows="generate_series(1, length(r.keys), 6) AS p"
        " CROSS JOIN LATERAL (SELECT substr(r.keys, p, 6) AS key) AS k",
        bigint="k.key::bigint",
        fingerprint="overlay(k.key PLACING substr(r.prefix::bytea, 3) FROM {first} FOR 0)::bigint",
    ),
}


def run(bench: Bench, kind: str) -> None:
    """Measure size, build, searches and inserts of one packing."""
    packing = PACKINGS[kind]
    tables = [f"packed_{kind}_{number}" for number in range(_DESIGN.tables)]
    start = time.perf_counter()
    for number, table in enumerate(tables):
        bench.execute(f"CREATE TABLE {{}} (prefix integer PRIMARY KEY, keys {packing.column} NOT NULL)", table)
        bench.execute(
            f"INSERT INTO {{}} SELECT {_prefix(number)}, {_place(packing.aggregate, number)}"
            f" FROM (SELECT fingerprint AS f FROM {_SOURCE}) AS s GROUP BY 1",
            table,
        )
    _add(bench, packing, "built", time.perf_counter() - start, "s")
    for table in tables:
        bench.execute("VACUUM (ANALYZE) {}", table)
    size = bench.size(*tables) / bench.main.rows
    _add(bench, packing, "bytes per fingerprint beyond the B-tree on the column", size, "bytes")
    for distance in _DISTANCES:
        _search(bench, kind, distance)
    _insert(bench, kind)
    for table in tables:
        bench.execute("DROP TABLE {}", table)


def _place(expression: str, number: int) -> str:
    return expression.replace("{first}", str(2 * number + 1))


def _prefix(number: int) -> str:
    """Return the prefix of the fingerprint f."""
    return f"((f >> {64 - _PREFIX_BITS * (number + 1)}) & 65535)::integer"


def _add(bench: Bench, packing: Packing, what: str, value: float, unit: str, **more: object) -> None:
    bench.add(SECTION, what, packing.name, value, unit, rows=bench.main.rows, **more)


def _search(bench: Bench, kind: str, distance: int) -> None:
    """Time searches through a function like those that simsql generates for its own tables."""
    packing = PACKINGS[kind]
    declared, branches = [], []
    for number, radius in enumerate(_DESIGN.radii(distance)):
        if radius < 0:
            continue
        flips = [
            sum(1 << bit for bit in bits)
            for count in range(radius + 1)
            for bits in combinations(range(_PREFIX_BITS), count)
        ]
        declared += [
            f"prefixes_{number} integer[] := ARRAY("
            f"SELECT {_prefix(number)} # i FROM unnest('{set(flips)}'::integer[]) AS i);",
            f"key_{number} bigint := {_place(packing.key, number)};",
        ]
        # A key of six bytes is compared without its prefix; whole fingerprints are compared below.
        branches.append(
            f"SELECT {_place(packing.fingerprint, number)} AS f"
            f" FROM packed_{kind}_{number} AS r CROSS JOIN {packing.rows} WHERE r.prefix = ANY (prefixes_{number})"
            f" AND bit_count(({packing.bigint} # key_{number})::bit(64)) <= {distance}"
        )
    bench.connection.execute(
        f"CREATE OR REPLACE FUNCTION packed_search(f bigint) RETURNS TABLE (fingerprint bigint, distance integer)"
        f" LANGUAGE plpgsql STABLE ROWS 10 SET plan_cache_mode = force_generic_plan SET jit = off"
        f" SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off SET enable_hashjoin = off"
        f" SET enable_mergejoin = off"
        f" SET max_parallel_workers_per_gather = 0 AS $$\n"
        f"#variable_conflict use_column\n"
        f"DECLARE\n{chr(10).join(declared)}\n"
        f"BEGIN\n"
        f"RETURN QUERY SELECT m.f, m.bits FROM ("
        f"SELECT DISTINCT c.f, bit_count((c.f # packed_search.f)::bit(64))::integer AS bits FROM"
        f" ({' UNION ALL '.join(branches)}) AS c) AS m"
        f" WHERE m.bits <= {distance} AND EXISTS (SELECT FROM {_SOURCE} AS s WHERE s.fingerprint = m.f)"
        f" ORDER BY m.bits, m.f;\n"
        f"END $$".encode()
    )
    queries = bench.main.queries.neighbours
    calls = time_in_server(bench, "SELECT * FROM packed_search(query)", queries)
    checked = min(bench.options.sample, len(calls.answers))
    for query in queries[:checked].tolist():
        rows = bench.connection.execute("SELECT * FROM packed_search(%s::bigint)", [as_bigint(query)])
        found = [(fingerprint % 2**64, bits) for fingerprint, bits in rows]
        bench.main.oracle.check_near(packing.name, query, distance, found)
    _add(
        bench,
        packing,
        f"distance {distance}",
        calls.median,
        "ms",
        mean=calls.mean,
        calls=len(calls.answers),
        checked=checked,
    )


def _insert(bench: Bench, kind: str) -> None:
    """Time a procedure that adds one fingerprint to the rows of its prefixes, and commits."""
    packing = PACKINGS[kind]
    statements = "".join(
        f"INSERT INTO packed_{kind}_{number} AS r SELECT {_prefix(number)}, {_place(packing.aggregate, number)}"
        f" FROM (SELECT added) AS s (f) GROUP BY 1"
        f" ON CONFLICT (prefix) DO UPDATE SET keys = {_place(packing.added, number)};\n"
        for number in range(_DESIGN.tables)
    )
    bench.connection.execute(
        f"CREATE OR REPLACE PROCEDURE packed_insert(fingerprints bigint[]) LANGUAGE plpgsql AS $$\n"
        f"DECLARE added bigint;\n"
        f"BEGIN\n"
        f"FOREACH added IN ARRAY fingerprints LOOP\n{statements}COMMIT;\nEND LOOP;\nEND $$".encode()
    )
    bench.connection.execute("SET synchronous_commit = off")
    count = min(_INSERTED, bench.options.queries)
    seconds = 0.0
    for part in np.split(make_fingerprints(2 * count, bench.options.seed + 1).view(np.int64), 2):
        start = time.perf_counter()
        bench.connection.execute("CALL packed_insert(%s::bigint[])", [part.tolist()])
        seconds = time.perf_counter() - start
    bench.connection.execute("RESET synchronous_commit")
    microseconds = 1e6 * seconds / count
    _add(
        bench,
        packing,
        "one fingerprint added",
        microseconds,
        "us",
        calls=count,
        note="the tables of keys alone",
    )


def measure(options: Options, kinds: Collection[str] = tuple(PACKINGS)) -> int:
    """Measure packings in the server's folder, and write a JSON file. Return 0, or 1 if a result was wrong."""
    report = Report(options={name: str(value) for name, value in asdict(options).items()})
    with run_kept_server(options.folder) as cluster, connect(cluster) as connection:
        report.environment = describe_machine() | describe_server(connection)
        engine = open_engine(cluster.url())
        values = make_fingerprints(options.rows, options.seed)
        target = Target(_SOURCE, Oracle(values), make_queries(values, options.queries, options.seed))
        bench = Bench(options, report, engine, connection, target)
        # An interrupted run leaves its tables.
        for table in (
            _SOURCE,
            *(f"packed_{kind}_{number}" for kind in PACKINGS for number in range(_DESIGN.tables)),
        ):
            bench.execute("DROP TABLE IF EXISTS {}", table)
        with connection.transaction():
            bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", _SOURCE)
            copy_fingerprints(connection, _SOURCE, values)
        bench.execute("CREATE INDEX ON {} (fingerprint)", _SOURCE)
        bench.execute("VACUUM (ANALYZE) {}", _SOURCE)
        try:
            for kind in kinds:
                run(bench, kind)
        except WrongResultError as error:
            print(f"WRONG RESULT: {error}", file=sys.stderr)
            return 1
        finally:
            bench.execute("DROP TABLE {}", _SOURCE)
            engine.dispose()
    report.write(options.results)
    print(section_table(report, SECTION))
    return 0


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Where the server's data stay between calls.")],
    rows: Annotated[int, typer.Option(min=1000, help="Fingerprints.")] = 1_000_000,
    kind: Annotated[list[str] | None, typer.Option(help=f"Packings: {', '.join(PACKINGS)}.")] = None,
    results: Annotated[Path, typer.Option(dir_okay=False, help="The JSON file to write.")] = Path(
        "packed_rows.json"
    ),
) -> None:
    """Measure packed rows and compare what they find with brute force."""
    options = Options(rows=rows, budget=3.0, folder=folder.resolve(), results=results)
    unknown = sorted(set(kind or []) - set(PACKINGS))
    if unknown:
        raise typer.BadParameter(f"there is no packing {', '.join(unknown)}: choose from {', '.join(PACKINGS)}")
    try:
        sys.exit(measure(options, kind or tuple(PACKINGS)))
    except SimsqlError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    # As Ctrl-C does: the server is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
