"""The program that compares simsql with published figures, on made-up files of the same shape, counted by hand."""

import json
import random
from itertools import combinations
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from benchmarks import published


def make_texts(count: int) -> list[str]:
    chance = random.Random(1)
    return [" ".join(f"word{chance.randrange(5000)}" for _ in range(60)) for _ in range(count)]


def write_news(path: Path) -> None:
    one, other, third, fourth = make_texts(4)
    noisy = one.replace(" ", "\n", 1).replace("word", "wo-\nrd", 5).replace(" ", "; ", 9) + " \u2014"
    articles = [one, noisy, other, third, third, fourth]
    rows = {"article": articles, "cluster": [0, 0, 0, 3, 4, 5], "headline": [""] * 6}
    parquet.write_table(pyarrow.table(rows), path)


def write_core(path: Path) -> None:
    texts = make_texts(8)
    documents = [  # name, number of its text, labelled duplicates
        *(("1", 0, ["2"]), ("2", 0, ["1"])),  # found
        *(("3", 1, ["4"]), ("4", 2, ["3"])),  # missed
        *(("5", 3, []), ("6", 3, None)),  # wrong
        ("7", 4, []),  # alone, and found alone
        *(("8", 5, ["9"]), ("9", 5, ["8"]), ("10", 5, [])),  # one too many
        *(("11", 6, ["12", "13"]), ("12", 6, ["11", "13"]), ("13", 7, ["11", "12"])),  # one of two
    ]
    lines = (
        {
            "core_id": name,
            "processed_title": texts[number][:40],
            "processed_abstract": texts[number][40:].upper(),
            "labelled_duplicates": labels,
        }
        for name, number, labels in documents
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def test_figures_of_small_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_news(tmp_path / "test.parquet")
    write_core(tmp_path / "train.jsonl")
    published.main(tmp_path / "test.parquet", tmp_path / "train.jsonl", 12, 0.6)
    lines = [line.split(" | ") for line in capfd.readouterr().out.splitlines()]
    news, core = (line for line in lines if line[0].startswith("| simsql dedup, distance 12, similarity 0.6"))
    # Together by the labels: 3 pairs of 15; found: 2, of which 1 is right. By chance: 3 * 2 / 15.
    assert news[1] == f"{(1 - 0.4) / (2.5 - 0.4):.3f}"
    # Exact: 1, 2, 7. True positives: 1, 2, 8, 9; false ones: 5, 6, 10, 11, 12; negatives: 7, and 3, 4, 13.
    assert core[1:6] == [f"{share:.3f}" for share in (3 / 13, 4 / 9, 4 / 7, 1 / 4, 1 / 6)]
    for titles, others in (
        (published.NEWS_TITLES, published.NEWS_PUBLISHED),
        (published.CORE_TITLES, published.CORE_PUBLISHED),
    ):
        assert {len(cells) for cells in others.values()} == {len(titles)}


def by_pairs(one: list[int], other: list[int]) -> float:
    """Compare two clusterings by the definition of the index: pairs that agree beyond chance."""
    pairs = list(combinations(range(len(one)), 2))
    in_one, in_other = ([labels[a] == labels[b] for a, b in pairs] for labels in (one, other))
    both = sum(a and b for a, b in zip(in_one, in_other, strict=True))
    expected = sum(in_one) * sum(in_other) / len(pairs)
    return (both - expected) / ((sum(in_one) + sum(in_other)) / 2 - expected)


def test_adjusted_rand_index() -> None:
    index = published.adjusted_rand_index
    assert index([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2]) == pytest.approx(0.8 / 3.3)
    assert index([0, 0, 1, 1], [0, 1, 0, 1]) == pytest.approx(-0.5)
    assert index([0, 0, 1], [7, 7, 3]) == index([0, 1], [1, 0]) == index([5, 5], [1, 1]) == 1
    chance = random.Random(2)
    for _ in range(50):
        one, other = ([chance.randrange(4) for _ in range(12)] for _ in range(2))
        assert index(one, other) == pytest.approx(by_pairs(one, other))
