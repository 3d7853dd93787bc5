"""Texts to fingerprints: one, or any number in batches and processes."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from operator import index
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simsql.fingerprint.features import distinct, shingle, weigh
from simsql.fingerprint.hashes import U64, mix
from simsql.fingerprint.recipe import DEFAULT, Recipe
from simsql.fingerprint.tokens import hash_tokens
from simsql.fingerprint.vote import majorities

# Its arrays, of some 30 bytes for each character, stay in the cache; smaller batches pay more calls of numpy.
_BATCH_CHARACTERS = 1 << 18
_BATCH_TEXTS = 1 << 14
# What a process is given at once, so that passing it on costs little beside the work.
_TASK_CHARACTERS = 1 << 22
# Times the weights of a text of any length that fits into memory, this stays far below the 2**62 of a vote.
_PART_WEIGHT_AT_MOST = 1_000_000

Fingerprints: TypeAlias = "np.ma.MaskedArray[tuple[int], np.dtype[np.uint64]]"

# Fingerprints, and which texts have none.
_Result = tuple[U64, NDArray[np.bool_]]


def simhash(text: str, recipe: Recipe = DEFAULT) -> int | None:
    """Return the fingerprint of a text, in [0, 2**64), or None if the text has no features.

    A text without a letter, digit or emoji has no features. For many texts, `simhash_many` is many times
    faster. Raises TypeError if `text` is not a str.
    """
    _check(text, 0)
    values, empty = _fingerprint([text], recipe)
    return None if empty[0] else int(values[0])


def simhash_parts(parts: Iterable[tuple[str, int]], recipe: Recipe = DEFAULT) -> int | None:
    """Return the fingerprint of a document of several texts with weights, or None if none of them has features.

    Each text has the features and weights that it would have alone, so no feature spans two of them. The
    weights are multiplied by that of the text, and all features of all texts vote together: a feature that two
    texts share votes twice. So one text alone has the fingerprint of `simhash`, whatever its weight, and the
    order of the texts does not count.

    Raises TypeError if a text is not a str or a weight no integer, ValueError for a weight outside of
    1 to 1,000,000.
    """
    texts: list[str] = []
    weights: list[int] = []
    for position, (text, weight) in enumerate(parts):
        _check(text, position)
        if not 1 <= index(weight) <= _PART_WEIGHT_AT_MOST:
            raise ValueError(f"a text weighs from 1 to {_PART_WEIGHT_AT_MOST}, but text {position} {weight}")
        texts.append(text)
        weights.append(index(weight))
    tokens, documents = hash_tokens(texts or [""], recipe.tokens)
    if not len(tokens):
        return None
    features = distinct(*shingle(tokens, documents, recipe.shingles))
    votes = weigh(features.occurrences, recipe.weight) * np.repeat(weights, features.documents)
    return int(majorities(mix(features.hashes), votes, np.array([len(votes)]))[0])


def simhash_many(texts: Iterable[str], recipe: Recipe = DEFAULT, workers: int | None = None) -> Fingerprints:
    """Return the fingerprints of texts, in their order; texts without features are masked.

    `texts` may be any iterable, a generator too; it is read as the work goes on. `workers` is the number of
    processes; None and 1 mean this process alone. Further processes are spawned: they import the main module
    anew, so a script must keep its own work behind `if __name__ == "__main__":`. Fingerprints depend neither
    on `workers` nor on the other texts.

    Returns a masked array of uint64, one-dimensional, with a full mask. Raises TypeError if a text is not a
    str, and ValueError if `workers` is less than 1.
    """
    batches = list(simhash_batches(texts, recipe, workers))
    values = np.concatenate([np.zeros(0, dtype=np.uint64), *(batch.data for batch in batches)])
    empty = np.concatenate([np.zeros(0, dtype=bool), *(np.ma.getmaskarray(batch) for batch in batches)])
    return np.ma.MaskedArray(values, mask=empty)


def simhash_batches(
    texts: Iterable[str], recipe: Recipe = DEFAULT, workers: int | None = None
) -> Iterator[Fingerprints]:
    """Yield what `simhash_many` returns piece by piece, so that neither texts nor fingerprints pile up.

    `texts` is read some batches ahead of what has been yielded. Arguments and errors as for `simhash_many`.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of str, not one str: use simhash")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be None or at least 1, not {workers}")
    if workers is None or workers == 1:
        results: Iterator[_Result] = (_fingerprint(batch, recipe) for batch in _batches(texts, _BATCH_CHARACTERS))
    else:
        results = _fingerprint_in_processes(_batches(texts, _TASK_CHARACTERS), recipe, workers)
    for values, empty in results:
        yield np.ma.MaskedArray(values, mask=empty)


def _fingerprint_in_processes(batches: Iterator[list[str]], recipe: Recipe, workers: int) -> Iterator[_Result]:
    running: deque[Future[_Result]] = deque()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
        try:
            for batch in batches:
                with _interrupts_blocked():
                    running.append(pool.submit(_fingerprint_task, batch, recipe))
                # A few tasks ahead keep every process busy; more would only hold texts in memory.
                if len(running) > 2 * workers:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let processes that start here inherit that Ctrl-C is not for them: this process handles it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """Let this process end when its parent is killed: it would wait for the next task for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - runs in processes of the pool alone

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _fingerprint_task(texts: list[str], recipe: Recipe) -> _Result:
    results = [_fingerprint(batch, recipe) for batch in _batches(texts, _BATCH_CHARACTERS)]
    return np.concatenate([values for values, _ in results]), np.concatenate([empty for _, empty in results])


def _batches(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Yield lists of texts of so many characters or a little more; a long text is a batch of its own."""
    batch: list[str] = []
    size = 0
    for position, text in enumerate(texts):
        _check(text, position)
        if batch and (size + len(text) > characters or len(batch) == _BATCH_TEXTS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _check(text: object, position: int) -> None:
    if not isinstance(text, str):
        raise TypeError(f"a text must be str, but text {position} is {type(text).__name__}")


def _fingerprint(texts: list[str], recipe: Recipe) -> _Result:
    tokens, documents = hash_tokens(texts, recipe.tokens)
    features = distinct(*shingle(tokens, documents, recipe.shingles))
    empty = documents == 0
    values = np.zeros(len(texts), dtype=np.uint64)
    if len(tokens):
        weights = weigh(features.occurrences, recipe.weight)
        values[~empty] = majorities(mix(features.hashes), weights, features.documents[~empty])
    return values, empty
