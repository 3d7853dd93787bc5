"""All near-duplicates of the corpus: each tool is a program that reads a file and writes what belongs together."""

import importlib.metadata
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.child import run_child
from benchmarks.compare.corpus import SIMILAR, Answer, Labelled, Quality, by_clusters, by_components
from benchmarks.compare.servers import Server
from benchmarks.compare.table import Row, shares
from benchmarks.oracle import WrongResultError

_ROUNDS = 3
_SLOW = 5.0  # processor seconds from which on one round is enough
_NO_SERVER = "nothing: in memory"
_SIMSQL = (sys.executable, "-c", "from simsql.cli import main; main()", "dedup")


@dataclass(frozen=True)
class Tool:
    """A tool: how to run it on a file, and how to read what it has written for so many texts."""

    name: str
    package: str
    command: Callable[[Path, Path], Sequence[str | Path]]
    read: Callable[[Path, int], Answer]
    checked: bool = True
    """Whether all pairs that it finds have to be similar."""
    server: Server | None = None

    @property
    def version(self) -> str | None:
        """The version of its package, or None if that is missing."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None


def _run_simsql(source: Path, target: Path) -> Sequence[str | Path]:
    return [*_SIMSQL, source, "--output", target, "--quiet"]


def _run_by_features(source: Path, target: Path) -> Sequence[str | Path]:
    return [*_run_simsql(source, target), "--by-features"]


def _read_clusters(path: Path, count: int) -> Answer:
    lines = path.read_text(encoding="utf-8").splitlines()
    return by_clusters(count, ([int(member["id"]) for member in json.loads(line)["members"]] for line in lines))


def _read_array(path: Path, _count: int) -> Answer:
    found: Answer = np.load(path)
    return found


def _minhash(tool: str, name: str, package: str, server: Server | None = None) -> Tool:
    def command(source: Path, target: Path) -> Sequence[str | Path]:
        # psycopg2 sends several statements at once, as this tool asks it to.
        url = (
            [f"postgresql+psycopg2://{server.url.username}@/{server.url.database}?{_socket(server)}"]
            if server
            else []
        )
        return [sys.executable, "-m", "benchmarks.compare.minhash", tool, source, target, *url]

    return Tool(name, package, command, _read_array, checked=server is None, server=server)


def _socket(server: Server) -> str:
    return "&".join(f"{name}={server.url.query[name]}" for name in ("host", "port"))


def tools(server: Server | None) -> list[Tool]:
    """Return the tools, simsql first."""
    found = [
        Tool("simsql dedup", "simsql", _run_simsql, _read_clusters, checked=False),
        Tool("simsql dedup --by-features", "simsql", _run_by_features, _read_clusters, checked=False),
        _minhash("gaoya", "gaoya", "gaoya"),
        _minhash("rensa", "rensa", "rensa"),
        _minhash("datasketch", "datasketch", "datasketch"),
    ]
    if server:
        found += [
            _minhash("dedup_pg_words", "dedup-pg, runs of three words", "dedup-pg", server),
            _minhash("dedup_pg", "dedup-pg, runs of three characters", "dedup-pg", server),
        ]
    return found


@dataclass(frozen=True)
class Outcome:
    """A row, of clusters; the pairs as the tool found them, and the share of the similar ones among them."""

    row: Row
    pairs: Quality
    of_similar: float

    def cells(self) -> list[str]:
        """Return the cells of the table of pairs."""
        return [self.row.tool, *shares(self.pairs), f"{self.of_similar:.3f}"]


def measure(corpus: Labelled, server: Server | None, peers: bool, say: Callable[[str], None]) -> Iterator[Outcome]:
    """Yield what each tool does, and last of all the comparison of all pairs of texts.

    Raises WrongResultError if a tool that compares texts finds a pair that is not similar.
    """
    chosen = []
    for tool in tools(server if peers else None)[: None if peers else 2]:
        if tool.version is None:
            say(f"{tool.name}: not installed")
        else:
            chosen.append(tool)
    with tempfile.TemporaryDirectory(prefix="simsql-compare-") as name:
        folder = Path(name)
        small, source, target = folder / "small.jsonl", folder / "documents.jsonl", folder / "answer.npy"
        _write(small, corpus.texts[:20])
        _write(source, corpus.texts)
        used: dict[str, list[dict[str, float]]] = {tool.name: [] for tool in chosen}
        answers: dict[str, Answer] = {}
        for tool in chosen:  # Python compiles what it imports
            _run(tool, small, target)
        for number in range(_ROUNDS):
            for tool in chosen:
                if number and used[tool.name][0]["processor"] >= _SLOW:
                    continue
                used[tool.name].append(_run(tool, source, target))
                say(f"{tool.name}: {used[tool.name][-1]['processor']:.2f} s of processor time")
                answers[tool.name] = tool.read(target, len(corpus.texts))
        for tool in chosen:
            yield _outcome(tool, corpus, answers[tool.name], used[tool.name])
    clusters = by_components(len(corpus.texts), corpus.similar)
    best = Row(f"all pairs compared, similarity {SIMILAR}", corpus.judge(clusters), 0, 0, "-")
    yield Outcome(best, corpus.judge(corpus.similar), 1.0)


def _outcome(tool: Tool, corpus: Labelled, answer: Answer, used: Sequence[dict[str, float]]) -> Outcome:
    of_similar = corpus.found_of_similar(answer)
    if tool.checked and round(of_similar * len(corpus.similar)) != len(answer):
        raise WrongResultError(f"{tool.name}: some of the {len(answer):,} pairs found are not similar")
    processor, clock, peak = (
        statistics.median(one[name] for one in used) for name in ("processor", "seconds", "peak")
    )
    size = tool.server and int(str(tool.server.value("SELECT pg_total_relation_size('dedup_index')")))
    needs = "a table" if tool.server else _NO_SERVER
    quality = corpus.judge(answer if answer.ndim == 1 else by_components(len(corpus.texts), answer))
    row = Row(f"{tool.name} ({tool.version})", quality, processor, clock, needs, disk=size, memory=peak)
    return Outcome(row, corpus.judge(answer), of_similar)


def _run(tool: Tool, source: Path, target: Path) -> dict[str, float]:
    before = tool.server.processor_seconds() if tool.server else 0.0
    used = run_child("program", *tool.command(source, target))
    if tool.server:
        used["processor"] += tool.server.processor_seconds() - before
    return used


def _write(path: Path, texts: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": str(number), "text": text}) + "\n" for number, text in enumerate(texts))
