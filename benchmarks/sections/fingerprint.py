"""From text to fingerprint: megabytes of UTF-8 in a second, beside packages that do the same; and memory."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import simsql
from benchmarks.bars import GAOYA, ONE_PROCESS, SIMHASH, TRIGRAMS
from benchmarks.figures import SIMSQL
from benchmarks.harness import Run
from benchmarks.languages import READERS, Sample
from benchmarks.oracle import WrongResultError
from benchmarks.peers import import_peer
from benchmarks.rates import TEXT_LENGTH
from simsql.fingerprint import DEFAULT_RECIPE, Recipe

SECTION = "fingerprint"
# With a million rows: 32 MB of a language on one core, 500 MB on two, and 2 GB for the memory.
_BYTES_A_ROW, _LARGEST = 32, 32_000_000
_BYTES_A_ROW_FOR_TWO, _LARGEST_FOR_TWO = 500, 500_000_000
_LARGEST_COUNT = 2_000_000_000 // TEXT_LENGTH

_RECIPES = {
    SIMSQL: DEFAULT_RECIPE,
    TRIGRAMS[0]: Recipe(shingles=(3,), weight="tf"),
    TRIGRAMS[1]: Recipe(shingles=(3,), weight="set"),
}
_NOTES = {
    GAOYA: "word trigrams; insert_document, into an index in memory",
    SIMHASH: "a sample, from plain text; without texts that have a feature more than 255 times",
}


def run(run: Run) -> None:
    """Measure one core for each language, then two, then the memory."""
    limit = min(_LARGEST, _BYTES_A_ROW * run.options.rows)
    samples = {language: read(limit, run.options.seed) for language, read in READERS.items()}
    for language, sample in samples.items():
        run.report.say(f"{language}: {len(sample.texts):,} texts, {sample.bytes / 1e6:.3g} MB, {sample.source}")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "texts.json"
        path.write_text(json.dumps({language: sample.texts for language, sample in samples.items()}), "ascii")
        _measure_one_core(run, path, samples)
        _measure_two_cores(run, path)
        _measure_memory(run, path)


def _measure_one_core(run: Run, path: Path, samples: dict[str, Sample]) -> None:
    systems = {recipe.id: system for system, recipe in _RECIPES.items()}
    for package, system in (("gaoya", GAOYA), ("simhash", SIMHASH)):
        if import_peer(run, package, package):
            systems[package] = system
    found = _run_child("pinned", path, *systems)
    for language, sample in samples.items():
        for name, timed in found[language].items():
            system = systems[name]
            recipe = _RECIPES.get(system)
            checked = _check(system, sample.texts, timed["first"], recipe) if recipe else 0
            note = f"{name}; {sample.source}" if recipe else _NOTES[system]
            _add_rate(run, f"{language}, one core", system, timed, checked, note)


def _check(system: str, texts: list[str], found: list[int | None], recipe: Recipe) -> int:
    """Compare fingerprints of texts in batches with those of the same texts one by one."""
    for text, fingerprint in zip(texts, found, strict=False):
        if simsql.simhash(text, recipe) != fingerprint:
            raise WrongResultError(f"{system} gives another fingerprint in a batch than alone: {text[:100]!r}")
    return len(found)


def _measure_two_cores(run: Run, path: Path) -> None:
    """Measure two workers beside one process, the time to start them included."""
    size = min(_LARGEST_FOR_TWO, _BYTES_A_ROW_FOR_TWO * run.options.rows)
    found = _run_child("workers", path, str(size))
    if found["1"]["first"] != found["2"]["first"]:
        raise WrongResultError("two workers give other fingerprints than one process")
    for workers, system in (("1", ONE_PROCESS), ("2", f"{SIMSQL}, 2 workers")):
        note = f"{found[workers]['bytes'] / 1e6:.3g} MB, the same texts over and over"
        _add_rate(run, "English, two cores", system, found[workers], len(found[workers]["first"]), note)


def _measure_memory(run: Run, path: Path) -> None:
    count = min(_LARGEST_COUNT, run.options.rows)
    used = _run_child("memory", path, str(count), "2")
    what = "a corpus that is made on the way, 2 workers"
    note = f"{used['bytes'] / 1e9:.3g} GB"
    rate = used["bytes"] / used["seconds"] / 1e6
    run.add(SECTION, what, SIMSQL, rate, "MB/s", rows=count, note=note)
    run.add(SECTION, f"{what}: peak memory", SIMSQL, used["peak"], "bytes", rows=count, note="of all processes")


def _add_rate(run: Run, what: str, system: str, timed: dict[str, Any], checked: int, note: str) -> None:
    """Add the best of the rounds: whatever else the machine does makes a round slower, never faster."""
    megabytes, seconds = timed["bytes"] / 1e6, timed["seconds"]
    run.add(
        SECTION,
        what,
        system,
        megabytes / min(seconds),
        "MB/s",
        mean=megabytes * len(seconds) / sum(seconds),
        calls=len(seconds),
        checked=checked,
        rows=timed["texts"],
        note=note,
    )


def _run_child(task: str, path: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.rates", task, str(path), *arguments]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
