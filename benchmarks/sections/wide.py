"""Fingerprints of two and four words beside a scan: words of their own, and words that half of the rows share."""

import numpy as np
from numpy.typing import NDArray

from benchmarks.bars import SCAN
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench
from benchmarks.oracle import WrongResultError
from benchmarks.searches import time_in_server
from simsql.database import create_index, drop_index

SECTION = "wide"
# Words and distances: 128 bits, and 256 bits as PDQ has them.
_SEARCHES = ((2, (20, 24)), (4, (31,)))
_QUERIES = 200
# Of the rows, every second one shares the first half of its words with the others.
_KINDS = ("words of their own", "shared words")

Words = NDArray[np.uint64]


def run(bench: Bench) -> None:
    """Measure each number of words in a table of its own."""
    for width, distances in _SEARCHES:
        chance = np.random.default_rng((bench.options.seed, width))
        rows = chance.integers(0, 2**64, (bench.main.rows, width), dtype=np.uint64)
        rows[1::2, : width // 2] = 0
        most = min(_QUERIES, bench.options.queries)
        queries = {kind: _queries(chance, rows[first::2], most) for first, kind in enumerate(_KINDS)}
        columns = [f"word_{number}" for number in range(width)]
        _load(bench, "wide", ["id", *columns], rows)
        _load(bench, "wide_query", ["id", *columns], np.concatenate(list(queries.values())))
        with bench.engine.begin() as connection:
            for column in columns:
                create_index(connection, "wide", column)
        bench.connection.execute("VACUUM (ANALYZE)")
        for number, (kind, asked) in enumerate(queries.items()):
            for distance in distances:
                _measure(bench, rows, asked, number * len(asked), distance, kind)
        with bench.engine.begin() as connection:
            for column in columns:
                drop_index(connection, "wide", column)
        bench.connection.execute("DROP TABLE wide, wide_query")


def _queries(chance: np.random.Generator, rows: Words, most: int) -> Words:
    """Return rows with up to three bits of each word flipped."""
    chosen = rows[chance.choice(len(rows), min(most, len(rows)), replace=False)]
    flipped = np.uint64(1) << chance.integers(0, 64, (3, *chosen.shape), dtype=np.uint64)
    return chosen ^ np.bitwise_or.reduce(flipped)


def _load(bench: Bench, table: str, columns: list[str], rows: Words) -> None:
    bench.report.say(f"loading {len(rows):,} rows of {rows.shape[1]} words into {table}")
    bench.connection.execute(
        f"CREATE TABLE {table} ({', '.join(f'{column} bigint' for column in columns)})".encode()
    )
    with bench.connection.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for place, words in enumerate(rows.view(np.int64).tolist()):
            copy.write_row((place, *words))


def _measure(bench: Bench, rows: Words, queries: Words, first: int, distance: int, kind: str) -> None:
    width = rows.shape[1]
    columns = [f"word_{number}" for number in range(width)]
    words, named = ", ".join(f"q.{column}" for column in columns), ", ".join(columns)
    bits = " + ".join(f"bit_count((w.{column} # q.{column})::bit(64))" for column in columns)
    call = f"simsql.near_wide('wide', ARRAY[{words}], {distance}, '{{{named}}}')"
    ids = np.arange(first, first + len(queries), dtype=np.uint64)
    expected = [int(_found(rows, query, distance)) for query in queries[: bench.options.sample]]
    for system, statement, settings in (
        (
            SIMSQL,
            f"SELECT n.* FROM wide_query AS q, {call} AS n WHERE q.id = query",
            {},
        ),
        (
            SCAN,
            f"SELECT DISTINCT {named.replace('word', 'w.word')} FROM wide_query AS q, wide AS w WHERE q.id = query"
            f" AND {bits} <= {distance}",
            {"max_parallel_workers_per_gather": 0},
        ),
    ):
        calls = time_in_server(bench, statement, ids, settings, quick_ms=50)
        checked = min(len(calls.answers), len(expected))
        if calls.answers[:checked] != expected[:checked]:
            raise WrongResultError(f"{system}: {calls.answers[:checked]} matches, not {expected[:checked]}")
        what = f"{64 * width} bits, distance {distance}, {kind}"
        figure = {"mean": calls.mean, "calls": len(calls.answers), "checked": checked}
        bench.add(SECTION, what, system, calls.median, "ms", **figure)


def _found(rows: Words, query: Words, distance: int) -> int:
    """Return how many different fingerprints are within the distance."""
    near = np.bitwise_count(rows ^ query).sum(axis=1, dtype=np.int64) <= distance
    return len(np.unique(rows[near], axis=0))
