"""Many searches at once: near_many in SQL, through Python, in memory, and faiss with all in one call."""

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.bars import FAISS
from benchmarks.data import Fingerprints, make_queries
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, copy_fingerprints
from benchmarks.oracle import as_bigint
from benchmarks.peers.faiss import open_faiss
from simsql.database import SearchIndex
from simsql.hamming import find_matches

SECTION = "batch"
_DISTANCE = 3
_IN_SQL = f"{SIMSQL}, near_many in SQL"
_OF_ARRAY = f"{SIMSQL}, near_many of an array in SQL"
_THROUGH_PYTHON = f"{SIMSQL}, through Python"
_IN_MEMORY = f"{SIMSQL}, find_matches in memory"
_HUNDRED_THOUSAND = 100_000
_SLICE = 1 << 20

# A query, a fingerprint near it, and their distance.
Match = tuple[int, int, int]


def run(bench: Bench) -> None:
    """Measure a hundred thousand queries, and the run's largest batch."""
    bench.use(bench.main)
    count = bench.options.batch
    # A few more: those of two kinds that are equal count once.
    queries = make_queries(bench.main.oracle.values, count // 3 + 100, bench.options.seed).mixed()[:count]
    for size in sorted({min(_HUNDRED_THOUSAND, queries.size), queries.size}):
        _measure(bench, queries[:size])


def _measure(bench: Bench, queries: Fingerprints) -> None:
    bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", "query")
    copy_fingerprints(bench.connection, "query", queries)
    bench.execute("ANALYZE {}", "query")
    table = bench.main.table
    _measure_sql(bench, _IN_SQL, f"'{table}', 'query', 'fingerprint', {_DISTANCE}", queries)
    _measure_sql(bench, _OF_ARRAY, f"'{table}', ARRAY(SELECT fingerprint FROM query), {_DISTANCE}", queries)
    bench.execute("DROP TABLE {}", "query")
    _measure_through_python(bench, queries)
    _measure_in_memory(bench, queries)
    if queries.size <= _HUNDRED_THOUSAND:
        _measure_faiss(bench, queries)


def _measure_sql(bench: Bench, system: str, arguments: str, queries: Fingerprints) -> None:
    start = time.perf_counter()
    bench.connection.execute(f"CREATE TABLE found AS SELECT * FROM simsql.near_many({arguments})".encode())
    seconds = time.perf_counter() - start
    count = bench.value("SELECT count(*) FROM {}", "found")
    rows = bench.connection.execute(
        "SELECT query, fingerprint, distance FROM found WHERE query = ANY (%s::bigint[])",
        [_sample(bench, queries).view(np.int64).tolist()],
    ).fetchall()
    bench.execute("DROP TABLE {}", "found")
    found = ((query % 2**64, fingerprint % 2**64, bits) for query, fingerprint, bits in rows)
    _add(bench, system, seconds, queries, found, f"{count:,} found, put into a table")


def _measure_through_python(bench: Bench, queries: Fingerprints) -> None:
    with bench.engine.connect() as connection:
        start = time.perf_counter()
        found = SearchIndex(connection, bench.main.table).near_many(queries, _DISTANCE)
        batches = [tuple(batch.values()) for batch in found.batches()]
        seconds = time.perf_counter() - start
    _add_batches(bench, _THROUGH_PYTHON, seconds, queries, batches)


def _measure_in_memory(bench: Bench, queries: Fingerprints) -> None:
    values = bench.main.oracle.values
    slices = (values[place : place + _SLICE] for place in range(0, values.size, _SLICE))
    start = time.perf_counter()
    batches = list(find_matches(queries, slices, _DISTANCE))
    _add_batches(bench, _IN_MEMORY, time.perf_counter() - start, queries, batches)


def _add_batches(
    bench: Bench, system: str, seconds: float, queries: Fingerprints, batches: Sequence[tuple[Any, Any, Any]]
) -> None:
    columns = [np.concatenate(column) for column in zip(*batches, strict=True)]
    chosen = np.isin(columns[0], _sample(bench, queries))
    found = zip(*(column[chosen].tolist() for column in columns), strict=True)
    note = f"{columns[0].size:,} found; {bench.main.rows / seconds:,.0f} stored fingerprints a second"
    _add(bench, system, seconds, queries, found, note)


def _measure_faiss(bench: Bench, queries: Fingerprints) -> None:
    for peer in islice(open_faiss(bench, bench.main.oracle.values), 1):
        peer.set_distance(_DISTANCE)
        rows = np.concatenate(peer.prepare(queries))
        start = time.perf_counter()
        limits, distances, places = peer.search(rows)
        seconds = time.perf_counter() - start
        end = int(limits[_sample(bench, queries).size])
        asked = np.repeat(queries, np.diff(limits).astype(np.intp))[:end].tolist()
        found = zip(asked, peer.values[places[:end]].tolist(), distances[:end].astype(int).tolist(), strict=True)
        _add(
            bench, FAISS, seconds, queries, found, f"{len(places):,} found; one thread, its index is there already"
        )


def _sample(bench: Bench, queries: Fingerprints) -> Fingerprints:
    return queries[: 3 * bench.options.sample]


def _add(
    bench: Bench, system: str, seconds: float, queries: Fingerprints, found: Iterable[Match], note: str
) -> None:
    """Add a figure, once the matches of some of the queries have been compared with brute force."""
    of: dict[int, list[tuple[int, int]]] = {query: [] for query in _sample(bench, queries).tolist()}
    for query, fingerprint, bits in found:
        of[query].append((fingerprint, bits))
    for query, matches in of.items():
        matches.sort(key=lambda match: (match[1], as_bigint(match[0])))
        bench.main.oracle.check_near(system, query, _DISTANCE, matches)
    what = f"{queries.size:,} queries, distance {_DISTANCE}"
    bench.add(SECTION, what, system, seconds, "s", checked=len(of), note=note)
