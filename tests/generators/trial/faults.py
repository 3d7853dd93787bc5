"""Crashes of the server and of clients at random moments, and what has to be there afterwards."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psycopg
from articles import missing_keys

from trial.clients import Client
from trial.run import Cluster, Trial
from trial.searching import Searcher
from trial.tally import Tally
from trial.workers import Workers

T = TypeVar("T")
KILLS, CRASHES, CLIENTS = 1, 6, 3  # of clients and of the server; and how many work, in each round


class Crashes:
    """Rounds that end with a crash of the server, while clients are at work."""

    def __init__(self, cluster: Cluster, trial: Trial, clients: list[Client], seed: object, tally: Tally) -> None:
        self._cluster = cluster
        self._trial = trial
        self._tally = tally
        self._searcher = Searcher(tally)
        self._chance = random.Random(f"{seed} crashes")
        self._clients = _forever(clients, self._chance)
        self._stops = _forever(
            [
                ("immediate stop", self._stop_at_once),
                ("SIGKILL of every process of the server", self._kill_all),
                ("SIGKILL of the postmaster", self._kill_postmaster),
                ("SIGKILL of one process of the server", self._kill_one),
            ],
            self._chance,
        )

    def round(self) -> None:
        """Let all work, kill clients and the server, and start it again each time; then look at everything."""
        used: list[Client] = []
        while len(used) < CLIENTS:
            client = next(self._clients)
            if client not in used:
                used.append(client)
        with contextlib.closing(self._cluster.connect("clients")) as connection:
            for client in used:
                client.prepare(connection, self._chance)
        self._trial.round(lambda workers: self._kill(workers, used))
        if not self._tally.failed:
            self._trial.check(searches=2)
        for client in used:
            if not self._tally.failed:
                self._complete(client)

    def _kill(self, workers: Workers, used: list[Client]) -> None:
        """Kill a client, then the server again and again, under clients and without them."""
        for client in used[:KILLS]:
            program = client.start()
            time.sleep(client.moment(self._chance))
            program.kill()
            program.wait()
            self._tally.add(self._tally.faults, f"SIGKILL of a client: {client.name}")
        for number in range(CRASHES):
            if self._tally.failed:
                return
            running = used[KILLS + number :][:1]
            programs = [client.start() for client in running]
            time.sleep(sum(client.moment(self._chance) for client in running) or self._chance.uniform(0.2, 1.5))
            name, stop = next(self._stops)
            workers.crashing.set()
            stop()
            self._cluster.server.start()
            self._tally.add(self._tally.faults, f"crash: {name}")
            for client, program in zip(running, programs, strict=True):
                program.wait()
                self._tally.add(self._tally.faults, f"work under a crash: {client.name}")

    def _complete(self, client: Client) -> None:
        """Go on with what was interrupted, and see whether it is as if it had not been."""
        output = client.complete()
        with contextlib.closing(self._cluster.connect("clients")) as connection:
            faults = client.faults(connection, output)
            self._tally.find(self._tally.wrong, f"results of {client.name}", len(faults), "; ".join(faults))
            if client.kind:
                for _ in range(3):
                    self._searcher.compare(connection, self._chance, client.kind, is_quiet=True)
                missing = missing_keys(connection, client.kind.name)
                self._tally.find(self._tally.lost, "keys", len(missing), f"{client.name}: {missing[:3]}")
                found = connection.execute(
                    "SELECT problem, object FROM simsql.verify(%s::regclass)", [client.kind.name]
                ).fetchall()
                self._tally.find(self._tally.wrong, "faults of an index", len(found), f"{client.name}: {found}")
        self._tally.check(f"gone on with: {client.name}")

    def _postmaster(self) -> tuple[int, list[int]]:
        """The number of the server, and those of its children."""
        (process, *_) = (self._cluster.server.data_folder / "postmaster.pid").read_text(encoding="utf-8").split()
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
        return int(process), [int(child) for child in children]

    def _stop_at_once(self) -> None:
        _signal(self._postmaster()[0], signal.SIGQUIT)
        self._wait_for_end()

    def _kill_all(self) -> None:
        process, children = self._postmaster()
        for victim in (process, *children):
            _signal(victim, signal.SIGKILL)
        self._wait_for_end()

    def _kill_postmaster(self) -> None:
        _signal(self._postmaster()[0], signal.SIGKILL)
        self._wait_for_end()

    def _kill_one(self) -> None:
        """The server notices, ends all sessions and recovers by itself."""
        _, children = self._postmaster()
        _signal(self._chance.choice(children), signal.SIGKILL)
        # One that was about to end has no such effect.
        _wait(lambda: not any(Path(f"/proc/{child}").exists() for child in children), 20)
        _wait(self._answers, 120)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            self._cluster.connect("trial").close()
            return True
        return False

    def _wait_for_end(self) -> None:
        _wait(lambda: not self._cluster.server.is_running(), 120)


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until this is true, or no longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.02)


def _signal(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _forever(items: list[T], chance: random.Random) -> Iterator[T]:
    """All items in turn, in another order each time."""
    while True:
        yield from chance.sample(items, len(items))
