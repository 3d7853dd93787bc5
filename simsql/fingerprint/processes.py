"""Process batches in several processes, in order, with a bounded number of batches in memory."""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

Batch = TypeVar("Batch")
Result = TypeVar("Result")


# The function of a pool process, passed once because a recipe may contain a table of millions of features.
_work: list[Callable[[Any], Any]] = []

# Batches queued for each additional process: they keep it busy, and more would only keep texts in memory.
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
    returns the size of a batch in batches of the usual size, which bounds the memory of the queued batches.
    """
    begun = list(itertools.islice(batches, 2))
    if len(begun) < 2:
        yield from map(work, begun)
        return
    batches = itertools.chain(begun, batches)
    del begun
    found: deque[Future[Result]] = deque()
    loads: dict[Future[Result], float] = {}
    context = multiprocessing.get_context("spawn")
    others = workers - 1
    with ProcessPoolExecutor(others, mp_context=context, initializer=_begin, initargs=(work, _folder())) as pool:
        try:
            for batch in batches:
                loads = {future: size for future, size in loads.items() if not future.done()}
                if sum(loads.values()) < _AHEAD * others:
                    with _interrupts_blocked():
                        found.append(pool.submit(_do, batch))
                    loads[found[-1]] = load(batch)
                else:
                    found.append(_done(work(batch)))
                while found and (found[0].done() or len(found) > _WAITING * workers):
                    yield found.popleft().result()
            while found:
                yield found.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _done(result: Result) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_result(result)
    return future


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Make processes that start here inherit a block of Ctrl-C, which this process handles."""
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


def _begin(work: Callable[[Any], Any], folder: str) -> None:
    _work.append(work)
    # A new process begins in the folder in which its parent was started.
    with contextlib.suppress(OSError):
        os.chdir(folder)
    _end_with_parent()


def _do(batch: Any) -> Any:
    try:
        return _work[0](batch)
    except Exception as error:
        if not _passes(error):
            # An exception that cannot be unpickled would break the pool, as if this process had been killed.
            raise RuntimeError("".join(traceback.format_exception_only(error)).strip()) from None
        raise


def _passes(error: Exception) -> bool:
    """Return whether the exception survives pickling: not if its constructor needs arguments that are lost."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - pickled in this line
    except Exception:
        return False
    return True


def _end_with_parent() -> None:
    """Exit when the parent is killed, instead of waiting for the next task forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - only runs in processes of the pool

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
