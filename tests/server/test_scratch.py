"""A scratch database is there for its job, and goes with it, however the job ends."""

import signal
import subprocess
import sys

import pytest
from program import running_home, wait_until
from sqlalchemy import NullPool, create_engine, text

from simsql.errors import SimsqlError
from simsql.server import binaries, scratch_database, start_embedded

try:
    binaries.bundled_programs()
except SimsqlError as error:
    pytest.skip(str(error), allow_module_level=True)

USER = """
import sys
from pathlib import Path
from simsql.server import start_embedded
from simsql.server import scratch_database
with start_embedded(Path(sys.argv[1])) as server, scratch_database(server) as url:
    print(url.database, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def home():
    """The folder of a server that runs."""
    with running_home() as folder:
        yield folder


@pytest.fixture
def server(home):
    with start_embedded(home) as running:
        yield running


@pytest.fixture
def other_process(home):
    """A process that uses a scratch database until its input ends: (process, name of the database)."""
    command = [sys.executable, "-c", USER, str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def run(server, database, statement):
    """Run a statement in a database in autocommit mode, leaving no connection; return its first column."""
    engine = create_engine(server.url(database), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        result = connection.execute(text(statement))
        return set(result.scalars()) if result.returns_rows else set()


def databases(server):
    return run(server, "postgres", "SELECT datname FROM pg_database WHERE starts_with(datname, 'simsql_scratch_')")


def test_it_is_empty_and_its_own(server):
    with scratch_database(server) as one, scratch_database(server) as other:
        assert databases(server) == {one.database, other.database}
        run(server, one.database, "CREATE TABLE article (id integer)")
        for url, tables in ((one, {"article"}), (other, set())):
            found = run(server, url.database, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            assert found == tables


def test_it_is_dropped_at_the_end_with_what_is_connected_to_it(server):
    with scratch_database(server) as url:
        engine = create_engine(url, poolclass=NullPool)
        connection = engine.connect()
        connection.execute(text("CREATE TABLE article (id integer)"))
    assert databases(server) == set()
    connection.invalidate()
    connection.close()


def test_it_is_dropped_when_the_job_fails(server):
    with pytest.raises(KeyError), scratch_database(server):
        raise KeyError
    assert databases(server) == set()


def test_what_a_process_uses_is_left_alone(server, other_process):
    process, theirs = other_process
    with scratch_database(server) as ours:
        assert databases(server) == {theirs, ours.database}
    assert databases(server) == {theirs}
    process.communicate()
    assert process.returncode == 0
    assert databases(server) == set()


def test_what_a_killed_process_has_left_is_dropped_by_the_next(server, other_process):
    process, theirs = other_process
    process.send_signal(signal.SIGKILL)
    process.wait()
    # Its session ends when the server notices that nobody is there: until then the database is in use.
    gone = f"SELECT count(*) FROM pg_stat_activity WHERE datname = '{theirs}'"
    wait_until(lambda: run(server, "postgres", gone) == {0}, "the end of its session")
    assert databases(server) == {theirs}
    with scratch_database(server) as url:
        assert databases(server) == {url.database}


def test_other_databases_stay_whatever_they_are_called(server):
    for name in ("simsql", "simsqlXscratchX1"):
        server.url(name)
    with scratch_database(server):
        pass
    names = run(server, "postgres", "SELECT datname FROM pg_database")
    assert {"simsql", "simsqlXscratchX1"} <= names
