"""Runs that are interrupted or killed: nothing half-written stays."""

import contextlib
import lzma
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from program import ENDS, Process, check_interrupted, finish, interrupt, members, spawn, wait_until, write_lines

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")

# One handler serves all signals: while it reads, a run is interrupted by each, and otherwise by one or two.
EITHER = pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "clusters").write_text("old")
    return tmp_path / "out"


# The moments at which it happens: each waits until the run is there, and returns


def has_temporary_file(process: Process) -> bool:
    with contextlib.suppress(OSError):
        return any("(deleted)" in str(file.readlink()) for file in Path(f"/proc/{process.pid}/fd").iterdir())
    return False


def while_it_reads_in_memory(process: Process) -> None:
    process.stdin.write(b'{"text": "some words"}\n')
    process.stdin.flush()
    wait_until(lambda: has_temporary_file(process), "it has a file for tokens", process)


def while_processes_fingerprint(process: Process) -> None:
    line = b'{"text": "' + b"some words that are many " * 40_000 + b'"}\n'
    for _ in range(40):
        process.stdin.write(line)
    process.stdin.flush()
    wait_until(lambda: len(members(process)) > 1, "it has processes", process)


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        *((while_it_reads_in_memory, how) for how in ENDS),
        (while_processes_fingerprint, signal.SIGTERM),
    ],
)
def test_before_there_are_clusters(out, moment: Callable, how):
    process = spawn("dedup", "-", "--workers", 2, "--output", out / "clusters")
    moment(process)
    interrupt(process, how)
    check_interrupted(process, how, out)


@EITHER
def test_while_clusters_are_written(out, tmp_path, how):
    """The drop list goes into a pipe that nobody reads, so the clusters are half written."""
    texts = {f"{n} {'x' * 200}": f"word {n % 50} and word {n % 50}" for n in range(1000)}
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        path = write_lines(tmp_path / "a.jsonl", texts)
        process = spawn("dedup", path, "--output", out / "clusters", "--drop-list", tmp_path / "pipe")
        half_written = lambda: any(file.stat().st_size for file in out.glob(".clusters*"))  # noqa: E731
        wait_until(half_written, "clusters are half written", process)
        interrupt(process, how)
        check_interrupted(process, how, out)
    finally:
        os.close(reader)


@pytest.mark.parametrize(("how", "files"), [(signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGKILL, 2)])
def test_while_the_clean_corpus_is_written(out, tmp_path, texts, how, files):
    """A record that is skipped takes long to compress, so a file is half written."""
    (tmp_path / "in").mkdir()
    path = write_lines(tmp_path / "in/a.jsonl", texts)
    slow = path.read_bytes() + b'{"note": "' + random.Random(1).randbytes(1_000_000).hex().encode() + b'"}\n'
    for number in range(files):
        (tmp_path / f"in/{number}.jsonl.xz").write_bytes(lzma.compress(slow, preset=0))
    path.unlink()
    name = "0.jsonl.xz" if files == 1 else "clean"
    arguments = tmp_path / "in" / (name if files == 1 else "")
    process = spawn("dedup", arguments, "--output", out / "clusters", "--clean", out / name)
    wait_until(lambda: list(out.glob(f".{name}*")), "the copy has begun", process)
    interrupt(process, how)
    if how == signal.SIGKILL:
        assert finish(process).code == -how
        assert {path.name for path in out.iterdir() if not path.name.startswith(".")} == {"clusters"}
        assert (out / "clusters").read_text() == "old"
    else:
        check_interrupted(process, how, out)


@EITHER
def test_while_the_pipe_is_opened(out, tmp_path, lines, how):
    os.mkfifo(tmp_path / "pipe")
    process = spawn("dedup", lines, "--output", out / "clusters", "--drop-list", tmp_path / "pipe")
    wait_until(lambda: list(out.glob(".clusters*")), "the file is opened", process)
    interrupt(process, how)
    check_interrupted(process, how, out)


def test_with_a_reader_that_does_not_read_on(tmp_path):
    """As `less`, which Ctrl-C does not end: the run must not wait for it."""
    texts = {f"{n} {'x' * 2000}": f"word {n % 50} and word {n % 50}" for n in range(300)}
    process = spawn("dedup", write_lines(tmp_path / "a.jsonl", texts), stdin=subprocess.DEVNULL)
    process.stdout.read(10)
    interrupt(process, signal.SIGINT)
    assert process.wait(60) == 130
    assert b"Traceback" not in process.stderr.read()
