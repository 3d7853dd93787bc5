"""`simsql sample`: pairs to label, which `simsql evaluate` reads."""

import csv
import json
import re
from collections import Counter
from itertools import combinations

import corpus
import pytest
from program import run, write_lines

import simsql


@pytest.fixture(scope="module")
def texts():
    return corpus.make_texts(8, families=30, alone=10)


@pytest.fixture(scope="module")
def documents(texts, tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("sample") / "texts.jsonl", texts)


def rows_of(found):
    return [json.loads(line) for line in found.done().lines]


def test_pairs_are_complete_and_stand_for_all(documents, texts):
    rows = rows_of(run("sample", documents, "--pairs", 60))
    assert len(rows) == 60
    weight, fields = Counter(), ["label", "kind", "distance", "similarity", "weight", "text_a", "text_b"]
    for row in rows:
        assert list(row) == ["id_a", "id_b", *fields]
        assert (row["text_a"], row["text_b"], row["label"]) == (texts[row["id_a"]], texts[row["id_b"]], "")
        assert row["distance"] == simsql.hamming_distance(*(simsql.simhash(row[f"text_{side}"]) for side in "ab"))
        similarity = simsql.similarity(row["text_a"], row["text_b"])
        assert row["similarity"] == pytest.approx(similarity, abs=1e-4)
        weight[row["kind"], int(10 * similarity)] += row["weight"]
    different = {tuple(re.findall(r"\w+", text.lower())): text for text in texts.values()}.values()
    similar = Counter(int(10 * simsql.similarity(a, b)) for a, b in combinations(different, 2))
    for tenth in range(5, 10):
        assert weight["similar", tenth] == pytest.approx(similar[tenth], abs=0.1)
    copies = len(texts) - len(different)
    assert weight["identical", 10] + weight["same words", 10] == pytest.approx(copies, abs=0.1)
    total = len(different) * (len(different) - 1) / 2 + copies
    assert sum(weight.values()) == pytest.approx(total, abs=0.1)


def test_documents_that_share_an_id_are_named_by_their_places(documents, texts, tmp_path):
    same = [{"id": 7, "text": text} for text in texts.values()]
    rows = rows_of(run("sample", write_lines(tmp_path / "same.jsonl", same), "--pairs", 40))
    places = {f"{tmp_path / 'same.jsonl'}:{line}": text for line, text in enumerate(texts.values(), 1)}
    assert rows
    assert all(places[row[f"id_{side}"]] == row[f"text_{side}"] for row in rows for side in "ab")


def test_the_seed_decides(documents):
    first, again, other = (
        run("sample", documents, "--pairs", 20, "--seed", seed).done().out for seed in (0, 0, 1)
    )
    assert first == again != other


def test_from_a_sample_to_figures(documents, tmp_path):
    """As all pairs are drawn, the figures are those of the collection."""
    path = tmp_path / "pairs.csv"
    assert run("sample", documents, "--pairs", 10_000, "--output", path).done().stdout == b""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {float(row["weight"]) for row in rows} == {1.0}
    for row in rows:
        row["label"] = "near-duplicate" if float(row["similarity"]) >= 0.5 else "not"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    figures = rows_of(run("evaluate", path))
    alike = [row for row in rows if row["label"] == "near-duplicate"]
    assert alike
    for figure in figures[:17]:
        within = sum(int(row["distance"]) <= figure["distance"] for row in alike)
        assert figure["recall"] == pytest.approx(within / len(alike), abs=1e-6)


def test_titles_are_compared_by_their_features(tmp_path):
    path = write_lines(tmp_path / "titles.jsonl", {"a": "blue steel desk lamp", "b": "steel desk lamp"})
    (apart,), (similar,) = (rows_of(run("sample", path, *more)) for more in ([], ["--by-features"]))
    assert (apart["kind"], apart["similarity"]) == ("similar", 0.375)
    assert (similar["kind"], similar["similarity"]) == ("similar", 0.7143)


def test_texts_that_are_hard_to_write(tmp_path):
    rows = [{"text": f'half \ud800 of\ta "pair",\rيوم 日本語 number {number}'} for number in range(3)]
    path = write_lines(tmp_path / "texts.jsonl", rows)
    found = rows_of(run("sample", path))
    assert found[0]["id_a"].startswith(f"{path}:")
    assert {row["text_a"].replace("?", "\ud800") for row in found} <= {row["text"] for row in rows}
    assert run("sample", path, "--output", tmp_path / "pairs.tsv").done().stdout == b""
    with (tmp_path / "pairs.tsv").open(newline="", encoding="utf-8") as file:
        assert file.readline().endswith("weight\ttext_a\ttext_b\n")
        file.seek(0)
        assert [row["text_a"] for row in csv.DictReader(file, delimiter="\t")] == [row["text_a"] for row in found]


def test_what_cannot_be_drawn(tmp_path, documents):
    run("sample", documents, "--pairs", 0).failed(2, "it must be at least 1, not 0")
    run("sample", documents, "--output", tmp_path / "no" / "pairs").failed(2, "is not a folder: create it")
    alone = write_lines(tmp_path / "alone.jsonl", {"a": "one", "c": "..."})
    run("sample", alone).failed(1, "fewer than two of 2 documents have words: nothing to label")
    run("sample", write_lines(tmp_path / "bad.jsonl", [{"id": 1}])).failed(2, "no documents in", "no field")
