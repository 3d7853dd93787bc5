"""Find near-duplicates among texts with DuckDB, and write the decisions.

The decisions are those of `simsql dedup`. Texts and intermediate tables need not fit into memory. A job that was
interrupted goes on when it is started again.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from simsql.decide.rules import Keep, Protected, Rules
from simsql.dedup.engine_job import dedup_on_engine
from simsql.errors import UsageError
from simsql.processes import map_in_processes, usable_cores

BATCH = 2_000  # rows; fewer if texts are long
PART = 500_000  # rows that are grouped together
ROW_GROUP = 1 << 17
STORED = "FORMAT parquet, ROW_GROUP_SIZE_BYTES '16MB'"  # of texts, the usual number of rows would take 130 MB


class DuckEngine:
    """Tables are Parquet files with numbers in a folder. Those that are there were stored before, as a whole."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, work: Path, workers: int) -> None:
        self._connection, self._work, self._workers = connection, work, workers
        self._stored = 0
        connection.execute("CREATE MACRO explode(items) AS unnest(items)")
        connection.execute("CREATE MACRO arrays_overlap(one, other) AS list_has_any(one, other)")

    def fetch(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self._connection.sql(query).to_arrow_table()

    def save(self, name: str, query: str) -> None:
        """Store the rows of a query as a table."""
        self._store(name, lambda path: self._connection.execute(f"COPY ({query}) TO '{path}' ({STORED})"))

    def save_mapped(
        self, name: str, query: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Store what a function returns for each batch of the rows of a query."""

        def compute(path: Path) -> None:
            batches = self._connection.sql(query).to_arrow_reader(BATCH)
            self._write_results(path, function, ((batch,) for batch in batches), schema)

        self._store(name, compute)

    def save_grouped(
        self, name: str, queries: tuple[str, str], key: str, function: Callable[..., pa.Table], schema: pa.Schema
    ) -> None:
        """Store what a function returns for the rows of two queries, those of a key together."""
        tables = [f"{name}_{number}" for number in range(len(queries))]
        for table, query in zip(tables, queries, strict=True):
            self.save(table, query)
        rows = max(self._connection.table(table).shape[0] for table in tables)
        parts = 1 + rows // PART
        groups = (
            [self.fetch(f"SELECT * FROM {table} WHERE hash({key}) % {parts} = {part}") for table in tables]
            for part in range(parts)
        )
        self._store(name, lambda path: self._write_results(path, function, groups, schema))

    def _store(self, name: str, compute: Callable[[Path], object]) -> None:
        self._stored += 1
        path = self._work / f"{self._stored:02}-{name}.parquet"
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            compute(unfinished)
            unfinished.rename(path)
        self._connection.read_parquet(str(path)).create_view(name)

    def _write_results(
        self, path: Path, function: Callable[..., Any], arguments: Iterator[Sequence[Any]], schema: pa.Schema
    ) -> None:
        """Write what a function returns, in several processes and in this one."""
        results = map_in_processes(partial(apply, function), arguments, self._workers, lambda _: 1)
        with pq.ParquetWriter(path, schema) as file:
            ready: list[pa.Table] = []
            for result in results:
                ready.append(result if isinstance(result, pa.Table) else pa.Table.from_batches([result]))
                if sum(table.num_rows for table in ready) >= ROW_GROUP:
                    file.write_table(pa.concat_tables(ready))
                    ready = []
            if ready:
                file.write_table(pa.concat_tables(ready))


def apply(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Return the result of a function."""
    return function(*arguments)


def main() -> None:
    """Read the options, and run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = "with the columns id and text: 'folder/*.parquet', or a call such as \"read_csv('a.csv', sep = ';')\""
    parser.add_argument("documents", help=f"what DuckDB reads, {source}")
    parser.add_argument("decisions", help="new file: id, kept, cluster, similarity, kind")
    parser.add_argument("--copy", default="FORMAT parquet", help="options of COPY for the decisions (%(default)s)")
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for intermediate tables; a job goes on with those that it has",
    )
    parser.add_argument(
        "--against",
        nargs=2,
        action="append",
        default=[],
        metavar=("WORK", "DOCUMENTS"),
        help="an earlier job: what it has kept stays, and only other documents are decided about (repeatable)",
    )
    parser.add_argument("--memory", default="4GB", help="memory of DuckDB, beside that of the workers")
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--distance", type=int, default=Rules.distance)
    parser.add_argument("--similarity", type=float, default=Rules.similarity)
    parser.add_argument("--keep", type=Keep, choices=list(Keep), default=Rules.keep)
    parser.add_argument("--protect", help="numbers, symbols: as for simsql dedup", default="")
    given = parser.parse_args()
    try:
        run(given)
    except UsageError as error:
        sys.exit(str(error))


def run(given: argparse.Namespace) -> None:
    """Read the documents, decide, and write the decisions. Raises UsageError if these are there."""
    protect = tuple(map(Protected, filter(None, given.protect.split(","))))
    rules = Rules(
        given.distance, given.similarity, keep=given.keep, protect=protect, to_archive=bool(given.against)
    )
    given.work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(given.work / "spilled", ignore_errors=True)  # of a job that was killed
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = ?", [given.memory])
        connection.execute("SET temp_directory = ?", [str(given.work / "spilled")])
        connection.execute("SET preserve_insertion_order = false")
        if connection.execute("FROM glob(?)", [given.decisions]).fetchall():
            raise UsageError(f"{given.decisions} exists: name a new file")
        connection.execute(f"CREATE VIEW documents AS {select(given.documents)}")
        if given.against:
            archive = " UNION ALL ".join(select(documents) for _, documents in given.against)
            connection.execute(f"CREATE VIEW archive AS {archive}")
            for name in ("job", "described", "decisions"):
                files = [f"{work}/*-{name}.parquet" for work, _ in given.against]
                connection.read_parquet(files).create_view(f"archive_{name}")
        engine = DuckEngine(connection, given.work, given.workers)
        dedup_on_engine(engine, rules, (given.documents, given.against))
        connection.execute(f"COPY (FROM decisions) TO '{given.decisions}' ({given.copy})")


def select(documents: str) -> str:
    """Return a query for documents: a call of a function, or paths."""
    quoted = documents if documents.endswith(")") else "'{}'".format(documents.replace("'", "''"))
    return f"SELECT id, text FROM {quoted}"


if __name__ == "__main__":
    main()
