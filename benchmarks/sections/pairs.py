"""All pairs of a table within 3, 7 and 10, and their clusters: through Python, and within 3 in SQL."""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.data import Fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, Target
from benchmarks.oracle import WrongResultError, as_bigint
from simsql.database import SearchIndex

SECTION = "pairs"
# All rows are searched at the first distance alone: at the last one, time grows with the square of the rows.
_DISTANCES = (3, 7, 10)
_MILLION = 1_000_000
_IN_SQL = f"{SIMSQL}, in SQL"
_THROUGH_PYTHON = f"{SIMSQL}, through Python"
_INTO_TABLE = f"{SIMSQL}, through Python into a table"

# The smallest bigint of the cluster, and the fingerprint, for each fingerprint that is in one.
Members = set[tuple[int, int]]


def run(bench: Bench) -> None:
    """Measure all rows through Python, and as many as a million at larger distances and in SQL, too."""
    bench.use(bench.main)
    if bench.main.rows > _MILLION:
        with bench.table("million", bench.main.oracle.values[:_MILLION]) as target:
            bench.use(target)
            _measure_distances(bench, target, f"{_MILLION:,} rows", _DISTANCES)
    few = bench.main.rows <= _MILLION
    _measure_distances(bench, bench.main, "all rows", _DISTANCES if few else _DISTANCES[:1])


def _measure_distances(bench: Bench, target: Target, size: str, distances: Sequence[int]) -> None:
    for distance in distances:
        in_sql = distance == _DISTANCES[0] and target.rows <= _MILLION
        _measure(bench, target, size, distance, in_sql=in_sql)


def _measure(bench: Bench, target: Target, size: str, distance: int, *, in_sql: bool) -> None:
    what = f"pairs of {size}, distance {distance}"
    with bench.engine.connect() as connection:
        start = time.perf_counter()
        found = [
            np.stack([batch["a"], batch["b"]], axis=1)
            for batch in SearchIndex(connection, target.table).pairs(distance).batches()
        ]
        pairs = np.concatenate([*found, np.empty((0, 2), dtype=np.uint64)])
        _add_pairs(bench, target, what, distance, _THROUGH_PYTHON, time.perf_counter() - start, pairs)
        start = time.perf_counter()
        SearchIndex(connection, target.table).pairs(distance).copy_into("found")
        connection.commit()
        seconds = time.perf_counter() - start
    _add_pairs(bench, target, what, distance, _INTO_TABLE, seconds, _fetch(bench, "a, b"))
    if in_sql:
        seconds = _create_found(bench, f"simsql.pairs('{target.table}', {distance})")
        _add_pairs(bench, target, what, distance, _IN_SQL, seconds, _fetch(bench, "a, b"))

    what = f"clusters of {size}, distance {distance}"
    expected = _components(pairs)
    with bench.engine.connect() as connection:
        start = time.perf_counter()
        batches = list(SearchIndex(connection, target.table).clusters(distance).batches())
        seconds = time.perf_counter() - start
    members = np.concatenate([np.stack([batch["cluster"], batch["fingerprint"]], axis=1) for batch in batches])
    _add_clusters(bench, target, what, _THROUGH_PYTHON, seconds, members, expected)
    if in_sql:
        seconds = _create_found(bench, f"simsql.clusters('{target.table}', {distance})")
        _add_clusters(bench, target, what, _IN_SQL, seconds, _fetch(bench, "cluster, fingerprint"), expected)


def _create_found(bench: Bench, function: str) -> float:
    start = time.perf_counter()
    bench.connection.execute(f"CREATE TABLE found AS SELECT * FROM {function}".encode())
    return time.perf_counter() - start


def _fetch(bench: Bench, columns: str) -> Fingerprints:
    """Return two columns of the table found, and drop it."""
    rows = bench.execute(f"SELECT {columns} FROM {{}}", "found").fetchall()
    bench.execute("DROP TABLE {}", "found")
    return np.array(rows, dtype=np.int64).reshape(-1, 2).view(np.uint64)


def _add_pairs(
    bench: Bench, target: Target, what: str, distance: int, system: str, seconds: float, pairs: Fingerprints
) -> None:
    checked = target.oracle.check_pairs(system, distance, pairs, bench.options.sample)
    note = f"{len(pairs):,} pairs"
    bench.add(SECTION, what, system, seconds, "s", rows=target.rows, checked=checked, note=note)


def _add_clusters(
    bench: Bench, target: Target, what: str, system: str, seconds: float, members: Fingerprints, expected: Members
) -> None:
    found = {(as_bigint(cluster), fingerprint) for cluster, fingerprint in members.tolist()}
    if found != expected or len(members) != len(expected):
        raise WrongResultError(
            f"{system}: {len(found - expected)} members of clusters should not be there,"
            f" {len(expected - found)} are missing, such as {min(found ^ expected, default='none')}"
        )
    note = f"{len({cluster for cluster, _ in found}):,} clusters"
    bench.add(SECTION, what, system, seconds, "s", rows=target.rows, checked=len(expected), note=note)


def _components(pairs: Fingerprints) -> Members:
    """Return the connected components of pairs that were compared with brute force."""
    of: dict[int, list[int]] = {}
    for a, b in pairs.tolist():
        left, right = of.setdefault(a, [a]), of.setdefault(b, [b])
        if left is not right:
            left += right
            of.update(dict.fromkeys(right, left))
    return {(min(map(as_bigint, members)), fingerprint) for fingerprint, members in of.items()}
