"""How well clusters agree with labels: the pairs of documents that share word trigrams."""

from itertools import combinations


def joined(clusters: list[dict]) -> set[frozenset[str]]:
    """The pairs of documents in one cluster."""
    names = ([member["id"] for member in cluster["members"]] for cluster in clusters)
    return {frozenset(pair) for members in names for pair in combinations(members, 2)}


def check_agreement(clusters: list[dict], labelled: dict[frozenset[str], float]) -> None:
    """`labelled` has every pair of documents whose Jaccard index is 0.5 or more."""
    together = joined(clusters)
    alike = {pair for pair, index in labelled.items() if index >= 0.9}
    recall = len(alike & together) / len(alike)
    precision = len(together & labelled.keys()) / len(together)
    largest = max(cluster["size"] for cluster in clusters)
    print(f"of pairs >= 0.9 in one cluster {recall:.4f}, of pairs in one cluster >= 0.5 {precision:.4f},", end=" ")
    print(f"pairs {len(together)}, clusters {len(clusters)}, largest {largest}")
    assert recall >= 0.95
    assert precision >= 0.90
    assert largest <= 50
