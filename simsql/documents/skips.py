"""What is skipped of a run's documents: how many, why, and which."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from simsql.documents.formats import Skip, printable, storable

DUPLICATE = "duplicate id"
NO_WORDS = "no words"
"""Reasons to skip what the reader has read."""

_EXAMPLES = 10  # of each reason, so that a run that skips a million documents stays readable


class SkipCount:
    """What was skipped: how many by reason, and the first ten of each."""

    def __init__(self) -> None:
        self.by_reason: Counter[str] = Counter()
        self.examples: list[Skip] = []

    def add(self, skip: Skip) -> None:
        """Count one."""
        self.by_reason[skip.reason] += 1
        if self.by_reason[skip.reason] <= _EXAMPLES:
            self.examples.append(skip)


def repeated_id(place: str, name: str, where: str) -> Skip:
    """Return the skip of a document whose id came before; `where` says where."""
    return Skip(place, DUPLICATE, f"{name!r} {where}")


def without_words(place: str) -> Skip:
    """Return the skip of a text that has no fingerprint."""
    return Skip(place, NO_WORDS, "a text without letters, digits or emoji has no fingerprint")


def name_paths(paths: Sequence[str | Path]) -> str:
    """Return the arguments of a run as one line, whatever bytes are in the names."""
    return ", ".join(printable(storable(Path(path))) for path in paths)


def nothing_found(paths: Sequence[str], skips: SkipCount) -> str:
    """Say that there is no document in these paths, and why."""
    where = name_paths(paths)
    if not skips.by_reason:
        return f"no documents in {where}: nothing is there to read"
    reasons = ", ".join(f"{count} {reason}" for reason, count in skips.by_reason.most_common())
    first = skips.examples[0]
    return f"no documents in {where}: skipped {reasons}; the first was {first.place}: {first.detail}"
