"""`simsql evaluate`: figures on labelled pairs, what it recommends and draws, and what it refuses."""

import json
import random
import re
from itertools import combinations

import corpus
import pytest
from program import run, write_lines

import simsql
from simsql import Recipe

TABLE = ["--format", "table"]


@pytest.fixture(scope="module")
def texts():
    return corpus.make_texts(6, families=8, alone=6)


@pytest.fixture(scope="module")
def labels(texts, tmp_path_factory):
    """All pairs within 20 bits, by id. The farther apart, the fewer are labelled as near-duplicates."""
    chance = random.Random(7)
    fingerprints = {name: simsql.simhash(text) for name, text in texts.items()}
    rows = []
    for a, b in combinations(texts, 2):
        apart = simsql.hamming_distance(fingerprints[a], fingerprints[b])
        if apart <= 20:
            label = "near-duplicate" if chance.random() > apart / 24 else "not"
            rows.append({"id_a": a, "id_b": b, "label": label})
    rows.append({"id_a": "text 0", "id_b": "text 1", "label": "unsure"})
    return write_lines(tmp_path_factory.mktemp("labels") / "labels.jsonl", rows)


@pytest.fixture(scope="module")
def documents(texts, labels):
    return write_lines(labels.with_name("texts.jsonl"), texts)


def rows_of(found):
    return [json.loads(line) for line in found.done().lines]


def test_figures_are_those_of_a_plain_count(labels, documents, texts):
    rows = rows_of(run("evaluate", labels, documents))
    assert [(row["distance"], row["similarity"]) for row in rows] == [
        *((distance, least) for least in (None, 0.5, 0.6, 0.7) for distance in range(17)),
        *((12, least) for least in (0.5, 0.6, 0.7)),
    ]
    assert [row["by_features"] for row in rows] == [False] * 68 + [True] * 3
    pairs = [json.loads(line) for line in labels.read_text().splitlines()][:-1]
    alike = sum(pair["label"] == "near-duplicate" for pair in pairs)
    assert 10 < alike < len(pairs)
    # Only the texts of a pair are compared with each other.
    both = [
        {"id": f"{number} {side}", "text": texts[pair[f"id_{side}"]], "pair": number}
        for number, pair in enumerate(pairs)
        for side in "ab"
    ]
    scoped = write_lines(labels.with_name("scoped.jsonl"), both)
    for row in rows[:17:4] + rows[17:68:10] + rows[68:]:
        rule = ["--distance", row["distance"], "--similarity", row["similarity"] or 0]
        rule += ["--by-features"] * row["by_features"]
        clusters = run("dedup", scoped, "--within", "pair", *rule).done().clusters
        together = [int(cluster["members"][0]["id"].split()[0]) for cluster in clusters]
        found = [pairs[number]["label"] == "near-duplicate" for number in together]
        assert row["found"] == len(found)
        assert row["recall"] == pytest.approx(sum(found) / alike, abs=1e-6)
        assert row["precision"] == (pytest.approx(sum(found) / len(found), abs=1e-6) if found else None)
        assert row["recall_low"] <= row["recall"] <= row["recall_high"]
    (recommended,) = (row for row in rows if row["recommended"])
    assert recommended["f1"] == max(row["f1"] for row in rows)


def test_pairs_that_dedup_does_not_compare_are_not_found(tmp_path):
    """Of pairs with a similarity of a little more than .5, one in twenty shares no band."""
    chance = random.Random(3)
    sides = []
    for number in range(120):
        words = [f"w{number}x{chance.randrange(10**6)}" for _ in range(40)]
        sides.append((" ".join(words), " ".join([*words[:29], *(word + "y" for word in words[29:])])))
    assert all(0.51 < simsql.similarity(*side) < 0.56 for side in sides)
    rows = [{"text_a": a, "text_b": b, "label": "yes"} for a, b in sides]
    both = [{"text": text, "pair": number} for number, side in enumerate(sides) for text in side]
    rule = ["--within", "pair", "--distance", 16, "--similarity", 0.5]
    clusters = run("dedup", write_lines(tmp_path / "texts.jsonl", both), *rule).done().clusters
    figures = rows_of(run("evaluate", write_lines(tmp_path / "labels.jsonl", rows), "--similarity", 0.5))
    assert figures[33]["distance"] == 16
    assert figures[33]["found"] == len(clusters) < 120


def test_texts_in_the_labels_give_the_same_figures(labels, documents, texts):
    expected = run("evaluate", labels, documents).done()
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    for number, row in enumerate(rows):
        row["text_a"] = texts[row["id_a"]]
        if number % 2:  # as the report writes a pair of which it holds only one text
            row["text_b"] = texts[row.pop("id_b")]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert run("evaluate", "-", documents, stdin=lines).out == expected.out
    for row in rows:
        row["text_b"] = row.get("text_b") or texts[row.pop("id_b")]
    without_ids = write_lines(labels.with_name("with-texts.jsonl"), rows)
    assert run("evaluate", without_ids).out == expected.out


def test_tables_and_a_recommendation_for_people(labels, documents):
    found = run("evaluate", labels, documents, "--similarity", 0.5, *TABLE).done()
    assert found.err == ""
    assert found.lines[0] == "words12-log-2, by distance alone"
    assert found.lines[1].split() == ["distance", "found", "precision", "95%", "recall", "95%", "F1", "95%"]
    assert found.lines[20] == "words12-log-2, similarity at least 0.5"
    said = re.search(
        r"\n\nrecommended: simsql dedup --distance \d+ --similarity (?:0|0\.5 --drop-similarity 0\.5),"
        r" with a precision of \d\.\d\d \(\d\.\d\d-\d\.\d\d\) and a recall of (\S+) \((\S+)-(\S+)\)\n"
        r"few labels \(near-duplicates: \d+, others: \d+, left out: 1\): with 50 of each, the intervals are"
        r" more reliable\n"
        r"the figures hold for pairs like these; to estimate a collection, label pairs from simsql sample\n$",
        found.out,
    )
    assert said, found.out
    assert said[2] <= said[1] <= said[3]
    # From 0.7 on, the default of --drop-similarity is the same.
    equal = write_lines(
        labels.with_name("equal.jsonl"), [{"text_a": "one two", "text_b": "one two", "label": "yes"}]
    )
    strict = run("evaluate", equal, "--similarity", 0.75)
    assert re.search(r"--similarity 0\.75, with", strict.done().err)
    # In other formats it goes to stderr.
    assert run("evaluate", labels, documents, "--similarity", 0.5).err in found.out


def test_several_recipes(labels, documents, tmp_path):
    path = tmp_path / "my recipe.json"
    simsql.fingerprint.write_recipe(Recipe(shingles=(3,)), path)
    recipes = ["--recipe", "words12-log-2", "--recipe", path, "--recipe", "words12-log-2"]
    rows = rows_of(run("evaluate", labels, documents, *recipes))
    assert [row["recipe"] for row in rows] == ["words12-log-2"] * 71 + [str(path)] * 71
    assert rows[:71] == [
        {**row, "recommended": place["recommended"]}
        for row, place in zip(rows_of(run("evaluate", labels, documents)), rows, strict=False)
    ]
    assert [row["recall"] for row in rows[:71]] != [row["recall"] for row in rows[71:]]
    assert sum(row["recommended"] for row in rows) == 1
    # The recipe that is better by far is recommended by the name that was given.
    alone = run("evaluate", labels, documents, "--recipe", path).done()
    assert f"--recipe '{path}', with" in alone.err


def test_weights_count(tmp_path):
    a, b, c = ("one two three four five", "one two three four five six", "seven eight nine")
    rows = [
        {"text_a": a, "text_b": a, "label": 1, "weight": 1},
        {"text_a": a, "text_b": b, "label": 1, "weight": 3},
        {"text_a": c, "text_b": "...", "label": 0, "weight": 9},  # a text without a fingerprint
    ]
    found = run("evaluate", write_lines(tmp_path / "labels.jsonl", rows))
    first = rows_of(found)[0]
    assert (first["found"], first["precision"], first["recall"]) == (1, 1.0, 0.25)
    rows = [{"text_a": a, "text_b": other, "label": 1, "weight": w} for other, w in ((a, 1), ("...", 2))]
    third = rows_of(run("evaluate", write_lines(tmp_path / "third.jsonl", rows)))[0]
    assert (third["recall"], third["recall_low"], third["f1"]) == (0.333333, 0.0, 0.5)
    assert "the weights count: the recall is that of all pairs for which the labels stand" in found.err


def test_what_is_missing(labels, documents, tmp_path, texts):
    run("evaluate", labels).failed(1, f"{labels}:1: the pair has ids, but no texts: name the files")
    some = write_lines(tmp_path / "some.jsonl", dict(list(texts.items())[:2]))
    said = f"no document in {some} has the id 'text 2' ({labels}:"
    run("evaluate", labels, some).failed(1, said, " more: check --id-field, and the files")
    run("evaluate", labels, tmp_path / "nowhere").failed(2, "no such file or folder")
    run("evaluate", tmp_path / "nowhere").failed(2, f"no such file: {tmp_path / 'nowhere'}")
    run("evaluate", tmp_path).failed(1, f"{tmp_path}: Is a directory")
    run("evaluate", "-", "-").failed(2, "labels and documents cannot both come from stdin")
    run("evaluate", "").failed(2, "the path is empty")
    run("evaluate", labels, documents, "--similarity", 1.5).failed(2, "it must be between 0 and 1, not 1.5")
    run("evaluate", labels, documents, "--similarity", "x").failed(2, "'x' is not a number from 0 to 1")
    run("evaluate", labels, documents, "--recipe", "x").failed(2, "and there is no such file")


def test_an_id_of_several_documents_is_replaced_by_a_place(labels, documents, tmp_path, texts):
    again = write_lines(tmp_path / "again.jsonl", dict(list(texts.items())[:1]))
    run("evaluate", labels, documents, again).failed(
        1, "several documents are called 'text 0': name them by their"
    )
    pairs = [{"id_a": f"{documents}:1", "id_b": f"{again}:1", "label": "yes"}]
    found = run("evaluate", write_lines(tmp_path / "pairs.jsonl", pairs), documents, again)
    assert rows_of(found)[0]["found"] == 1


def test_recall_needs_a_near_duplicate(tmp_path):
    rows = [{"text_a": "a", "text_b": "b", "label": label} for label in ("not", "unsure", "")]
    path = write_lines(tmp_path / "labels.jsonl", rows)
    run("evaluate", path).failed(
        1, f"{path} labels no pair as near-duplicate (1 as not, 2 left out): recall needs"
    )


def test_skipped_documents_are_named(labels, documents, tmp_path):
    bad = write_lines(tmp_path / "bad.jsonl", [{"id": 1}])
    found = run("evaluate", labels, documents, bad)
    assert found.code == 2  # nothing was read from a file that was named
    assert f"skipped {bad}:1: no field: 'text' is missing" in found.err


def test_pairs_that_no_rule_finds(tmp_path):
    rows = [{"text_a": "one two three", "text_b": "four five six", "label": "yes"}]
    found = run("evaluate", write_lines(tmp_path / "labels.jsonl", rows))
    assert "no recommendation: no rule finds any of the near-duplicates; try another recipe\n" in found.err
    assert [row["recommended"] for row in rows_of(found)] == [False] * 71
    assert {row["precision"] for row in rows_of(found)} == {None}
    assert {row["recall"] for row in rows_of(found)} == {0.0}
