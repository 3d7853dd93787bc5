"""Threads that each repeat a job on a connection of their own until the time is over or something is found."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Mapping

import psycopg
from psycopg import errors

from trial.tally import Tally

Connect = Callable[[], psycopg.Connection]
Job = Callable[[psycopg.Connection, random.Random], None]

# Others change, drop and rebuild the index meanwhile, or want the same rows: begin again.
RETRIED = (
    errors.ObjectNotInPrerequisiteState,  # the index is being built, or is refused until it is repaired
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.ObjectInUse,  # an index is created concurrently
    errors.LockNotAvailable,
    errors.UndefinedObject,  # no index
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.UniqueViolation,
    errors.CheckViolation,  # a partition is gone
    errors.QueryCanceled,
)


class OutOfSight(Exception):  # noqa: N818
    """Rows of this writer are not in its snapshot, which is older than a rewrite of the table."""


class Workers:
    """What all threads share. `crashing` is set before connections may end."""

    def __init__(self, tally: Tally, seed: str) -> None:
        self.tally = tally
        self.done = tally.done
        self.crashing = threading.Event()
        self._seed = seed
        self._failures: list[BaseException] = []

    def run(self, jobs: Mapping[str, tuple[Connect, Job]], until: Callable[["Workers"], object]) -> None:
        """Repeat all jobs, by name, until a function of this object returns; raise the first of their failures."""
        self.done.clear()
        self.crashing.clear()
        threads = [
            threading.Thread(target=self._repeat, args=(name, *job), name=name) for name, job in jobs.items()
        ]
        for thread in threads:
            thread.start()
        try:
            until(self)
        finally:
            self.done.set()
            for thread in threads:
                thread.join()
        if self._failures:
            raise self._failures[0]

    def _repeat(self, name: str, connect: Connect, job: Job) -> None:
        # Each worker has a stream of its own, whatever the others do.
        chance = random.Random(f"{self._seed} {name}")
        try:
            while not self.done.is_set():
                try:
                    connection = connect()
                except psycopg.OperationalError:
                    if not self.crashing.is_set():
                        raise
                    time.sleep(0.2)  # a server that recovers has better things to do than to refuse us
                    continue
                with contextlib.closing(connection):
                    try:
                        self._repeat_on(connection, job, chance)
                    except psycopg.Error as error:
                        # A session of SQLAlchemy may have ended instead of this one.
                        if not (connection.broken or self.crashing.is_set() or was_ended(error)):
                            raise
        except BaseException as error:
            self._failures.append(error)
            self.done.set()
            raise

    def _repeat_on(self, connection: psycopg.Connection, job: Job, chance: random.Random) -> None:
        while not self.done.is_set() and not connection.closed:
            try:
                job(connection, chance)
            except OutOfSight:
                connection.execute("ROLLBACK")
                self.tally.add(self.tally.retried, "rows older than a rewrite")
            except RETRIED as error:
                if not connection.closed:
                    connection.execute("ROLLBACK")
                self.tally.add(self.tally.retried, type(error).__name__)


def was_ended(error: psycopg.Error) -> bool:
    """Whether a session was ended by another one."""
    signs = ("terminating connection", "server closed the connection", "the connection is lost")
    return isinstance(error, errors.AdminShutdown) or any(sign in str(error) for sign in signs)
