"""The command line: run in this process, which is fast, or as a process of its own, as users have it."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from simsql.cli import main
from simsql.database import watcher
from simsql.database.embedded import start_embedded

PROGRAM = Path(sys.executable).with_name("simsql")
# Most of what a server does as it starts and stops is waiting for the disk.
MEMORY: Path | None = Path("/dev/shm")
if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 500_000_000:
    MEMORY = None

Process = subprocess.Popen[bytes]
_started: list[Process] = []

# The sessions of runs that wait for what they read, as seen from another one.
# Its temporary table is created, which the lock tells: the driver sets savepoints already when it connects.
READING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'simsql' AND state = 'idle in transaction'"
    " AND (query LIKE '%simsql_staged%' OR query LIKE 'SAVEPOINT %')"
    " AND EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = pg_stat_activity.pid AND mode = 'AccessExclusiveLock')"
)

Argument = str | bytes | Path | int


@dataclass(frozen=True)
class Result:
    """What a run has left: exit code and output."""

    code: int
    stdout: bytes
    err: str

    @property
    def out(self) -> str:
        return self.stdout.decode("utf-8")

    @property
    def lines(self) -> list[str]:
        """Lines of stdout; only \\n ends one."""
        return self.out.removesuffix("\n").split("\n") if self.stdout else []

    @property
    def clusters(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def groups(self) -> set[frozenset[str]]:
        """The ids of each cluster."""
        return {frozenset(member["id"] for member in cluster["members"]) for cluster in self.clusters}

    @property
    def table(self) -> dict[str, str]:
        """The summary at the end, heading to value."""
        rows = re.findall(r"^ *(\S.*?) {2,}([\d.,]+)$", self.err, re.MULTILINE)
        return dict(rows)

    def failed(self, code: int, *parts: str) -> None:
        """Assert that the run failed with one line on stderr which holds all of this, and wrote nothing."""
        assert self.code == code, self.err
        assert self.stdout == b""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("simsql: ")
        for part in parts:
            assert part in self.err

    def done(self) -> "Result":
        """Assert that the run did what it was asked to."""
        assert self.code == 0, self.err
        assert "Traceback" not in self.err
        return self


def run(*arguments: Argument, stdin: bytes = b"", home: Path | None = None, **variables: str) -> Result:
    """Run the command line in this process. What escapes from it, a traceback to users, is raised."""
    out, err = _stream(), _stream()
    before = signal.getsignal(signal.SIGTERM)
    with (
        mock.patch.dict(os.environ, environment(home, **variables), clear=True),
        mock.patch.object(sys, "argv", ["simsql", *map(_text, arguments)]),
        mock.patch.object(sys, "stdin", _stream(stdin)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGTERM, before)
    out.flush()
    err.flush()
    return Result(code or 0, out.buffer.getvalue(), err.buffer.getvalue().decode("utf-8"))


def run_apart(*arguments: Argument, stdin: bytes = b"", home: Path | None = None, **options: Any) -> Result:
    """Run the command line as a process."""
    process = spawn(*arguments, home=home, **options)
    return finish(process, stdin)


def spawn(*arguments: Argument, home: Path | None = None, **options: Any) -> Process:
    """Start the command line as a process in a session of its own, as a shell starts it on a terminal."""
    variables = options.pop("variables", {})
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [os.fspath(PROGRAM), *(a if isinstance(a, bytes) else str(a) for a in arguments)]
    process = subprocess.Popen(
        command, env=environment(home, **variables), start_new_session=True, **{**streams, **options}
    )
    _started.append(process)
    return process


def kill_started() -> None:
    """Kill what a test has started and left running."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def finish(process: Process, stdin: bytes | None = None) -> Result:
    """Wait for a process that was started with spawn()."""
    out, err = process.communicate(stdin, timeout=120)
    return Result(process.returncode, out or b"", (err or b"").decode("utf-8"))


def environment(home: Path | None, **variables: str) -> dict[str, str]:
    """Our variables without those that change what is tested."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "SIMSQL", "PYTEST", "COV", "PYTHONIOENCODING"))
        and name not in {"COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"}
    }
    own = {"SIMSQL_HOME": str(home)} if home else {"SIMSQL_HOME": "/dev/null/there is no home in this test"}
    return {**kept, **own, **variables}


@contextlib.contextmanager
def temporary_folder(parent: Path | None = MEMORY) -> Iterator[Path]:
    """A new folder: shorter than pytest's own, and not below one of mode 0700, closed to root's server."""
    path = Path(tempfile.mkdtemp(prefix="simsql-test-", dir=parent))
    path.chmod(0o711)
    try:
        yield path
    finally:
        kill_started()
        for folder in path.rglob("postgres"):
            watcher.stop_server(folder)
        shutil.rmtree(path)


@contextlib.contextmanager
def running_home() -> Iterator[Path]:
    """The folder of an embedded server that runs meanwhile: commands join it, and need not start it."""
    with temporary_folder() as path, start_embedded(path / "home") as server:
        server.url()
        yield server.folder


def copy_home(home: Path, target: Path) -> Path:
    """A folder as a stopped server leaves it, made without initdb: `home` must not be running."""
    subprocess.run(["cp", "-a", home, target], check=True)
    return target


def wait_until(condition: Callable[[], Any], what: str, process: Process | None = None) -> Any:
    """Wait until this is true and return it; fail at once if the process ends first."""
    deadline = time.monotonic() + 60
    while not (found := condition()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended before {what}: {finish(process).err}")
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.01)
    return found


def write_lines(path: Path, documents: Mapping[str, str] | list[dict[str, Any]]) -> Path:
    """Write JSON lines, of texts by id or of whole objects."""
    rows = (
        [{"id": name, "text": text} for name, text in documents.items()]
        if isinstance(documents, Mapping)
        else documents
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _stream(data: bytes = b"") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="backslashreplace" if not data else None)


def _text(argument: Argument) -> str:
    return os.fsdecode(argument) if isinstance(argument, bytes) else str(argument)
