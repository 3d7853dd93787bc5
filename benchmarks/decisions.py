"""Measure what is kept and dropped: python -m benchmarks.decisions, which prints Markdown.

The truth is found by brute force, without code of simsql: the Jaccard index of the sets of word trigrams of every
pair of texts, with two empty words before and after each. A word of a Chinese text is a character.

Of each data set and rule:

- reported: of the pairs of texts in one cluster, the share with an index of at least 0.6 (precision), and of the
  pairs with such an index, the share in one cluster (recall);
- dropped: of the dropped texts, the share with an index of at least 0.7 with the text that is kept in its place
  (precision), and of the pairs with such an index, the share of which at least one is dropped (recall);
- F1 of each: the harmonic mean of precision and recall of pairs, of those in one cluster against an index of 0.6,
  and of those with the same kept text against an index of 0.7;
- chained: of the pairs in one cluster, the share that the rule itself does not find near or similar.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.figures import markdown_line
from benchmarks.labelled import Pairs, find_alike, find_folder, read_lines
from simsql.decide.stars import SimilarPairs
from simsql.fingerprint import simhash_many, similarity_many, sketch_distance, sketch_many
from simsql.hamming import find_pairs

REPORTED, DROPPED = 0.6, 0.7
SMALLEST_DISTANCE, SMALLER_DISTANCE, DISTANCE = 7, 10, 12
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")

Pair = tuple[int, int]


@dataclass(frozen=True)
class Corpus:
    """Texts and, by brute force, the similarity of every pair (smaller place first) of REPORTED or more."""

    name: str
    texts: list[str]

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each text."""
        return [_WORD.findall(text.lower()) for text in self.texts]

    @cached_property
    def alike(self) -> Pairs:
        """The pairs that are similar."""
        return find_similar_words(self.words, REPORTED)


@dataclass(frozen=True)
class Outcome:
    """What a rule has decided about each text: its cluster, and the text that is kept in its place, or itself."""

    cluster: list[int]
    kept: list[int]
    direct: set[Pair]
    """The pairs that the rule finds near or similar."""

    @property
    def clusters(self) -> list[list[int]]:
        """The places of the texts in each cluster."""
        return _group(self.cluster)


def _group(numbers: Sequence[int]) -> list[list[int]]:
    members = defaultdict(list)
    for place, number in enumerate(numbers):
        members[number].append(place)
    return [places for places in members.values() if len(places) > 1]


def _joined(numbers: Sequence[int]) -> set[Pair]:
    return {pair for members in _group(numbers) for pair in combinations(members, 2)}


def find_similar_words(words: Sequence[Sequence[str]], least: float) -> Pairs:
    """Return the similarity of all pairs of texts, given their words, where it is `least` or more."""
    padded = (["", "", *own, "", ""] if own else [] for own in words)
    return find_alike((set(zip(own, own[1:], own[2:], strict=False)) for own in padded), least)


def near_pairs(texts: Sequence[str], distance: int) -> list[Pair]:
    """Return the places of all pairs of texts whose fingerprints are within a distance."""
    fingerprints = simhash_many(texts, workers=1)
    places = defaultdict(list)
    for place, value in enumerate(fingerprints.tolist()):
        if value is not None:
            places[value].append(place)
    found = [pair for same in places.values() for pair in combinations(same, 2)]
    for left, right in find_pairs(list(places), distance, workers=1).tolist():
        found += [(min(a, b), max(a, b)) for a in places[left] for b in places[right]]
    return found


def filter_pairs(texts: Sequence[str], pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose sketches are near enough for a similarity of REPORTED."""
    sketches = sketch_many(texts, workers=1).data
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    near = np.bitwise_count(sketches[left] ^ sketches[right]) <= sketch_distance(REPORTED)
    return [pair for pair, passes in zip(pairs, near.tolist(), strict=True) if passes]


def check_pairs(texts: Sequence[str], pairs: Sequence[Pair]) -> SimilarPairs:
    """Return the pairs whose texts are at least REPORTED similar."""
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    similarity = similarity_many((texts[place] for place in left), (texts[place] for place in right)).data
    return SimilarPairs(left, right, similarity).at_least(REPORTED)


def by_components(corpus: Corpus, pairs: Sequence[Pair]) -> Outcome:
    """Join the texts of all pairs, and keep the most central text of each cluster.

    A text is dropped if it is in a pair with the one that is kept.
    """
    parent = list(range(len(corpus.texts)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place

    neighbours: dict[int, int] = defaultdict(int)
    for a, b in pairs:
        parent[root(a)] = root(b)
        neighbours[a] += 1
        neighbours[b] += 1
    direct = set(pairs)
    kept = list(range(len(parent)))
    outcome = Outcome([root(place) for place in kept], kept, direct)
    for members in outcome.clusters:
        centre = max(members, key=lambda place: (neighbours[place], len(corpus.texts[place]), -place))
        for place in members:
            if (min(place, centre), max(place, centre)) in direct:
                kept[place] = centre
    return outcome


def by_program(corpus: Corpus, pairs: SimilarPairs, distance: int) -> Outcome:
    """Run `simsql dedup` at a distance; `pairs` are those that it finds similar."""
    cluster, kept = run_program(corpus.texts, "--distance", str(distance))
    return Outcome(cluster, kept, _places(pairs))


def run_program(texts: Sequence[str], *options: str) -> tuple[list[int], list[int]]:
    """Run `simsql dedup`; return for each text a number of its cluster, and the place of the text that is kept.

    A text in no cluster has a number of its own, and is kept.
    """
    cluster = list(range(len(texts)))
    kept = cluster.copy()
    # Not below the folder of somebody: as root, the server runs as another user.
    with tempfile.TemporaryDirectory(prefix="simsql-benchmarks-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        source, target = folder / "documents.jsonl", folder / "clusters.jsonl"
        with source.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": place, "text": text}) + "\n" for place, text in enumerate(texts))
        program = [sys.executable, "-c", "from simsql.cli import main; main()"]
        variables = {name: value for name, value in os.environ.items() if name != "SIMSQL_DATABASE"}
        subprocess.run(
            [*program, "dedup", source, "--output", target, "--quiet", *options],
            check=True,
            env={"SIMSQL_HOME": str(folder / "home")} | variables,
        )
        for line in target.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            for member in found["members"]:
                cluster[int(member["id"])] = -found["cluster"]
                kept[int(member["id"])] = int(member["kept"])
    return cluster, kept


def _places(pairs: SimilarPairs) -> set[Pair]:
    return set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))


def judge(corpus: Corpus, outcome: Outcome) -> list[str]:
    """Return the cells of an outcome."""
    clusters = outcome.clusters
    together = _joined(outcome.cluster)
    near = {pair for pair, index in corpus.alike.items() if index >= DROPPED}
    dropped = [
        (min(place, other), max(place, other)) for place, other in enumerate(outcome.kept) if place != other
    ]
    gone = {place for place, other in enumerate(outcome.kept) if place != other}
    return [
        *(_share(*counts) for counts in _precision_and_recall(together, set(corpus.alike))),
        _f1(together, set(corpus.alike)),
        *(
            _share(*counts)
            for counts in (
                (sum(pair in near for pair in dropped), len(dropped)),
                (sum(not gone.isdisjoint(pair) for pair in near), len(near)),
            )
        ),
        _f1(_joined(outcome.kept), near),
        f"{max(map(len, clusters), default=0):,}",
        _share(len(together - outcome.direct), len(together)),
    ]


def _precision_and_recall(found: set[Pair], wanted: set[Pair]) -> tuple[tuple[int, int], tuple[int, int]]:
    right = len(found & wanted)
    return (right, len(found)), (right, len(wanted))


def _f1(found: set[Pair], wanted: set[Pair]) -> str:
    return _share(2 * len(found & wanted), len(found) + len(wanted))


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def rule_table(corpora: Sequence[Corpus]) -> Iterator[str]:
    """Yield the lines of the table of rules."""
    titles = [f"{kind}: {name}" for kind in ("reported", "dropped") for name in ("precision", "recall", "F1")]
    titles += ["largest cluster", "chained"]
    yield markdown_line(["texts", "rule", *titles])
    yield markdown_line(["---", "---", *["---:"] * len(titles)])
    for corpus in corpora:
        smallest, before, near = (
            near_pairs(corpus.texts, distance) for distance in (SMALLEST_DISTANCE, SMALLER_DISTANCE, DISTANCE)
        )
        checked_before, checked = (check_pairs(corpus.texts, pairs) for pairs in (before, near))
        passed = check_pairs(corpus.texts, filter_pairs(corpus.texts, near))
        rules: dict[str, Outcome] = {
            f"distance {SMALLEST_DISTANCE}, components": by_components(corpus, smallest),
            f"distance {DISTANCE}, components": by_components(corpus, near),
            f"distance {DISTANCE}, similarity {REPORTED}, components": by_components(
                corpus, list(_places(checked))
            ),
            f"distance {SMALLER_DISTANCE}, similarity {REPORTED}": by_program(
                corpus, checked_before, SMALLER_DISTANCE
            ),
            f"default: distance {DISTANCE}, similarity {REPORTED}": by_program(corpus, passed, DISTANCE),
        }
        for name, outcome in rules.items():
            yield markdown_line([corpus.name, name, *judge(corpus, outcome)])


def read_corpora(folder: Path) -> list[Corpus]:
    """Return the three data sets."""
    sources = {
        "civil codes": ("civil_codes.jsonl.xz", "text"),
        "Chinese laws": ("cn_laws.jsonl.xz", "text"),
        "hadiths": ("hadith_darimi.jsonl.xz", "plain"),
    }
    return [
        Corpus(name, [row[field] for row in read_lines(folder / file)]) for name, (file, field) in sources.items()
    ]


def main() -> None:
    """Print the table."""
    corpora = read_corpora(find_folder())
    print("### What is reported and dropped\n")
    print("\n".join(rule_table(corpora)))


if __name__ == "__main__":
    main()
