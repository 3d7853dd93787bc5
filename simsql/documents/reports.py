"""What a job reports: how far its stages are, and the documents that it skips."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from simsql.documents.input_formats import Skip, printable, storable

Report = Callable[[int], None]
"""Reports how much of a stage is done, in the unit of its total. The caller decides how to show it."""

DUPLICATE = "duplicate id"
READ_TWICE = "read twice"
NO_WORDS = "no words"
"""Reasons to skip a document after reading it."""

_EXAMPLES = 10  # of each reason, so that a run that skips a million documents stays readable


class Stages(Protocol):
    """Run the stages of a job one after the other."""

    def stage(self, name: str, total: int | None = None, *, shown: bool = True) -> AbstractContextManager[Report]:
        """Time a stage, and show its progress if `shown`; without a total, only that it is running."""


class SkipCount:
    """The number of skipped documents by reason, and the first ten of each."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self.examples: list[Skip] = []

    def add(self, skip: Skip) -> None:
        """Count a skip."""
        self.by_reason[skip.reason] += 1
        if self.by_reason[skip.reason] <= _EXAMPLES:
            self.examples.append(skip)

    def add_all(self, later: "SkipCount") -> None:
        """Count the skips that another one has counted."""
        left = {reason: _EXAMPLES - self.by_reason[reason] for reason in later.by_reason}
        for skip in later.examples:
            if left[skip.reason] > 0:
                left[skip.reason] -= 1
                self.examples.append(skip)
        self.by_reason.update(later.by_reason)


def repeated_id(place: str, name: str, where: str) -> Skip:
    """Return the skip of a document whose id is not new; `where` describes the other one."""
    return Skip(place, DUPLICATE, f"{name!r} {where}")


def name_paths(paths: Sequence[str | Path]) -> str:
    """Return the paths of a run as one printable line."""
    return ", ".join(printable(storable(Path(path))) for path in paths)
