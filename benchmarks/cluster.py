"""A Citus cluster on this machine, removed afterwards even if this process is killed."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from benchmarks.server import new_folder
from simsql.errors import SimsqlError
from simsql.server.postgres_server import PostgresServer

WORKERS = 2


def find_scripts() -> Path | None:
    """Return the folder with start-cluster.sh that SIMSQL_CITUS names; None if there is none."""
    folder = Path(os.environ.get("SIMSQL_CITUS") or "missing").resolve()
    return folder if (folder / "start-cluster.sh").exists() else None


@contextlib.contextmanager
def run_cluster(scripts: Path, parent: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Start a coordinator and two workers with these settings below `parent`; return the coordinator's URL.

    Raises SimsqlError with the script's message if the cluster does not start.
    """
    with new_folder(parent) as folder:
        variables = {
            "WORKERS": str(WORKERS),
            "CITUS_FSYNC": "on",
            "CITUS_CONF": "\n".join(f"{name} = '{value}'" for name, value in settings.items()),
        }
        started = subprocess.run(
            [scripts / "start-cluster.sh", folder / "cluster"],
            env=os.environ | variables,
            check=False,
            capture_output=True,
            text=True,
        )
        try:
            if started.returncode:
                raise SimsqlError(f"the Citus cluster did not start: {started.stderr.strip()}")
            yield started.stdout.strip()
        finally:
            subprocess.run([scripts / "stop-cluster.sh", folder / "cluster", "--remove"], check=False)


@contextlib.contextmanager
def run_single_server(cluster_url: str, parent: Path, settings: Mapping[str, str]) -> Iterator[PostgresServer]:
    """Start one server of the cluster's programs with these settings."""
    with psycopg.connect(cluster_url) as connection:
        row = connection.execute("SELECT setting FROM pg_config WHERE name = 'BINDIR'").fetchone()
    assert row is not None
    with new_folder(parent) as folder:
        server = PostgresServer(Path(row[0]), folder / "data", settings)
        server.init()
        server.start()
        try:
            yield server
        finally:
            server.stop()
