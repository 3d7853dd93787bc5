"""What a trial counts, and the table that it prints."""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Group(NamedTuple):
    """What searches are counted by."""

    strategy: str
    storage: str
    kind: str


class Tally:
    """Counts of all workers. `done` is set when something was lost or wrong."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.operations: Counter[str] = Counter()
        self.retried: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.searches: Counter[Group] = Counter()
        self.matching: Counter[Group] = Counter()
        self.lost: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self.notes: list[str] = []
        self._lock = threading.Lock()

    def add(self, counter: Counter[str], what: str, number: int = 1) -> None:
        with self._lock:
            counter[what] += number

    def operation(self, what: str, number: int = 1) -> None:
        self.add(self.operations, what, number)

    def check(self, what: str, number: int = 1) -> None:
        self.add(self.checks, what, number)

    def searched(self, way: str, group: Group, compared: int, matching: int) -> None:
        with self._lock:
            self.ways[way] += compared
            self.searches[group] += compared
            self.matching[group] += matching

    def find(self, counter: Counter[str], what: str, number: int, note: str) -> None:
        """Count what must never happen, and end the trial."""
        if number:
            with self._lock:
                counter[what] += number
                self.notes.append(f"{what}: {note}")
            self.done.set()

    @property
    def failed(self) -> bool:
        return bool(self.lost.total() or self.wrong.total())

    @property
    def compared(self) -> int:
        return self.searches.total()

    def __str__(self) -> str:
        return (
            f"{time.strftime('%H:%M:%S')} {self.operations.total():,} operations, {self.faults.total():,} faults,"
            f" {self.compared:,} searches compared, {self.lost.total()} lost, {self.wrong.total()} wrong"
        )

    def lines(self) -> Iterable[str]:
        """The result as lines of text."""
        for title, counter in (
            ("operations", self.operations),
            ("tried again", self.retried),
            ("faults", self.faults),
            ("checks", self.checks),
            ("searches compared, by way", self.ways),
        ):
            if counter:
                yield f"{title:60}{counter.total():12,}"
                yield from (f"  {what:58}{number:12,}" for what, number in sorted(counter.items()))
        yield f"{'searches compared':60}{self.compared:12,}{'with matches':>14}"
        for group, number in sorted(self.searches.items()):
            yield (f"  {group.strategy:14}{group.storage:14}{group.kind:30}{number:12,}{self.matching[group]:14,}")
        for name in Group._fields:
            totals: Counter[str] = Counter()
            matching: Counter[str] = Counter()
            for group, number in self.searches.items():
                totals[getattr(group, name)] += number
                matching[getattr(group, name)] += self.matching[group]
            yield from (
                f"  {name:12}{what:46}{number:12,}{matching[what]:14,}" for what, number in totals.most_common()
            )
        share = 100 * self.matching.total() / max(1, self.compared)
        yield f"  {'all':58}{self.compared:12,}{self.matching.total():14,} ({share:.0f}%)"
        for title, counter in (("lost", self.lost), ("wrong", self.wrong)):
            yield f"{title:60}{counter.total():12,}"
            yield from (f"  {what:58}{number:12,}" for what, number in sorted(counter.items()))
        yield from self.notes[:20]
