"""Commands that are interrupted or killed while they use a server: it stops if nobody else uses it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from program import (
    MEMORY,
    READING,
    Process,
    check_interrupted,
    copy_home,
    finish,
    interrupt,
    members,
    run,
    spawn,
    temporary_folder,
    wait_until,
)
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from simsql.database import install_schema, open_engine
from simsql.server import start_embedded, watcher
from simsql.server.binaries import bundled_programs
from simsql.server.postgres_server import PostgresServer

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")

EITHER = pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
LOAD = ("load", "saying", "-", "--text-column", "body", "--column", "fingerprint")
LINE = b'{"text": "some words"}\n'


def make_table(engine) -> None:
    install_schema(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE saying (body text, fingerprint bigint)"))


@pytest.fixture(scope="session")
def stopped_home(home: Path) -> Iterator[Path]:
    """A folder whose server has run and does not run now."""
    with temporary_folder() as parent:
        with start_embedded(parent / "home") as server:
            engine = open_engine(server.url())
            make_table(engine)
            engine.dispose()
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


def while_it_reads(process: Process, folder: Path) -> None:
    process.stdin.write(LINE)
    process.stdin.flush()
    wait_until(lambda: ask(folder, READING), "it reads", process)


def test_while_the_server_starts(cold, out):
    process = spawn(*LOAD, "--server-dir", cold)
    wait_until((cold / "postgres" / "postmaster.pid").exists, "the server starts", process)
    interrupt(process, signal.SIGINT)
    check_interrupted(process, signal.SIGINT, out)
    wait_until_gone(cold)
    assert run(*LOAD, "--server-dir", cold, stdin=LINE).done().table["documents"] == "1"


def test_while_a_new_server_is_made(out):
    with temporary_folder(MEMORY) as parent:
        folder = parent / "new"
        process = spawn("install", "--server-dir", folder)
        wait_until((folder / "postgres.new" / "base").exists, "initdb works", process)
        interrupt(process, signal.SIGINT)
        check_interrupted(process, signal.SIGINT, out)
        wait_until_gone(folder)
        run("install", "--server-dir", folder).done()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_others_use_stays(cold, out, how):
    with start_embedded(cold) as server:
        server.url()
        before = watcher.read_postmaster(cold / "postgres")
        process = spawn(*LOAD, "--server-dir", cold)
        while_it_reads(process, cold)
        interrupt(process, how)
        if how == signal.SIGKILL:
            assert finish(process).code == -how
            wait_until(lambda: not ask(cold, READING), "its sessions have ended")
        else:
            check_interrupted(process, how, out)
        assert watcher.read_postmaster(cold / "postgres") == before
        assert ask(cold, "SELECT count(*) FROM saying", "simsql") == [0]


def test_another_run_on_the_same_server_is_not_disturbed(cold):
    first, second = (spawn(*LOAD, "--server-dir", cold) for _ in range(2))
    wait_until(lambda: len(ask(cold, READING)) == 2, "both read", first)
    interrupt(first, signal.SIGINT)
    assert finish(first).code == 130
    assert watcher.server_lives(cold / "postgres")
    assert finish(second, LINE).done().table["documents"] == "1"
    wait_until_gone(cold)


def test_a_killed_run_is_cleared_away(cold):
    process = spawn(*LOAD, "--server-dir", cold)
    while_it_reads(process, cold)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    wait_until(lambda: not members(process), "its processes are gone")
    wait_until_gone(cold)
    assert run(*LOAD, "--server-dir", cold, stdin=LINE).done().table["documents"] == "1"


@EITHER
def test_a_statement_that_runs_is_cancelled(database, database_url, out, how):
    """The statement waits for a lock here; one that computes for an hour is no different."""
    make_table(database)
    with database.begin() as connection:
        connection.execute(text("LOCK TABLE saying IN SHARE MODE"))
        process = spawn(*LOAD, "--database", database_url)
        process.stdin.write(LINE)
        process.stdin.close()
        process.stdin = None
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'simsql%' AND wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )

        def ask_database(statement):
            with database.connect() as other:
                return other.execute(text(statement)).scalars().all()

        (pid,) = wait_until(lambda: ask_database(waiting), "it waits", process)
        interrupt(process, how)
        check_interrupted(process, how, out)
        gone = f"SELECT pid FROM pg_stat_activity WHERE pid = {pid}"
        wait_until(lambda: not ask_database(gone), "it is gone")
