"""Transactions a second, as pgbench measures them, and how long each took."""

import os
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psycopg
from numpy.typing import NDArray

from benchmarks.server import MAJOR
from simsql.errors import SimsqlError
from simsql.server.binaries import bundled_programs

RANDOM_QUERY = "\\set q (random(0, 4294967295) << 32) | random(0, 4294967295)\n"
# The start of a run that is not counted: sessions plan their first statements.
WARM_UP = 0.25


class Script(NamedTuple):
    """A transaction, and its share of those of a run, in relation to the other scripts."""

    text: str
    weight: int = 1


@dataclass(frozen=True)
class Run:
    """The transactions of a run, without those of its start."""

    names: Sequence[str]
    script: NDArray[np.int64]  # of each transaction, a place among the names
    milliseconds: NDArray[np.float64]
    ended: NDArray[np.float64]  # seconds of the epoch
    seconds: float  # from the first to the last of them
    processor: float  # share of one core that pgbench itself took

    @property
    def rate(self) -> float:
        """Transactions a second."""
        return self.ended.size / self.seconds

    def latencies(self, name: str) -> NDArray[np.float64]:
        """Return the milliseconds of each transaction of a script."""
        return self.milliseconds[self.script == self.names.index(name)]


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
    with tempfile.TemporaryDirectory() as folder:
        shown = _run(
            pgbench,
            connection,
            {"script": Script(script)},
            Path(folder),
            [f"--client={clients}", limit],
            durable=False,
        )
    found = re.search(r"^tps = ([0-9.]+)", shown, re.MULTILINE)
    if found is None:
        raise SimsqlError(f"pgbench failed: {shown.strip()}")
    return float(found[1])


def log_pgbench(
    pgbench: Path,
    connection: psycopg.Connection,
    scripts: Mapping[str, Script],
    options: Sequence[str],
    *,
    durable: bool = True,
) -> Run:
    """Run scripts and return what each transaction took; commits wait for the disk if they are to be `durable`.

    Raises SimsqlError with pgbench's message if a transaction fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        before, start = _processor_seconds(), time.monotonic()
        log = Path(folder, "log")
        _run(
            pgbench, connection, scripts, Path(folder), [*options, "--log", f"--log-prefix={log}"], durable=durable
        )
        processor = (_processor_seconds() - before) / (time.monotonic() - start)
        # The client, its transaction, microseconds, the script, and when it ended.
        parts = [np.loadtxt(path, usecols=(2, 3, 4, 5), ndmin=2) for path in Path(folder).glob("log.*")]
    taken, script, second, microsecond = np.concatenate([np.empty((0, 4)), *parts]).T
    ended = second + microsecond / 1e6
    began = (ended - taken / 1e6).min()
    counted = ended > began + WARM_UP * (ended.max() - began)
    seconds = ended.max() - ended[counted].min()
    return Run(
        list(scripts), script[counted].astype(np.int64), taken[counted] / 1000, ended[counted], seconds, processor
    )


def _run(
    pgbench: Path,
    connection: psycopg.Connection,
    scripts: Mapping[str, Script],
    folder: Path,
    options: Sequence[str],
    *,
    durable: bool,
) -> str:
    """Run pgbench to its end and return what it printed. Raises SimsqlError with its message if it fails."""
    info = connection.info
    files = []
    for number, script in enumerate(scripts.values()):
        path = folder / f"{number}.pgbench"
        path.write_text(script.text, encoding="utf-8")
        files.append(f"--file={path}@{script.weight}")
    done = subprocess.run(
        [
            *(pgbench, "--no-vacuum", "--protocol=prepared", *files, *options),
            *(f"--host={info.host}", f"--port={info.port}", f"--username={info.user}", info.dbname),
        ],
        env=os.environ | {"PGOPTIONS": f"-c synchronous_commit={'on' if durable else 'off'}"},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode or "number of failed transactions: 0 " not in done.stdout:
        raise SimsqlError(f"pgbench failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
