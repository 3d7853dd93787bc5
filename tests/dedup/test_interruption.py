"""Runs that are interrupted or killed: nothing half-written stays, and no server that nobody uses."""

import contextlib
import lzma
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from program import (
    MEMORY,
    READING,
    Process,
    copy_home,
    finish,
    run,
    spawn,
    temporary_folder,
    wait_until,
    write_lines,
)
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from simsql.server import start_embedded, watcher
from simsql.server.binaries import bundled_programs
from simsql.server.postgres_server import PostgresServer

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")

ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
# One handler serves all signals: while it reads, a run is interrupted by each, and otherwise by one or two.
EITHER = pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(scope="session")
def stopped_home(home: Path) -> Iterator[Path]:
    """A folder whose server has run and does not run now."""
    with temporary_folder() as parent:
        with start_embedded(parent / "home") as server:
            server.url()
        yield parent / "home"


@pytest.fixture
def cold(stopped_home: Path) -> Iterator[Path]:
    """A folder of its own, whose server no test runs: what a run starts, it has to stop."""
    with temporary_folder() as parent:
        yield copy_home(stopped_home, parent / "home")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "clusters").write_text("old")
    return tmp_path / "out"


def ask(folder: Path, statement: str, database: str = "postgres") -> list:
    """The first column of what the running server of a folder answers; nothing while it does not answer."""
    try:
        url = PostgresServer(bundled_programs()[18], folder / "postgres").url(database)
        engine = create_engine(url, poolclass=NullPool)
        with engine.connect() as connection:
            return connection.execute(text(statement)).scalars().all()
    except (OperationalError, Exception) as error:
        if isinstance(error, OperationalError) or "no server is running" in str(error):
            return []
        raise


def wait_until_gone(folder: Path) -> None:
    """No process of the server is left, nor the one that watches."""
    wait_until(lambda: not watcher.server_lives(folder / "postgres"), "the server is gone")


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


# The moments at which it happens: each waits until the run is there, and returns


def while_it_reads(process: Process, folder: Path, out: Path) -> None:
    process.stdin.write(b'{"text": "some words"}\n')
    process.stdin.flush()
    wait_until(lambda: ask(folder, READING), "it reads", process)


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
    # The run, the tracker of multiprocessing, and at least one that fingerprints.
    wait_until(lambda: len(members(process)) > 2, "it has processes", process)


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


def test_while_the_server_starts(cold, out, lines, groups):
    process = spawn("dedup", lines, "--server-dir", cold, "--output", out / "clusters")
    wait_until((cold / "postgres" / "postmaster.pid").exists, "the server starts", process)
    interrupt(process, signal.SIGINT)
    check_interrupted(process, signal.SIGINT, out)
    wait_until_gone(cold)
    assert run("dedup", lines, "--server-dir", cold).done().groups == groups


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


def test_while_a_new_server_is_made(out, lines, groups):
    with temporary_folder(MEMORY) as parent:
        folder = parent / "new"
        process = spawn("dedup", lines, "--server-dir", folder, "--output", out / "clusters")
        wait_until((folder / "postgres.new" / "base").exists, "initdb works", process)
        interrupt(process, signal.SIGINT)
        check_interrupted(process, signal.SIGINT, out)
        wait_until_gone(folder)
        assert run("dedup", lines, "--server-dir", folder).done().groups == groups


# Where others use the server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_others_use_stays(cold, out, lines, groups, how):
    with start_embedded(cold) as server:
        server.url()
        before = watcher.read_postmaster(cold / "postgres")
        process = spawn("dedup", "-", "--server-dir", cold, "--output", out / "clusters")
        while_it_reads(process, cold, out)
        interrupt(process, how)
        if how == signal.SIGKILL:
            assert finish(process).code == -how
            wait_until(lambda: not ask(cold, READING), "its sessions have ended")
        else:
            check_interrupted(process, how, out)
        assert watcher.read_postmaster(cold / "postgres") == before
        assert run("dedup", lines, "--server-dir", cold).done().groups == groups


def test_another_run_on_the_same_server_is_not_disturbed(cold, out, groups, texts, tmp_path):
    first, second = (spawn("dedup", "-", "--server-dir", cold, "--output", out / "clusters") for _ in range(2))
    wait_until(lambda: len(ask(cold, READING)) == 2, "both read", first)
    interrupt(first, signal.SIGINT)
    assert finish(first).code == 130
    assert watcher.server_lives(cold / "postgres")
    found = finish(second, write_lines(tmp_path / "a.jsonl", texts).read_bytes()).done()
    assert found.table["clusters"] == "2"
    wait_until_gone(cold)


def test_a_killed_run_is_cleared_away(cold, out, lines, groups):
    process = spawn("dedup", "-", "--server-dir", cold, "--output", out / "clusters")
    while_it_reads(process, cold, out)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_until(lambda: not members(process), "its processes are gone")
    wait_until_gone(cold)
    assert [path.name for path in out.iterdir()] == ["clusters"]
    assert run("dedup", lines, "--server-dir", cold).done().groups == groups


def test_an_interrupted_run_leaves_kept_documents_as_they_were(cold, out, lines, groups, texts):
    run("dedup", lines, "--server-dir", cold).done()
    process = spawn("dedup", "-", "--server-dir", cold, "--output", out / "clusters")
    while_it_reads(process, cold, out)
    interrupt(process, signal.SIGINT)
    check_interrupted(process, signal.SIGINT, out)
    wait_until_gone(cold)
    found = run("dedup", lines, "--server-dir", cold).done()
    assert found.table["known already"] == str(len(texts))
    assert found.groups == groups


# In the user's own database


def ask_engine(engine, statement):
    with engine.connect() as connection:
        return connection.execute(text(statement)).scalars().all()


@EITHER
def test_reading_for_a_database(newest, out, how):
    engine, url = newest
    process = spawn("dedup", "-", "--database", url, "--table", "kept", "--output", out / "clusters")
    here = READING + " AND datname = current_database() AND to_regclass('kept') IS NOT NULL"
    wait_until(lambda: ask_engine(engine, here), "it reads", process)
    interrupt(process, how)
    check_interrupted(process, how, out)
    assert ask_engine(engine, "SELECT count(*) FROM kept") == [0]


@EITHER
def test_a_statement_that_runs_is_cancelled(newest, out, lines, groups, how):
    """The statement waits for a lock here; one that computes for an hour is no different."""
    engine, url = newest
    options = ["--database", url, "--table", "kept"]
    run("dedup", lines, *options).done()
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE kept IN SHARE MODE"))
        process = spawn("dedup", lines, *options, "--output", out / "clusters")
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'simsql%' AND wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        (pid,) = wait_until(lambda: ask_engine(engine, waiting), "it waits", process)
        interrupt(process, how)
        check_interrupted(process, how, out)
        wait_until(
            lambda: not ask_engine(engine, f"SELECT pid FROM pg_stat_activity WHERE pid = {pid}"), "it is gone"
        )
    assert run("dedup", lines, *options).done().groups == groups
