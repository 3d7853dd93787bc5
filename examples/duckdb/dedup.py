"""Find near-duplicates among the texts of Parquet files with DuckDB, and write the decisions as Parquet.

The decisions are those of `simsql dedup`. Texts and intermediate tables need not fit into memory.
"""

import argparse
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from simsql.decide.rules import Keep, Protected, Rules
from simsql.dedup.engine_job import dedup_on_engine
from simsql.processes import usable_cores

BATCH = 2_000  # rows; fewer if texts are long
PART = 500_000  # rows that are grouped together


class DuckEngine:
    """Tables are in a database file; what Python functions return is Parquet beside it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, work: Path, workers: int) -> None:
        self._connection, self._work, self._workers = connection, work, workers
        connection.execute("CREATE MACRO explode(items) AS unnest(items)")
        connection.execute("CREATE MACRO arrays_overlap(one, other) AS list_has_any(one, other)")

    def fetch(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self._connection.sql(query).to_arrow_table()

    def save(self, name: str, query: str) -> None:
        """Store the rows of a query as a table."""
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS {query}")

    def save_mapped(
        self, name: str, query: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Store what a function returns for each batch of the rows of a query."""
        batches = self._connection.sql(query).to_arrow_reader(BATCH)
        self._store_results(name, function, ((batch,) for batch in batches), schema)

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
        self._store_results(name, function, groups, schema)

    def _store_results(
        self,
        name: str,
        function: Callable[..., pa.RecordBatch | pa.Table],
        arguments: Iterable[Sequence[Any]],
        schema: pa.Schema,
    ) -> None:
        """Store what a function returns in other processes. A few results are computed ahead."""
        path = self._work / f"{name}.parquet"
        with (
            pq.ParquetWriter(path, schema) as file,
            ProcessPoolExecutor(self._workers, get_context("spawn")) as processes,
        ):
            waiting: deque[Future[pa.RecordBatch | pa.Table]] = deque()
            for given in arguments:
                waiting.append(processes.submit(function, *given))
                if len(waiting) > 2 * self._workers:
                    file.write(waiting.popleft().result())
            for result in waiting:
                file.write(result.result())
        self._connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")


def main() -> None:
    """Read the options, and run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", help="Parquet files with the columns id and text: 'folder/*.parquet'")
    parser.add_argument("decisions", type=Path, help="new file: id, kept, cluster, similarity, kind")
    parser.add_argument("--work", type=Path, help="folder for intermediate tables, by default the system's")
    parser.add_argument("--memory", default="4GB", help="memory of DuckDB, beside that of the workers")
    parser.add_argument("--workers", type=int, default=usable_cores())
    parser.add_argument("--distance", type=int, default=Rules.distance)
    parser.add_argument("--similarity", type=float, default=Rules.similarity)
    parser.add_argument("--keep", type=Keep, choices=list(Keep), default=Rules.keep)
    parser.add_argument("--protect", help="numbers, symbols: as for simsql dedup", default="")
    given = parser.parse_args()
    protect = tuple(map(Protected, filter(None, given.protect.split(","))))
    rules = Rules(given.distance, given.similarity, keep=given.keep, protect=protect)
    if given.work:
        given.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="simsql-", dir=given.work) as folder:
        work = Path(folder)
        with duckdb.connect(work / "tables.duckdb") as connection:
            connection.execute("SET memory_limit = ?", [given.memory])
            connection.execute("SET preserve_insertion_order = false")
            connection.read_parquet(given.documents).select("id, text").create_view("documents")
            dedup_on_engine(DuckEngine(connection, work, given.workers), rules)
            connection.table("decisions").write_parquet(str(given.decisions))


if __name__ == "__main__":
    main()
