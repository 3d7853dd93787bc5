"""Measure which similar pairs `simsql dedup` compares: python -m benchmarks.recall, which prints Markdown.

The truth is found by brute force, without code of simsql: the Jaccard index of the sets of word trigrams of every
pair of texts, with two empty words before and after each. Texts with the same words count once. Of the pairs with
an index of at least .6, .7 or .8, by the number of words of the shorter text, it counts those that the candidates
lack. "Same index" counts the pairs of which `similarity` says the same, and "in crowds" those of them that are
compared only if a decision needs them.

With `--before REVISION`, also the CPU time of both revisions: of reading and describing, and of all that follows.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.decisions import find_similar_words
from benchmarks.figures import markdown_line
from benchmarks.labelled import find_folder, read_lines
from benchmarks.similar_recall import Share
from benchmarks.texts import Corpus
from simsql.dedup.bands import Buckets, Described
from simsql.fingerprint import simhash_items_with_tokens, similarity_many

SIMILARITIES = (0.6, 0.7, 0.8)
_DISTANCE = 12
_LENGTHS = (1, 20, 50, 100, 200, 500)
_RUN = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+")
_LEAST_PART = 20  # characters of an article of a law
# A run in a process of its own, which prints the CPU seconds of its stages.
_RUN_DEDUP = """
import json, sys, time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.sinks.clusters import ClusterOutput
class Stages:
    seconds = {}
    @contextmanager
    def stage(self, name, total=None, *, shown=True):
        start = time.process_time()
        yield lambda done: None
        self.seconds[name] = time.process_time() - start
run_dedup(DedupOptions([sys.argv[1]], output=ClusterOutput(Path(sys.argv[2])), workers=1), Stages())
print(json.dumps(Stages.seconds))
"""


def words_of(text: str) -> list[str]:
    """Return the words of a text in normal form: runs of letters and digits, and pairs of Chinese characters."""
    found = []
    for run in _RUN.findall(unicodedata.normalize("NFKC", text).lower()):
        pairs = list(map("".join, pairwise(run))) if "\u3400" <= run[0] <= "\u9fff" else []
        found += pairs or [run]
    return found


def read_texts(generated: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the texts of each collection."""
    folder = find_folder()
    yield "civil codes", [row["text"] for row in read_lines(folder / "civil_codes.jsonl.xz")]
    laws = [row["text"] for row in read_lines(folder / "cn_laws.jsonl.xz")]
    yield "Chinese laws", laws
    yield "their articles", [part for law in laws for part in law.split("\n\n") if len(part) >= _LEAST_PART]
    yield "hadiths", [row["plain"] for row in read_lines(folder / "hadith_darimi.jsonl.xz")]
    yield f"{generated:,} generated", list(Corpus(generated, seed=1).texts())


def recall_table(name: str, texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table of one collection."""
    by_words = {tuple(words): text for text in texts if (words := words_of(text))}
    alike = find_similar_words(list(by_words), SIMILARITIES[0])
    left, right = np.array(list(alike), dtype=np.int64).reshape(-1, 2).T
    index, texts = np.array(list(alike.values())), list(by_words.values())
    own = similarity_many([texts[place] for place in left], [texts[place] for place in right]).data
    _, fingerprints, _, minima = zip(*simhash_items_with_tokens(enumerate(texts)), strict=True)
    sketches, bands = map(np.concatenate, zip(*minima, strict=True))
    described = Described(np.concatenate([part.data for part in fingerprints]), sketches, bands.T)
    buckets = Buckets(described, _DISTANCE, SIMILARITIES[0])
    found = buckets.meet(left, right)
    crowded = np.count_nonzero(found & (buckets.first_crowd(left, right) >= 0))
    size = np.array([len(words) for words in by_words])
    shorter = np.minimum(size[left], size[right])
    for first, end in [(0, sys.maxsize), *pairwise([*_LENGTHS, sys.maxsize])]:
        (here,) = np.nonzero((shorter >= first) & (shorter < end))
        shares = [
            Share(int(np.count_nonzero(found[here] & chosen)), int(np.count_nonzero(chosen)))
            for chosen in (index[here] >= least for least in SIMILARITIES)
        ]
        if not first:
            same = np.count_nonzero(np.abs(own - index) < 1e-9)
            yield markdown_line([name, "all", f"{same:,}", f"{crowded:,}", *_cells(shares)])
        elif len(here):
            words = f"{first}-{end - 1}" if end < sys.maxsize else f"from {first}"
            yield markdown_line(["", words, "", "", *_cells(shares)])


def _cells(shares: Sequence[Share]) -> Iterator[str]:
    for share in shares:
        yield from (f"{share.all:,}", f"{share.all - share.found:,}", str(share))


def cost_lines(revision: str, generated: int, rounds: int) -> Iterator[str]:
    """Yield the lines of the table of the CPU time of this and another revision, which take turns."""
    root = Path(__file__).parent.parent
    archive = subprocess.run(["git", "archive", revision, "simsql"], cwd=root, check=True, capture_output=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        for name, texts in read_texts(generated):
            source = Path(folder, "texts.jsonl")
            source.write_text("".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts)))
            runs: dict[str, list[dict[str, float]]] = {revision: [], "now": []}
            for _ in range(rounds):
                for version, where in ((revision, folder), ("now", root)):
                    runs[version].append(_run_dedup(where, source))
            for version, found in runs.items():
                read = min(each.pop("read and fingerprint") for each in found)
                rest = min(each["check texts"] + each["find clusters"] for each in found)
                yield markdown_line([name, version, f"{read:.2f}", f"{rest:.2f}", f"{read + rest:.2f}"])


def _run_dedup(where: str | Path, source: Path) -> dict[str, float]:
    command = [sys.executable, "-P", "-c", _RUN_DEDUP, str(source), str(source.with_name("clusters.jsonl"))]
    environment = os.environ | {"PYTHONPATH": str(where)}
    output = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", type=int, default=20_000, help="texts of the generated corpus")
    parser.add_argument("--before", metavar="REVISION", help="also compare the CPU time with that of a revision")
    parser.add_argument("--rounds", type=int, default=3, help="of runs whose CPU time is measured")
    given = parser.parse_args()
    columns = [title for least in SIMILARITIES for title in (f"pairs of {least}", "missed", "recall (95%)")]
    print(markdown_line(["texts", "words", "same index", "in crowds", *columns]))
    print(markdown_line(["---", "---", *["---:"] * (2 + len(columns))]))
    for name, texts in read_texts(given.generated):
        print("\n".join(recall_table(name, texts)), flush=True)
    if given.before:
        print("\n" + markdown_line(["texts", "revision", "read, s", "compare and decide, s", "both, s"]))
        print(markdown_line(["---", "---", "---:", "---:", "---:"]))
        for line in cost_lines(given.before, given.generated, given.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
