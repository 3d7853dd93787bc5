"""The server that simsql uses by default: the first user starts it, and the last one stops it.

A process uses the server of a folder for as long as it holds a shared lock on `users.lock` in it. The kernel
drops that lock when the process ends, whatever ends it. So the last user knows that it is the last. If it is
killed, a small detached process (`watcher.py`) gets the exclusive lock and stops the server.

    users.lock      shared: uses the server.  exclusive: stops it, new users wait
    start.lock      exclusive: starts or leaves
    watcher.lock    exclusive, inherited by the watcher: it is running
    postgres.lock   inherited by the server: one of its processes is alive

Nobody who holds `start.lock` waits for a process that wants it, so nothing hangs: users take it after their
shared lock and only try for the exclusive one, and the watcher never takes it.
"""

import atexit
import contextlib
import os
import sys
import threading
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql
from sqlalchemy import URL

from simsql.errors import SimsqlError, UsageError

if sys.platform == "win32":
    raise SimsqlError("the embedded server runs on Linux and macOS: name a database with --database")

import fcntl

from simsql.server import watcher
from simsql.server.binaries import Account, bundled_programs, make_folder, server_account
from simsql.server.postgres_server import PostgresServer, locked

_DATA = "postgres"  # the data folder's name

# The data can be computed again from the user's own files, and one user at a time works on them.
_SETTINGS = {
    "synchronous_commit": "off",  # a crash loses the last moments, never the order
    "wal_level": "minimal",  # nothing replicates, so filling a new table writes no log
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "shared_buffers": "128MB",
    "maintenance_work_mem": "256MB",
    "jit": "off",
    "log_checkpoints": "off",
}


class EmbeddedServer:
    """A running server, in use until close(), the end of a with block, or the end of the process.

    The last user to leave stops the server, whichever process it is in. `folder` is the folder of the server.
    """

    def __init__(self, folder: Path) -> None:
        _take_folder(folder)
        self.folder = folder
        self._closed = False
        # Of its own: to the kernel, two users in one process are as those of two processes.
        self._users = watcher.open_lock(folder / "users.lock")
        try:
            fcntl.flock(self._users, fcntl.LOCK_SH)
            with locked(folder / "start.lock"):
                self._cluster = PostgresServer(_choose_programs(folder), folder / _DATA, _SETTINGS)
                # First the watcher: from here on the server is stopped even if this process is killed.
                _ensure_watcher(folder, self._cluster.log_file)
                if not self._cluster.data_folder.exists():
                    self._cluster.init()
                self._cluster.start()
        except BaseException:
            os.close(self._users)  # where the server has been started all the same, the watcher stops it
            raise
        _open.add(self)

    def url(self, database: str = "simsql") -> URL:
        """Return the URL of a database, as `open_engine` takes it. Create the database if it is missing.

        Raises SimsqlError if this user of the server has closed it.
        """
        if self._closed:
            raise SimsqlError("the embedded server is closed")
        url = self._cluster.url()
        _create_database(url, database)
        return url.set(database=database)

    def close(self) -> None:
        """Stop using the server, and stop it if nobody else uses it. Closing twice is safe."""
        self._closed = True
        with _guard:
            if self not in _open:
                return  # closed before, or inherited by a forked child: the parent goes on using the server
            _open.remove(self)
            try:
                with locked(self.folder / "start.lock"):
                    try:
                        fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        # Others use it. Or the watcher came first, as the kernel drops the shared lock before it
                        # tries the exclusive one: then this waits until the watcher has stopped the server.
                        fcntl.flock(self._users, fcntl.LOCK_SH)
                    else:
                        self._cluster.stop()
            except FileNotFoundError:
                pass  # the folder was removed: PostgreSQL notices that and ends on its own
            finally:
                os.close(self._users)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def holds_server(folder: Path) -> bool:
    """Return whether this folder contains the data of an embedded server."""
    return (_expand(folder) / _DATA / "PG_VERSION").exists()


def start_embedded(folder: Path | None = None) -> EmbeddedServer:
    """Start the server of a folder, or join its other users.

    Create the folder if it is missing. By default, it is `SIMSQL_HOME`, else `simsql` in the user's data folder
    (for root, `/var/lib/simsql`). Its data stays. A new folder gets the newest PostgreSQL available; an existing
    folder keeps its version. As root, the server runs as the first of the users
    `simsql`, `postgres` and `nobody` that exists. An empty folder is then opened to others (o+x); no other mode is
    changed.

    Raises SimsqlError if the `embedded` extra is not installed, if the folder belongs to another user or is not
    accessible to the server, if its version is not available, or if the server does not start.
    """
    place = _expand(folder or _default_folder()).resolve()
    try:
        with _guard:
            return EmbeddedServer(place)
    except OSError as error:
        raise SimsqlError(f"cannot use the folder {place}: {error}") from error


def _default_folder() -> Path:
    home = os.environ.get("SIMSQL_HOME")
    if home == "":
        raise UsageError("SIMSQL_HOME is empty: set it to a folder, or unset it to use the default one")
    if home:
        return Path(home)
    if os.geteuid() == 0:
        return Path("/var/lib/simsql")  # root's home is closed to the user that runs the server
    try:
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "simsql"
    except RuntimeError as error:
        raise SimsqlError("found no home folder for the server: set SIMSQL_HOME") from error


def _expand(folder: Path) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError as error:
        raise SimsqlError(f"found no home folder for {folder}: write the path in full") from error


_open: set[EmbeddedServer] = set()
_guard = threading.RLock()


@atexit.register
def _close_all() -> None:
    for server in list(_open):
        server.close()


def _forget_in_child() -> None:
    """Release what a fork has copied. Closing is enough: the parent's descriptors keep the locks."""
    for server in _open:
        os.close(server._users)
    _open.clear()
    _guard.release()


# A fork waits until no thread is starting or stopping a server, so that no child holds the locks of that.
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forget_in_child)


def _take_folder(folder: Path) -> None:
    make_folder(folder, server_account(folder / _DATA))
    owner, user = Account.of(folder), Account.current()
    if owner.uid != user.uid:
        raise SimsqlError(
            f"the folder {folder} belongs to {owner.name}, and you are {user.name}:"
            " choose another folder, for example with SIMSQL_HOME"
        )


def _choose_programs(folder: Path) -> Path:
    programs = bundled_programs()
    marker = folder / _DATA / "PG_VERSION"
    chosen = int(marker.read_text()) if marker.exists() else max(programs)
    if chosen not in programs:
        offered = " and ".join(str(known) for known in sorted(programs))
        raise SimsqlError(f"{folder} needs PostgreSQL {chosen}, but the 'embedded' extra bundles {offered}")
    return programs[chosen]


def _ensure_watcher(folder: Path, log_file: Path) -> None:
    """Start the watcher, which stops the server when all users are gone, unless it is running."""
    watching = watcher.take_if_free(folder / "watcher.lock")
    if watching is None:
        return
    users = watcher.open_lock(folder / "users.lock")
    try:
        # A plain file in an interpreter without site: it starts in 20 ms, and stays small while it waits.
        program = [sys.executable, "-I", "-S", watcher.__file__]
        arguments = [str(folder / _DATA), str(watching), str(users)]
        Account.current().launch([*program, *arguments], log_file, keep_open=[watching, users])
    finally:
        os.close(watching)
        os.close(users)


def _create_database(url: URL, database: str) -> None:
    parameters = url.translate_connect_args(username="user", database="dbname") | dict(url.query)
    with psycopg.connect(**parameters, autocommit=True) as connection:
        if not connection.execute("SELECT FROM pg_database WHERE datname = %s", [database]).rowcount:
            # Two processes may find the same at the same time.
            with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
