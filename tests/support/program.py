"""The command line: run in this process, which is fast, or as a process of its own, as users have it."""

import contextlib
import fcntl
import gc
import io
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from simsql.cli import main
from simsql.server import start_embedded, watcher

PROGRAM = Path(sys.executable).with_name("simsql")
# Most of what a server does as it starts and stops is waiting for the disk.
MEMORY: Path | None = Path("/dev/shm")
if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 500_000_000:
    MEMORY = None

Process = subprocess.Popen[bytes]
_started: list[Process] = []

# The sessions of runs that wait for what they read, as seen from another one.
READING = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'simsql%' AND xact_start IS NOT NULL"
    " AND wait_event = 'ClientRead'"
)
"""SQL for the sessions of commands that read, while a transaction is open."""

ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
"""The exit codes of commands that are interrupted."""

Argument = str | bytes | Path | int

STREAMS = ("stdin", "stdout", "stderr")


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
        assert self.err.startswith("simsql: error: ")
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
    code = _call_main(arguments, (_stream(stdin), out, err), environment(home, **variables))
    return Result(code, out.buffer.getvalue(), err.buffer.getvalue().decode("utf-8"))


def run_in_one_stream(command: str) -> tuple[str, int]:
    """Run a command line in this process; return its stdout and stderr, in one stream, and its exit code."""
    shown = _stream()
    code = _call_main(shlex.split(command)[1:], (_stream(), shown, shown), dict(os.environ))
    return shown.buffer.getvalue().decode("utf-8"), code


def run_into(stdout: Any, *arguments: Argument, **variables: str) -> Result:
    """Run the command line in this process with this stdout; None is one that is closed."""
    err = _stream()
    code = _call_main(arguments, (_stream(), stdout, err), environment(None, **variables))
    return Result(code, b"", err.buffer.getvalue().decode("utf-8"))


def run_with_stderr(stderr: Any, *arguments: Argument, **variables: str) -> Result:
    """Run the command line in this process with this stderr."""
    out = _stream()
    code = _call_main(arguments, (_stream(), out, stderr), environment(None, **variables))
    return Result(code, out.buffer.getvalue(), "")


@dataclass(frozen=True)
class AtTerminal(Result):
    """What a run at a terminal has left: in the files that streams were redirected to, and on the terminal."""

    terminal: str


def run_at_terminal(*arguments: Argument, redirected: Collection[str], **variables: str) -> AtTerminal:
    """Run the command line in this process, its streams at a terminal except for those redirected to a file."""
    variables = {"TERM": "xterm-256color", "COLUMNS": "200", **variables}
    with tempfile.TemporaryDirectory() as folder, _terminal() as (device, shown):
        with contextlib.ExitStack() as stack:
            opened = []
            for name in STREAMS:
                place = Path(folder, name) if name in redirected else device
                mode = "r" if name == "stdin" else "w"
                opened.append(stack.enter_context(open(place, mode, encoding="utf-8", closefd=place != device)))
            code = _call_main(arguments, opened, environment(None, **variables))
        out, err = (Path(folder, name).read_bytes() if name in redirected else b"" for name in STREAMS[1:])
        return AtTerminal(code, out, err.decode("utf-8"), shown())


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[int, Callable[[], str]]]:
    """A pseudo-terminal, and what has been shown on it; once that is asked for, nothing more can be."""
    control, device = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # as Linux ends it
            while data := os.read(control, 1 << 16):
                shown.append(data)

    # As it is shown: what nobody reads fills the terminal up, and who writes waits.
    reader = threading.Thread(target=read)
    reader.start()

    def end() -> str:
        nonlocal device
        if device >= 0:
            os.close(device)
            device = -1
        reader.join()
        text = b"".join(shown).decode("utf-8").replace("\r\n", "\n")
        return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)  # colours, and moves of the cursor

    try:
        yield device, end
    finally:
        end()
        os.close(control)


def _call_main(arguments: Collection[Argument], streams: Collection[Any], variables: dict[str, str]) -> int:
    """Run the command line with these streams, and leave everything else in this process as it was."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, variables, clear=True))
        stack.enter_context(mock.patch.object(sys, "argv", ["simsql", *map(_text, arguments)]))
        stack.enter_context(mock.patch.object(sys, "unraisablehook", sys.unraisablehook))
        stack.enter_context(mock.patch("gc.freeze"))  # else garbage of the tests before would stay for ever
        for name, stream in zip(STREAMS, streams, strict=True):
            stack.enter_context(mock.patch.object(sys, name, stream))
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
        finally:
            gc.enable()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            if sys.stdout not in streams:
                sys.stdout.close()  # what took the place of a closed one
        for stream in filter(None, streams):
            stream.flush()
    return code or 0


def run_apart(*arguments: Argument, stdin: bytes = b"", home: Path | None = None, **options: Any) -> Result:
    """Run the command line as a process."""
    process = spawn(*arguments, home=home, **options)
    return finish(process, stdin)


def spawn(*arguments: Argument, home: Path | None = None, **options: Any) -> Process:
    """Start the command line as a process in a session of its own, as a shell starts it on a terminal."""
    variables = options.pop("variables", {})
    streams = dict.fromkeys(STREAMS, subprocess.PIPE)
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


def members(process: Process) -> list[int]:
    """The processes of the group, which are the run and its helpers; zombies do not count."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            if int(group) == process.pid and state != "Z":
                found.append(int(path.parent.name))
    return found


def interrupt(process: Process, how: signal.Signals) -> None:
    """As a terminal does (Ctrl-C reaches all processes of the group), or a supervisor."""
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)


def check_interrupted(process: Process, how: signal.Signals, out: Path) -> None:
    code = ENDS[how]
    found = finish(process)
    assert found.code == code, found.err
    assert found.err == ("simsql: interrupted\n" if how == signal.SIGINT else "simsql: terminated\n")
    assert [path.name for path in out.iterdir()] == ["clusters"]
    assert (out / "clusters").read_text() == "old"
    wait_until(lambda: not members(process), "its processes are gone")
