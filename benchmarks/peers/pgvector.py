"""pgvector's HNSW over bits: approximate, and it takes a number of results instead of a distance."""

import time

import psycopg
from psycopg.types.numeric import Int8

from benchmarks.data import KINDS
from benchmarks.harness import Bench, copy_fingerprints
from benchmarks.oracle import as_bigint
from benchmarks.searches import time_in_server

NAME = "pgvector HNSW, the nearest 10"
_ROWS = 1_000_000
_SEARCH = "SELECT h.fingerprint FROM hnsw AS h ORDER BY h.bits <~> {query}::bit(64) LIMIT 10"


def measure_hnsw(bench: Bench, section: str, distance: int) -> None:
    """Add the time to build, and searches with the share of what is within the distance that they find."""
    try:
        bench.connection.execute("CREATE EXTENSION vector")
    except psycopg.errors.UndefinedFile:
        bench.report.skip("the server has no extension vector")
        return
    target = bench.target("hnsw", bench.main.oracle.values[:_ROWS])
    bench.connection.execute("CREATE TABLE hnsw (id bigint, fingerprint bigint)")
    copy_fingerprints(bench.connection, "hnsw", target.oracle.values)
    bench.connection.execute("ALTER TABLE hnsw ADD bits bit(64)")
    bench.connection.execute("UPDATE hnsw SET bits = fingerprint::bit(64)")
    bench.connection.execute("VACUUM (FULL, ANALYZE) hnsw")
    bench.report.say("building pgvector's HNSW")
    start = time.perf_counter()
    bench.connection.execute("CREATE INDEX hnsw_bits ON hnsw USING hnsw (bits bit_hamming_ops)")
    bench.add(section, "building", NAME, time.perf_counter() - start, "s", rows=target.rows)
    for kind in KINDS:
        queries = target.queries.of(kind)
        calls = time_in_server(bench, _SEARCH.format(query="query"), queries)
        checked = min(bench.options.sample, len(calls.answers))
        expected = found = 0
        for query in queries[:checked].tolist():
            near = {fingerprint for fingerprint, _ in target.oracle.near(query, distance)}
            rows = bench.connection.execute(_SEARCH.format(query="%s").encode(), [Int8(as_bigint(query))])
            found += len(near & {fingerprint % 2**64 for (fingerprint,) in rows})
            expected += len(near)
        bench.add(
            section,
            f"distance {distance}, {kind}",
            NAME,
            calls.median,
            "ms",
            mean=calls.mean,
            calls=len(calls.answers),
            checked=checked,
            rows=target.rows,
            note=f"recall {found / expected:.3f}" if expected else "nothing to find",
        )
    bench.connection.execute("DROP TABLE hnsw")
