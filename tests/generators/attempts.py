"""Random cases, one after another, and what they have in common: counts, differences and faults of the past."""

import argparse
import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from internals import replace_in_functions
from servers import TEMPLATE, Server


class DifferenceError(AssertionError):
    """A search misses rows in silence, or fails and does not say why."""


def template_with(server: Server, fault: Iterable[tuple[str, str, str]]) -> str:
    """The name of a template database into whose functions a fault of the past is put back."""
    return server.template(partial(replace_in_functions, changes=fault)) if fault else TEMPLATE


class Attempts:
    """Numbered random generators, until the time is over, or the fault that was put back is found."""

    def __init__(self, server: Server, options: argparse.Namespace, fault: Iterable[tuple[str, str, str]]) -> None:
        self.server = server
        self.template = template_with(server, fault)
        self.fault = options.fault
        self.shorten = not options.as_it_is
        self.differences: Counter[str] = Counter()
        self._seed = options.seed
        self._numbers = itertools.count(options.first)
        self._end = time.monotonic() + 60 * options.minutes

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end or bool(self.differences and self.fault)

    def __iter__(self) -> Iterator[tuple[int, random.Random]]:
        while not self.is_over:
            number = next(self._numbers)
            yield number, random.Random(f"{self._seed} {number}")

    def differ(self, number: int, kind: str, *lines: object) -> None:
        """Print a case that leads to a difference, and count it."""
        self.differences[kind] += 1
        print(f"case {number}:", *lines, sep="\n    ", end="\n\n", flush=True)
