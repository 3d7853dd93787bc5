"""How much of a report fits into a file: texts are cut first, then members of large clusters, then clusters."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsql.report.collected import MAX_TEXT, Collected, json_size

LEAST_TEXT = 1000
"""Bytes of a text, as JSON, that are shown at least: if the texts do not fit, members are left out."""

LEAST_MEMBERS = 10
"""Members of a cluster that are shown at least: if they do not fit, clusters are left out."""


class Limits(NamedTuple):
    """What a report shows at most."""

    text: int
    """Bytes of a text as JSON."""
    members: int
    """Members of a cluster."""
    clusters: int


class Sizes:
    """Sizes of all members in bytes of JSON, and where they are."""

    def __init__(self, collected: Collected) -> None:
        self.counts: NDArray[np.int64] = np.array(collected.member_counts, dtype=np.int64)
        starts = np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        self.texts: NDArray[np.int64] = np.array(collected.text_sizes, dtype=np.int64)
        self._others: NDArray[np.int64] = np.array(collected.member_sizes, dtype=np.int64)
        self._position = np.arange(len(starts)) - starts
        self._cluster = np.repeat(np.arange(len(self.counts)), self.counts)

    def shown(self, limits: Limits) -> NDArray[np.bool_]:
        """Return which members are shown."""
        return (self._position < limits.members) & (self._cluster < limits.clusters)

    def total(self, limits: Limits) -> int:
        """Return the number of bytes of all that is shown."""
        shown = self.shown(limits)
        return int(np.minimum(self.texts[shown], limits.text).sum() + self._others[shown].sum())


def choose_limits(sizes: Sizes, budget: int, *, cut: bool = True) -> Limits:
    """Return the highest limits with which all that is shown takes at most `budget` bytes.

    Without `cut`, no text is cut.
    """
    longest = int(sizes.texts.max(initial=0))
    least = LEAST_TEXT if cut else max(LEAST_TEXT, longest)
    most = max(LEAST_MEMBERS, int(sizes.counts.max(initial=0)))
    limits = Limits(max(least, longest), most, len(sizes.counts))
    for name, lowest in zip(Limits._fields, (least, LEAST_MEMBERS, 0), strict=True):

        def size(value: int, limits: Limits = limits, name: str = name) -> int:
            return sizes.total(limits._replace(**{name: value}))

        limits = limits._replace(**{name: _highest(lowest, getattr(limits, name), budget, size)})
    return limits


def _highest(least: int, most: int, budget: int, size: Callable[[int], int]) -> int:
    """Return the highest number up to `most` whose size is within the budget; `least` if there is none."""
    return max(least, least + bisect_right(range(least, most + 1), budget, key=size) - 1)


def cut_text(text: str, limit: int) -> str:
    """Return as much of a text, from its beginning, as takes at most `limit` bytes as JSON."""
    if json_size(text) <= limit:
        return text
    return text[: _highest(0, min(len(text), limit), limit, lambda length: json_size(text[:length]))]


def left_out(sizes: Sizes, limits: Limits, long_texts: int) -> Iterator[str]:
    """Yield what a page leaves out, if anything: clusters, members and ends of texts."""
    counts = sizes.counts[: limits.clusters]
    if clusters := len(sizes.counts) - len(counts):
        yield f"the last {_count(clusters, 'cluster')} of {len(sizes.counts):,}"
    if members := int(np.maximum(counts - limits.members, 0).sum()):
        yield f"{_count(members, 'member')} of clusters with more than {limits.members:,}"
    if cut := int((sizes.texts[sizes.shown(limits)] > limits.text).sum()):
        yield f"{_count(cut, 'text')} from byte {limits.text:,} on"
    elif long_texts:
        yield f"{_count(long_texts, 'text')} from character {MAX_TEXT:,} on"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
