"""Many searches at once: near_many in SQL, and through Python."""

import time

import numpy as np

from benchmarks.data import Fingerprints, make_queries
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, copy_fingerprints

SECTION = "batch"
_DISTANCE = 3
_IN_SQL = f"{SIMSQL}, near_many in SQL"
_HUNDRED_THOUSAND = 100_000


def run(bench: Bench) -> None:
    """Measure a hundred thousand queries, and the run's largest batch."""
    bench.use(bench.main)
    count = bench.options.batch
    # A few more: those of two kinds that are equal count once.
    queries = make_queries(bench.main.oracle.values, count // 3 + 100, bench.options.seed).mixed()[:count]
    for size in sorted({min(_HUNDRED_THOUSAND, queries.size), queries.size}):
        _measure(bench, queries[:size])


def _measure(bench: Bench, queries: Fingerprints) -> None:
    what = f"{queries.size:,} queries, distance {_DISTANCE}"
    bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", "query")
    copy_fingerprints(bench.connection, "query", queries)
    bench.execute("ANALYZE {}", "query")
    statement = f"SELECT * FROM simsql.near_many('{bench.main.table}', 'query', 'fingerprint', {_DISTANCE})"
    _measure_statement(
        bench, what, _IN_SQL, statement, queries, "a table of queries; what is found goes into a table"
    )
    statement = (
        f"SELECT * FROM simsql.near_many('{bench.main.table}', ARRAY(SELECT fingerprint FROM query), {_DISTANCE})"
    )
    _measure_statement(bench, what, f"{SIMSQL}, near_many of an array in SQL", statement, queries, "")
    bench.execute("DROP TABLE {}", "query")


def _measure_statement(
    bench: Bench, what: str, system: str, statement: str, queries: Fingerprints, note: str
) -> None:
    start = time.perf_counter()
    bench.connection.execute(f"CREATE TABLE found AS {statement}".encode())
    seconds = time.perf_counter() - start
    checked = _check(bench, system, queries)
    found = bench.value("SELECT count(*) FROM {}", "found")
    bench.execute("DROP TABLE {}", "found")
    bench.add(SECTION, what, system, seconds, "s", checked=checked, note=f"{found:,} found{note and '; '}{note}")


def _check(bench: Bench, system: str, queries: Fingerprints) -> int:
    sample = queries[: 3 * bench.options.sample]
    rows = bench.connection.execute(
        "SELECT query, fingerprint, distance FROM found WHERE query = ANY (%s::bigint[])"
        " ORDER BY query, distance, fingerprint",
        [sample.view(np.int64).tolist()],
    )
    found: dict[int, list[tuple[int, int]]] = {query: [] for query in sample.tolist()}
    for query, fingerprint, bits in rows:
        found[query % 2**64].append((fingerprint % 2**64, bits))
    for query, matches in found.items():
        bench.main.oracle.check_near(system, query, _DISTANCE, matches)
    return sample.size
