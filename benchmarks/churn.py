"""Measure a month of changes, maintained each night or never: python -m benchmarks.churn, which prints Markdown.

Each day a tenth of the rows get another fingerprint, a twentieth is deleted, and as many are inserted. After each
of these, searches are timed and compared with brute force. Tables are vacuumed when autovacuum would do it. A day
and its maintenance begin with a checkpoint each, so that the write-ahead log holds whole pages. A search is timed
by its client, and by the processor time of the server, which other work changes less. It needs Linux's /proc.
"""

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import typer

from benchmarks.cost import Session
from benchmarks.cost_tables import Spent
from benchmarks.data import Fingerprints, make_fingerprints, make_queries
from benchmarks.environment import describe_machine, describe_server
from benchmarks.figures import markdown_line
from benchmarks.harness import copy_fingerprints
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.server import connect, default_folder, run_server
from simsql.database.index_spec import Storage
from simsql.errors import SimsqlError
from simsql.server.postgres_server import PostgresServer

_SETTINGS = {"work_mem": "4MB", "max_parallel_workers_per_gather": "0", "max_parallel_maintenance_workers": "0"}
# Each day two of so many parts of the rows change, one is deleted and one inserted, in statements of so many rows.
_PARTS, _STATEMENT = 20, 1_000
_QUERIES = 100  # after each of these, near rows and near those that are gone
_TITLES = (
    *("day", "table", "key tables", "indexes", "p50 / p99", "processor: p50 / p99", "log"),
    *("`maintain`: log", "processor"),
)
_CHANGE = (
    "UPDATE article AS a SET fingerprint = u.value FROM unnest(%s::bigint[], %s::bigint[]) AS u (id, value)"
    " WHERE a.id = u.id"
)
_DELETE = "DELETE FROM article WHERE id = ANY (%s::bigint[])"
_INSERT = "INSERT INTO article SELECT * FROM unnest(%s::bigint[], %s::bigint[])"
# Without the primary key, which grows by itself: where some of its ascending ids are deleted, no new ones come.
_BYTES = """
SELECT pg_table_size('article'), coalesce(sum(pg_table_size(oid)), 0),
       pg_indexes_size('article') - pg_relation_size('article_pkey') + coalesce(sum(pg_indexes_size(oid)), 0)
  FROM pg_class WHERE relkind = 'r' AND relnamespace = 'simsql'::regnamespace AND relname ~ '^keys_[0-9]+_[0-9]+$'
"""
_DUE = """
SELECT relid::regclass::text FROM pg_stat_user_tables
 WHERE n_dead_tup > 50 + %(share)s * n_live_tup OR n_ins_since_vacuum > 1000 + 0.2 * n_live_tup
"""
# When autovacuum comes: by default, and as docs/explanation/how-it-works.md advises.
_DUE_FROM: dict[Storage, float] = {"tables": 0.2, "expression": 0.005}


class Month:
    """A table in a database of its own, its rows, and what was measured."""

    def __init__(
        self, session: Session, storage: Storage, values: Fingerprints, rows: int, *, maintained: bool
    ) -> None:
        self.title = f"`{storage}`, maintained {'each night' if maintained else 'never'}"
        self.lines: list[str] = []
        self.searches = 0
        self._maintained, self._share, self._new = maintained, rows // _PARTS, values[rows:]
        self._ids, self._values, self._due_from = np.arange(1, rows + 1), values[:rows].copy(), _DUE_FROM[storage]
        self._last_id, self._chance = rows, np.random.default_rng(rows)
        self._session = session
        self._session.execute("CREATE TABLE article (id bigint, fingerprint bigint)")
        copy_fingerprints(self._session.connection, "article", self._values)
        self._session.execute("ALTER TABLE article ADD PRIMARY KEY (id)")
        self._session.execute("SELECT simsql.create_index('article', 'fingerprint', storage => %s)", storage)
        self._session.execute("VACUUM (ANALYZE)")
        self._times: list[tuple[float, float]] = []
        self._search(self._values)  # which plans the statements
        self.day(0)

    def day(self, number: int) -> None:
        """Change rows and search, and maintain the index at night. On the first, only search."""
        self._times = []
        self._session.execute("CHECKPOINT")
        daily = self._session.spend(partial(self._change, self._share if number else 0))
        nightly = Spent(0, 0, 0, 0)
        if self._maintained and number:
            self._session.execute("CHECKPOINT")
            nightly = self._session.spend(partial(self._session.execute, "CALL simsql.maintain()"))
            self._vacuum()
        sizes = self._session.execute(_BYTES).fetchone()
        assert sizes is not None
        percentiles = np.percentile(self._times, (50, 99), axis=0).T
        cells = [
            str(number),
            *(f"{float(size) / 1e6:.1f} MB" for size in sizes),
            *(" / ".join(f"{1e6 * part:.0f}" for part in parts) + " µs" for parts in percentiles),
            f"{daily.log / 1e6:.0f} MB",
            f"{nightly.log / 1e6:.0f} MB",
            f"{nightly.processor:.1f} s",
        ]
        self.lines.append(markdown_line(cells))

    def verify(self) -> None:
        """Raise WrongResultError unless all keys are those of the rows."""
        faults = self._session.execute("SELECT * FROM simsql.verify()").fetchall()
        if faults:
            raise WrongResultError(f"{self.title}: {faults}")

    def _change(self, share: int) -> None:
        chosen = self._chance.permutation(self._ids.size)[: 3 * share]
        changed, deleted = chosen[: 2 * share], chosen[2 * share :]
        gone = self._values[chosen] if share else self._values
        new, self._new = self._new[: 3 * share], self._new[3 * share :]
        self._values[changed] = new[: 2 * share]
        self._write(_CHANGE, self._ids[changed], self._values[changed].view(np.int64))
        self._search(gone)
        self._write(_DELETE, self._ids[deleted])
        self._ids, self._values = np.delete(self._ids, deleted), np.delete(self._values, deleted)
        self._search(gone)
        added = self._last_id + np.arange(1, share + 1)
        self._write(_INSERT, added, new[2 * share :].view(np.int64))
        self._ids, self._values = np.append(self._ids, added), np.append(self._values, new[2 * share :])
        self._last_id += share
        self._search(gone)
        self._vacuum()

    def _write(self, statement: str, *columns: np.ndarray) -> None:
        for start in range(0, columns[0].size, _STATEMENT):
            self._session.execute(statement, *(column[start : start + _STATEMENT].tolist() for column in columns))

    def _search(self, gone: Fingerprints) -> None:
        oracle = Oracle(self._values)
        queries = [make_queries(values, _QUERIES, self.searches).neighbours for values in (self._values, gone)]
        for query in np.concatenate(queries):
            start, processor = time.perf_counter(), self._session.processor()
            rows = self._session.execute("SELECT * FROM simsql.near('article', %s, 3)", int(query.view(np.int64)))
            found = [(fingerprint % 2**64, bits) for fingerprint, bits in rows]
            self._times.append((time.perf_counter() - start, self._session.processor() - processor))
            oracle.check_near(self.title, int(query), 3, found)
            self.searches += 1

    def _vacuum(self) -> None:
        self._session.execute("SELECT pg_stat_force_next_flush()")
        for (table,) in self._session.execute(_DUE % {"share": self._due_from}).fetchall():
            self._session.execute(f"VACUUM (ANALYZE) {table}")


def _new_session(cluster: PostgresServer, database: str) -> Session:
    with connect(cluster, "template1") as connection:
        connection.execute(f"CREATE DATABASE {database} TEMPLATE postgres".encode())
    return Session(cluster, database)


def main(
    rows: Annotated[int, typer.Option(min=1000, help="Rows of the table.")] = 200_000,
    days: Annotated[int, typer.Option(min=1, help="How long it goes on.")] = 30,
    folder: Annotated[
        Path | None, typer.Option(file_okay=False, exists=True, help="Where the server's folder is made.")
    ] = None,
) -> None:
    """Measure a month of changes, maintained each night or never, with both storages."""
    values = make_fingerprints(rows + days * (rows // _PARTS) * 3, 1)
    try:
        with (
            run_server((folder or default_folder()).resolve(), values.size, 0, _SETTINGS) as cluster,
            ExitStack() as stack,
        ):
            with connect(cluster) as connection:
                for name, value in (describe_machine() | describe_server(connection)).items():
                    print(f"{name}: {value}", flush=True)
            months = []
            for storage in get_args(Storage):
                for maintained in (True, False):
                    session = stack.enter_context(_new_session(cluster, f"{storage}_{maintained}".lower()))
                    months.append(Month(session, storage, values, rows, maintained=maintained))
            # Day by day, so that other work on the machine meets all of them.
            for day in range(1, days + 1):
                print(f"{time.strftime('%H:%M:%S')} day {day}", file=sys.stderr, flush=True)
                for month in months:
                    month.day(day)
            for month in months:
                month.verify()
                print(f"\n{month.title}; {month.searches:,} searches equal brute force\n")
                print("\n".join([markdown_line(_TITLES), markdown_line(["---:"] * len(_TITLES))]))
                print("\n".join(month.lines), flush=True)
    except (WrongResultError, SimsqlError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    typer.run(main)
