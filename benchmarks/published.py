"""Measure simsql on human labels that others have published figures for, and print Markdown.

    python -m benchmarks.published --news test.parquet --core train.jsonl

The files are not part of the project; docs/explanation/quality.md says where to get them. What is compared and
what counts as right is that of the benchmarks of text-dedup, so that figures can stand side by side. These take
the text of a document, the clusters that a program finds, and the labels:

- NEWS-COPY: the adjusted Rand index of the clusters and of those of the labels; an article that is in no cluster
  is one of its own.
- CORE 2020: the share of the documents whose duplicates, the other members of their cluster, are exactly those of
  the label (accuracy). And each document counts as one of four. With duplicates found, it is a true positive if it
  has labelled duplicates and all of them are among these, else a false positive. With none found, it is a false
  negative if it has labelled duplicates, else a true negative.
"""

import json
import string
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.decisions import run_program
from benchmarks.figures import markdown_line
from simsql.decide.rules import Rules

Duplicates = dict[str, set[str]]

# From the README of text-dedup (December 2025), which also quotes the papers: RETSim (arXiv 2311.17264; the better
# of its two models) and Silcock et al. (arXiv 2210.04261).
NEWS_TITLES = ("adjusted Rand index", "seconds")
NEWS_PUBLISHED = {
    "text-dedup SimHash": ("0.646", "140"),
    "text-dedup MinHash": ("0.729", "3.0"),
    "Silcock et al., n-grams": ("0.440", ""),
    "Silcock et al., MinHash": ("0.737", ""),
    "Silcock et al., bi-encoder": ("0.915", ""),
    "RETSim": ("0.831", ""),
}
CORE_TITLES = (
    *("accuracy", "duplicates: precision", "duplicates: recall"),
    *("others: precision", "others: recall", "seconds"),
)
CORE_PUBLISHED = {
    "text-dedup SimHash": ("0.838", "0.904", "0.732", "0.799", "0.932", "626"),
    "text-dedup MinHash": ("0.928", "0.959", "0.942", "0.945", "0.961", "11"),
    "RETSim": ("0.928", "0.945", "0.941", "0.945", "0.949", ""),
}
# All of ASCII's but the hyphen.
_PUNCTUATION = str.maketrans("", "", string.punctuation.replace("-", ""))


@dataclass(frozen=True)
class Found:
    """The number of each document's cluster, and how long the program took."""

    clusters: Sequence[int]
    seconds: float


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file or the objects of a file with one on each line."""
    if path.suffix == ".parquet":
        from pyarrow import parquet  # noqa: PLC0415 - CORE 2020 needs no pyarrow

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def news_text(article: str) -> str:
    """Return an article as its publishers compare it: without line breaks, punctuation and what is not ASCII."""
    joined = article.replace("-\n", "").replace("\n", " ")
    return joined.translate(_PUNCTUATION).encode("ascii", "ignore").decode()


def core_text(row: Mapping[str, str]) -> str:
    """Return the title and the abstract of a paper, both as the data set has prepared them."""
    return f"{row['processed_title']} {row['processed_abstract']}".lower()


def find_clusters(texts: Sequence[str], distance: int, similarity: float) -> Found:
    """Run `simsql dedup`; a text in no cluster is one of its own."""
    start = time.monotonic()
    clusters, _ = run_program(texts, "--distance", str(distance), "--similarity", str(similarity))
    return Found(clusters, time.monotonic() - start)


def adjusted_rand_index(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Compare two clusterings: 1 if they are the same, 0 as by chance (Hubert and Arabie, 1985)."""

    def pairs(labels: Sequence[Hashable]) -> int:
        return sum(count * (count - 1) // 2 for count in Counter(labels).values())

    both, in_one, in_other = pairs(list(zip(one, other, strict=True))), pairs(one), pairs(other)
    if both == in_one == in_other:
        return 1.0  # also where no pair, or every pair, is together: chance would divide by zero
    by_chance = in_one * in_other / (len(one) * (len(one) - 1) / 2)
    return (both - by_chance) / ((in_one + in_other) / 2 - by_chance)


def duplicates_found(names: Sequence[str], clusters: Sequence[int]) -> Duplicates:
    """Return the other members of the cluster of each document."""
    members = defaultdict(set)
    for name, cluster in zip(names, clusters, strict=True):
        members[cluster].add(name)
    return {name: members[cluster] - {name} for name, cluster in zip(names, clusters, strict=True)}


def judge_duplicates(labels: Duplicates, found: Duplicates) -> list[float]:
    """Return accuracy, then precision and recall of documents with duplicates, and of those without."""
    counts = Counter(_outcome(labels[name], found[name]) for name in labels)
    exact = sum(labels[name] == found[name] for name in labels)
    return [
        exact / len(labels),
        *(
            counts[right] / max(counts[right] + counts[wrong], 1)
            for right, wrong in (("TP", "FP"), ("TP", "FN"), ("TN", "FN"), ("TN", "FP"))
        ),
    ]


def _outcome(label: set[str], found: set[str]) -> str:
    if not found:
        return "FN" if label else "TN"
    return "TP" if label and label <= found else "FP"


def news_cells(rows: Sequence[Mapping[str, Any]], distance: int, similarity: float) -> list[str]:
    """Return simsql's line for NEWS-COPY: rows have `article` and `cluster`."""
    found = find_clusters([news_text(row["article"]) for row in rows], distance, similarity)
    index = adjusted_rand_index([row["cluster"] for row in rows], found.clusters)
    return [f"{index:.3f}", f"{found.seconds:.1f}"]


def core_cells(rows: Sequence[Mapping[str, Any]], distance: int, similarity: float) -> list[str]:
    """Return simsql's line for CORE 2020: rows have `core_id`, texts and `labelled_duplicates`."""
    names = [str(row["core_id"]) for row in rows]
    labels = {name: set(map(str, row["labelled_duplicates"] or ())) for name, row in zip(names, rows, strict=True)}
    found = find_clusters([core_text(row) for row in rows], distance, similarity)
    shares = judge_duplicates(labels, duplicates_found(names, found.clusters))
    return [*(f"{share:.3f}" for share in shares), f"{found.seconds:.1f}"]


def table(
    titles: Sequence[str], published: Mapping[str, Sequence[str]], name: str, own: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of a table: simsql, then what others have published."""
    yield markdown_line(["", *titles])
    yield markdown_line(["---", *["---:"] * len(titles)])
    yield markdown_line([name, *own])
    for other, cells in published.items():
        yield markdown_line([f"{other}, published", *cells])


def main(
    news: Annotated[Path | None, typer.Option(exists=True, help="The test split of NEWS-COPY, Parquet.")] = None,
    core: Annotated[Path | None, typer.Option(exists=True, help="CORE 2020, JSON lines.")] = None,
    distance: Annotated[int, typer.Option(help="As of simsql dedup.")] = Rules().distance,
    similarity: Annotated[float, typer.Option(help="As of simsql dedup.")] = Rules().similarity,
) -> None:
    """Measure simsql dedup on human labels, beside the figures that others have published."""
    if not (news or core):
        raise typer.BadParameter("there is nothing to measure: pass --news FILE, --core FILE, or both")
    name = f"simsql dedup, distance {distance}, similarity {similarity}"
    for title, path, titles, published, cells in (
        ("NEWS-COPY", news, NEWS_TITLES, NEWS_PUBLISHED, news_cells),
        ("CORE 2020", core, CORE_TITLES, CORE_PUBLISHED, core_cells),
    ):
        if path:
            rows = read_rows(path)
            own = cells(rows, distance, similarity)
            print(f"### {title}, {len(rows):,} documents\n")
            print("\n".join(table(titles, published, name, own)), end="\n\n")
            sys.stdout.flush()


if __name__ == "__main__":
    typer.run(main)
