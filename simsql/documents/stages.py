"""The progress that a job reports. The caller decides how to show it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

Report = Callable[[int], None]
"""Reports how much of a stage is done, in the unit of its total."""


class Stages(Protocol):
    """Run the stages of a job one after the other; `seconds` holds the duration of each."""

    seconds: dict[str, float]

    def stage(self, name: str, total: int | None = None, *, shown: bool = True) -> AbstractContextManager[Report]:
        """Time a stage, and show its progress if `shown`; without a total, only that it is running."""
