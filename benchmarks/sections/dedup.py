"""The whole job on files: `simsql dedup`, beside the MinHash indexes of gaoya and datasketch."""

import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import simsql
from benchmarks.bars import DATASKETCH, GAOYA_MINHASH
from benchmarks.child import run_child
from benchmarks.figures import SIMSQL
from benchmarks.harness import Run
from benchmarks.oracle import Oracle, WrongResultError
from benchmarks.peers import import_peer
from benchmarks.texts import Corpus

SECTION = "dedup"
WHAT = "near-duplicates in a file"
_DISTANCES = (7, 12)
_DROPPED = 0.7  # the similarity from which on a document is dropped
_LARGEST = 100_000
_ROUNDS = 3  # of which the median counts
_SLOW = 10_000  # documents for a peer on one core
_NAMES = ("SIMSQL_HOME", "SIMSQL_DATABASE")


def run(run: Run) -> None:
    """Measure a file of JSON lines: as many documents as a tenth of the rows, at most 100,000."""
    count = min(_LARGEST, max(200, run.options.rows // 10))
    # Not below the folder of somebody: as root, the server runs as another user.
    folder = Path(tempfile.mkdtemp(prefix="simsql-benchmarks-", dir=run.options.folder))
    folder.chmod(0o711)
    before = {name: os.environ.pop(name) for name in _NAMES if name in os.environ}
    os.environ["SIMSQL_HOME"] = str(folder / "home")
    try:
        _measure(run, folder, list(Corpus(count, run.options.seed).texts()))
    finally:
        del os.environ["SIMSQL_HOME"]
        os.environ.update(before)
        shutil.rmtree(folder, ignore_errors=True)


def _measure(run: Run, folder: Path, texts: Sequence[str]) -> None:
    source = folder / "documents.jsonl"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts))
    (folder / "small.jsonl").write_text('{"text": "some words"}\n', encoding="utf-8")
    _run_simsql(folder / "small.jsonl", folder, _DISTANCES[0])  # creates the server's folder
    fingerprints = simsql.simhash_many(texts).compressed()
    rounds = _ROUNDS if len(texts) >= _SLOW else 1
    for distance in _DISTANCES:
        runs = sorted(
            (_run_simsql(source, folder, distance) for _ in range(rounds)), key=lambda used: used["seconds"]
        )
        used = runs[rounds // 2]
        checked = _check_decisions(folder / "clusters", texts, fingerprints, distance, run.options.sample)
        run.add(
            SECTION,
            f"{WHAT}, distance {distance}",
            SIMSQL,
            used.pop("seconds"),
            "s",
            rows=len(texts),
            calls=rounds,
            checked=checked,
            note="the whole process: reads, stores, compares texts and decides, exact",
        )
        for stage, seconds in used.items():
            run.add(SECTION, f"distance {distance}: {stage}", SIMSQL, seconds, "s", rows=len(texts))
    _measure_workers(run, folder, len(texts), rounds)
    _measure_gaoya(run, texts)
    _measure_datasketch(run, texts[:_SLOW])


def _run_simsql(source: Path, folder: Path, distance: int, *more: str) -> dict[str, float]:
    """Return the seconds of the process, and those of its stages."""
    program = [sys.executable, "-c", "from simsql.cli import main; main()", "dedup", str(source)]
    options = ["--distance", str(distance), "--output", str(folder / "clusters"), *more]
    used = run_child("program", *program, *options, messages=folder / "summary")
    summary = (folder / "summary").read_text(encoding="utf-8")
    stages = re.findall(r"^  (\w.*?) +(\d+\.\d\d)$", summary.partition("\nseconds ")[2], flags=re.M)
    return {"seconds": used["seconds"]} | {stage: float(seconds) for stage, seconds in stages}


def _measure_workers(run: Run, folder: Path, rows: int, rounds: int) -> None:
    """Measure two workers beside one process, in turns, the time to start them included."""
    seconds: dict[str, list[float]] = {"1": [], "2": []}
    written = set()
    for _ in range(rounds):
        for workers, found in seconds.items():
            used = _run_simsql(folder / "documents.jsonl", folder, _DISTANCES[0], "--workers", workers)
            found.append(used["read and fingerprint"])
            written.add((folder / "clusters").read_bytes())
    if len(written) > 1:
        raise WrongResultError("two workers decide otherwise than one process")
    for workers, found in seconds.items():
        system = f"{SIMSQL}, {workers} worker{'s' * (workers > '1')}"
        run.add(SECTION, "read and fingerprint", system, sorted(found)[rounds // 2], "s", rows=rows, calls=rounds)


def _check_decisions(
    path: Path, texts: Sequence[str], fingerprints: np.ndarray, distance: int, sample: int
) -> int:
    """Check the decisions about some documents against all that brute force finds near; return how many."""
    oracle = Oracle(np.unique(fingerprints))
    kept = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        kept |= {int(member["id"]): int(member["kept"]) for member in json.loads(line)["members"]}
    numbers = np.random.default_rng(1).choice(len(fingerprints), min(sample, len(fingerprints)), replace=False)
    for number in numbers.tolist():
        near = [found for found, _ in oracle.near(int(fingerprints[number]), distance)]
        others = [other for other in np.flatnonzero(np.isin(fingerprints, near)).tolist() if other != number]
        similar = simsql.similarity_many([texts[number]] * len(others), [texts[other] for other in others])
        # The documents that are kept and so similar that this one is dropped in favour of the most similar.
        rivals = {
            other: value
            for other, value in zip(others, similar.tolist(), strict=True)
            if value >= _DROPPED and kept.get(other, other) == other
        }
        own = kept.get(number, number)
        if own == number and rivals:
            raise WrongResultError(f"{SIMSQL}: document {number} is kept, and so are {sorted(rivals)}")
        if own != number and rivals.get(own) != max(rivals.values(), default=None):
            raise WrongResultError(f"{SIMSQL}: document {number} is dropped in favour of {own}, not of {rivals}")
    return len(numbers)


def _measure_gaoya(run: Run, texts: Sequence[str]) -> None:
    """Insert and query in parallel, with bands for a Jaccard index of about 0.3 and more."""
    gaoya = import_peer(run, "gaoya", "gaoya")
    if gaoya is None:
        return
    index = gaoya.minhash.MinHashStringIndex(
        hash_size=32, jaccard_threshold=0.5, num_bands=42, band_size=3, ngram_range=(3, 3), lowercase=True
    )
    start = time.perf_counter()
    index.par_bulk_insert_docs(list(range(len(texts))), list(texts))
    inserted = time.perf_counter()
    found = index.par_bulk_query(list(texts))
    seconds = time.perf_counter() - start
    for distance in _DISTANCES:
        run.add(
            SECTION,
            f"{WHAT}, distance {distance}",
            GAOYA_MINHASH,
            seconds,
            "s",
            rows=len(texts),
            note=f"in memory: neither reads nor groups; insert {inserted - start:.1f} s;"
            f" {sum(map(len, found)) - len(texts):,} matches",
        )


def _measure_datasketch(run: Run, texts: Sequence[str]) -> None:
    """Sketch, insert and query on one core."""
    datasketch = import_peer(run, "datasketch", "datasketch")
    if datasketch is None:
        return
    start = time.perf_counter()
    index = datasketch.MinHashLSH(threshold=0.6, num_perm=128)
    sketches = list(_sketch(datasketch, texts))
    for number, sketch in enumerate(sketches):
        index.insert(number, sketch)
    found = [index.query(sketch) for sketch in sketches]
    seconds = time.perf_counter() - start
    run.add(
        SECTION,
        f"near-duplicates among {len(texts):,} documents",
        DATASKETCH,
        seconds,
        "s",
        rows=len(texts),
        note=f"in memory, one core: neither reads nor groups; {sum(map(len, found)) - len(texts):,} matches",
    )


def _sketch(datasketch: Any, texts: Sequence[str]) -> Iterator[Any]:
    for text in texts:
        words = text.lower().split()
        sketch = datasketch.MinHash(num_perm=128)
        places = range(max(1, len(words) - 2))
        sketch.update_batch([" ".join(words[place : place + 3]).encode() for place in places])
        yield sketch
