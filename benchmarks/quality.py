"""Measure recipes on texts in three scripts: python -m benchmarks.quality, which prints Markdown.

Two texts are found if their fingerprints differ in at most so many bits. Of each data set, recipe and distance:

- recall of 0.9 (0.7): of the pairs of texts with a Jaccard index of at least this, the share that is found;
- precision: of the pairs that are found, the share with a Jaccard index of at least 0.5;
- both forms: of the texts that are there in two forms of writing, the share whose forms are found together.

Then clusters, connected components of what is found at distance 7, as `simsql dedup` makes them: the same shares
of the pairs that are in one cluster, and the texts of the largest.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from benchmarks.figures import markdown_line
from benchmarks.labelled import READERS, Labelled, Pairs, find_folder
from simsql.fingerprint import DEFAULT_RECIPE, KNOWN_RECIPES, Recipe, count_documents, simhash_many
from simsql.fingerprint.documents import Fingerprints
from simsql.hamming import find_clusters, find_pairs

DISTANCES = (3, 5, 7, 10)
CLUSTER_DISTANCE = 7
_OWN = [
    DEFAULT_RECIPE,
    Recipe(weight="set"),
    Recipe(weight="tf"),
    Recipe(shingles=(1,)),
    Recipe(shingles=(1,), weight="tf"),
    Recipe(shingles=(2,)),
    Recipe(shingles=(3,)),
    Recipe(shingles=(3,), weight="set"),
    Recipe(shingles=(3,), weight="tf"),
    Recipe(shingles=(1, 2, 3)),
    Recipe(tokens="characters", shingles=(4,)),
    Recipe(tokens="characters", shingles=(5,)),
]
# pg_trgm is for titles: see similar_titles.py.
_FOR_TEXTS = {name: recipe for name, recipe in KNOWN_RECIPES.items() if name != "pg_trgm"}
RECIPES = {recipe.id: recipe for recipe in _OWN} | _FOR_TEXTS
# Of the antecedents that the paper on SpotSigs recommends.
_STOP_WORDS = frozenset({"a", "an", "be", "do", "have", "is", "the", "to", "was"})


@dataclass(frozen=True)
class Agreement:
    """How what is found agrees with the Jaccard index of the pairs; None where there is nothing to share out."""

    recall_9: float | None
    recall_7: float | None
    precision: float | None
    found: int


def find_agreement(fingerprints: Fingerprints, alike: Pairs, distances: Sequence[int]) -> list[Agreement]:
    """Compare the pairs within each distance with the Jaccard index of all that are alike."""
    values, copies = np.unique(fingerprints.compressed(), return_counts=True)
    pairs = find_pairs(values, distance=max(distances))
    apart = np.bitwise_count(pairs[:, 0] ^ pairs[:, 1])
    left, right = (copies[np.searchsorted(values, pairs[:, side])] for side in (0, 1))

    places = np.array(list(alike), dtype=np.int64).reshape(-1, 2)
    index = np.array(list(alike.values()))
    a, b = (fingerprints[places[:, side]] for side in (0, 1))
    # What has no fingerprint is near nothing.
    between = np.bitwise_count(a.data ^ b.data) + 65 * (a.mask | b.mask)

    def agreement(distance: int) -> Agreement:
        found = int((copies * (copies - 1) // 2).sum() + (left * right)[apart <= distance].sum())
        near = between <= distance
        return Agreement(
            _share((near & (index >= 0.9)).sum(), (index >= 0.9).sum()),
            _share((near & (index >= 0.7)).sum(), (index >= 0.7).sum()),
            _share(near.sum(), found),
            found,
        )

    return [agreement(distance) for distance in distances]


def compare_forms(one: Fingerprints, other: Fingerprints, distances: Sequence[int]) -> list[float]:
    """Return the share of texts whose two forms are within each distance."""
    apart = np.bitwise_count(one.data ^ other.data) + 65 * (one.mask | other.mask)
    return [float((apart <= distance).mean()) for distance in distances]


def cluster(fingerprints: Fingerprints) -> list[list[int]]:
    """Return the places of the texts in each cluster; texts without a fingerprint are in none."""
    values = fingerprints.compressed()
    # Equal fingerprints are in one cluster also where no other is near.
    cluster_of = {int(value): int(value) for value in values}
    for number, members in enumerate(find_clusters(values, distance=CLUSTER_DISTANCE)):
        cluster_of.update((int(member), -1 - number) for member in members)
    members_of = defaultdict(list)
    for place in np.flatnonzero(~fingerprints.mask).tolist():
        members_of[cluster_of[int(fingerprints.data[place])]].append(place)
    return [members for members in members_of.values() if len(members) > 1]


def cluster_agreement(clusters: list[list[int]], alike: Pairs) -> Agreement:
    """Compare the pairs of texts that are in one cluster, at any distance, with the Jaccard index."""
    together = [alike.get(pair, 0.0) for members in clusters for pair in combinations(members, 2)]

    def recall(least: float) -> float | None:
        return _share(sum(index >= least for index in together), sum(index >= least for index in alike.values()))

    return Agreement(recall(0.9), recall(0.7), _share(sum(map(bool, together)), len(together)), len(together))


def _share(part: int | np.integer, whole: int | np.integer) -> float | None:
    return float(part / whole) if whole else None


def describe(labelled: Labelled) -> str:
    """Return the size of a data set in words."""
    index = np.array(list(labelled.alike.values()))
    megabytes = sum(len(text.encode()) for text in labelled.texts) / 1e6
    counts = ", ".join(f"{(index >= least).sum():,} of {least} or more" for least in (0.9, 0.7, 0.5))
    return f"{len(labelled.texts):,} texts, {megabytes:.1f} MB; pairs by their Jaccard index: {counts}."


def recipes_for(labelled: Labelled) -> dict[str, Recipe]:
    """Return all recipes, and those that are made for the texts."""
    recipes = RECIPES.copy()
    for recipe in (DEFAULT_RECIPE, Recipe(shingles=(1,))):
        recipes[f"{recipe.id}, idf of these texts"] = replace(recipe, idf=count_documents(labelled.texts, recipe))
    if labelled.language == "English":
        recipe = Recipe(shingles=(3,), weight="set", stop_words=_STOP_WORDS)
        recipes["words3-set-1, with a stop word"] = recipe
    return recipes


def fingerprint_all(texts: list[str], recipes: dict[str, Recipe]) -> dict[str, Fingerprints]:
    """Return the fingerprints of texts by each recipe, but those that need a package that is missing."""
    found = {}
    for name, recipe in recipes.items():
        try:
            found[name] = simhash_many(texts, recipe)
        except ModuleNotFoundError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def pair_table(
    labelled: Labelled, found: dict[str, Fingerprints], again: dict[str, Fingerprints] | None = None
) -> Iterator[str]:
    """Yield the lines of a table of recipes and distances; `again` are the fingerprints of the other form."""
    groups = ["recall 0.9", "recall 0.7", "precision"] + ["both forms"] * (again is not None)
    titles = [f"{group} at {DISTANCES[0]}" for group in groups]
    yield markdown_line(["recipe", *(title for first in titles for title in (first, *map(str, DISTANCES[1:])))])
    yield markdown_line(["---", *["---:"] * (len(groups) * len(DISTANCES))])
    for name, fingerprints in found.items():
        agreements = find_agreement(fingerprints, labelled.alike, DISTANCES)
        shares = [
            *(agreement.recall_9 for agreement in agreements),
            *(agreement.recall_7 for agreement in agreements),
            *(agreement.precision for agreement in agreements),
        ]
        if again is not None:
            shares += compare_forms(fingerprints, again[name], DISTANCES)
        yield markdown_line([name, *map(_format, shares)])


def cluster_table(labelled: Labelled, found: dict[str, Fingerprints]) -> Iterator[str]:
    """Yield the lines of a table of recipes and the clusters that they make."""
    yield markdown_line(["recipe", "recall 0.9", "recall 0.7", "precision", "clusters", "largest"])
    yield markdown_line(["---", *["---:"] * 5])
    for name, fingerprints in found.items():
        clusters = cluster(fingerprints)
        agreement = cluster_agreement(clusters, labelled.alike)
        shares = (agreement.recall_9, agreement.recall_7, agreement.precision)
        sizes = (len(clusters), max(map(len, clusters), default=0))
        yield markdown_line([name, *map(_format, shares), *(f"{size:,}" for size in sizes)])


def _format(share: float | None) -> str:
    """Return a share in three digits; 1 and 0 are exact."""
    if share is None:
        return "-"
    if share in (0, 1):
        return f"{share:.0f}"
    return {"0.000": "<0.001", "1.000": ">0.999"}.get(digits := f"{share:.3f}", digits)


def main() -> None:
    """Print the tables."""
    folder = find_folder()
    tables = []
    for read in READERS:
        labelled = read(folder)
        recipes = recipes_for(labelled)
        found = fingerprint_all(labelled.texts, recipes)
        again = fingerprint_all(labelled.again, recipes) if labelled.again else None
        title = f"### {labelled.language}: {labelled.name}"
        tables += [title, describe(labelled), "\n".join(pair_table(labelled, found, again))]
        if labelled.language == "English":
            clusters = [
                f"### Clusters of civil codes at distance {CLUSTER_DISTANCE}",
                "\n".join(cluster_table(labelled, found)),
            ]
    print("\n\n".join([*tables, *clusters]))


if __name__ == "__main__":
    main()
