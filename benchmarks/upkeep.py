"""How an index grows under writers, with scheduled maintenance and without, and whether it says so."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks import mixture
from benchmarks.figures import format_table
from benchmarks.pgbench import Run, log_pgbench
from benchmarks.server import connect
from simsql.database.index_spec import Storage
from simsql.server.postgres_server import PostgresServer

TABLE = "changing"
# A job computes this many fingerprints in each transaction, and in all so many times those of the table, while
# these clients do what they do elsewhere.
_BATCH = 500
TURNOVER = 3
_CLIENTS = 2
# How often the scheduled maintenance comes, and how often we look.
_NIGHTS, _LOOKS = 15, 45
# What an index on few keys or pages does not report, since it does not matter.
_PAGES = 1024
# The largest growth from the second third of a bounded course to the last one.
_BOUND = 1.15


@dataclass(frozen=True)
class Look:
    """What there is at one moment."""

    seconds: float  # since the start
    database_bytes: int  # everything: the table, the index, the catalogue
    index_bytes: int
    superfluous: float | None  # share of the keys, counted; None without key tables
    unvacuumed: float  # what the index says of it
    hint: str | None
    is_large: bool  # enough that the index has to report what a vacuum would clean up


@dataclass(frozen=True)
class Course:
    """What became of an index on a table that changes."""

    storage: Storage
    maintained: bool
    looks: Sequence[Look]
    mixture: Run
    maintenance: Sequence[float]  # seconds of each

    @property
    def name(self) -> str:
        """What tells this course from the others."""
        return self.storage if self.maintained else f"{self.storage}, no upkeep"

    def growth(self) -> float:
        """Return how much larger the database was in the last third than in the second: 1 is not at all."""
        third = self.looks[-1].seconds / 3
        second = max(look.database_bytes for look in self.looks if look.seconds < 2 * third)
        return max(look.database_bytes for look in self.looks) / second

    def problems(self) -> list[str]:
        """Return what the index must not do: grow without a bound, or not say what it needs."""
        last = self.looks[-1]
        if self.maintained:
            found = []
            if self.growth() > _BOUND:
                found.append(f"{self.name}: it still grew, to {self.growth():.2f} times its size")
            if last.hint is not None:
                found.append(f"{self.name}: after its maintenance the index still says: {last.hint}")
            return found
        if last.is_large and last.hint is None:
            return [f"{self.name}: the index does not say that it needs a vacuum"]
        return []


def follow(
    cluster: PostgresServer,
    pgbench: Path,
    storage: Storage,
    *,
    maintained: bool,
    rows: int,
    seconds: float,
    seed: int,
) -> Course:
    """Create a table with an index and change it for about as long; drop it."""
    with contextlib.ExitStack() as stack:
        connection, watcher = (stack.enter_context(connect(cluster)) for _ in range(2))
        mixture.create_table(connection, TABLE, rows, seed, storage)
        if not maintained:
            _switch_autovacuum_off(connection)
        pool = stack.enter_context(ThreadPoolExecutor())
        transactions = TURNOVER * rows // _BATCH
        limits = [f"--transactions={transactions}"]
        if seconds:
            limits.append(f"--rate={transactions / seconds}")
        job = {"recompute": mixture.recompute(TABLE, _BATCH)}
        start = time.monotonic()
        looks = [_look(watcher, storage, start)]
        changing = pool.submit(log_pgbench, pgbench, connection, job, mixture.options(1, rows, seed, *limits))
        mixed = pool.submit(
            log_pgbench,
            pgbench,
            connection,
            mixture.mixture(TABLE),
            mixture.options(_CLIENTS, rows, seed, mixture.limit(seconds)),
        )
        writers = (changing, mixed)
        maintenance = pool.submit(_maintain_until, cluster, writers, seconds / _NIGHTS) if maintained else None
        looks.extend(_look_until(watcher, storage, writers, start, seconds / _LOOKS))
        changing.result()
        course = Course(storage, maintained, looks, mixed.result(), maintenance.result() if maintenance else [])
        looks.append(_look(watcher, storage, start))  # after the last maintenance
        mixture.drop_table(watcher, TABLE)
    return course


def _switch_autovacuum_off(connection: psycopg.Connection) -> None:
    tables = connection.execute(
        "SELECT c.oid::regclass::text FROM pg_class AS c, simsql.registry AS r"
        " WHERE r.table_id = %s::regclass"
        " AND (c.oid = r.table_id OR c.relname ~ ('^keys_' || r.id || '_[0-9]+$') AND c.relkind = 'r')",
        [TABLE],
    ).fetchall()
    for (table,) in tables:
        connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())


def _maintain_until(cluster: PostgresServer, writers: Sequence[Future[Run]], pause: float) -> list[float]:
    """Maintain the index as a nightly job does, until all writers are done and once more."""
    taken = []
    # A connection reports what it has deleted when it is closed, at the latest.
    with connect(cluster) as connection:
        while True:
            is_last = not wait(writers, timeout=0).not_done
            start = time.monotonic()
            connection.execute(f"CALL simsql.vacuum('{TABLE}')".encode())
            connection.execute(f"VACUUM (ANALYZE) {TABLE}".encode())
            taken.append(time.monotonic() - start)
            if is_last:
                return taken
            wait(writers, timeout=pause)


def _look_until(
    connection: psycopg.Connection, storage: Storage, writers: Sequence[Future[Run]], start: float, pause: float
) -> Iterator[Look]:
    while wait(writers, timeout=pause).not_done:
        yield _look(connection, storage, start)


def _look(connection: psycopg.Connection, storage: Storage, start: float) -> Look:
    superfluous, is_large = None, False
    if storage == "tables":
        index = _row(connection, "SELECT id FROM simsql.registry WHERE table_id = %s::regclass", TABLE)[0]
        keys, needed, batch = _row(
            connection,
            f"SELECT (SELECT count(*) FROM simsql.keys_{index}_0),"
            f" (SELECT count(DISTINCT fingerprint) FROM {TABLE}), simsql._batch_size()",
        )
        superfluous = max(0.0, 1 - needed / max(keys, 1))
        is_large = keys >= batch and superfluous >= 0.25
    else:
        is_large = _row(connection, "SELECT pg_relation_size(%s::regclass) / 8192", TABLE)[0] >= 2 * _PAGES
    size, index_size, unvacuumed, hint = _row(
        connection,
        "SELECT pg_database_size(current_database()), i.bytes, coalesce(i.unvacuumed, 0), i.hint"
        " FROM simsql.indexes AS i JOIN simsql.registry AS r USING (id) WHERE r.table_id = %s::regclass",
        TABLE,
    )
    return Look(time.monotonic() - start, size, index_size, superfluous, unvacuumed, hint, is_large)


def _row(connection: psycopg.Connection, statement: str, *parameters: object) -> tuple[Any, ...]:
    row = connection.execute(statement.encode(), parameters).fetchone()
    assert row is not None
    return row


def course_table(course: Course, lines: int = 8) -> str:
    """Return what became of an index, at some of the moments."""
    chosen = np.unique(np.linspace(0, len(course.looks) - 1, lines).astype(int))
    numbers = ["seconds", "database MB", "index MB", "superfluous keys", "unvacuumed"]
    return format_table(
        [*numbers, "what the index says"],
        [
            [
                f"{look.seconds:.0f}",
                f"{look.database_bytes / 1e6:.0f}",
                f"{look.index_bytes / 1e6:.1f}",
                "" if look.superfluous is None else f"{look.superfluous:.0%}",
                f"{look.unvacuumed:.0%}",
                look.hint or "",
            ]
            for look in (course.looks[place] for place in chosen)
        ],
        numbers,
    )


def describe_course(course: Course) -> str:
    """Return how it grew and how often it was maintained."""
    grown = f"The last third needed {course.growth():.2f} times the space of the thirds before."
    if not course.maintenance:
        return grown
    return f"{grown} Maintained {len(course.maintenance)} times, in {max(course.maintenance):.1f} s at most."
