"""Texts in batches, which are worked on here or in several processes, in order and in bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from simsql.errors import UsageError
from simsql.processes import map_in_processes

# The arrays of a batch, about 30 bytes for each character, fit the cache; smaller batches need more NumPy calls.
_BATCH_CHARACTERS = 1 << 18
_BATCH_TEXTS = 1 << 14
# Rows of a column that become Python objects together.
_ROWS = 256
# Characters of a task for a process: transferring them costs little compared with the work.
TASK_CHARACTERS = 1 << 22

# What is found in a batch of texts, such as fingerprints and the mask of the texts without one, or the hashes and
# counts of tokens. Several batches are concatenated.
Arrays = tuple[NDArray[Any], ...]


@runtime_checkable
class TextColumn(Protocol):
    """A column of texts with nulls: an Arrow array or chunked array, or a Polars Series."""

    def __len__(self) -> int: ...
    def slice(self, offset: int, length: int, /) -> Any:
        """Return some of the rows."""


def map_batches(
    work: Callable[[list[str]], Arrays],
    texts: Iterable[str] | TextColumn,
    workers: int | None,
    task_characters: int = TASK_CHARACTERS,
) -> Iterator[Arrays]:
    """Yield the results for batches of texts, in order; a process gets several batches and joins their results.

    A null of a column counts as an empty text. Raises TypeError for a str instead of an iterable of them, and for
    a text that is not a str, ValueError if `workers` is less than 1.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of str, not a single str")
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be None or at least 1, not {workers}")
    if workers is None or workers == 1:
        return map(work, _batches_of(_texts_of(texts), _BATCH_CHARACTERS))
    task = partial(_do_task, work)
    # A long text takes as much memory as several tasks.
    load = lambda batch: max(1, sum(map(len, batch)) / TASK_CHARACTERS)  # noqa: E731
    return map_in_processes(task, _batches_of(_texts_of(texts), task_characters), workers, load)


def _texts_of(texts: Iterable[str] | TextColumn) -> Iterable[str]:
    """Return texts that can be iterated over. Those of a column become Python objects a few rows at a time."""
    if not isinstance(texts, TextColumn):
        return texts
    for to_list in ("to_pylist", "to_list"):
        if hasattr(texts, to_list):
            parts = (texts.slice(start, _ROWS) for start in range(0, len(texts), _ROWS))
            return ("" if text is None else text for part in parts for text in getattr(part, to_list)())
    raise TypeError(f"texts must be an iterable of str or a column of them, not {type(texts).__name__}")


def check_text(text: object, position: int) -> None:
    """Raise TypeError if this text of several is not a str."""
    if not isinstance(text, str):
        raise TypeError(f"text {position} must be a str, not {type(text).__name__}")


def _do_task(work: Callable[[list[str]], Arrays], texts: list[str]) -> Arrays:
    found = [work(batch) for batch in _batches_of(texts, _BATCH_CHARACTERS)]
    return tuple(map(np.concatenate, zip(*found, strict=True)))


def _batches_of(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Yield lists of texts of at most `characters` characters; a longer text is a batch of its own."""
    batch: list[str] = []
    size = 0
    positions = count()
    for text in texts:
        check_text(text, next(positions))
        if batch and (size + len(text) > characters or len(batch) == _BATCH_TEXTS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
        del text  # a long one is not kept while the next one is read
        if size >= characters:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
