"""PgBouncer in transaction mode in front of a test server."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
from program import wait_until
from servers import Server
from sqlalchemy import URL, make_url

_PORT = 6432
# Consecutive transactions take turns with the idle sessions.
_SETTINGS = """
[databases]
* = host={folder} port=5432 user=postgres
[pgbouncer]
pool_mode = transaction
server_round_robin = 1
auth_type = any
listen_port = {port}
unix_socket_dir = {folder}
"""


def find_pgbouncer() -> str | None:
    """The program, if it is installed."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@dataclass(frozen=True)
class Pooler:
    """A running pooler before one database."""

    url: URL

    def open_sessions(self) -> None:
        """See to it that at least two sessions are idle: each transaction then changes the session."""
        assert len(self.read_sessions("SELECT pg_backend_pid()")) > 1

    def read_sessions(self, query: str) -> set[tuple[Any, ...]]:
        """The results of a query in two sessions at once, which are idle ones if there are."""
        where = {"dbname": self.url.database, "user": "postgres", **self.url.query}
        with psycopg.connect(**where) as first, psycopg.connect(**where) as second:
            return {row for session in (first, second) for row in session.execute(query).fetchall()}


@contextlib.contextmanager
def run_pooler(server: Server, database_url: str) -> Iterator[Pooler]:
    """Start a pooler before a database, and stop it afterwards."""
    program = find_pgbouncer()
    assert program
    folder = server.cluster.data_folder  # the server's socket is there
    settings = folder / "pgbouncer.ini"
    settings.write_text(_SETTINGS.format(folder=folder, port=_PORT))
    settings.chmod(0o644)
    owner = folder.stat()
    # It refuses to run as root.
    account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen([program, "--quiet", settings], stderr=subprocess.DEVNULL, cwd="/", **account)
    try:
        wait_until((folder / f".s.PGSQL.{_PORT}").exists, "the pooler listens")
        yield Pooler(make_url(database_url).update_query_dict({"port": str(_PORT)}))
    finally:
        process.terminate()
        process.wait()
