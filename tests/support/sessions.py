"""Sessions beside each other, stepped by hand."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
from program import wait_until

ONE_SNAPSHOT = ["REPEATABLE READ", "SERIALIZABLE"]
ALL_LEVELS = ["READ COMMITTED", *ONE_SNAPSHOT]


def begin(connection: psycopg.Connection, level: str) -> None:
    """Begin a transaction whose snapshot, where it has one, is taken now."""
    connection.execute(f"BEGIN ISOLATION LEVEL {level}")
    connection.execute("SELECT FROM pg_class LIMIT 1")


@contextlib.contextmanager
def started(
    connect: Callable[[], psycopg.Connection], work: Callable[[psycopg.Connection], Any]
) -> Iterator[Future[Any]]:
    """Run work(connection) on a thread; the block begins when it waits for a lock or is done. Yields a future."""
    waiting, observer = connect(), connect()
    (process,) = waiting.execute("SELECT pg_backend_pid()").fetchone()
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work, waiting)

        def is_settled() -> bool:
            (blockers,) = observer.execute("SELECT cardinality(pg_blocking_pids(%s))", [process]).fetchone()
            return future.done() or blockers > 0

        wait_until(is_settled, "a lock to be waited for")
        yield future


@contextlib.contextmanager
def blocked(
    connect: Callable[[], psycopg.Connection], work: Callable[[psycopg.Connection], Any]
) -> Iterator[Future[Any]]:
    """Run work(connection) on a thread; the block begins when it waits for a lock. Yields its future."""
    with started(connect, work) as future:
        assert not future.done(), f"did not wait: {future.result()}"
        yield future
