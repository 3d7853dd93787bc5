"""Find near-duplicates among the texts of Parquet files on Spark, and write the decisions as Parquet.

The decisions are those of `simsql dedup`. Texts stay with the workers.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, pmod, xxhash64
from pyspark.sql.pandas.types import from_arrow_schema

from simsql.decide.rules import Keep, Protected, Rules
from simsql.dedup.engine_job import dedup_on_engine


class SparkEngine:
    """Tables are Parquet in a folder that all workers see, so nothing is computed twice."""

    def __init__(self, spark: SparkSession, work: str, parts: int) -> None:
        self._spark, self._work, self._parts = spark, work, parts
        self._written = 0

    def fetch(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self._spark.sql(query).toArrow()

    def save(self, name: str, query: str) -> None:
        """Store the rows of a query as a table."""
        self._store(name, self._spark.sql(query))

    def save_mapped(
        self, name: str, query: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Store what a function returns for each batch of the rows of a query."""

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return map(function, batches)

        self._store(name, self._spark.sql(query).mapInArrow(work, from_arrow_schema(schema)))

    def save_grouped(
        self, name: str, queries: tuple[str, str], key: str, function: Callable[..., pa.Table], schema: pa.Schema
    ) -> None:
        """Store what a function returns for the rows of two queries, those of a key together."""

        # Spark reads the annotations.
        def of_part(rows: pa.Table, others: pa.Table) -> pa.Table:
            return function(rows, others)

        part = pmod(xxhash64(key), lit(self._parts)).alias("part")
        one, other = (self._spark.sql(query).groupBy(part) for query in queries)
        self._store(name, one.cogroup(other).applyInArrow(of_part, from_arrow_schema(schema)))

    def _store(self, name: str, frame: DataFrame) -> None:
        self._written += 1
        path = f"{self._work}/{self._written}-{name}"
        frame.write.parquet(path)
        self._spark.read.parquet(path).createOrReplaceTempView(name)


def main() -> None:
    """Read the options, and run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", help="Parquet file or folder with the columns id and text")
    parser.add_argument("decisions", help="new folder: id, kept, cluster, similarity, kind")
    parser.add_argument("--work", required=True, help="new folder for intermediate tables, which all workers see")
    parser.add_argument("--parts", type=int, default=64, help="groups of rows that are decided about")
    parser.add_argument("--distance", type=int, default=Rules.distance)
    parser.add_argument("--similarity", type=float, default=Rules.similarity)
    parser.add_argument("--keep", type=Keep, choices=list(Keep), default=Rules.keep)
    parser.add_argument("--protect", help="numbers, symbols: as for simsql dedup", default="")
    given = parser.parse_args()
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        sys.exit("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("simsql").getOrCreate()
    spark.read.parquet(given.documents).select("id", "text").createOrReplaceTempView("documents")
    protect = tuple(map(Protected, filter(None, given.protect.split(","))))
    rules = Rules(given.distance, given.similarity, keep=given.keep, protect=protect)
    dedup_on_engine(SparkEngine(spark, given.work, given.parts), rules)
    spark.table("decisions").write.parquet(given.decisions)
    spark.stop()


if __name__ == "__main__":
    main()
