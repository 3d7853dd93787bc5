"""`simsql sample`: pairs to label, which `simsql evaluate` reads."""

import csv
import json
from collections import Counter

import corpus
import pytest
from program import run, write_lines

import simsql


@pytest.fixture(scope="module")
def texts():
    # Of equal fingerprints only one document is drawn.
    return corpus.make_texts(8, families=30, alone=10)


@pytest.fixture(scope="module")
def documents(texts, tmp_path_factory):
    return write_lines(tmp_path_factory.mktemp("sample") / "texts.jsonl", texts)


def rows_of(found):
    return [json.loads(line) for line in found.done().lines]


def test_pairs_are_complete_and_stand_for_all(documents, texts):
    rows = rows_of(run("sample", documents, "--pairs", 40, "--distance", 10))
    near = corpus.pairs([simsql.simhash(text) for text in texts.values()], 10)
    at = Counter(near.values())
    assert len(rows) == 40 < len(near)
    weight = Counter()
    for row in rows:
        assert list(row) == ["id_a", "id_b", "label", "distance", "similarity", "weight", "text_a", "text_b"]
        assert (row["text_a"], row["text_b"], row["label"]) == (texts[row["id_a"]], texts[row["id_b"]], "")
        a, b = simsql.simhash(row["text_a"]), simsql.simhash(row["text_b"])
        assert row["distance"] == near[min(a, b), max(a, b)]
        assert row["similarity"] == pytest.approx(simsql.similarity(row["text_a"], row["text_b"]), abs=1e-4)
        weight[row["distance"]] += row["weight"]
    assert weight == {bits: pytest.approx(total, abs=0.01) for bits, total in at.items()}


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
    alike = [int(row["distance"]) for row in rows if row["label"] == "near-duplicate"]
    assert alike
    for figure in figures[:13]:
        within = sum(distance <= figure["distance"] for distance in alike)
        assert figure["recall"] == pytest.approx(within / len(alike), abs=1e-6)


def test_texts_that_are_hard_to_write(tmp_path):
    rows = [{"text": f'half \ud800 of\ta "pair",\rيوم 日本語 number {number}'} for number in range(3)]
    path = write_lines(tmp_path / "texts.jsonl", rows)
    found = rows_of(run("sample", path, "--distance", 16))
    assert found[0]["id_a"].startswith(f"{path}:")
    assert {row["text_a"].replace("?", "\ud800") for row in found} <= {row["text"] for row in rows}
    assert run("sample", path, "--distance", 16, "--output", tmp_path / "pairs.tsv").done().stdout == b""
    with (tmp_path / "pairs.tsv").open(newline="", encoding="utf-8") as file:
        assert file.readline().endswith("weight\ttext_a\ttext_b\n")
        file.seek(0)
        assert [row["text_a"] for row in csv.DictReader(file, delimiter="\t")] == [row["text_a"] for row in found]


def test_what_cannot_be_drawn(tmp_path, documents):
    run("sample", documents, "--pairs", 15).failed(2, "--pairs must be at least 16, one for each distance, not 15")
    run("sample", documents, "--pairs", 0).failed(2, "it must be at least 1, not 0")
    run("sample", documents, "--output", tmp_path / "no" / "pairs").failed(2, "is not a folder: create it")
    apart = write_lines(tmp_path / "apart.jsonl", {"a": "one", "b": "two", "c": "..."})
    said = "no two documents of 3 have different fingerprints within 5 bits: there is nothing to label"
    run("sample", apart, "--distance", 5).failed(1, said)
    run("sample", apart, "--distance", 0).failed(2, "it must be between 1 and 16, not 0")
    run("sample", apart, "--distance", 17).failed(2, "it must be between 1 and 16, not 17")
    run("sample", write_lines(tmp_path / "bad.jsonl", [{"id": 1}])).failed(1, "no documents in", "no field")
