"""Building an index, what it takes on disk, ways to load many rows, and upkeep."""

import time
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from benchmarks.data import Fingerprints, make_fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import DEFAULT_RECIPE, Bench, Target
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.searches import near
from simsql.database import SearchIndex, create_index, load_rows

SECTION = "build"
_A_KEY = "a key in a table"
_DISTANCE = 3
_ADDED_SHARE = 5  # one new row for five
_STATEMENT_ROWS = 1_000
_COPY_ROWS = 10_000


def run(bench: Bench) -> None:
    """Measure a table of its own, as its keys grow; then ways to fill an empty one."""
    with bench.table("built", bench.main.oracle.values) as target:
        _build(bench, target)
        added = _insert_randomly(bench, target)
        _keep_up(bench, target, added)
    for system, load in (
        (f"{SIMSQL}, load_rows into an indexed table", _load_indexed),
        (f"{SIMSQL}, load_rows, then create_index", _load_then_index),
        (f"{SIMSQL}, COPY of {_COPY_ROWS:,} rows a time through the triggers", _load_through_triggers),
    ):
        _measure_load(bench, system, load)


def _build(bench: Bench, target: Target) -> None:
    seconds = bench.use(target)
    _check_sample(bench, target, target.oracle, "create_index")
    bench.add(SECTION, "create_index", SIMSQL, seconds, "s", note="with the B-tree on the column")
    start = time.perf_counter()
    bench.execute("CREATE INDEX again ON {} (fingerprint)", target.table)
    bench.add(SECTION, "create_index", "the B-tree on the column alone", time.perf_counter() - start, "s")
    bench.execute("DROP INDEX {}", "again")
    bench.drop(target)
    start = time.perf_counter()
    create_index(bench.engine, target.table, "fingerprint", design=DEFAULT_RECIPE, concurrently=True)
    seconds = time.perf_counter() - start
    target.design = DEFAULT_RECIPE
    bench.settle(target)
    checked = _check_sample(bench, target, target.oracle, "build")
    bench.add(
        SECTION, "build, while others write", SIMSQL, seconds, "s", checked=checked, note="the B-tree is there"
    )
    bench.drop(target)
    bench.use(target)
    _add_size(bench, target, f"{_A_KEY}, after the build", target.rows)


def _insert_randomly(bench: Bench, target: Target) -> Fingerprints:
    """Add rows a thousand at a time: their keys go anywhere into the B-trees."""
    count = target.rows // _ADDED_SHARE
    added = make_fingerprints(count, bench.options.seed + 2)
    seconds = 0.0
    for start in range(0, count, _STATEMENT_ROWS):
        bigints = added[start : start + _STATEMENT_ROWS].view(np.int64).tolist()
        began = time.perf_counter()
        bench.connection.execute(
            f"INSERT INTO {target.table} SELECT %s - number, fingerprint"
            " FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (fingerprint, number)".encode(),
            (-start, bigints),
        )
        seconds += time.perf_counter() - began
    oracle = Oracle(np.union1d(target.oracle.values, added))
    checked = _check_sample(bench, target, oracle, "inserts", added)
    rows = target.rows + count
    what = f"20% more rows, {_STATEMENT_ROWS:,} a statement"
    bench.add(SECTION, what, SIMSQL, seconds, "s", rows=rows, checked=checked)
    _add_size(bench, target, f"{_A_KEY}, after 20% random inserts", rows)
    return added


def _keep_up(bench: Bench, target: Target, added: Fingerprints) -> None:
    """Delete the added rows again and remove their keys; then look for damage."""
    bench.execute("DELETE FROM {} WHERE id <= 0", target.table)
    start = time.perf_counter()
    removed = SearchIndex(bench.engine, target.table).vacuum()
    seconds = time.perf_counter() - start
    if removed != added.size * DEFAULT_RECIPE.tables:
        raise WrongResultError(
            f"vacuum has removed {removed} keys of {added.size} rows in {DEFAULT_RECIPE.tables} tables"
        )
    note = f"{removed:,} of {removed * (_ADDED_SHARE + 1):,} keys"
    bench.add(SECTION, "vacuum of the keys of deleted rows", SIMSQL, seconds, "s", checked=removed, note=note)
    with bench.engine.connect() as connection:
        start = time.perf_counter()
        findings = SearchIndex(connection, target.table).verify()
        seconds = time.perf_counter() - start
    if findings:
        raise WrongResultError(f"verify finds fault with an index that nothing has damaged: {findings}")
    bench.add(SECTION, "verify", SIMSQL, seconds, "s")


def _measure_load(bench: Bench, system: str, load: Callable[[Bench, Target], None]) -> None:
    bench.report.say(system)
    target = bench.target("loaded", bench.main.oracle.values)
    bench.create(target.table, np.empty(0, dtype=np.uint64))
    start = time.perf_counter()
    load(bench, target)
    seconds = time.perf_counter() - start
    target.design = DEFAULT_RECIPE
    bench.settle(target)
    checked = _check_sample(bench, target, target.oracle, system)
    bench.add(SECTION, "loading all rows into an empty table", system, seconds, "s", checked=checked)
    bench.drop(target)
    bench.execute("DROP TABLE {}", target.table)


def _load_indexed(bench: Bench, target: Target) -> None:
    with bench.engine.begin() as connection:
        create_index(connection, target.table, "fingerprint", design=DEFAULT_RECIPE)
        load_rows(connection, target.table, ["id"], _ids(target), fingerprints=target.oracle.values)


def _load_then_index(bench: Bench, target: Target) -> None:
    with bench.engine.begin() as connection:
        load_rows(
            connection,
            target.table,
            ["id"],
            _ids(target),
            fingerprints=target.oracle.values,
            column="fingerprint",
        )
        create_index(connection, target.table, "fingerprint", design=DEFAULT_RECIPE)


def _load_through_triggers(bench: Bench, target: Target) -> None:
    with bench.engine.begin() as connection:
        create_index(connection, target.table, "fingerprint", design=DEFAULT_RECIPE)
    bigints = iter(target.oracle.values.view(np.int64).tolist())
    first = 1
    with bench.connection.transaction(), bench.connection.cursor() as cursor:
        while batch := list(islice(bigints, _COPY_ROWS)):
            with cursor.copy(f"COPY {target.table} (id, fingerprint) FROM STDIN".encode()) as copy:
                for row in enumerate(batch, first):
                    copy.write_row(row)
            first += len(batch)


def _ids(target: Target) -> Iterator[tuple[int]]:
    return zip(range(1, target.rows + 1))


def _add_size(bench: Bench, target: Target, what: str, keys: int) -> None:
    size = bench.size(*bench.key_tables(target.table))
    note = f"{size / 1e6:,.0f} MB in {DEFAULT_RECIPE.tables} tables"
    bench.add(SECTION, what, SIMSQL, size / keys / DEFAULT_RECIPE.tables, "bytes", rows=keys, note=note)


def _check_sample(
    bench: Bench, target: Target, oracle: Oracle, what: str, queries: Fingerprints | None = None
) -> int:
    """Compare searches for some fingerprints with brute force; return how many."""
    sample = (target.queries.neighbours if queries is None else queries)[: bench.options.sample].tolist()
    for query in sample:
        oracle.check_near(f"{SIMSQL} after {what}", query, _DISTANCE, near(bench, target.table, query, _DISTANCE))
    return len(sample)
