"""`simsql backfill --follow`: the worker beside programs that write texts without fingerprints."""

import os
import random
import signal
import socket

import pytest
from articles import missing_keys
from oracle import to_bigint
from own_server import new_folder, own_server, session
from program import finish, run, spawn, temporary_folder, wait_until
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from simsql import simhash
from simsql.cli import backfill
from simsql.cli._database import Working
from simsql.database.backfill import Filled

WORDS = ["lamb", "wolf", "king", "shepherd", "river", "stone", "bread", "winter", "?!", "-"]


def create_table(connection):
    connection.execute(
        "CREATE TABLE note (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text, fp bigint)"
    )
    statement = "SELECT simsql.create_index('note', 'fp', recipe => 'words12-log-1', sources => '{\"body\": 1}')"
    connection.execute(statement)


@pytest.fixture
def notes(connection):
    create_table(connection)
    return connection


@pytest.fixture
def worker(database_url):
    """Start workers with these options, which end with the test."""
    with temporary_folder() as folder:
        yield lambda *options, **more: spawn(
            "backfill", "note", "--follow", "--database", database_url, *options, home=folder, **more
        )


def write(connection, rows, seed=1):
    """Insert texts, some without words, and change some."""
    choose = random.Random(seed)
    for _ in range(rows):
        text = " ".join(choose.choices(WORDS, k=choose.choice([0, 1, 8])))
        connection.execute("INSERT INTO note (body) VALUES (%s)", [text])
        if choose.random() < 0.2:
            changed = "UPDATE note SET body = %s WHERE id = (SELECT max(id) FROM note) - %s"
            connection.execute(changed, [text[::-1], choose.randrange(9)])


def waiting(connection):
    """The rows without the fingerprint of their text. None may have that of another one."""
    rows = connection.execute("SELECT body, fp FROM note").fetchall()
    expected = [(text, fp, None if (made := simhash(text)) is None else to_bigint(made)) for text, fp in rows]
    assert [row for row in expected if row[1] not in (None, row[2])] == []
    return [row for row in expected if row[1] != row[2]]


def wait_for_all(connection, *workers):
    for process in workers:
        wait_until(lambda: not waiting(connection), "fingerprints of all rows", process)
    assert missing_keys(connection, "note") == []


@pytest.mark.pooled
def test_rows_of_other_programs(notes, worker, tmp_path):
    write(notes, 20)
    health = tmp_path / "health"
    process = worker("--health", health)
    wait_until(health.exists, "the first look", process)
    for seed in (2, 3):
        write(notes, 20, seed)
        wait_for_all(notes, process)
    before = health.stat().st_mtime_ns
    wait_until(lambda: health.stat().st_mtime_ns > before, "a look that finds nothing", process)
    process.send_signal(signal.SIGTERM)
    ended = finish(process)
    assert (ended.code, ended.err) == (143, "simsql: terminated\n")
    assert ended.lines[0].startswith("Fingerprinted ")


@pytest.mark.unpooled("PgBouncer keeps sessions open")
def test_workers_that_are_killed_or_interrupted_lose_nothing(notes, worker):
    ends = random.Random(4)
    for seed in range(6):
        some = [worker("--batch", 3) for _ in range(2)]
        write(notes, 50, seed)
        wait_until(lambda: len(waiting(notes)) < ends.randrange(1, 30), "some batches", some[0])
        some[0].send_signal(signal.SIGKILL)
        some[1].send_signal(ends.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
        assert finish(some[0]).code == -signal.SIGKILL
        assert finish(some[1]).code in (-signal.SIGKILL, 130, 143)
        waiting(notes)
    write(notes, 50, 7)
    wait_for_all(notes, worker(), worker())


@pytest.mark.unpooled("PgBouncer has the server of all tests")
def test_it_waits_for_a_server_that_restarts(server):
    with new_folder() as folder, own_server(server.program, folder) as cluster, temporary_folder() as home:
        with session(cluster) as notes:
            create_table(notes)
        url = cluster.url().render_as_string(hide_password=False)
        process = spawn("backfill", "note", "--follow", "--quiet", "--database", url, home=home)
        for _ in range(2):
            with session(cluster) as notes:
                write(notes, 20)
                wait_for_all(notes, process)
            cluster.stop()
            wait_until(lambda: b"next try in 1 s" in process.stderr.readline(), "some tries", process)
            cluster.start()
        with session(cluster) as notes:
            write(notes, 20)
            wait_for_all(notes, process)
        process.send_signal(signal.SIGINT)
        ended = finish(process)
        assert (ended.code, ended.err.splitlines()[-1]) == (130, "simsql: interrupted")


def test_a_server_may_be_away_for_days(monkeypatch):
    """Each try waits longer, up to ten seconds, and the number of tries has no limit."""
    pauses = []
    monkeypatch.setattr(backfill.time, "sleep", pauses.append)
    monkeypatch.setattr(backfill, "complain", lambda said: None)
    looks = iter([[Filled(0, 0, 0, 0, 0)], *[OperationalError("", None, Exception("gone"))] * 3000])

    def begin(report):
        found = next(looks, KeyboardInterrupt())
        if isinstance(found, BaseException):
            raise found
        yield from found
        raise OperationalError("", None, Exception("gone"))

    with pytest.raises(KeyboardInterrupt):
        backfill._follow(Working(), create_engine("postgresql+psycopg://"), begin, None, None)
    assert pauses[:8] == [0.5, 0.5, 1, 2, 4, 8, 10, 10]
    assert pauses[-1] == 10
    assert len(pauses) == 3002


def test_an_error_after_the_first_look_is_one_sentence(notes, worker):
    process = worker()
    process.stdout.readline()
    notes.execute("ALTER TABLE note DROP CONSTRAINT note_pkey")
    said = process.stderr.readline().decode()
    assert said.startswith("simsql: PostgreSQL: public.note has neither a primary key nor a unique index")
    assert said.endswith(" in the order of such a key: create one; next try in 0.5 s\n")


def test_systemd_hears_of_each_look(notes, worker):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0simsql-test-{os.getpid()}")
        systemd.settimeout(60)
        worker(variables={"NOTIFY_SOCKET": f"@simsql-test-{os.getpid()}"})
        for _ in range(3):
            assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"


def test_what_is_refused(notes, database_url):
    command = ["backfill", "note", "--follow", "--database", database_url]
    run(*command, "--all-rows").failed(
        2, "--follow looks for rows without a fingerprint: run --all-rows on its own"
    )
    run("backfill", "note", "--health", "file").failed(2, "--health needs --follow")
    run(*command, "--text-column", "id").failed(2, "come from body=1, as its simhash index says")
    run(*command[:3], "--database", "postgresql://localhost:1/db").failed(1, "Connection refused")
    notes.execute("SELECT simsql.drop_index('note'); SELECT simsql.create_index('note', 'fp', recipe => 'own-1')")
    run(*command, "--text-column", "body").failed(2, "own-1")
