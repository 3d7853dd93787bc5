"""Stop the embedded server, at once or when its last user is gone.

This file is also a program. One process per folder waits until nobody uses the server any more, however the
users ended. It outlives them, so it only imports the standard library.

Two facts come from locks (flock), never from process ids, which are reused and which zombies keep:

- Every process that uses the server holds a shared lock on `users.lock`; one that gets it exclusively is alone.
- All processes of the server inherit its own lock, so the lock is free only when the last of them is gone.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PORT = 5432  # part of the socket's file name; nothing listens on TCP
_PATIENCE = 60.0  # seconds for a fast shutdown, then again for an immediate one


@dataclass(frozen=True)
class Postmaster:
    """The contents of postmaster.pid. They are only valid while the server is alive."""

    pid: int
    socket_folder: Path
    ready: bool

    def accepts_connections(self) -> bool:
        """Return whether a process listens on the socket. A dead server may leave its file behind."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(os.fsencode(self.socket_folder / f".s.PGSQL.{PORT}"))
            except OSError:
                return False
        return True


def read_postmaster(data_folder: Path) -> Postmaster | None:
    """Read postmaster.pid. Return None if it is missing or not yet complete."""
    try:
        lines = os.fsdecode((data_folder / "postmaster.pid").read_bytes()).splitlines()
        return Postmaster(int(lines[0]), Path(lines[4]), ready=lines[7].strip() == "ready")
    except (FileNotFoundError, IndexError, ValueError):
        return None


def open_lock(path: Path) -> int:
    """Open a lock file, and create it if it is missing. It is closed on exec, so no program inherits it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def take_if_free(path: Path) -> int | None:
    """Open and lock a file exclusively, or return None if it is locked. Close the descriptor to release it."""
    descriptor = open_lock(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def server_lock(data_folder: Path) -> Path:
    """Return the path of the lock that every process of the server on this data folder holds."""
    return data_folder.with_name(data_folder.name + ".lock")


def server_lives(data_folder: Path) -> bool:
    """Return whether any process of the server is left: starting, running, stopping or orphaned."""
    try:
        # Not created: the watcher looks while the last user may be removing the folder, which must stay empty.
        descriptor = os.open(server_lock(data_folder), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def stop_server(data_folder: Path) -> None:
    """Stop the server on this data folder and return when the last of its processes is gone.

    Close its connections (a fast shutdown). Do nothing if no server is running. Raises TimeoutError if even an
    immediate shutdown leaves processes behind.
    """
    for how in (signal.SIGINT, signal.SIGQUIT):  # fast, then immediate
        told = False
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if not server_lives(data_folder):
                return
            # Only one that answers is told to stop: the pid of a dead one may be another program's by now.
            postmaster = read_postmaster(data_folder)
            if not told and postmaster and postmaster.accepts_connections():
                _send(how, postmaster.pid, data_folder.stat())
                told = True
            time.sleep(0.01)
    raise TimeoutError(f"the server on {data_folder} did not stop")


def _send(how: signal.Signals, pid: int, owner: os.stat_result) -> None:
    """Send a signal as the owner of the data: root must not signal any process that a file of theirs names."""
    if os.geteuid() == owner.st_uid:
        os.kill(pid, how)
    else:
        command = ["/bin/sh", "-c", 'kill -"$1" "$2"', "sh", str(int(how)), str(pid)]
        subprocess.run(command, check=False, cwd="/", user=owner.st_uid, group=owner.st_gid, extra_groups=[])


def main() -> None:
    """Wait until nobody holds users.lock, then stop the server while new users wait.

    Arguments: the data folder, and the inherited descriptors of watcher.lock (locked) and users.lock (not
    locked). The first marks this process as the watcher. It is closed before the second, so that a waiting user
    finds no watcher and starts the next one.
    """
    data_folder, watching, users = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    fcntl.flock(users, fcntl.LOCK_EX)
    try:
        # The folder may have been removed and made anew: then the server in it is not ours to stop.
        if os.path.samestat(os.fstat(users), data_folder.with_name("users.lock").stat()):
            stop_server(data_folder)
    except FileNotFoundError:
        pass  # the last user removed the folder
    finally:
        os.close(watching)
        os.close(users)


if __name__ == "__main__":
    main()
