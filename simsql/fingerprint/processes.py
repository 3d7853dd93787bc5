"""Work on batches in further processes, in order, with a bounded number of batches in memory."""

import contextlib
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


# What a process of a pool does with a batch: passed once, since a recipe may hold a table of millions of features.
_work: list[Callable[[Any], Any]] = []

# Batches that a further process is given ahead keep it busy; more would only hold texts in memory.
_AHEAD = 2
# Results that wait for an earlier one: they are small, but what they belong to may not be.
_WAITING = 8


def map_in_processes(
    work: Callable[[Batch], Result],
    batches: Iterator[Batch],
    workers: int,
    load: Callable[[Batch], float] = lambda _: 1,
) -> Iterator[Result]:
    """Yield what `work` makes of each batch, in their order. `work` and the batches are pickled.

    This process is one of the workers: it has the batches at hand, and works while the others start. `load` says
    as how many batches of the usual size one counts where the memory is bounded that they take.
    """
    found: deque[Future[Result]] = deque()
    loads: dict[Future[Result], float] = {}
    context = multiprocessing.get_context("spawn")
    others = workers - 1
    with ProcessPoolExecutor(others, mp_context=context, initializer=_begin, initargs=(work,)) as pool:
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
    """Let processes that start here inherit that Ctrl-C is not for them: this process handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(work: Callable[[Any], Any]) -> None:
    _work.append(work)
    _end_with_parent()


def _do(batch: Any) -> Any:
    try:
        return _work[0](batch)
    except Exception as error:
        if not _passes(error):
            # It would break the pool, as if this process had been killed.
            raise RuntimeError("".join(traceback.format_exception_only(error)).strip()) from None
        raise


def _passes(error: Exception) -> bool:
    """Return whether the other process can have an exception: not if it wants other arguments than it keeps."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what has been made here
    except Exception:
        return False
    return True


def _end_with_parent() -> None:
    """Let this process end when its parent is killed: it would wait for the next task for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - runs in processes of the pool alone

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
