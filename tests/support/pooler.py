"""PgBouncer in front of a test server."""

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from program import wait_until
from sqlalchemy import URL, Engine, event, make_url
from sqlalchemy.engine import Dialect

_ports = itertools.count(6432)
# Consecutive transactions take turns with the idle sessions. Roles come and go with the tests.
_SETTINGS = """
[databases]
* = host={folder} port=5432
[pgbouncer]
pool_mode = {mode}
server_round_robin = 1
auth_type = trust
auth_file = {folder}/pgbouncer.users
auth_user = postgres
max_client_conn = 200
listen_port = {port}
unix_socket_dir = {folder}
"""


def find_pgbouncer() -> str | None:
    """The program, if it is installed."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


# By driver.
SETTINGS: dict[str, dict[str, Any]] = {
    "psycopg": {"prepare_threshold": None},
    "asyncpg": {"prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: ""},
}


@dataclass(frozen=True)
class Pooler:
    """A running pooler before one server."""

    port: int

    def url(self, database_url: URL | str) -> URL:
        """The URL of a database through the pooler."""
        return make_url(database_url).update_query_dict({"port": str(self.port)})


@contextlib.contextmanager
def run_pooler(data_folder: Path, mode: str = "transaction") -> Iterator[Pooler]:
    """Start a pooler before the server with this folder, and stop it afterwards."""
    program = find_pgbouncer()
    assert program
    port = next(_ports)
    settings = data_folder / f"pgbouncer{port}.ini"  # the server's socket is there
    settings.write_text(_SETTINGS.format(folder=data_folder, port=port, mode=mode))
    users = data_folder / "pgbouncer.users"
    users.write_text('"postgres" ""')
    owner = data_folder.stat()
    for file in (settings, users):
        file.chmod(0o644)
    # It refuses to run as root.
    account = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen([program, "--quiet", settings], stderr=subprocess.DEVNULL, cwd="/", **account)
    try:
        wait_until((data_folder / f".s.PGSQL.{port}").exists, "the pooler listens")
        yield Pooler(port)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def run_suited_pooler(data_folder: Path) -> Iterator[Pooler]:
    """Start a pooler to which every engine of this process connects as docs/guides/poolers.md says."""
    with run_pooler(data_folder) as pooler:

        def suit(dialect: Dialect, record: object, arguments: object, options: dict[str, Any]) -> None:
            if str(options.get("port")) == str(pooler.port):
                options |= SETTINGS[dialect.driver]

        event.listen(Engine, "do_connect", suit)
        yield pooler
        event.remove(Engine, "do_connect", suit)
