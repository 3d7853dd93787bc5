"""All pairs in memory: find_pairs at distances 3, 7, 10 and 12, and at 3 the command, simhash-cpp and faiss."""

import json
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.bars import FAISS, FIND_ALL_PROGRAM, SIMHASH_CPP
from benchmarks.child import run_child
from benchmarks.data import Fingerprints
from benchmarks.figures import SIMSQL
from benchmarks.harness import Bench
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.peers import find_program
from benchmarks.peers.faiss import open_faiss

SECTION = "memory"
# Programs and faiss are measured at the first one.
_DISTANCE, *_LARGER_DISTANCES = 3, 7, 10, 12
_MILLION = 1_000_000
# Runs of up to a million fingerprints, of which the median counts.
_ROUNDS = 3
# Fewer blocks are faster for fewer fingerprints; of these the fastest counts.
_BLOCKS_FEW, _BLOCKS_MANY = (4, 5, 6), (6, 7)


def run(bench: Bench) -> None:
    """Measure a million fingerprints, where there are as many, and all; at larger distances up to a million."""
    rows = bench.main.rows
    for count in sorted({min(_MILLION, rows), rows}):
        size = "all rows" if count == rows != _MILLION else f"{count:,}"
        values = bench.main.oracle.values[:count]
        oracle = bench.main.oracle if count == rows else Oracle(values)
        what = f"find_pairs of {size}, distance"
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "fingerprints.npy", values)
            pairs = _measure_pairs(bench, f"{what} {_DISTANCE}", folder, oracle, _DISTANCE)
            _measure_programs(bench, f"{what} {_DISTANCE}", folder, values, pairs)
            if count <= _MILLION:
                _measure_faiss(bench, f"{what} {_DISTANCE}", values, pairs)
                for distance in _LARGER_DISTANCES:
                    _measure_pairs(bench, f"{what} {distance}", folder, oracle, distance)


def _measure_pairs(bench: Bench, what: str, folder: Path, oracle: Oracle, distance: int) -> Fingerprints:
    rows = oracle.values.size
    used = _repeat(rows, "find_pairs", folder / "fingerprints.npy", str(distance), folder / "pairs.npy")
    pairs: Fingerprints = np.load(folder / "pairs.npy")
    checked = oracle.check_pairs(SIMSQL, distance, pairs, bench.options.sample)
    _add(bench, what, SIMSQL, used, rows, checked, f"{len(pairs):,} pairs")
    return pairs


def _add(bench: Bench, what: str, system: str, used: dict[str, float], rows: int, checked: int, note: str) -> None:
    calls = _ROUNDS if rows <= _MILLION else 1
    bench.add(SECTION, what, system, used["seconds"], "s", calls=calls, rows=rows, checked=checked, note=note)
    bench.add(SECTION, f"{what}: peak memory", system, used["peak"], "bytes", rows=rows, note="of all processes")


def _measure_programs(bench: Bench, what: str, folder: Path, values: Fingerprints, expected: Fingerprints) -> None:
    """Measure what reads and writes text: simsql's program, and simhash-cpp's with the best number of blocks."""
    rows = values.size
    (folder / "fingerprints.txt").write_text("\n".join(map(str, values.tolist())) + "\n", encoding="ascii")
    own = [sys.executable, "-c", "from simsql.cli import main; main()", "find-pairs"]
    used = _run_program(FIND_ALL_PROGRAM, own, folder, rows, expected)
    _add(bench, what, FIND_ALL_PROGRAM, used, rows, len(expected), "reads and writes text")
    program = find_program(bench, "simhash-find-all")
    if program is None:
        return
    runs = []
    for blocks in _BLOCKS_FEW if rows <= _MILLION else _BLOCKS_MANY:
        bench.report.say(f"{SIMHASH_CPP} with {blocks} blocks")
        used = _run_program(SIMHASH_CPP, [program, "--blocks", str(blocks)], folder, rows, expected)
        runs.append((used["seconds"], blocks, used))
    _, blocks, used = min(runs, key=lambda run: run[:2])
    _add(bench, what, SIMHASH_CPP, used, rows, len(expected), f"{blocks} blocks, reads and writes text")


def _run_program(
    system: str, command: list[str], folder: Path, rows: int, expected: Fingerprints
) -> dict[str, float]:
    files = ["--input", str(folder / "fingerprints.txt"), "--output", str(folder / "pairs.txt")]
    used = _repeat(rows, "program", *command, "--distance", str(_DISTANCE), *files)
    lines = (folder / "pairs.txt").read_text(encoding="utf-8").splitlines()
    pairs = np.array([json.loads(line) for line in lines], dtype=np.uint64).reshape(-1, 2)
    _check_equal(system, pairs, expected)
    return used


def _repeat(rows: int, *arguments: str | Path) -> dict[str, float]:
    """Return the median run of several, where they are short."""
    runs = [run_child(*arguments) for _ in range(_ROUNDS if rows <= _MILLION else 1)]
    return sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]


def _measure_faiss(bench: Bench, what: str, values: Fingerprints, expected: Fingerprints) -> None:
    """Search for each, in one call: faiss has nothing for pairs."""
    for peer in islice(open_faiss(bench, values), 1):
        peer.set_distance(_DISTANCE)
        queries = np.concatenate(peer.prepare(values))
        start = time.perf_counter()
        limits, _, places = peer.search(queries)
        seconds = time.perf_counter() - start
        pairs = np.stack([np.repeat(values, np.diff(limits).astype(np.intp)), values[places]], axis=1)
        _check_equal(FAISS, pairs[pairs[:, 0] < pairs[:, 1]], expected)
        note = "a search for each, in one call; its index is there already"
        bench.add(SECTION, what, FAISS, seconds, "s", rows=values.size, checked=len(expected), note=note)


def _check_equal(system: str, found: Fingerprints, expected: Fingerprints) -> None:
    """Raise WrongResultError unless a peer has found the pairs that find_pairs has."""
    pairs = {(min(a, b), max(a, b)) for a, b in found.tolist()}
    others = set(map(tuple, expected.tolist()))
    if pairs != others:
        raise WrongResultError(
            f"{system} and {SIMSQL} find different pairs: {len(pairs - others)} and {len(others - pairs)}"
            f" of their own, such as {next(iter(pairs ^ others))}"
        )
