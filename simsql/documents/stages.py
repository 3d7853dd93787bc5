"""How far a job has come: what a job reports, and who shows it decides how."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

Report = Callable[[int], None]
"""Tells how much of a stage is done, in the unit of its total."""


class Stages(Protocol):
    """Runs the stages of a job one after the other; `seconds` is how long each took."""

    seconds: dict[str, float]

    def stage(self, name: str, total: int | None = None, *, shown: bool = True) -> AbstractContextManager[Report]:
        """Time a stage, and show how far it is if `shown`; without a total, only that it goes on."""
