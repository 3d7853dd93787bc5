"""Threads that each repeat a job on a connection of their own until the time is over or a fault is found."""

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable

import psycopg

Connect = Callable[[], psycopg.Connection]
Job = Callable[[psycopg.Connection, random.Random], None]


class Soak:
    """What all threads share: how to connect, when to stop, and what has happened."""

    FAULTS: tuple[str, ...] = ()
    """What must never happen, by the names under which it is counted."""
    RETRIED: tuple[type[psycopg.Error], ...] = ()
    """Errors after which a job begins anew."""

    def __init__(self, connect: Connect, seed: int) -> None:
        self.connect = connect
        self.seed = seed
        self.done = threading.Event()
        self.crashing = threading.Event()
        """Set before the server is killed: a thread that finds no server then ends."""
        self.rounds = 0
        self.counts: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self._counting = threading.Lock()

    def prepare(self, connection: psycopg.Connection) -> None:
        """Create what the jobs work on."""
        raise NotImplementedError

    def jobs(self) -> list[Job]:
        """Return the job of each connection."""
        raise NotImplementedError

    def finish(self, connection: psycopg.Connection) -> None:
        """Count the faults that are left when all jobs have ended."""
        raise NotImplementedError

    def count(self, what: str, number: int = 1) -> None:
        with self._counting:
            self.counts[what] += number
        if number and what in self.FAULTS:
            self.done.set()

    def run(self, seconds: float, sabotage: Callable[[psycopg.Connection], None] | None = None) -> Counter[str]:
        """Run all threads for this long or until a fault is found. `sabotage` changes the database beforehand."""
        with contextlib.closing(self.connect()) as connection:
            self.prepare(connection)
            if sabotage:
                sabotage(connection)
        self.run_jobs(lambda: self.done.wait(seconds))
        with contextlib.closing(self.connect()) as connection:
            self.finish(connection)
        return self.counts

    def run_jobs(self, until: Callable[[], object]) -> None:
        """Run all threads until a function returns; raise the first of their failures."""
        self.done.clear()
        self.rounds += 1
        threads = [threading.Thread(target=self._repeat, args=(job, n)) for n, job in enumerate(self.jobs())]
        for thread in threads:
            thread.start()
        until()
        self.done.set()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def _repeat(self, job: Job, number: int) -> None:
        chance = random.Random(f"{self.seed} {number}" + f" {self.rounds}" * (self.rounds > 1))
        try:
            while not self.done.is_set():
                try:
                    connection = self.connect()
                except psycopg.OperationalError:
                    if self.crashing.is_set():
                        return
                    raise
                with contextlib.closing(connection):
                    try:
                        self._repeat_on(connection, job, chance)
                    except psycopg.OperationalError:
                        if not connection.broken:  # else it was killed
                            raise
        except BaseException as error:
            self.failures.append(error)
            self.done.set()
            raise

    def _repeat_on(self, connection: psycopg.Connection, job: Job, chance: random.Random) -> None:
        while True:
            try:
                job(connection, chance)
            except self.RETRIED as error:
                connection.execute("ROLLBACK")
                self.count(f"retried: {type(error).__name__}")
            if self.done.is_set():
                return


def report(soak: Soak, title: str) -> int:
    """Print what has happened, and return the exit code: 1 after a fault."""
    print(title)
    for what, number in sorted(soak.counts.items()):
        print(f"{number:10,} {what}")
    return int(any(soak.counts[fault] for fault in soak.FAULTS))
