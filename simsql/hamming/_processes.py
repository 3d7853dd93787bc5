"""Share tasks between this process and others, and stream what they yield.

The other processes are new interpreters with a connection. They do not import the caller's main module, so a
script needs no `if __name__ == "__main__"`, and they share neither memory nor locks with this process. A process
waits until its results are read, so memory is bounded. It ends when its connection is closed, also when this
process is killed. If a process cannot be started, the others do its work.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from simsql.errors import SimsqlError

Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks that wait at each process, so that it has work while this process is busy.
_AHEAD = 2

_PROGRAM = """
import sys
from multiprocessing.connection import Connection
with Connection(int(sys.argv[1])) as connection:
    sys.path[:] = connection.recv()
    from simsql.hamming._processes import serve
    serve(connection)
"""


def run_tasks(work: Callable[[Task], Iterator[Result]], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield the results of all tasks, in no particular order. `work` yields the results of a task, never None.

    This process is one of the workers, and works while the others start. `work`, tasks and results are pickled.
    Raises SimsqlError if another process fails.
    """
    waiting = deque(tasks)
    others = _start(workers - 1)
    try:
        while waiting:
            for result in work(waiting.popleft()):
                yield result
                yield from _read(others, work, waiting, 0)
            yield from _read(others, work, waiting, 0)
        while any(other.tasks for other in others):
            yield from _read(others, work, waiting, None)
    finally:
        for other in others:
            other.stop()


class _Other:
    """Another process, and how many tasks it has."""

    def __init__(self) -> None:
        self.connection, far = multiprocessing.Pipe()
        self.ready, self.tasks = False, 0
        command = [sys.executable or "python3", "-P", "-c", _PROGRAM, str(far.fileno())]
        try:
            # In a group of its own, it does not see the Ctrl-C that this process handles.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[far.fileno()], process_group=0
            )
        finally:
            far.close()
        with contextlib.suppress(ConnectionError):  # it has ended, which `_read` finds out
            self.connection.send(sys.path)

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.wait()

    @property
    def exit_code(self) -> int:
        return self._process.wait()


def _start(count: int) -> list[_Other]:
    """Start processes, as many of `count` as can be started."""
    others: list[_Other] = []
    with contextlib.suppress(OSError):
        while len(others) < count:
            others.append(_Other())
    return others


def _read(
    others: list[_Other], work: Callable[[Task], Iterator[Result]], waiting: deque[Task], timeout: float | None
) -> Iterator[Result]:
    """Yield results that arrive within the timeout in seconds, and give tasks to processes that need some."""
    by_connection: dict[Any, _Other] = {other.connection: other for other in others}
    for connection in wait(by_connection, timeout):
        other = by_connection[connection]
        try:
            result = other.connection.recv()
            if result is not None:
                yield result
                continue
            if not other.ready:
                other.ready = True
                other.connection.send(work)
            else:
                other.tasks -= 1
            while waiting and other.tasks < _AHEAD:
                other.connection.send(waiting[0])
                waiting.popleft()
                other.tasks += 1
        except (EOFError, ConnectionError):
            if other.tasks:
                raise SimsqlError(
                    f"a worker process ended with exit code {other.exit_code}: try again with workers=1"
                ) from None
            others.remove(other)
            other.stop()


def serve(connection: Connection) -> None:
    """Do tasks in another process until the connection is closed."""
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send(None)  # ready
        work = connection.recv()
        while True:
            for result in work(connection.recv()):
                connection.send(result)
            connection.send(None)
