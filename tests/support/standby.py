"""A streaming replica of a test server."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from program import wait_until
from servers import SETTINGS, Server
from sqlalchemy import URL

from simsql.server.binaries import server_account
from simsql.server.postgres_server import PostgresServer


@dataclass(frozen=True)
class Standby:
    """A hot standby, which answers queries and accepts no writes."""

    primary: Server
    cluster: PostgresServer

    def url(self, database: str | None) -> URL:
        return self.cluster.url(database or "postgres")

    def catch_up(self) -> None:
        """Wait until the standby has all that the primary has committed."""
        with self.primary.connect("postgres") as primary, self.connect() as standby:
            (written,) = primary.execute("SELECT pg_current_wal_lsn()").fetchone()
            wait_until(
                lambda: standby.execute("SELECT pg_last_wal_replay_lsn() >= %s", [written]).fetchone()[0],
                "the standby to have replayed everything",
            )

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection of psycopg in autocommit mode."""
        return psycopg.connect(dbname=database, user="postgres", autocommit=True, **self.cluster.url().query)


@contextlib.contextmanager
def run_standby(primary: Server) -> Iterator[Standby]:
    """Copy a server, and start the copy as its standby."""
    source = primary.cluster
    folder = source.data_folder.with_name("standby")
    account = server_account(source.data_folder)
    program = source.bin_folder / "pg_basebackup"
    folder.mkdir(mode=0o700)
    os.chown(folder, account.uid, account.gid)
    where = source.url().query
    account.run(
        *(str(program), "--pgdata", str(folder), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"),
        *("--host", where["host"], "--port", where["port"], "--username", "postgres"),
    )
    # Another test may have created a tablespace.
    cluster = PostgresServer(source.bin_folder, folder, SETTINGS | {"allow_in_place_tablespaces": "on"})
    cluster.start()
    try:
        yield Standby(primary, cluster)
    finally:
        cluster.stop()
