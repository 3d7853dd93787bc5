"""Create, start and stop a PostgreSQL server on a data folder. Only its owner can reach its Unix socket."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sqlalchemy import URL

from simsql.errors import SimsqlError
from simsql.server.binaries import Account, check_way, major_version, make_folder, server_account
from simsql.server.watcher import (
    PORT,
    open_lock,
    read_postmaster,
    server_lives,
    server_lock,
    stop_server,
    take_if_free,
)

SUPERUSER = "postgres"
_PATIENCE = 300.0  # seconds until the server must answer; recovery after a crash reads up to max_wal_size
_SOCKET = f".s.PGSQL.{PORT}"
_LONGEST = 102 - len(_SOCKET)  # bytes of the data folder's path: a socket's path has 103 on macOS, 107 on Linux
_LARGEST_LOG = 10_000_000  # bytes; checked when the server starts


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Yield the descriptor of a lock file that this process, and programs that inherit it, lock exclusively."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class PostgresServer:
    """A PostgreSQL server of the programs in `bin_folder` on the data in `data_folder`.

    It listens on a Unix socket that only its owner (and root) can reach, and needs no password there.
    `settings` are configuration parameters for as long as the server runs. Beside the data folder stand
    its log (`<name>.log`) and its lock (`<name>.lock`), which every process of the server holds.

    As root, the server runs as the owner of the data folder: see `server_account`.
    """

    bin_folder: Path
    data_folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def log_file(self) -> Path:
        """The log of the server and of initdb."""
        return self.data_folder.with_name(self.data_folder.name + ".log")

    @cached_property
    def _account(self) -> Account:
        return server_account(self.data_folder)

    def init(self) -> None:
        """Create the data folder: UTF-8, sorted by code point, with the superuser `postgres`."""
        if self.data_folder.exists():
            raise SimsqlError(f"{self.data_folder} already exists")
        if self._account.name == str(self._account.uid):  # as in many containers: initdb refuses to run
            raise SimsqlError(
                f"user {self._account.uid} has no name, and PostgreSQL needs one to create a server: run simsql as"
                " a named user, add a line to /etc/passwd, or name a database with --database or SIMSQL_DATABASE"
            )
        self._check_paths()
        # PostgreSQL 17 brings its own Unicode rules, the same everywhere; before, C knows ASCII letters only.
        locale = ["--locale=C"]
        if major_version(self.bin_folder) >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        unfinished = self.data_folder.with_name(self.data_folder.name + ".new")
        # initdb inherits the lock: one whose parent was killed goes on writing, and is waited for here.
        with locked(server_lock(self.data_folder)) as lock:
            if unfinished.exists():
                shutil.rmtree(unfinished)
            unfinished.mkdir(mode=0o700)
            os.chown(unfinished, self._account.uid, self._account.gid)
            # Not flushed to disk: a machine that crashes in this half minute loses a server without data.
            options = ["--no-sync", "--no-instructions", "--auth=trust", "--encoding=UTF8", *locale]
            options += [f"--username={SUPERUSER}", "-D", str(unfinished)]
            self._account.run(str(self.bin_folder / "initdb"), *options, keep_open=[lock])
            unfinished.rename(self.data_folder)  # so a data folder is complete, whenever this is killed

    def start(self) -> None:
        """Start the server unless it is running, recover after a crash, and return when it answers."""
        deadline = time.monotonic() + _PATIENCE
        launched = False
        while not self.is_running():
            lock = take_if_free(server_lock(self.data_folder))
            if lock is not None:  # no process of the server is left
                try:
                    if launched:
                        raise SimsqlError(f"the server did not start: {self._end_of_log()}")
                    self._launch(lock)
                    launched = True
                finally:
                    os.close(lock)  # the server has inherited it
            if time.monotonic() > deadline:
                raise SimsqlError(f"the server did not answer within {_PATIENCE:.0f} s: {self._end_of_log()}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop the server if it is running, and return when its last process is gone."""
        try:
            stop_server(self.data_folder)
        except TimeoutError as error:
            raise SimsqlError(f"{error}: {self._end_of_log()}") from error

    def is_running(self) -> bool:
        """Return whether the server is running and answers."""
        if not server_lives(self.data_folder):
            return False
        postmaster = read_postmaster(self.data_folder)
        return postmaster is not None and postmaster.ready and postmaster.accepts_connections()

    def url(self, database: str = "postgres") -> URL:
        """Return the URL of a database of the running server. Raises SimsqlError if it does not run."""
        postmaster = read_postmaster(self.data_folder)
        if postmaster is None:
            raise SimsqlError(f"no server is running on {self.data_folder}")
        where = {"host": str(postmaster.socket_folder), "port": str(PORT)}
        # Named, so that PGHOSTADDR and the like in the environment do not lead to another server.
        where |= {"hostaddr": "", "options": "", "target_session_attrs": "any", "client_encoding": "utf8"}
        return URL.create("postgresql+psycopg", username=SUPERUSER, database=database, query=where)

    def _launch(self, lock: int) -> None:
        self._check_paths()
        postmaster = read_postmaster(self.data_folder)
        if postmaster and postmaster.accepts_connections():
            raise SimsqlError(f"another program started the server on {self.data_folder}: stop it first")
        # Our lock proves that the server which wrote these is gone. PostgreSQL itself only checks that its pid
        # exists, and refuses to start if a zombie still has it or another program has got it since.
        for stale in ("postmaster.pid", f"{_SOCKET}.lock"):
            (self.data_folder / stale).unlink(missing_ok=True)
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": '"' + str(self.data_folder).replace('"', '""') + '"',
            "unix_socket_permissions": "0700",
            **self.settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        if self.log_file.exists() and self.log_file.stat().st_size > _LARGEST_LOG:
            self.log_file.replace(self.log_file.with_suffix(".log.old"))
        command = [str(self.bin_folder / "postgres"), "-D", str(self.data_folder), *options]
        self._account.launch(command, self.log_file, keep_open=[lock])

    def _check_paths(self) -> None:
        """Create the parent of the data folder. Raises SimsqlError if the server cannot work with a path."""
        if len(os.fsencode(self.data_folder)) > _LONGEST or "," in str(self.data_folder):  # libpq reads a list
            raise SimsqlError(
                f"{self.data_folder} cannot have a server: PostgreSQL needs a path of at most {_LONGEST} bytes"
                " without commas; choose another folder, for example with SIMSQL_HOME"
            )
        make_folder(self.data_folder.parent, self._account)
        check_way(self.bin_folder, self._account, self.bin_folder)

    def _end_of_log(self) -> str:
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        return "\n".join([f"see {self.log_file}", *lines[-8:]])
