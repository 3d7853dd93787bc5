"""Measure operations on a table in use: python -m benchmarks.operations --rows 1000000, which prints Markdown.

Processor time is that of all processes of the server, and that of the programs that were run. Each operation
begins right after a checkpoint, so the write-ahead log holds whole pages: the worst case. Needs Linux's /proc.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from benchmarks.cost import Session
from benchmarks.data import make_fingerprints
from benchmarks.environment import describe_machine, describe_server
from benchmarks.harness import copy_fingerprints
from benchmarks.server import default_folder, run_server
from simsql.server.postgres_server import PostgresServer

_RELEASED = Path(__file__).parents[1] / "tests/released/0.2.0.sql"
_SETTINGS = {
    "shared_buffers": "1GB",
    "work_mem": "4MB",
    "maintenance_work_mem": "64MB",
    "max_parallel_maintenance_workers": "0",
    "max_parallel_workers_per_gather": "0",
}
_TICK = os.sysconf("SC_CLK_TCK")
_PARTITIONS = (12, 60, 120)


class Operations:
    """A server, and the rows of the table that operations have cost so far."""

    def __init__(self, cluster: PostgresServer, rows: int) -> None:
        self.cluster, self.rows = cluster, rows
        self.session = Session(cluster)
        self.server = int((cluster.data_folder / "postmaster.pid").read_text().split()[0])

    def measure(self, name: str, work: Callable[[], object]) -> None:
        """Print what a piece of work costs, for a million rows."""
        self.session.execute("CHECKPOINT")
        log, start = self._log(), time.monotonic()
        server, programs = self._server_seconds(), _program_seconds()
        work()
        seconds = time.monotonic() - start
        millions = self.rows / 1_000_000
        cells = (
            f"{(self._server_seconds() - server) / millions:.1f} s",
            f"{(_program_seconds() - programs) / millions:.1f} s",
            f"{(self._log() - log) / millions / 1e6:,.0f} MB",
            f"{seconds / millions:.0f} s",
        )
        print(f"| {name} | {' | '.join(cells)} |", flush=True)

    def sql(self, name: str, statement: str) -> None:
        """Print what a statement costs."""
        self.measure(name, partial(self.session.execute, statement))

    def run(self, *command: str, database: str = "postgres") -> None:
        """Run a command of simsql, or a client program of the server."""
        if command[0] == "simsql":
            url = self.cluster.url(database).render_as_string()
            command = (sys.executable, "-m", *command, "--database", url)
        else:
            where = self.cluster.url().query
            place = ("--host", str(where["host"]), "--port", str(where["port"]), "--username", "postgres")
            command = (str(self.cluster.bin_folder / command[0]), *place, *command[1:])
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def _log(self) -> int:
        return int(self.session.value("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    def _server_seconds(self) -> float:
        """Return the processor time of the server, also of its processes that have ended."""
        ticks = sum(_ticks(self.server)[2:])
        for process in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = process.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.server:
                ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICK


def _ticks(process: int) -> list[int]:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return [int(field) for field in fields[11:15]]


def _program_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def upkeep(at: Operations) -> None:
    """Everything that is done to an index of a table."""
    execute = at.session.execute
    execute("CREATE TABLE article (id bigint, fingerprint bigint)")
    copy_fingerprints(at.session.connection, "article", make_fingerprints(at.rows, 1))
    execute("ALTER TABLE article ADD PRIMARY KEY (id)")
    execute("VACUUM (ANALYZE) article")
    at.sql("B-tree on the column", "CREATE INDEX ON article (fingerprint)")
    at.sql("`create_index`", "SELECT simsql.create_index('article', 'fingerprint')")
    at.sql("`verify`", "SELECT * FROM simsql.verify('article')")
    at.sql("`repair`, no fault", "SELECT * FROM simsql.repair('article')")
    at.sql("`maintain`, nothing to do", "CALL simsql.maintain()")
    execute("UPDATE article SET fingerprint = hashint8extended(id, 7) WHERE id % 5 = 0")
    at.sql("`vacuum`, a fifth of the rows changed", "CALL simsql.vacuum('article')")
    for name in ("keys_1_0", "keys_1_1", "keys_1_2", "keys_1_3"):
        execute(f"TRUNCATE simsql.{name}")
    at.sql("`repair`, all keys missing", "SELECT * FROM simsql.repair('article')")
    execute("UPDATE article SET fingerprint = hashint8extended(id, 8) WHERE id % 3 = 0")
    at.sql("`maintain`, a third of the rows changed", "CALL simsql.maintain()")
    at.sql("`change_storage` to `expression`", "SELECT simsql.change_storage('article', 'expression')")
    execute("VACUUM (ANALYZE) article")
    at.sql("`verify`, `expression`", "SELECT * FROM simsql.verify('article')")
    at.sql("`change_storage` to `tables`", "SELECT simsql.change_storage('article', 'tables')")
    at.sql("`drop_index`", "SELECT simsql.drop_index('article')")
    at.sql("`build`", "CALL simsql.build('article', 'fingerprint')")
    change = partial(at.run, "simsql", "index", "change-storage", "article", "expression", "--quiet")
    at.measure("`index change-storage` to `expression`", change)
    at.sql("`drop_index`, `expression`", "SELECT simsql.drop_index('article')")
    create = ("simsql", "index", "create", "article", "fingerprint", "--storage", "expression", "--concurrently")
    at.measure("`index create --concurrently`, `expression`", partial(at.run, *create, "--quiet"))
    execute("SELECT simsql.drop_index('article')")


def dumps(at: Operations, folder: Path) -> None:
    """Dump and restore with the keys, and without."""
    at.session.execute("SELECT simsql.create_index('article', 'fingerprint')")
    for name, options in (("", ()), (", without keys", ("--exclude-table-data=simsql.keys_*",))):
        file = folder / "dump"
        dump = partial(at.run, "pg_dump", "--format=custom", *options, f"--file={file}", "postgres")
        at.measure(f"`pg_dump`{name}", dump)
        print(f"{file.stat().st_size / at.rows:.0f} bytes a row", file=sys.stderr)
        at.session.execute("CREATE DATABASE restored TEMPLATE template0")
        at.measure(f"`pg_restore`{name}", partial(at.run, "pg_restore", "--dbname=restored", str(file)))
        if options:
            repair = "SELECT count(*) FROM simsql.repair('article')"
            at.measure("`repair` then", partial(at.run, "psql", "-qc", repair, "restored"))
        at.session.execute("DROP DATABASE restored")
        file.unlink()


def texts(at: Operations) -> None:
    """Fingerprint rows: `backfill`."""
    execute = at.session.execute
    execute("CREATE TABLE note (id bigint PRIMARY KEY, body text, fingerprint bigint)")
    execute(
        "INSERT INTO note"
        " SELECT n, (SELECT string_agg(md5((n * 100 + w)::text), ' ') FROM generate_series(1, 20) AS w)"
        f" FROM generate_series(1, {at.rows}) AS n"
    )
    execute(
        """SELECT simsql.create_index('note', 'fingerprint', recipe => 'words12-log-1',"""
        """ sources => '{"body": 1}')"""
    )
    execute("VACUUM (ANALYZE) note")
    at.measure("`backfill`", partial(at.run, "simsql", "backfill", "note", "--quiet"))
    at.sql("`uninstall`", "SELECT simsql.uninstall(drop_indexes => true)")


def upgrade(at: Operations) -> None:
    """Upgrade the schema of 0.2.0, whose keys are compared once."""
    at.session.execute("CREATE DATABASE old TEMPLATE template0")
    at.run("psql", "-qX", f"--file={_RELEASED}", "old")
    at.run("psql", "-qXc", "CREATE TABLE article (id bigint, fingerprint bigint)", "old")
    fill = f"INSERT INTO article SELECT n, hashint8extended(n, 1) FROM generate_series(1, {at.rows}) AS n"
    at.run("psql", "-qXc", fill, "old")
    at.run("psql", "-qXc", "SELECT simsql.create_index('article', 'fingerprint')", "old")
    at.run("psql", "-qXc", "VACUUM (ANALYZE)", "old")
    at.measure("upgrade from 0.2.0", partial(at.run, "simsql", "install", database="old"))
    at.session.execute("DROP DATABASE old")


def partitions(at: Operations) -> None:
    """Print what the first search of a session takes, and the memory that stays in use."""
    print("\n| partitions | first search | second | memory of the session |\n|---|---|---|---|")
    for count in _PARTITIONS:
        at.session.execute("CREATE TABLE part (id bigint, fingerprint bigint) PARTITION BY HASH (id)")
        for number in range(count):
            at.session.execute(
                f"CREATE TABLE part_{number} PARTITION OF part"
                f" FOR VALUES WITH (MODULUS {count}, REMAINDER {number})"
            )
        at.session.execute(
            "INSERT INTO part SELECT n, hashint8extended(n, 1) FROM generate_series(1, 100000) AS n"
        )
        at.session.execute("SELECT simsql.create_index('part', 'fingerprint')")
        at.session.execute("VACUUM (ANALYZE) part")
        first, second, memory = [], [], []
        for _ in range(5):
            with Session(at.cluster) as session:
                session.value("SELECT 1")
                used = session.memory()
                for times in (first, second):
                    start = time.monotonic()
                    session.execute("SELECT * FROM simsql.near('part', 7, 3)")
                    times.append(1000 * (time.monotonic() - start))
                memory.append((session.memory() - used) / 1e6)
        medians = [statistics.median(found) for found in (first, second, memory)]
        print(f"| {count} | {medians[0]:.0f} ms | {medians[1]:.1f} ms | {medians[2]:.0f} MB |", flush=True)
        at.session.execute("SELECT simsql.drop_index('part')")
        at.session.execute("DROP TABLE part")


def main(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the table.")] = 1_000_000,
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, exists=True, help="Where the server's folder is made.")
    ] = None,
) -> None:
    """Measure operations on a table in use."""
    with run_server((folder or default_folder()).resolve(), rows, 0, _SETTINGS) as cluster:
        at = Operations(cluster, rows)
        for name, value in (describe_machine() | describe_server(at.session.connection)).items():
            print(f"{name}: {value}", flush=True)
        print("\n| for a million rows | server | program | log | elapsed |\n|---|---|---|---|---|", flush=True)
        upkeep(at)
        upgrade(at)
        dumps(at, cluster.data_folder.parent)
        partitions(at)
        print("\n| for a million rows | server | program | log | elapsed |\n|---|---|---|---|---|", flush=True)
        texts(at)


if __name__ == "__main__":
    try:
        typer.run(main)
    except psycopg.Error as error:
        sys.exit(str(error))
