"""Measure recipes on labelled texts: python benchmarks/quality.py DATA_DIR.

DATA_DIR holds civil_codes.jsonl.xz and civil_codes.pairs.csv (sections of civil codes, and all pairs of them
whose sets of word trigrams have a Jaccard index of 0.5 or more), hadith_darimi.jsonl.xz (the same texts with
and without vowel signs) and cn_laws.jsonl.xz (Chinese laws). Texts are joined as simsql joins them: a cluster
is a connected component of the pairs within distance 7. One line for each recipe, with

- MB/s: UTF-8 of the civil codes for each second of one core;
- recall .9, .7: of the pairs with at least this Jaccard index, how many are in one cluster;
- precision .5, .7: of the pairs in one cluster, how many have at least this index;
- largest: the texts in the largest cluster;
- same, distinct: hadiths whose two forms have one fingerprint, and different fingerprints among them all;
- cn pairs, least: pairs of laws in one cluster, and the least Jaccard index of their character 5-grams.
"""

import csv
import json
import lzma
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from simsql.fingerprint import DEFAULT, Recipe, simhash_many
from simsql.hamming import find_clusters

DISTANCE = 7
RECIPES = [
    DEFAULT,
    Recipe(weight="set"),
    Recipe(weight="tf"),
    Recipe(shingles=(1,)),
    Recipe(shingles=(2,)),
    Recipe(shingles=(3,)),
    Recipe(shingles=(1, 2, 3)),
    Recipe(shingles=(3,), weight="set"),
    Recipe(tokens="characters", shingles=(4,)),
    Recipe(tokens="characters", shingles=(5,)),
    Recipe(tokens="characters", shingles=(6,)),
]


@dataclass(frozen=True)
class Agreement:
    """How clusters agree with labelled pairs."""

    recall_9: float
    recall_7: float
    precision_5: float
    precision_7: float
    largest: int


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the objects of a .jsonl.xz file."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cluster(fingerprints: np.ma.MaskedArray) -> list[list[int]]:
    """Return the places of the texts in each cluster; texts without a fingerprint are in none."""
    values = fingerprints.compressed()
    # Equal fingerprints are in one cluster also where no other is near.
    cluster_of = {int(value): int(value) for value in values}
    for number, members in enumerate(find_clusters(values, distance=DISTANCE)):
        cluster_of.update((int(member), -1 - number) for member in members)
    members_of = defaultdict(list)
    for place in np.flatnonzero(~fingerprints.mask).tolist():
        members_of[cluster_of[int(fingerprints.data[place])]].append(place)
    return [members for members in members_of.values() if len(members) > 1]


def agreement(clusters: list[list[int]], labelled: dict[tuple[int, int], float]) -> Agreement:
    """Compare clusters with the Jaccard index of pairs (smaller place first); of others it is below 0.5."""
    together = [labelled.get(pair, 0.0) for members in clusters for pair in combinations(members, 2)]

    def recall(least: float) -> float:
        return sum(index >= least for index in together) / sum(index >= least for index in labelled.values())

    def precision(least: float) -> float:
        return sum(index >= least for index in together) / max(len(together), 1)

    largest = max(map(len, clusters), default=0)
    return Agreement(recall(0.9), recall(0.7), precision(0.5), precision(0.7), largest)


def read_labelled_pairs(path: Path, ids: list[str]) -> dict[tuple[int, int], float]:
    """Return the Jaccard index of each labelled pair of places in `ids`."""
    place = {name: number for number, name in enumerate(ids)}
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [(place[row["id_a"]], place[row["id_b"]], row["jaccard_word3"]) for row in csv.DictReader(lines)]
    return {(min(a, b), max(a, b)): float(index) for a, b, index in rows}


def jaccard_of_5_grams(a: str, b: str) -> float:
    """Return the Jaccard index of the sets of character 5-grams."""
    left, right = ({text[start : start + 5] for start in range(len(text) - 4)} for text in (a, b))
    return len(left & right) / max(len(left | right), 1)


def main(folder: Path) -> None:
    """Print the table."""
    codes = read_lines(folder / "civil_codes.jsonl.xz")
    labelled = read_labelled_pairs(folder / "civil_codes.pairs.csv", [row["id"] for row in codes])
    texts = [row["text"] for row in codes]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    hadiths = read_lines(folder / "hadith_darimi.jsonl.xz")
    laws = [row["text"] for row in read_lines(folder / "cn_laws.jsonl.xz")]

    simhash_many(["é"])  # builds the table of character classes, once for the process
    titles = [
        "MB/s",
        "recall .9",
        ".7",
        "precision .5",
        ".7",
        "largest",
        "same",
        "distinct",
        "cn pairs",
        "least",
    ]
    print(f"{'recipe':20}", *titles, sep="  ")
    for recipe in RECIPES:
        start = time.process_time()
        fingerprints = simhash_many(texts, recipe)
        speed = megabytes / (time.process_time() - start)
        found = agreement(cluster(fingerprints), labelled)

        plain = simhash_many([row["plain"] for row in hadiths], recipe)
        diacritised = simhash_many([row["diacritised"] for row in hadiths], recipe)
        joined = [
            jaccard_of_5_grams(laws[a], laws[b])
            for members in cluster(simhash_many(laws, recipe))
            for a, b in combinations(members, 2)
        ]
        cells = [
            f"{speed:.0f}",
            f"{found.recall_9:.3f}",
            f"{found.recall_7:.3f}",
            f"{found.precision_5:.3f}",
            f"{found.precision_7:.3f}",
            str(found.largest),
            str(int((plain == diacritised).sum())),
            str(len(np.unique(plain.compressed()))),
            str(len(joined)),
            f"{min(joined, default=1):.2f}",
        ]
        widths = map(len, titles)
        row = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        print(f"{recipe.id:20}", *row, sep="  ", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/quality.py DATA_DIR")
    main(Path(sys.argv[1]))
