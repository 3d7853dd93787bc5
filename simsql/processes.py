"""Share work between this process and others, in bounded memory.

The other processes are new interpreters with a connection. They import the caller's main module only if the work
is defined there, so most scripts need no `if __name__ == "__main__":`. They share neither memory nor locks with
this process, and end when their connection does, also when this process is killed. If one cannot be started, the
others do its work. A pool of `concurrent.futures` waits for its processes, and hangs if one is killed while it
sends a result; these can be killed at any moment.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from multiprocessing import context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

from simsql.errors import SimsqlError

Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks for each additional process, as one is on its way to it, and a result from it: more would only take memory.
_AHEAD = 3
# Results for each process that wait for an earlier one: they are small, but their items may be large.
_WAITING = 8

_PROGRAM = """
import sys
from multiprocessing.connection import Connection
from multiprocessing.spawn import prepare
with Connection(int(sys.argv[1])) as connection:
    prepare(connection.recv())
    from simsql.processes import serve
    serve(connection)
"""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(work: Callable[[Task], Iterable[Result]], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """Yield the results of all tasks, in no particular order. `work` yields the results of a task.

    This process is one of the workers, and works while the others start. A process waits until its results are
    read. `work`, tasks and results are pickled. Raises SimsqlError if another process is killed.
    """
    waiting = deque(tasks)
    others: list[WorkerProcess] = []
    try:
        if workers > 1:
            sent = _Sent(work)
            with contextlib.suppress(OSError):  # too many processes or open files
                while len(others) < workers - 1:
                    others.append(WorkerProcess(sent))
            del sent
        while waiting:
            for result in work(waiting.popleft()):
                yield result
                yield from _read(others, waiting, 0)
            yield from _read(others, waiting, 0)
        while any(other.tasks for other in others):
            yield from _read(others, waiting, None)
    finally:
        for other in others:
            other.stop()


def _read(others: list[WorkerProcess], waiting: deque[Any], timeout: float | None) -> Iterator[Any]:
    """Yield results that arrive within the timeout in seconds, and give tasks to processes that need some."""
    by_connection: dict[Any, WorkerProcess] = {other.connection: other for other in others}
    for connection in wait(by_connection, timeout):
        other = by_connection[connection]
        try:
            message = other.receive()
            if message is not None:
                yield _result_of(message)
                continue
            if other.is_ready:
                other.tasks -= 1
            else:
                other.is_ready = True
                other.send_work()
            while waiting and other.tasks < _AHEAD:
                other.connection.send(waiting[0])
                waiting.popleft()
                other.tasks += 1
        except (EOFError, ConnectionError):
            if other.tasks:
                raise other.error() from None
            others.remove(other)
            other.stop()


def map_in_processes(
    work: Callable[[Task], Result], batches: Iterator[Task], workers: int, load: Callable[[Task], float]
) -> Iterator[Result]:
    """Yield the result of `work` for each batch, in order. `work` and the batches are pickled.

    This process is one of the workers, and works while the others start. A single batch starts none. `load`
    returns the size of a batch in batches of the usual size, which bounds the memory of the queued batches.
    Raises SimsqlError if a process is killed.
    """
    begun = list(itertools.islice(batches, 2))
    if len(begun) < 2:
        yield from map(work, begun)
        return
    batches = itertools.chain(begun, batches)
    del begun
    found: deque[Future[Result]] = deque()
    others: list[_FedProcess[Task, Result]] = []
    most = workers - 1
    sent = _Sent(partial(_once, work))
    try:
        for batch in batches:
            other = min(others, key=_FedProcess.load, default=None)
            if (other is None or other.load()) and len(others) < most:
                try:
                    other = _FedProcess(sent)
                    others.append(other)
                except OSError:  # too many processes or open files
                    most = len(others)
            if other and other.load() < _AHEAD:
                found.append(other.submit(batch, load(batch)))
            else:
                found.append(Future())
                found[-1].set_result(work(batch))
            del batch  # it may be long, and is not kept while the next one is read
            while found and (found[0].done() or len(found) > _WAITING * workers):
                yield found.popleft().result()
        while found:
            yield found.popleft().result()
    finally:
        for other in others:
            other.stop()


def _once(work: Callable[[Any], Any], task: Any) -> Iterator[Any]:
    yield work(task)


class WorkerProcess:
    """Another process, and how many tasks it has. Raises OSError if it cannot be started."""

    def __init__(self, sent: _Sent) -> None:
        self.is_ready, self.tasks = False, 0
        self.connection, far = multiprocessing.Pipe()
        self._sent = sent
        command = [sys.executable or "python3", "-P", "-c", _PROGRAM, str(far.fileno())]
        try:
            # It inherits a block of Ctrl-C, which this process handles.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[far.fileno(), *sent.files]
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                far.close()
        except BaseException:
            self.connection.close()
            raise
        with contextlib.suppress(ConnectionError):  # it has ended, which the next read finds out
            self.connection.send(sent.setting)

    def send_work(self) -> None:
        """Send what it does with each task, which may be large: after it has said that it is ready."""
        self.connection.send_bytes(self._sent.work)
        del self._sent

    def receive(self) -> tuple[bool, Any] | None:
        """Return whether a result was computed, with it or an exception; None when it wants another task."""
        try:
            message: tuple[bool, Any] | None = self.connection.recv()
        except OSError:  # it has ended in the middle of a result
            raise EOFError from None
        return message

    def error(self) -> SimsqlError:
        """Return the error of a process that has ended too early."""
        if (code := self._process.wait()) < 0:
            return SimsqlError("a worker process was killed: the machine may have run out of memory")
        return SimsqlError(f"a worker process ended with exit code {code}: try again with workers=1")

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self.connection.close()


class _FedProcess(WorkerProcess, Generic[Task, Result]):
    """Another process. A thread sends what it has to do while it works, and another one reads its results."""

    def __init__(self, sent: _Sent) -> None:
        super().__init__(sent)
        self._loads: dict[Future[Result], float] = {}
        self._batches: SimpleQueue[Task | None] = SimpleQueue()
        self._owed: SimpleQueue[Future[Result] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def load(self) -> float:
        """Return the size of the batches that it has not finished."""
        self._loads = {future: size for future, size in self._loads.items() if not future.done()}
        return sum(self._loads.values())

    def submit(self, batch: Task, size: float) -> Future[Result]:
        """Return the future result of a batch."""
        future: Future[Result] = Future()
        self._loads[future] = size
        self._batches.put(batch)
        self._owed.put(future)
        return future

    def stop(self) -> None:
        """End the process and its threads."""
        self._process.kill()
        self._batches.put(None)
        self._owed.put(None)
        for thread in self._threads:
            thread.join()
        super().stop()

    def _send(self) -> None:
        try:
            self.send_work()
            while (batch := self._batches.get()) is not None:
                self.connection.send(batch)
                del batch
        except ConnectionError:
            pass  # `_receive` notices it, too
        except BaseException:
            self._process.kill()  # or its results would be those of other batches
            raise

    def _receive(self) -> None:
        while (future := self._owed.get()) is not None:
            try:
                while (message := self.receive()) is None:
                    pass
                future.set_result(_result_of(message))
                del message
            except EOFError:
                future.set_exception(self.error())
            except Exception as error:
                future.set_exception(error)
            del future


def _result_of(message: tuple[bool, Any]) -> Any:
    is_done, found = message
    if not is_done:
        raise found
    return found


class _Sent:
    """What other processes do, pickled once for all, and what they need for that.

    While it is pickled, it stands for what starts a process, and notes the files that this shares.
    """

    class DupFd(NamedTuple):
        """The number of a file in the new process."""

        number: int

        def detach(self) -> int:
            return self.number

    def __init__(self, work: Callable[[Any], Iterable[Any]]) -> None:
        self.files: list[int] = []
        context.set_spawning_popen(self)  # type: ignore[arg-type]
        try:
            self.work = ForkingPickler.dumps(work)
        finally:
            context.set_spawning_popen(None)
        self.setting: dict[str, Any] = {"sys_path": sys.path, "sys_argv": sys.argv}
        if re.search(b"__main__", self.work):
            main = sys.modules["__main__"]
            if name := getattr(getattr(main, "__spec__", None), "name", None):
                self.setting["init_main_from_name"] = name
            elif path := getattr(main, "__file__", None):
                self.setting["init_main_from_path"] = path

    def duplicate_for_child(self, number: int) -> int:
        """Return the number of a file in the new process."""
        self.files.append(number)
        return number


def serve(connection: Connection) -> None:
    """Do tasks in another process until the connection is closed."""
    threading.Thread(target=_end_with, args=(connection.fileno(),), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        connection.send(None)  # ready
        work = connection.recv()
        while True:
            for message in _do(work, connection.recv()):
                connection.send(message)
            connection.send(None)


def _end_with(descriptor: int) -> None:
    """Exit when the other process is gone, instead of finishing what nobody waits for."""
    poll = select.poll()
    poll.register(descriptor, 0)  # that it was closed is always told
    poll.poll()
    os._exit(1)


def _do(work: Callable[[Any], Iterable[Any]], task: Any) -> Iterator[tuple[bool, Any]]:
    """Yield whether a result was computed, with it or the exception."""
    try:
        for result in work(task):
            yield True, result
    except Exception as error:
        # An exception that cannot be unpickled would look as if this process had been killed.
        message = "".join(traceback.format_exception_only(error)).strip()
        yield False, error if _passes(error) else RuntimeError(message)


def _passes(error: Exception) -> bool:
    """Return whether the exception survives pickling: not if its constructor needs arguments that are lost."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in this line
    except Exception:
        return False
    return True
