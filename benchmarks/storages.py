"""Measure both storages, and partitioned tables, step by step: python -m benchmarks.storages --rows 1000000.

The server's data stay in a folder between calls, and each step writes a JSON file. A step that has its file is not
run again, so a run can be interrupted and continued.
"""

import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.data import Fingerprints, make_fingerprints, make_queries
from benchmarks.environment import describe_machine, describe_server
from benchmarks.figures import SIMSQL, Report
from benchmarks.harness import Bench, Options, Target, copy_fingerprints
from benchmarks.oracle import Found, Oracle, WrongResultError, as_bigint
from benchmarks.searches import time_in_server
from benchmarks.server import connect, run_kept_server
from benchmarks.tables import section_table
from simsql.database import SearchIndex, create_index, open_engine
from simsql.database.index_spec import Storage
from simsql.errors import SimsqlError
from simsql.hamming import Design

RESULTS = Path(__file__).parent / "results"
DISTANCES = (3, 7, 10)
_DESIGN = Design()
_KIND = "neighbours"
_BATCH = 10_000
_BATCH_DISTANCES = (3, 7)
_INSERTED = 2_000
_UPDATED = (0.002, 0.01, 0.05, 0.2)
_SOURCE = "source"
_SEARCH, _NEAR = f"{SIMSQL}, search function", f"{SIMSQL}, near"
_MODEL = "cost model"


@dataclass(frozen=True)
class Case:
    """A table: the storage of its index, if any, its number of partitions, and whether each holds a scope.

    Each row has a text of so many bytes.
    """

    name: str
    storage: Storage | None = None
    partitions: int = 0
    scoped: bool = False
    fillfactor: int = 100
    text: int = 0

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.name.replace(",", "").replace(" ", "_")

    @property
    def scope(self) -> str:
        """The further argument of searches: those of a scoped table look into its partition 1."""
        return """, scope => '{"tenant": 1}'""" if self.scoped else ""


CASES = (
    Case("no index"),
    Case("tables", "tables"),
    Case("expression", "expression"),
    Case("expression, fillfactor 80", "expression", fillfactor=80),
    Case("texts", "expression", text=400),
    Case("texts, fillfactor 80", "expression", fillfactor=80, text=400),
    Case("12 partitions", "expression", 12),
    Case("100 partitions", "expression", 100),
    Case("12 scopes", "expression", 12, scoped=True),
    Case("100 scopes", "expression", 100, scoped=True),
)


@dataclass
class Trial:
    """A case on a server."""

    bench: Bench
    case: Case

    @property
    def values(self) -> Fingerprints:
        """All fingerprints of the table; the first one has the id 1."""
        return self.bench.main.oracle.values

    @property
    def searched(self) -> Fingerprints:
        """The fingerprints that a search looks for: all, or those of the scope 1."""
        ids = np.arange(1, self.values.size + 1)
        return self.values[ids % self.case.partitions == 1] if self.case.scoped else self.values

    def target(self) -> Target:
        """Return the table, its fingerprints and queries, as checks and searches take them."""
        options = self.bench.options
        return Target(
            self.case.table, Oracle(self.searched), make_queries(self.searched, options.queries, options.seed)
        )

    def add(self, what: str, system: str, value: float, unit: str, **more: object) -> None:
        """Add a figure of this case."""
        self.bench.add(self.case.name, what, system, value, unit, **more)  # type: ignore[arg-type]

    def value(self, statement: str, *parameters: object) -> int:
        """Return the one number that a statement gives."""
        row = self.bench.connection.execute(statement.encode(), parameters).fetchone()
        assert row is not None
        return int(row[0])

    def index_id(self) -> int:
        """Return the number of the index in the registry."""
        return self.value("SELECT id FROM simsql.registry WHERE table_id = %s::regclass", self.case.table)

    def index_bytes(self) -> int:
        """Return the bytes of everything but rows: B-trees, and tables of keys."""
        btrees = self.value(
            "SELECT sum(pg_indexes_size(t)) FROM simsql._with_partitions(%s::regclass) AS t", self.case.table
        )
        keys = self.bench.key_tables(self.case.table)
        return btrees + (self.bench.size(*keys) if keys else 0)


def load(trial: Trial) -> None:
    """Create and fill the table, with a primary key; in batches of ids."""
    bench, case = trial.bench, trial.case
    if not trial.value("SELECT count(*) FROM pg_class WHERE relname = %s", _SOURCE):
        with bench.connection.transaction():
            bench.execute("CREATE TABLE {} (id bigint, fingerprint bigint)", _SOURCE)
            copy_fingerprints(bench.connection, _SOURCE, trial.values)
        bench.execute("VACUUM (ANALYZE) {}", _SOURCE)
    bench.execute("DROP TABLE IF EXISTS {}", case.table)
    columns = "id bigint, fingerprint bigint, visits integer NOT NULL DEFAULT 0, tenant integer NOT NULL DEFAULT 0"
    columns += f", body text NOT NULL DEFAULT repeat('-', {case.text})" if case.text else ""
    by = "" if not case.partitions else " PARTITION BY LIST (tenant)" if case.scoped else " PARTITION BY HASH (id)"
    room = "" if case.partitions else f" WITH (fillfactor = {case.fillfactor})"
    bench.execute(f"CREATE TABLE {{}} ({columns}){by}{room}", case.table)
    for number in range(case.partitions):
        which = f"IN ({number})" if case.scoped else f"WITH (MODULUS {case.partitions}, REMAINDER {number})"
        bench.execute(
            f"CREATE TABLE {{}} PARTITION OF {{}} FOR VALUES {which}", f"{case.table}_{number}", case.table
        )
    bench.execute(
        f"INSERT INTO {{}} SELECT id, fingerprint, 0, id % {case.partitions or 1} FROM {{}}",
        case.table,
        _SOURCE,
    )
    bench.execute(f"ALTER TABLE {{}} ADD PRIMARY KEY ({'tenant, ' if case.scoped else ''}id)", case.table)
    bench.execute("VACUUM (ANALYZE) {}", case.table)
    bench.connection.execute("CHECKPOINT")


def build(trial: Trial) -> None:
    """Create the B-tree on the fingerprint column, then the index."""
    bench, case = trial.bench, trial.case
    start = time.perf_counter()
    bench.execute(f"CREATE INDEX ON {{}} ({'tenant, ' if case.scoped else ''}fingerprint)", case.table)
    trial.add("B-tree on the column built", SIMSQL, time.perf_counter() - start, "s")
    before = trial.index_bytes()
    if case.storage is None:
        return
    start = time.perf_counter()
    with bench.engine.begin() as connection:
        scope = ["tenant"] if case.scoped else []
        create_index(connection, case.table, "fingerprint", design=_DESIGN, scope=scope, storage=case.storage)
    trial.add("index built", SIMSQL, time.perf_counter() - start, "s")
    size = trial.index_bytes() - before
    trial.add("bytes per fingerprint beyond the B-tree on the column", SIMSQL, size / trial.values.size, "bytes")


def near(trial: Trial) -> None:
    """Search the vacuumed table, one query at a time and many at once."""
    _settle(trial)
    target = trial.target()
    _measure_searches(trial, target, "vacuumed")
    for distance in DISTANCES:
        queries = target.queries.random[: trial.bench.options.sample]
        read = float(np.mean([_candidates(target.oracle.values, query, distance) for query in queries]))
        what, rows = f"distance {distance}, candidates", target.rows
        trial.add(what, "measured", read, "", rows=rows, calls=queries.size)
        trial.add(what, _MODEL, _DESIGN.candidates(distance, rows), "", rows=rows)
        predicted = _DESIGN.search_us(distance, rows) / 1000
        trial.add(f"distance {distance}, vacuumed", _MODEL, predicted, "ms", rows=rows)
    queries = target.queries.of(_KIND)[:_BATCH]
    for distance in _BATCH_DISTANCES:
        start = time.perf_counter()
        rows_found = trial.bench.connection.execute(
            f"SELECT * FROM simsql.near_many(%s::regclass, %s::bigint[], {distance}{trial.case.scope})".encode(),
            [trial.case.table, queries.view(np.int64).tolist()],
        ).fetchall()
        seconds = time.perf_counter() - start
        sample = queries[: trial.bench.options.sample].tolist()
        found: dict[int, Found] = {query: [] for query in sample}
        for query, fingerprint, bits in rows_found:
            if query % 2**64 in found:
                found[query % 2**64].append((fingerprint % 2**64, bits))
        for query, matches in found.items():
            matches.sort(key=lambda match: (match[1], as_bigint(match[0])))
            target.oracle.check_near("near_many", query, distance, matches)
        what = f"{queries.size:,} queries at once, distance {distance}"
        trial.add(what, SIMSQL, seconds, "s", rows=target.rows, checked=len(sample))


def pairs(trial: Trial) -> None:
    """Find all pairs within 3 bits, through Python and in SQL."""
    oracle = Oracle(trial.values)
    sample = trial.bench.options.sample
    with trial.bench.engine.connect() as connection:
        start = time.perf_counter()
        batches = SearchIndex(connection, trial.case.table).pairs(DISTANCES[0]).batches()
        parts = [np.stack([batch["a"], batch["b"]], axis=1) for batch in batches]
        seconds = time.perf_counter() - start
    found = np.concatenate([*parts, np.empty((0, 2), dtype=np.uint64)])
    checked = oracle.check_pairs("SearchIndex.pairs", DISTANCES[0], found, sample)
    trial.add("all pairs, distance 3", f"{SIMSQL}, through Python", seconds, "s", checked=checked)
    start = time.perf_counter()
    rows = trial.bench.connection.execute(
        f"SELECT a, b FROM simsql.pairs('{trial.case.table}', {DISTANCES[0]})".encode()
    ).fetchall()
    seconds = time.perf_counter() - start
    in_sql = np.array(rows, dtype=np.int64).reshape(-1, 2).view(np.uint64)
    checked = oracle.check_pairs("simsql.pairs", DISTANCES[0], in_sql, sample)
    note = f"{len(in_sql):,} pairs"
    trial.add("all pairs, distance 3", f"{SIMSQL}, in SQL", seconds, "s", checked=checked, note=note)


def write(trial: Trial) -> None:
    """Insert rows, each in a transaction of its own, and delete them."""
    bench, table = trial.bench, trial.case.table
    bench.connection.execute(
        f"CREATE OR REPLACE PROCEDURE insert_rows(fingerprints bigint[]) LANGUAGE plpgsql AS $$\n"
        f"BEGIN\n"
        f"    FOR number IN 1 .. cardinality(fingerprints) LOOP\n"
        f"        INSERT INTO {table} VALUES (-number, fingerprints[number], 0, {int(trial.case.scoped)});\n"
        f"        COMMIT;\n"
        f"    END LOOP;\n"
        f"END $$".encode()
    )
    count = min(_INSERTED, bench.options.queries)
    added = make_fingerprints(2 * count, bench.options.seed + 1).view(np.int64)
    bench.connection.execute("SET synchronous_commit = off")
    seconds = 0.0
    for part in np.split(added, 2):  # the first is a warm-up
        start = time.perf_counter()
        bench.connection.execute("CALL insert_rows(%s::bigint[])", [part.tolist()])
        seconds = time.perf_counter() - start
        bench.execute("DELETE FROM {} WHERE id < 0", table)
    bench.connection.execute("RESET synchronous_commit")
    microseconds = 1e6 * seconds / count
    trial.add("one row inserted", SIMSQL, microseconds, "us", calls=count, note="synchronous_commit = off")


def update(trial: Trial) -> None:
    """Update another column of every fifth row, in one statement."""
    count = trial.values.size // 5
    start = time.perf_counter()
    trial.bench.execute("UPDATE {} SET visits = visits + 1 WHERE id % 5 = 0", trial.case.table)
    seconds = time.perf_counter() - start
    trial.add("another column of every fifth row updated", SIMSQL, seconds, "s", note=f"{count:,} rows")


def updated(trial: Trial) -> None:
    """Search after the updates, without VACUUM."""
    _measure_searches(trial, trial.target(), "updated")


def change(trial: Trial) -> None:
    """Update a growing share of the rows, anywhere in the table; search before and after each VACUUM."""
    bench, case, target = trial.bench, trial.case, trial.target()
    for share in _UPDATED:
        # PostgreSQL starts VACUUM by itself when a fifth of the rows have changed.
        chosen = f"(hashint8(id) & 2147483647) % 1000 < {round(1000 * share)}"
        bench.execute(f"UPDATE {{}} SET visits = visits + 1 WHERE {chosen}", case.table)
        for state in (f"{share:.1%} updated", f"{share:.1%} updated, vacuumed"):
            if state.endswith("vacuumed"):
                bench.execute("VACUUM (ANALYZE) {}", case.table)
            _measure_searches(trial, target, state)
            queries = target.queries.of(_KIND)[: bench.options.sample].view(np.int64).tolist()
            for distance in DISTANCES:
                before = _fetches(trial)
                for query in queries:
                    bench.connection.execute(
                        f"SELECT count(*) FROM simsql.near('{case.table}', %s, {distance})".encode(), [query]
                    )
                fetched = (_fetches(trial) - before) / len(queries)
                trial.add(f"distance {distance}, {state}, rows fetched", _NEAR, fetched, "", calls=len(queries))


def _fetches(trial: Trial) -> int:
    """Return how many rows all index scans have fetched from the table."""
    trial.bench.connection.execute("SELECT pg_stat_force_next_flush()")
    return trial.value(
        "SELECT sum(pg_stat_get_tuples_fetched(indexrelid)) FROM pg_index WHERE indrelid = %s::regclass",
        trial.case.table,
    )


def drop(trial: Trial) -> None:
    """Drop the table and its index, which makes room for the next."""
    if trial.case.storage:
        trial.bench.connection.execute("SELECT simsql.drop_index(%s::regclass)", [trial.case.table])
    trial.bench.execute("DROP TABLE {}", trial.case.table)


def steps(case: Case) -> Iterator[Callable[[Trial], None]]:
    """Yield the steps of a case, in order."""
    yield from (load, build)
    if case.text:
        yield from (near, change, drop)
        return
    if case.storage:
        yield from (near,) if case.scoped else (near, pairs)
    if not case.partitions:
        yield from (write, update, updated) if case.storage else (write, update)
    yield drop


def _measure_searches(trial: Trial, target: Target, state: str) -> None:
    """Time the search function alone and near; compare with brute force."""
    bench, case = trial.bench, trial.case
    queries = target.queries.of(_KIND)
    scope = ", '{\"tenant\": 1}'" if case.scoped else ""
    for distance in DISTANCES:
        statements = {
            _SEARCH: f"SELECT * FROM simsql.search_{trial.index_id()}(query, {distance}{scope})",
            _NEAR: f"SELECT * FROM simsql.near('{case.table}', query, {distance}{case.scope})",
        }
        for system, statement in statements.items():
            calls = time_in_server(bench, statement, queries)
            checked = min(bench.options.sample, len(calls.answers))
            sample = queries[:checked].tolist()
            for query in sample:
                rows = bench.connection.execute(
                    statement.replace("query", f"'{as_bigint(query)}'::bigint").encode()
                )
                found = [(fingerprint % 2**64, bits) for fingerprint, bits in rows]
                target.oracle.check_near(f"{case.name}, {system}", query, distance, found)
            target.oracle.check_counts(system, sample, distance, calls.answers[:checked])
            counts = {"mean": calls.mean, "calls": len(calls.answers), "checked": checked, "rows": target.rows}
            trial.add(f"distance {distance}, {state}", system, calls.median, "ms", **counts)


def _candidates(values: Fingerprints, query: int, distance: int) -> int:
    """Return the number of keys in the ranges that a search reads, counted without an index."""
    total = 0
    differing = values ^ np.uint64(query)
    for permutation, radius in zip(_DESIGN.permutations, _DESIGN.radii(distance), strict=True):
        close = np.bitwise_count(differing & np.uint64(permutation.lead_mask)) <= radius
        total += int(np.count_nonzero(close)) if radius >= 0 else 0
    return total


def _settle(trial: Trial) -> None:
    """Vacuum the table and its keys, and read their B-trees into memory."""
    bench, case = trial.bench, trial.case
    for name in (case.table, *bench.key_tables(case.table)):
        bench.execute("VACUUM (ANALYZE) {}", name)
    with bench.connection.transaction():
        for setting in ("enable_seqscan = off", "enable_bitmapscan = off", "max_parallel_workers_per_gather = 0"):
            bench.connection.execute(f"SET LOCAL {setting}".encode())
        for name in bench.key_tables(case.table):
            bench.execute("SELECT count(*) FROM {} WHERE key IS NOT NULL", name)
        bench.execute("SELECT count(*) FROM {} WHERE fingerprint IS NOT NULL", case.table)
        # In the order of a B-tree, and without sorting: no other one can serve that.
        bench.connection.execute("SET LOCAL enable_sort = off")
        if case.storage == "expression":
            for permutation in _DESIGN.permutations:
                prefix = f"fingerprint & '{as_bigint(permutation.lead_mask)}'::bigint"
                order = f"{'tenant, ' if case.scoped else ''}{prefix}"
                bench.execute(
                    f"SELECT count(*) FROM (SELECT {prefix} FROM {{}} ORDER BY {order}) AS s", case.table
                )
    bench.connection.execute("CHECKPOINT")


def measure(options: Options, cases: Sequence[Case], only: Collection[str] = ()) -> int:
    """Run the steps of the cases that have no results yet, or only those named, such as "tables" or "tables:near".

    Return the exit code: 0, or 1 if a result was wrong.
    """
    values = make_fingerprints(options.rows, options.seed)
    with run_kept_server(options.folder) as cluster, connect(cluster) as connection:
        engine = open_engine(cluster.url())
        try:
            for case in cases:
                target = Target(case.table, Oracle(values), make_queries(values, options.queries, options.seed))
                for step in steps(case):
                    name = f"{case.name}:{step.__name__}"
                    path = options.results / f"{case.table}-{step.__name__}.json"
                    if path.exists() or (only and not {name, case.name} & set(only)):
                        continue
                    report = Report(options={name: str(value) for name, value in asdict(options).items()})
                    report.environment = describe_machine() | describe_server(connection)
                    report.say(name)
                    step(Trial(Bench(options, report, engine, connection, target), case))
                    report.write(path)
                    print(f"\n{section_table(report, case.name)}", flush=True)
        except WrongResultError as error:
            print(f"WRONG RESULT: {error}", file=sys.stderr)
            return 1
        finally:
            engine.dispose()
    return 0


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(file_okay=False, help="Where the server's data stay between calls.")],
    rows: Annotated[int, typer.Option(min=1000, help="Fingerprints in each table.")] = 1_000_000,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this case or step, such as tables:near.")
    ] = None,
    results: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for the JSON files.")] = None,
) -> None:
    """Compare the storages of an index, on ordinary and on partitioned tables."""
    known = [case.name for case in CASES]
    known += [f"{case.name}:{step.__name__}" for case in CASES for step in steps(case)]
    unknown = sorted(set(only or []) - set(known))
    if unknown:
        raise typer.BadParameter(f"there is no step {', '.join(unknown)}: choose from {', '.join(known)}")
    results = results or RESULTS / f"storages-{rows}"
    options = Options(rows=rows, budget=3.0, folder=folder.resolve(), results=results)
    try:
        sys.exit(measure(options, CASES, only or ()))
    except SimsqlError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    # As Ctrl-C does: the server is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()
