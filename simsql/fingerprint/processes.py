"""Process batches in several processes, in order, with a bounded number of batches in memory.

A pool of `concurrent.futures` waits for what its processes are doing, and hangs if one is killed while it sends a
result. Here, each process has a connection of its own, which ends with it, so that it can be killed at any moment.
"""

import contextlib
import itertools
import multiprocessing
import multiprocessing.resource_tracker
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from simsql.errors import SimsqlError

Batch = TypeVar("Batch")
Result = TypeVar("Result")

# Batches for each additional process: they keep it busy, and more would only keep texts in memory.
_AHEAD = 2
# Results for each process that wait for an earlier one: they are small, but their items may be large.
_WAITING = 8


def map_in_processes(
    work: Callable[[Batch], Result],
    batches: Iterator[Batch],
    workers: int,
    load: Callable[[Batch], float],
) -> Iterator[Result]:
    """Yield the result of `work` for each batch, in order. `work` and the batches are pickled.

    This process is one of the workers, and works while the others start. A single batch starts none. `load`
    returns the size of a batch in batches of the usual size, which bounds the memory of the queued batches. If a
    process cannot be started, the others do its work. Raises SimsqlError if one is killed.
    """
    begun = list(itertools.islice(batches, 2))
    if len(begun) < 2:
        yield from map(work, begun)
        return
    batches = itertools.chain(begun, batches)
    del begun
    found: deque[Future[Result]] = deque()
    others: list[_Other[Batch, Result]] = []
    most = workers - 1
    try:
        for batch in batches:
            other = min(others, key=_Other.load, default=None)
            if (other is None or other.load()) and len(others) < most:
                try:
                    other = _Other(work)
                    others.append(other)
                except OSError:  # too many processes or open files
                    most = len(others)
            if other and other.load() < _AHEAD:
                found.append(other.submit(batch, load(batch)))
            else:
                found.append(_done(work(batch)))
            del batch  # it may be long, and is not kept while the next one is read
            while found and (found[0].done() or len(found) > _WAITING * workers):
                yield found.popleft().result()
        while found:
            yield found.popleft().result()
    finally:
        for other in others:
            other.stop()


def _done(result: Result) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_result(result)
    return future


class _Other(Generic[Batch, Result]):
    """Another process. A thread sends what it has to do while it works, and another one reads its results."""

    def __init__(self, work: Callable[[Batch], Result]) -> None:
        self._loads: dict[Future[Result], float] = {}
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._owed: SimpleQueue[Future[Result] | None] = SimpleQueue()
        self._connection, far = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(far, work, _folder()), daemon=True)
        with far, _interrupts_blocked():
            self._process.start()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def load(self) -> float:
        """Return the size of the batches that it has not finished."""
        self._loads = {future: size for future, size in self._loads.items() if not future.done()}
        return sum(self._loads.values())

    def submit(self, batch: Batch, size: float) -> Future[Result]:
        """Return the future result of a batch."""
        future: Future[Result] = Future()
        self._loads[future] = size
        self._batches.put(batch)
        self._owed.put(future)
        return future

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._batches.put(None)
        self._owed.put(None)
        for thread in self._threads:
            thread.join()
        self._process.join()
        self._connection.close()

    def _send(self) -> None:
        try:
            while (batch := self._batches.get()) is not None:
                self._connection.send(batch)
                del batch
        except ConnectionError:
            pass  # `_receive` notices it, too
        except BaseException:
            self._process.kill()  # or its results would be those of other batches
            raise

    def _receive(self) -> None:
        while (future := self._owed.get()) is not None:
            try:
                is_done, found = self._connection.recv()
            except (EOFError, OSError):  # the latter in the middle of a result
                message = "a worker process was killed: the machine may have run out of memory"
                is_done, found = False, SimsqlError(message)
            except Exception as error:  # what cannot be unpickled here
                is_done, found = False, error
            if is_done:
                future.set_result(found)
            else:
                future.set_exception(found)
            del future, found


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Make processes that start here inherit a block of Ctrl-C, which this process handles."""
    # The first process would start the tracker, which ends the block too early, in most versions of Python.
    multiprocessing.resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _folder() -> str:
    """Return the folder of this process; empty if it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def _serve(connection: Connection, work: Callable[[Any], Any], folder: str) -> None:
    """Work on batches in another process until the connection is closed."""
    # A new process begins in the folder in which its parent was started.
    with contextlib.suppress(OSError):
        os.chdir(folder)
    _end_with_parent()
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(_do(work, connection.recv()))


def _do(work: Callable[[Any], Any], batch: Any) -> tuple[bool, Any]:
    """Return whether the work was done, and its result or the exception."""
    try:
        return True, work(batch)
    except Exception as error:
        # An exception that cannot be unpickled would look as if this process had been killed.
        message = "".join(traceback.format_exception_only(error)).strip()
        return False, error if _passes(error) else RuntimeError(message)


def _passes(error: Exception) -> bool:
    """Return whether the exception survives pickling: not if its constructor needs arguments that are lost."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in this line
    except Exception:
        return False
    return True


def _end_with_parent() -> None:
    """Exit when the parent is killed, instead of finishing what nobody waits for."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - only runs in other processes

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
