"""The PostgreSQL servers of the comparison, and the processor time of all their processes."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from sqlalchemy import URL

from benchmarks.server import connect, default_folder, run_server

_DEBIAN, _DEBIAN_FILES = Path("/usr/lib/postgresql"), Path("/usr/share/postgresql")
_TICKS = 100  # a second, on every Linux


@dataclass(frozen=True)
class Server:
    """A running server with simsql installed, and a connection to it in autocommit mode."""

    url: URL
    connection: psycopg.Connection

    @property
    def version(self) -> str:
        """Such as 18.4."""
        return str(self.value("SHOW server_version")).split()[0]

    def value(self, statement: str) -> object:
        """Run a statement and return the one value that it gives."""
        row = self.connection.execute(statement.encode()).fetchone()
        assert row is not None
        return row[0]

    def has_extension(self, name: str) -> bool:
        """Return whether the extension's files are installed, and create it if so."""
        if not self.value(f"SELECT count(*) FROM pg_available_extensions WHERE name = '{name}'"):
            return False
        self.connection.execute(f"CREATE EXTENSION IF NOT EXISTS {name}".encode())
        return True

    def processor_seconds(self) -> float:
        """Return the processor time of all processes that the server has had; 0 where there is no /proc."""
        try:
            postmaster = int(_stat(self.connection.info.backend_pid)[1])
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="utf-8").split()
        except OSError:
            return 0.0
        # Processes that have ended count in the last two of the postmaster's.
        ticks = sum(map(int, _stat(postmaster)[11:15]))
        for child in children:
            with contextlib.suppress(OSError):
                ticks += sum(map(int, _stat(int(child))[11:13]))
        return ticks / _TICKS


def _stat(pid: int) -> list[str]:
    """Return the fields of a process from its state on: its parent is the second."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


@contextlib.contextmanager
def start(rows: int, programs: Path | None = None) -> Iterator[Server]:
    """Start a server on a new folder: that of the wheel, or another one. Raises SimsqlError."""
    with run_server(default_folder(), rows, 0, programs=programs) as cluster, connect(cluster) as connection:
        yield Server(cluster.url(), connection)


@contextlib.contextmanager
def start_with(extension: str, rows: int, other: Server) -> Iterator[Server]:
    """Yield a server with the extension: `other`, or a new one of Debian's; `other` if there is none."""
    if not other.has_extension(extension):
        for control in sorted(_DEBIAN_FILES.glob(f"*/extension/{extension}.control"), reverse=True):
            programs = _DEBIAN / control.parts[-3] / "bin"
            if (programs / "postgres").exists():
                with start(rows, programs) as server:
                    server.has_extension(extension)
                    yield server
                return
    yield other
