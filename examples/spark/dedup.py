"""Find near-duplicates among texts on Spark, and write the decisions.

The decisions are those of `simsql dedup`. Texts stay with the executors. A job that was interrupted goes on when
it is started again.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, pmod, xxhash64
from pyspark.sql.pandas.types import from_arrow_schema

from simsql.decide.rules import Keep, Protected, Rules
from simsql.dedup.engine_job import dedup_on_engine
from simsql.errors import UsageError

BATCH = 2_000  # texts that a Python process gets at a time; fewer if they are long
PART = 100_000  # documents of a partition: 80 MB of keys


class SparkEngine:
    """Tables are Parquet with numbers, in a folder that all executors see.

    Those that are whole, which Spark marks with a file, were stored before.
    """

    def __init__(self, spark: SparkSession, work: str) -> None:
        self._spark, self._work = spark, work
        self._stored = 0
        self._parts = spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", BATCH)

    def fetch(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self._spark.sql(query).toArrow()

    def save(self, name: str, query: str) -> None:
        """Store the rows of a query as a table."""
        self._store(name, lambda: self._spark.sql(query))

    def save_mapped(
        self, name: str, query: str, function: Callable[[pa.RecordBatch], pa.RecordBatch], schema: pa.Schema
    ) -> None:
        """Store what a function returns for each batch of the rows of a query."""

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return map(function, batches)

        self._store(name, lambda: self._spark.sql(query).mapInArrow(work, from_arrow_schema(schema)))
        # What follows is shuffled to partitions of a size that does not depend on the number of documents.
        self._parts = max(self._parts, self._spark.table(name).count() // PART)
        self._spark.conf.set("spark.sql.shuffle.partitions", self._parts)

    def save_grouped(
        self, name: str, queries: tuple[str, str], key: str, function: Callable[..., pa.Table], schema: pa.Schema
    ) -> None:
        """Store what a function returns for the rows of two queries, those of a key together."""

        # Spark reads the annotations.
        def of_part(rows: pa.Table, others: pa.Table) -> pa.Table:
            return function(rows, others)

        def compute() -> DataFrame:
            part = pmod(xxhash64(key), lit(self._parts)).alias("part")
            one, other = (self._spark.sql(query).groupBy(part) for query in queries)
            return one.cogroup(other).applyInArrow(of_part, from_arrow_schema(schema))

        self._store(name, compute)

    def _store(self, name: str, compute: Callable[[], DataFrame]) -> None:
        self._stored += 1
        path = f"{self._work}/{self._stored:02}-{name}"
        if not exists(self._spark, f"{path}/_SUCCESS"):
            compute().write.parquet(path, mode="overwrite")
        self._spark.read.parquet(path).createOrReplaceTempView(name)


def exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is a file or folder, wherever Spark stores files."""
    context: Any = spark.sparkContext
    found = context._jvm.org.apache.hadoop.fs.Path(path)
    return bool(found.getFileSystem(context._jsc.hadoopConfiguration()).exists(found))


def run(spark: SparkSession, given: argparse.Namespace) -> None:
    """Read the documents, decide, and write the decisions. Raises UsageError if these are there."""
    if exists(spark, given.decisions):
        raise UsageError(f"{given.decisions} exists: name a new folder")
    read, write = (
        (name, dict(option.split("=", 1) for option in options)) for name, *options in (given.read, given.write)
    )

    def load(*paths: str) -> DataFrame:
        return spark.read.format(read[0]).options(**read[1]).load([*paths]).select("id", "text")

    load(given.documents).createOrReplaceTempView("documents")
    if given.against:
        load(*(documents for _, documents in given.against)).createOrReplaceTempView("archive")
        for name in ("job", "described", "decisions"):
            folders = [f"{work}/*-{name}" for work, _ in given.against]
            spark.read.parquet(*folders).createOrReplaceTempView(f"archive_{name}")
    protect = tuple(map(Protected, filter(None, given.protect.split(","))))
    rules = Rules(
        given.distance, given.similarity, keep=given.keep, protect=protect, to_archive=bool(given.against)
    )
    dedup_on_engine(SparkEngine(spark, given.work), rules, (given.documents, given.read, given.against))
    spark.table("decisions").write.format(write[0]).options(**write[1]).save(given.decisions)


def main() -> None:
    """Read the options, and run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", help="file or folder with the columns id and text")
    parser.add_argument("decisions", help="new folder: id, kept, cluster, similarity, kind")
    for option, what in (("--read", "documents"), ("--write", "decisions")):
        parser.add_argument(
            option,
            nargs="+",
            default=["parquet"],
            metavar=("FORMAT", "NAME=VALUE"),
            help=f"format of the {what} and options of Spark for it: csv header=true (default: parquet)",
        )
    parser.add_argument(
        "--work",
        required=True,
        help="folder for intermediate tables, which all executors see; a job goes on with it",
    )
    parser.add_argument(
        "--against",
        nargs=2,
        action="append",
        default=[],
        metavar=("WORK", "DOCUMENTS"),
        help="an earlier job: what it has kept stays, and only other documents are decided about (repeatable)",
    )
    parser.add_argument("--distance", type=int, default=Rules.distance)
    parser.add_argument("--similarity", type=float, default=Rules.similarity)
    parser.add_argument("--keep", type=Keep, choices=list(Keep), default=Rules.keep)
    parser.add_argument("--protect", help="numbers, symbols: as for simsql dedup", default="")
    given = parser.parse_args()
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        sys.exit("Spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("simsql").getOrCreate()
    try:
        run(spark, given)
    except UsageError as error:
        sys.exit(str(error))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
