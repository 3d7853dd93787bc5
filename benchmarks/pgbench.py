"""Transactions a second, as pgbench measures them."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg

from benchmarks.server import MAJOR
from simsql.errors import SimsqlError
from simsql.server.binaries import bundled_programs

RANDOM_QUERY = "\\set q (random(0, 4294967295) << 32) | random(0, 4294967295)\n"


def find_pgbench() -> Path | None:
    """Return the program, of the wheel or on the PATH; None if there is none."""
    bundled = bundled_programs()[MAJOR] / "pgbench"
    if bundled.exists():
        return bundled
    found = shutil.which("pgbench")
    return Path(found) if found else None


def run_pgbench(pgbench: Path, connection: psycopg.Connection, script: str, *, clients: int, limit: str) -> float:
    """Run a script on the connection's database and return the transactions a second of all clients.

    `limit` is pgbench's option that ends the run: "--transactions=100" of each client or "--time=10" in seconds.
    Raises SimsqlError with pgbench's message if it fails.
    """
    info = connection.info
    with tempfile.NamedTemporaryFile("w", suffix=".pgbench") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(
            [
                *(pgbench, "--no-vacuum", "--protocol=prepared", f"--client={clients}", f"--file={file.name}"),
                *(limit, f"--host={info.host}", f"--port={info.port}", f"--username={info.user}", info.dbname),
            ],
            env=os.environ | {"PGOPTIONS": "-c synchronous_commit=off"},
            check=False,
            capture_output=True,
            text=True,
        )
    found = re.search(r"^tps = ([0-9.]+)", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        raise SimsqlError(f"pgbench failed: {done.stderr.strip()}")
    return float(found[1])
