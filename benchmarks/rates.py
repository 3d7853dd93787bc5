"""A process of its own for what fingerprints of texts cost.

    python -m benchmarks.rates pinned texts.json system...
    python -m benchmarks.rates workers texts.json bytes
    python -m benchmarks.rates memory texts.json count workers

reads lists of texts by name, {"English": [...]}, and prints JSON. `pinned` runs on one core and gives for each
name and system the bytes and the seconds of each round. `workers` does the same for texts of so many bytes with
one process and with two, on any cores. `memory` makes `count` texts of TEXT_LENGTH characters while it goes, and
gives the bytes, the seconds, and the sum of the peaks of this process and its workers.

A system is the id of a recipe, or a package from PyPI: "gaoya" or "simhash". Rounds of systems take turns, so that
what else the machine does falls on all of them.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child import peak_of, peak_of_children
from benchmarks.languages import count_bytes
from simsql.fingerprint import DEFAULT_RECIPE, Recipe, simhash_items, simhash_many

ROUNDS = 5
TEXT_LENGTH = 2_000
# A package in plain Python gets a sample of the texts, of about so many bytes.
_SAMPLE = 1_000_000
_WORKER_ROUNDS = 3

Run = Callable[[Sequence[str]], object]
Timed = dict[str, dict[str, Any]]


def run_pinned(texts_of: dict[str, list[str]], systems: Sequence[str]) -> dict[str, Timed]:
    """Measure systems on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = {}
    for name, texts in texts_of.items():
        runs = {system: _prepare(system, texts) for system in systems}
        found[name] = _take_turns(runs, ROUNDS)
    return found


def run_workers(texts: list[str], size: int) -> Timed:
    """Measure one process and two, which have to start, on the same texts over and over."""
    times = -(-size // count_bytes(texts))
    many = [*chain.from_iterable(repeat(texts, times))]
    return _take_turns({str(n): (partial(simhash_many, workers=n), many) for n in (1, 2)}, _WORKER_ROUNDS)


def run_memory(texts: list[str], count: int, workers: int) -> dict[str, float]:
    """Measure the memory that a corpus of any size takes, which is made while it is read."""
    source = "\n".join(texts) + " " * TEXT_LENGTH
    size = 0

    def corpus() -> Iterator[str]:
        nonlocal size
        for number in range(count):
            start = number * 997 % (len(source) - TEXT_LENGTH)
            text = source[start : start + TEXT_LENGTH]
            size += len(text) if text.isascii() else count_bytes([text])
            yield text

    peaks: dict[int, int] = {}
    results = []
    start = time.perf_counter()
    for _, batch in simhash_items(((None, text) for text in corpus()), workers=workers):
        results.append(batch)
        # Their peaks end with them.
        for process in multiprocessing.active_children():
            peaks[process.pid or 0] = peak_of(process.pid)
    seconds = time.perf_counter() - start
    assert sum(map(len, results)) == count
    children = sum(peaks.values()) or workers * peak_of_children()
    return {"bytes": size, "seconds": seconds, "peak": peak_of() + children}


def _prepare(system: str, texts: Sequence[str]) -> tuple[Run, Sequence[str]]:
    """Return what fingerprints texts, after it has done so once with a few, and the texts that it gets."""
    if system == "simhash":
        return _hash_with_simhash, _sample_for_simhash(texts)
    run: Run = _insert_into_gaoya if system == "gaoya" else partial(simhash_many, recipe=Recipe.from_id(system))
    run([*texts[:100], "é"])
    return run, texts


def _insert_into_gaoya(texts: Sequence[str]) -> object:
    import gaoya  # type: ignore[import-not-found] # noqa: PLC0415 - where it is measured

    index = gaoya.simhash.SimHashStringIndex(64, 6, 5, analyzer="word", ngram_range=(3, 3))
    for number, text in enumerate(texts):
        index.insert_document(number, text)
    return index


def _hash_with_simhash(texts: Sequence[str]) -> object:
    import simhash  # type: ignore[import-not-found] # noqa: PLC0415 - where it is measured

    return [simhash.Simhash(text).value for text in texts]


def _sample_for_simhash(texts: Sequence[str]) -> list[str]:
    """Return every n-th text, but none with a feature that occurs more than 255 times: it raises OverflowError."""
    taken: list[str] = []
    for text in texts[:: max(1, count_bytes(texts) // _SAMPLE)]:
        try:
            _hash_with_simhash([text])
        except OverflowError:
            continue
        taken.append(text)
    return taken


def _take_turns(runs: dict[str, tuple[Run, Sequence[str]]], rounds: int) -> Timed:
    found: Timed = {
        system: {"bytes": count_bytes(texts), "texts": len(texts), "seconds": []}
        for system, (_, texts) in runs.items()
    }
    for _ in range(rounds):
        for system, (run, texts) in runs.items():
            start = time.perf_counter()
            result = run(texts)
            found[system]["seconds"].append(time.perf_counter() - start)
            if isinstance(result, np.ma.MaskedArray):
                found[system]["first"] = result[:100].tolist()
            del result
    return found


def main(arguments: Sequence[str]) -> None:
    """Do what the arguments say and print the figures."""
    task, path, *more = arguments
    texts_of: dict[str, list[str]] = json.loads(Path(path).read_text(encoding="ascii"))
    match task, more:
        case "pinned", systems:
            print(json.dumps(run_pinned(texts_of, systems or [DEFAULT_RECIPE.id])))
        case "workers", [size]:
            print(json.dumps(run_workers(texts_of["English"], int(size))))
        case "memory", [count, workers]:
            print(json.dumps(run_memory(texts_of["English"], int(count), int(workers))))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
