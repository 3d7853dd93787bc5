"""A server, the tables, and all who work on them at once: in rounds, with a look at everything after each."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from articles import missing_keys
from internals import set_batch_size
from servers import SETTINGS, Program, new_folder

from simsql.database import install_schema, open_engine
from simsql.server.postgres_server import PostgresServer
from trial import searching, tables, writing
from trial.tables import KINDS, Kind
from trial.tally import Tally
from trial.upkeep import Upkeep
from trial.workers import Connect, Job, Workers

BATCH = 800  # keys or fingerprints of a vacuum or a build: with the real number there would be one batch
CLAIMS_WITHIN = 6
_PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
OWN_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "max_prepared_transactions": "40",
    "max_connections": "100",
    "max_wal_size": "256MB",
    "checkpoint_timeout": "30s",
    "autovacuum": "on",
    "autovacuum_naptime": "5s",
    "restart_after_crash": "on",
    "lock_timeout": "0",
    "statement_timeout": "300s",
}


class Cluster(NamedTuple):
    """A server that may be killed at any moment, and where to reach it."""

    server: PostgresServer
    where: Mapping[str, Any]

    def connect(self, database: str) -> psycopg.Connection:
        return psycopg.connect(dbname=database, user="postgres", autocommit=True, **self.where)


@contextlib.contextmanager
def run_cluster(program: Program) -> Iterator[Cluster]:
    """A new server, in memory where there is enough, with the databases `trial`, `texts` and `clients`."""
    with new_folder(program) as folder:
        server = PostgresServer(program.bin_folder, Path(folder) / "data", SETTINGS | OWN_SETTINGS)
        server.init()
        server.start()
        try:
            cluster = Cluster(server, server.url().query)
            with contextlib.closing(cluster.connect("postgres")) as connection:
                for name in ("trial", "texts", "clients"):
                    connection.execute(f"CREATE DATABASE {name}")
                    engine = open_engine(server.url(name))
                    install_schema(engine)
                    engine.dispose()
            yield cluster
        finally:
            server.stop()


class Trial:
    """The tables of all kinds in one database, and all who write, search and keep them up."""

    def __init__(
        self,
        connect: Connect,
        seed: object,
        tally: Tally,
        kinds: tuple[Kind, ...] = KINDS,
        *,
        bystanders: int = len(tables.BYSTANDERS),
        is_kept_up: bool = True,
    ) -> None:
        self.connect = connect
        self.seed = seed
        self.tally = tally
        self._kinds = kinds
        self._searcher = searching.Searcher(tally)
        self._writers = [writing.Writer(number, kinds, tally, self._searcher) for number in range(tables.WRITERS)]
        self._upkeep = Upkeep(kinds, tally)
        self._bystanders = bystanders
        self._is_kept_up = is_kept_up
        self._rounds = 0

    def prepare(self) -> None:
        with contextlib.closing(self.connect()) as connection:
            set_batch_size(connection, BATCH)
            tables.prepare(connection, str(self.seed), self._kinds, self._bystanders)

    def jobs(self) -> dict[str, tuple[Connect, Job]]:
        """The job of each worker, by name."""
        jobs: dict[str, Job] = {f"writer {n}": writer.write for n, writer in enumerate(self._writers)}
        search = searching.job(self._searcher, self._kinds)
        jobs |= {"searcher 1": search, "searcher 2": search}
        jobs["searcher in Python"] = searching.python_job(self._searcher, self._kinds)
        if any(kind.claimed for kind in self._kinds):
            claim = writing.claim(self.tally, CLAIMS_WITHIN)
            jobs |= {"claimer 1": claim, "claimer 2": claim}
        jobs |= {"vacuum": self._upkeep.vacuum, "killer": self._upkeep.kill}
        if self._is_kept_up:
            jobs["upkeep"] = self._upkeep.change
        jobs["killer of anybody"] = self._upkeep.kill_anybody
        return {name: (self.connect, job) for name, job in jobs.items()}

    def round(
        self, until: Callable[[Workers], object], more: Mapping[str, tuple[Connect, Job]] | None = None
    ) -> None:
        """Let all work, and these others, until a function returns."""
        self._rounds += 1
        Workers(self.tally, f"{self.seed} {self._rounds}").run({**self.jobs(), **(more or {})}, until)
        if self.tally.failed:
            # Else nobody could drop the database.
            with contextlib.closing(self.connect()) as connection:
                for (gid,) in connection.execute(_PREPARED).fetchall():
                    connection.execute(f"ROLLBACK PREPARED '{gid}'")

    def check(self, searches: int = 4) -> None:
        """Nobody works now: settle what was cut off, and compare everything."""
        chance = random.Random(f"{self.seed} {self._rounds} check")
        with contextlib.closing(self.connect()) as connection:
            _wait_for_others(connection)
            for writer in self._writers:
                writer.end_prepared(connection)
            for kind in self._kinds:
                self._upkeep.finish(connection, kind)
            for writer in self._writers:
                writer.check(connection)
            for kind in self._kinds:
                missing = missing_keys(connection, kind.name)
                self.tally.find(self.tally.lost, "keys", len(missing), f"{kind.name}: {missing[:3]}")
                self.tally.check("tables without a missing key")
                for _ in range(searches):
                    self._searcher.compare(connection, chance, kind, is_quiet=True)
            self._check_claims(connection)
            assert not connection.execute(_PREPARED).fetchall(), "a transaction is still prepared"
            faults = connection.execute("SELECT table_name, problem, object FROM simsql.verify()").fetchall()
            self.tally.find(self.tally.wrong, "faults of an index", len(faults), f"{faults}")
            self.tally.check("verify")

    def _check_claims(self, connection: psycopg.Connection) -> None:
        if not any(kind.claimed for kind in self._kinds):
            return
        near = connection.execute(
            "SELECT a.id, b.id FROM claimed AS a JOIN claimed AS b ON a.id >= 1000000000 AND a.id <> b.id"
            " AND bit_count((a.fingerprint # b.fingerprint)::bit(64)) <= %s",
            [CLAIMS_WITHIN],
        ).fetchall()
        self.tally.find(self.tally.wrong, "near-duplicates that were claimed", len(near), f"{near[:3]}")
        (claimed,) = connection.execute("SELECT count(*) FROM claimed WHERE id >= 1000000000").fetchone() or (0,)
        self.tally.check("claimed rows", claimed)


def _wait_for_others(connection: psycopg.Connection) -> None:
    """Wait until the sessions of killed clients have noticed that."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        others = connection.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ).fetchall()
        if not others:
            return
        time.sleep(0.02)
