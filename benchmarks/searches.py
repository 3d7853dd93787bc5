"""Timing searches, in the server, through psycopg and in a peer, and checking what they find."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from psycopg.types.numeric import Int8

from benchmarks.bars import PSYCOPG
from benchmarks.data import KINDS, Fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench, Target
from benchmarks.oracle import as_bigint

# A first look at how long a query takes, and a warm-up where that is not long: neither is counted.
_FIRST_LOOK = 5
_WARM_UP = 500
# Where a search of simsql takes no longer than this, all queries are asked.
_QUICK_MS = 5.0
_LEAST_CALLS = 5

Query = TypeVar("Query")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Calls(Generic[Answer]):
    """The milliseconds of each call, and what it returned."""

    milliseconds: NDArray[np.float64]
    answers: list[Answer]

    @property
    def median(self) -> float:
        """Median of the calls, in milliseconds."""
        return float(np.median(self.milliseconds))

    @property
    def mean(self) -> float:
        """Mean of the calls, in milliseconds."""
        return float(self.milliseconds.mean())


class Peer(Protocol):
    """A system in this process that searches at one distance."""

    name: str
    note: str
    rows: int

    def prepare(self, queries: Fingerprints) -> Sequence[Any]:
        """Return the queries as the system takes them."""
        ...

    def search(self, query: Any) -> Any:
        """Search: what is timed. Return what the system returns."""
        ...

    def fingerprints(self, answer: Any) -> Iterable[int]:
        """Return the fingerprints in what `search` has returned."""
        ...


def measure_near(
    bench: Bench,
    section: str,
    target: Target,
    distance: int,
    *,
    system: str = SIMSQL,
    kinds: Sequence[str] = KINDS,
    prefix: str = "",
    through_psycopg: bool = False,
) -> None:
    """Add figures of simsql.near for each kind of query, once what it finds has been checked."""
    for kind in kinds:
        what, queries = f"{prefix}distance {distance}, {kind}", target.queries.of(kind)
        calls = time_in_server(bench, near_statement(target.table, distance), queries, quick_ms=_QUICK_MS)
        checked = check_near(bench, target, system, distance, queries, calls.answers)
        figure = {"rows": target.rows, "checked": checked}
        bench.add(section, what, system, calls.median, "ms", mean=calls.mean, calls=len(calls.answers), **figure)
        if through_psycopg:
            client = _time_through_psycopg(bench, target, distance, queries[: len(calls.answers)])
            for query, answer in zip(queries[:checked].tolist(), client.answers, strict=False):
                target.oracle.check_near(PSYCOPG, query, distance, unsigned(answer))
            bench.add(
                section, what, PSYCOPG, client.median, "ms", mean=client.mean, calls=len(client.answers), **figure
            )


def measure_scan(
    bench: Bench, section: str, target: Target, distance: int, kind: str, system: str, processes: int | None = None
) -> None:
    """Add a figure of the sequential scan, which is what people do without an index.

    The server decides how many processes it uses, unless it is told.
    """
    statement = f"SELECT 1 FROM {target.table} WHERE bit_count((fingerprint # query)::bit(64)) <= {distance}"
    settings = {"max_parallel_workers_per_gather": processes - 1} if processes else {}
    queries = target.queries.of(kind)
    calls = time_in_server(bench, statement, queries, settings)
    checked = min(bench.options.sample, len(calls.answers))
    target.oracle.check_counts(system, queries[:checked].tolist(), distance, calls.answers[:checked])
    bench.add(
        section,
        f"distance {distance}, {kind}",
        system,
        calls.median,
        "ms",
        mean=calls.mean,
        calls=len(calls.answers),
        checked=checked,
        rows=target.rows,
    )


def measure_peer(bench: Bench, section: str, target: Target, distance: int, peer: Peer) -> None:
    """Add figures of a peer for each kind of query, once what it finds has been checked.

    `target` is what the peer searches: it may be only a part of what simsql does.
    """
    for kind in KINDS:
        queries = target.queries.of(kind)
        calls = time_calls(bench, peer.search, peer.prepare(queries))
        checked = min(bench.options.sample, len(calls.answers))
        for query, answer in zip(queries[:checked].tolist(), calls.answers, strict=False):
            target.oracle.check_members(peer.name, query, distance, peer.fingerprints(answer))
        bench.add(
            section,
            f"distance {distance}, {kind}",
            peer.name,
            calls.median,
            "ms",
            mean=calls.mean,
            calls=len(calls.answers),
            checked=checked,
            rows=peer.rows,
            note=peer.note,
        )


def check_near(
    bench: Bench, target: Target, system: str, distance: int, queries: Fingerprints, counts: Sequence[int]
) -> int:
    """Compare what simsql.near finds, and how much it found when it was timed, with brute force.

    Return how many queries that were. Raises WrongResultError.
    """
    checked = min(bench.options.sample, len(counts))
    sample = queries[:checked].tolist()
    for query in sample:
        target.oracle.check_near(system, query, distance, near(bench, target.table, query, distance))
    target.oracle.check_counts(system, sample, distance, counts[:checked])
    return checked


def near(bench: Bench, table: str, query: int, distance: int) -> list[tuple[int, int]]:
    """Return what simsql.near gives, with unsigned fingerprints."""
    rows = bench.connection.execute(
        "SELECT fingerprint, distance FROM simsql.near(%s::regclass, %s, %s)",
        (table, Int8(as_bigint(query)), distance),
    )
    return unsigned(rows)


def near_statement(table: str, distance: int) -> str:
    """Return the statement that `time_in_server` takes for simsql.near."""
    return f"SELECT * FROM simsql.near('{table}', query, {distance})"


def time_in_server(
    bench: Bench,
    statement: str,
    queries: Fingerprints,
    settings: Mapping[str, object] = MappingProxyType({}),
    quick_ms: float = 0,
) -> Calls[int]:
    """Time a statement for each of the queries, in one PL/pgSQL loop in the server; answers are counts of rows.

    `statement` is a SELECT with the variable `query` in it, and planned as a prepared statement is.
    `settings` are configuration parameters for it. As many queries are asked as the budget
    allows, and all where one takes up to `quick_ms`.
    """
    bench.connection.execute(
        "CREATE OR REPLACE FUNCTION"
        " pg_temp.measure(queries bigint[], OUT ms double precision[], OUT counts integer[])"
        f" LANGUAGE plpgsql {' '.join(f'SET {name} = {value}' for name, value in settings.items())} AS $measure$\n"
        "DECLARE\n"
        "    query bigint; started timestamptz; stopped timestamptz; rows integer; number integer := 0;\n"
        "BEGIN\n"
        "    ms := array_fill(0, ARRAY[cardinality(queries)]);\n"
        "    counts := array_fill(0, ARRAY[cardinality(queries)]);\n"
        "    FOREACH query IN ARRAY queries LOOP\n"
        "        number := number + 1;\n"
        "        started := clock_timestamp();\n"
        f"        SELECT count(*) INTO rows FROM ({statement}) AS s;\n"
        "        stopped := clock_timestamp();\n"
        "        ms[number] := 1000 * extract(epoch FROM stopped - started);\n"
        "        counts[number] := rows;\n"
        "    END LOOP;\n"
        "END $measure$".encode()
    )

    def run(asked: Fingerprints) -> Calls[int]:
        row = bench.connection.execute(
            "SELECT ms, counts FROM pg_temp.measure(%s::bigint[])", [asked.view(np.int64).tolist()]
        ).fetchone()
        assert row is not None
        return Calls(np.array(row[0]), row[1])

    look = run(queries[-_FIRST_LOOK:]).median
    if look <= _QUICK_MS:
        run(queries[-_WARM_UP:])
    return run(queries[: _affordable(bench, look, queries.size, quick_ms)])


def time_calls(
    bench: Bench, function: Callable[[Query], Answer], arguments: Sequence[Query], quick_ms: float = 0
) -> Calls[Answer]:
    """Time a function for as many arguments as the budget allows, all where a call takes up to `quick_ms`."""
    look = _time(function, arguments[-_FIRST_LOOK:]).median
    if look <= _QUICK_MS:
        _time(function, arguments[-_WARM_UP:])
    return _time(function, arguments[: _affordable(bench, look, len(arguments), quick_ms)])


def _time_through_psycopg(
    bench: Bench, target: Target, distance: int, queries: Fingerprints
) -> Calls[list[tuple[int, int]]]:
    """Time simsql.near as a client sees it: prepared, over the socket, its rows fetched."""
    statement = "SELECT fingerprint, distance FROM simsql.near(%s::regclass, %s, %s)"
    cursor = bench.connection.cursor()

    def ask(bigint: int) -> list[tuple[int, int]]:
        return cursor.execute(statement, (target.table, Int8(bigint), distance), prepare=True).fetchall()

    return time_calls(bench, ask, queries.view(np.int64).tolist(), quick_ms=_QUICK_MS)


def _affordable(bench: Bench, milliseconds: float, available: int, quick_ms: float) -> int:
    if milliseconds <= quick_ms:
        return available
    return min(available, max(_LEAST_CALLS, int(1000 * bench.options.budget / milliseconds)))


def _time(function: Callable[[Query], Answer], arguments: Sequence[Query]) -> Calls[Answer]:
    milliseconds = np.empty(len(arguments))
    answers = []
    for place, argument in enumerate(arguments):
        start = time.perf_counter_ns()
        answer = function(argument)
        milliseconds[place] = (time.perf_counter_ns() - start) / 1e6
        answers.append(answer)
    return Calls(milliseconds, answers)


def unsigned(rows: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return matches as the oracle has them: the fingerprints of PostgreSQL's bigint as unsigned numbers."""
    return [(fingerprint % 2**64, bits) for fingerprint, bits in rows]
