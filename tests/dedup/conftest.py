"""Texts and databases for the tests of the job."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from program import kill_started, write_lines
from sqlalchemy import Engine, NullPool, create_engine

# Three texts that are near each other, a fourth that is like none, and a fifth that is a copy of the fourth.
FOX = "The quick brown fox jumps over the lazy dog and runs away from the old barn near the river"
TEXTS = {
    "fox": FOX,
    "fox 2": FOX + " bank",
    "fox 3": FOX.upper() + "!",
    "ship": "A ship of iron sails across the northern ocean with a cargo of salt, timber and letters home",
    "ship 2": "A ship of iron sails across the northern ocean with a cargo of salt, timber and letters home",
    "alone": "Nothing else in this small collection of texts speaks about mountains, glaciers or avalanches",
}


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    kill_started()


@pytest.fixture
def newest(database_url: str) -> tuple[Engine, str]:
    """An engine and the URL of a new database with simsql: for what no version does differently."""
    return create_engine(database_url, poolclass=NullPool), database_url


@pytest.fixture
def texts() -> dict[str, str]:
    """Texts by id: two clusters, and one text that is in none."""
    return dict(TEXTS)


@pytest.fixture
def groups() -> set[frozenset[str]]:
    """The clusters of `texts`."""
    return {frozenset({"fox", "fox 2", "fox 3"}), frozenset({"ship", "ship 2"})}


@pytest.fixture
def lines(tmp_path: Path, texts: dict[str, str]) -> Path:
    """`texts` as JSON lines."""
    return write_lines(tmp_path / "texts.jsonl", texts)
