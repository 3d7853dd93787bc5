"""A Citus cluster on this machine: a coordinator and two workers, shared by all processes of a test run.

A folder with the programs `start-cluster.sh` and `stop-cluster.sh` starts and stops it: that of the environment
variable SIMSQL_CITUS or, by default, `shared/citus` beside the checkout.
"""

import contextlib
import fcntl
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import servers
from sqlalchemy import URL

from simsql.database.connect import open_engine
from simsql.database.install import install_schema

PROGRAMS = Path(os.environ.get("SIMSQL_CITUS", Path(__file__).parents[3] / "shared" / "citus"))
# Few shards: each one is a table, and tests create many.
SETTINGS = {**servers.SETTINGS, "max_connections": "200", "shared_buffers": "32MB", "citus.shard_count": "4"}


class NoCitus(Exception):  # noqa: N818
    """There is no Citus here. The message tells what is missing."""


@dataclass(frozen=True)
class Citus:
    """A running cluster. It has what tests use of a `servers.Server`; databases and roles exist on all nodes."""

    ports: list[int]
    name: str = "citus"
    major: int = 15
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, database: str = "postgres") -> URL:
        """The URL of a database of the coordinator."""
        where = {"client_encoding": "utf8"}
        return URL.create("postgresql+psycopg", "postgres", None, "127.0.0.1", self.ports[0], database, where)

    def connect(self, database: str, user: str = "postgres", node: int = 0) -> psycopg.Connection:
        """Connect to a node, in autocommit mode: 0 is the coordinator, the others are the workers."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.ports[node],
            dbname=database,
            user=user,
            autocommit=True,
            client_encoding="utf8",
        )

    def execute(self, statement: str) -> None:
        """Run a statement on the coordinator, which passes on those about roles."""
        with self.connect("postgres") as connection:
            connection.execute(statement)

    def execute_everywhere(self, *statements: str, database: str = "postgres") -> None:
        """Run statements on every node, by itself."""
        for node in range(len(self.ports)):
            with self.connect(database, node=node) as connection:
                connection.execute("SET client_min_messages = error")
                for statement in statements:
                    connection.execute(statement)

    @contextlib.contextmanager
    def new_database(self, *, template: str = servers.TEMPLATE) -> Iterator[URL]:
        """A database of its own on all nodes with simsql installed, dropped afterwards."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        # A copy of the template on each node knows all nodes, as the template does.
        self.execute_everywhere(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self.url(name)
        finally:
            self._disconnect(name)
            self.execute_everywhere(f"DROP DATABASE {name}")

    def _disconnect(self, database: str) -> None:
        """End all sessions in a database and allow no new ones: nodes connect to each other."""
        end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        self.execute_everywhere(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false", end)
        for node in range(len(self.ports)):
            with self.connect("postgres", node=node) as connection:
                deadline = time.monotonic() + 10
                while connection.execute(end).fetchall() and time.monotonic() < deadline:
                    time.sleep(0.001)

    def create_template(self) -> None:
        """Create the database that `new_database` copies."""
        name = servers.TEMPLATE
        self.execute_everywhere(f"CREATE DATABASE {name}")
        self.execute_everywhere("CREATE EXTENSION citus", database=name)
        with self.connect(name) as connection:
            connection.execute("SELECT citus_set_coordinator_host('127.0.0.1', %s)", [self.ports[0]])
            for port in self.ports[1:]:
                connection.execute("SELECT citus_add_node('127.0.0.1', %s)", [port])
        engine = open_engine(self.url(name).render_as_string())
        install_schema(engine)
        engine.dispose()
        # Citus would keep a session of its own in it, and then it could not be copied.
        self._disconnect(name)


@contextlib.contextmanager
def run_citus(meeting_place: Path) -> Iterator[Citus]:
    """Start a cluster, or join the one that another process of this test run has started.

    Raises NoCitus without the programs, and RuntimeError if they cannot start it.

    The processes meet in the folder `meeting_place`. The cluster is stopped and removed after the last of them has
    ended, even if it is killed.
    """
    if not (PROGRAMS / "start-cluster.sh").exists():
        raise NoCitus(f"there is no {PROGRAMS / 'start-cluster.sh'}: set SIMSQL_CITUS to a folder that has it")
    meeting_place.mkdir(exist_ok=True)
    where = meeting_place / "folder"
    # The kernel releases a lock when its process ends, in whatever way.
    with (meeting_place / "users").open("w") as users, (meeting_place / "start").open("w") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)  # waits until a cluster that nobody uses any more is gone
        if not where.exists():
            _start(where, Path(users.name))
        folder = Path(where.read_text())
        fcntl.flock(start, fcntl.LOCK_UN)
        ports = [folder / f"{node}.port" for node in ("coordinator", "worker1", "worker2")]
        yield Citus([int(port.read_text()) for port in ports])


def _start(where: Path, users: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="simsql-citus-", dir=servers.memory()))
    folder.chmod(0o711)  # as root, the servers run as another user
    configuration = "\n".join(f"{name} = '{value}'" for name, value in SETTINGS.items())
    environment = os.environ | {"WORKERS": "2", "CITUS_CONF": configuration}
    # The servers inherit the output: reading it through a pipe would wait for them to end.
    output = folder / "output"
    with output.open("w") as stream:
        result = subprocess.run(
            [PROGRAMS / "start-cluster.sh", folder], env=environment, stdout=stream, stderr=stream, check=False
        )
    stop = [str(PROGRAMS / "stop-cluster.sh"), str(folder), "--remove"]
    if result.returncode != 0:
        message = output.read_text().strip()
        subprocess.run(stop, check=False)
        shutil.rmtree(folder, ignore_errors=True)
        raise RuntimeError(f"{PROGRAMS / 'start-cluster.sh'} failed: {message}")
    # It outlives this process: another one may still use the cluster.
    script = '{ flock 9; rm -f "$2"; shift 2; "$@"; rm -rf "$2"; } 9>"$1" >/dev/null 2>&1 &'
    subprocess.run(["/bin/sh", "-c", script, "sh", users, where, *stop], start_new_session=True, check=True)
    cluster = Citus([int((folder / f"{node}.port").read_text()) for node in ("coordinator", "worker1", "worker2")])
    cluster.create_template()
    where.write_text(str(folder))
