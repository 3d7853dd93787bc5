"""What every section works with: the server, the table of fingerprints, the queries, the report."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg import sql
from sqlalchemy import Engine

from benchmarks.data import Fingerprints, Queries, make_queries
from benchmarks.figures import Figure, Report
from benchmarks.oracle import Oracle
from simsql.database import create_index, drop_index
from simsql.hamming import Design

DEFAULT_RECIPE = Design()
_COPY_ROWS = 1 << 18
# A binary COPY tuple of two bigints: field count, then size and value of each.
_TUPLE = np.dtype([("fields", ">i2"), ("size", ">i4"), ("id", ">i8"), ("size_2", ">i4"), ("fingerprint", ">u8")])
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"


@dataclass(frozen=True)
class Options:
    """What a run was asked for."""

    rows: int = 1_000_000
    queries: int = 10_000
    batch: int = 1_000_000
    sample: int = 50
    seed: int = 1
    budget: float = 10.0  # seconds for the queries of one figure, where a query takes long
    peers: bool = True
    grow_to: int = 0
    folder: Path = Path()
    results: Path = Path("results.json")


@dataclass
class Target:
    """A table of fingerprints, what brute force says about it, and the queries to ask."""

    table: str
    oracle: Oracle
    queries: Queries
    design: Design | None = None

    @property
    def rows(self) -> int:
        """Number of fingerprints, all distinct."""
        return self.oracle.values.size


@dataclass
class Run:
    """A run that is going on: all that a section needs that asks no server."""

    options: Options
    report: Report

    def add(
        self, section: str, what: str, system: str, value: float, unit: str, *, rows: int = 0, **more: Any
    ) -> None:
        """Add a figure; of all rows unless `rows` says otherwise. `more` are further fields of a Figure."""
        self.report.add(Figure(section, what, system, rows or self.options.rows, value, unit, **more))


@dataclass
class Bench(Run):
    """A run with a server."""

    engine: Engine
    connection: psycopg.Connection  # autocommit
    main: Target

    def use(self, target: Target, design: Design = DEFAULT_RECIPE) -> float:
        """Index the target's table with this design, unless it is; return the seconds that took.

        Afterwards its keys are in memory as far as they fit, and vacuumed, so that index-only scans need no rows.
        """
        if target.design == design:
            return 0.0
        self.drop(target)
        self.report.say(f"indexing {target.rows:,} rows of {target.table}: {design}")
        start = time.perf_counter()
        with self.engine.begin() as connection:
            create_index(connection, target.table, "fingerprint", design=design)
        seconds = time.perf_counter() - start
        target.design = design
        found = len(self.key_tables(target.table))
        assert found == design.tables, f"{design} has made {found} tables"
        self.settle(target)
        return seconds

    def drop(self, target: Target) -> None:
        """Drop the index of the target's table, if it has one."""
        if target.design:
            with self.engine.begin() as connection:
                drop_index(connection, target.table)
            target.design = None

    def settle(self, target: Target) -> None:
        """Vacuum the target's tables, which autovacuum would do, and read their B-trees into memory."""
        columns = {target.table: "fingerprint"} | dict.fromkeys(self.key_tables(target.table), "key")
        # A sequential scan of a large table passes through a few buffers only, and reads no B-tree. And this
        # process maps the shared memory that it will search: the first look at a page costs more than the next.
        for name, column in columns.items():
            self.execute("VACUUM (ANALYZE) {}", name)
            with self.connection.transaction():
                self.connection.execute("SET LOCAL enable_seqscan = off")
                self.connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
                self.execute("SELECT count(*) FROM {} WHERE {} IS NOT NULL", name, column)
        self.connection.execute("CHECKPOINT")

    def key_tables(self, table: str) -> list[str]:
        """Return the names of the index's tables, with their schema; none if there is no index."""
        found = self.connection.execute(
            "SELECT c.oid::regclass::text FROM simsql.registry AS r"
            " JOIN pg_class AS c ON c.relname ~ ('^keys_' || r.id || '_[0-9]+$')"
            " WHERE r.table_id = %s::regclass AND c.relkind = 'r' AND c.relnamespace = 'simsql'::regnamespace"
            " ORDER BY c.oid",
            [table],
        )
        return [str(name) for (name,) in found]

    def size(self, *tables: str) -> int:
        """Return the bytes of tables with all that belongs to them."""
        row = self.connection.execute(
            "SELECT sum(pg_total_relation_size(t::regclass)) FROM unnest(%s::text[]) AS t", [list(tables)]
        ).fetchone()
        assert row is not None
        return int(row[0])

    def execute(self, statement: str, *tables: str) -> psycopg.Cursor:
        """Run a statement with the names of tables in its braces."""
        names = [sql.SQL(".").join(map(sql.Identifier, table.split("."))) for table in tables]
        return self.connection.execute(sql.SQL(statement).format(*names))

    def value(self, statement: str, *tables: str) -> int:
        """Run such a statement and return the one number that it gives."""
        row = self.execute(statement, *tables).fetchone()
        assert row is not None
        return int(row[0])

    @contextmanager
    def table(self, name: str, values: Fingerprints) -> Iterator[Target]:
        """Make a table of these fingerprints with a primary key, dropped afterwards with its index."""
        self.create(name, values)
        target = self.target(name, values)
        try:
            yield target
        finally:
            self.drop(target)
            self.execute("DROP TABLE {}", name)

    def target(self, name: str, values: Fingerprints) -> Target:
        """Return what is known of a table of these fingerprints: it may not be there yet."""
        return Target(name, Oracle(values), make_queries(values, self.options.queries, self.options.seed))

    def create(self, name: str, values: Fingerprints) -> None:
        """Create a table with an id, these fingerprints and one more column."""
        self.report.say(f"loading {values.size:,} rows into {name}")
        self.execute("CREATE TABLE {} (id bigint, fingerprint bigint, visits integer NOT NULL DEFAULT 0)", name)
        copy_fingerprints(self.connection, name, values)
        self.execute("ALTER TABLE {} ADD PRIMARY KEY (id)", name)


def copy_fingerprints(connection: psycopg.Connection, table: str, values: Fingerprints, first_id: int = 1) -> None:
    """COPY rows (id, fingerprint) into a table, ids counted from `first_id`; none of simsql's code is used."""
    statement = sql.SQL("COPY {} (id, fingerprint) FROM STDIN (FORMAT binary)").format(sql.Identifier(table))
    with connection.cursor().copy(statement) as copy:
        copy.write(_HEADER)
        for start in range(0, values.size, _COPY_ROWS):
            part = values[start : start + _COPY_ROWS]
            tuples = np.empty(part.size, dtype=_TUPLE)
            tuples["fields"] = 2
            tuples["size"] = tuples["size_2"] = 8
            tuples["id"] = np.arange(first_id + start, first_id + start + part.size)
            tuples["fingerprint"] = part
            copy.write(tuples.tobytes())
        copy.write(_TRAILER)


Section = Callable[[Bench], None]
SectionWithoutServer = Callable[[Run], None]
