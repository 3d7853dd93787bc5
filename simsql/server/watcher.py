"""Stop a server of ours, at once or when its last user is gone.

This file is also a program: one process of it per folder waits until the kernel says that nobody uses the
server any more, however the users ended. It outlives them, so it imports nothing but the standard library.

Two facts are read from locks (flock), never from process ids, which are reused and which zombies keep:

- `users.lock` is held shared by every process that uses the server: whoever gets it exclusively is alone.
- the server's own lock is inherited by all its processes, so it is free only when the last of them is gone.
"""

import contextlib
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
    """What a server says about itself in postmaster.pid; true only while its processes live."""

    pid: int
    socket_folder: Path
    ready: bool

    def accepts_connections(self) -> bool:
        """Whether a process listens on the socket: a file left behind by a dead server refuses."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(os.fsencode(self.socket_folder / f".s.PGSQL.{PORT}"))
            except OSError:
                return False
        return True


def read_postmaster(data_folder: Path) -> Postmaster | None:
    """Read postmaster.pid; None if there is none or the server has not yet written all of it."""
    try:
        lines = os.fsdecode((data_folder / "postmaster.pid").read_bytes()).splitlines()
        return Postmaster(int(lines[0]), Path(lines[4]), ready=lines[7].strip() == "ready")
    except (FileNotFoundError, IndexError, ValueError):
        return None


def open_lock(path: Path) -> int:
    """Open a lock file, made if missing; closed on exec, so that nobody inherits it by accident."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def take_if_free(path: Path) -> int | None:
    """Open and lock a file exclusively; None if somebody holds it. Closing the descriptor releases it."""
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
    """Whether any process of the server is left: it may be starting, running, stopping or an orphan."""
    if not server_lock(data_folder).exists():
        return False
    descriptor = take_if_free(server_lock(data_folder))
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def stop_server(data_folder: Path) -> None:
    """Stop the server on this data folder and return when the last of its processes is gone.

    Connections are cut (a fast shutdown). Does nothing if no server runs. Raises TimeoutError if even an
    immediate shutdown leaves processes behind.
    """
    for how in (signal.SIGINT, signal.SIGQUIT):  # fast, then immediate
        told = None
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            if not server_lives(data_folder):
                if told and told.socket_folder != data_folder:
                    with contextlib.suppress(OSError):  # not empty: then it is not only ours
                        told.socket_folder.rmdir()
                return
            # Only one that answers is told to stop: the pid of a dead one may be another program's by now.
            postmaster = read_postmaster(data_folder)
            if not told and postmaster and postmaster.accepts_connections():
                _send(how, postmaster.pid, data_folder.stat())
                told = postmaster
            time.sleep(0.01)
    raise TimeoutError(f"the server on {data_folder} does not stop")


def _send(how: signal.Signals, pid: int, owner: os.stat_result) -> None:
    """Send a signal as the owner of the data: root must not signal any process that a file of theirs names."""
    if os.geteuid() == owner.st_uid:
        os.kill(pid, how)
    else:
        command = ["/bin/sh", "-c", 'kill -"$1" "$2"', "sh", str(int(how)), str(pid)]
        subprocess.run(command, check=False, cwd="/", user=owner.st_uid, group=owner.st_gid, extra_groups=[])


def main() -> None:
    """Wait until nobody holds users.lock, then stop the server, keeping new users waiting meanwhile.

    Arguments: the data folder, and the inherited descriptors of watcher.lock (locked) and users.lock (not
    locked). The first says that this process watches. It is closed before the second, so that a user who was
    kept waiting finds no watcher and starts the next one.
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
