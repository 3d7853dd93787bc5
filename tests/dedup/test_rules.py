"""The rules of the decisions on the command line: thresholds, what is kept, and explanations."""

import json
import re

import pytest
from program import run, write_lines

from simsql.decide.criteria import rank_values
from simsql.decide.rules import Rules
from simsql.errors import UsageError

WORDS = [f"word{number}" for number in range(60)]


def without(*places):
    return " ".join(f"x{at}" if at in places else word for at, word in enumerate(WORDS))


# A text, and others that are less and less similar to it.
TEXTS = {
    "whole": without(),
    "near": without(0) + " and a few more words",
    "close": without(30),
    "half": without(5, 15, 25, 35),
    "far": without(*range(0, 60, 4)),
}


@pytest.fixture
def dedup(tmp_path, home):
    def dedup(records, *options):
        path = write_lines(tmp_path / "texts.jsonl", records)
        found = run("dedup", path, "--distance", "20", *options, home=home).done()
        clusters = [] if "--explain" in options else found.clusters
        return found, {member["id"]: member["kept"] for cluster in clusters for member in cluster["members"]}

    return dedup


def test_thresholds_out_of_range(lines):
    run("dedup", lines, "--similarity", "1.5").failed(2, "--similarity", "between 0 and 1, not 1.5")
    run("dedup", lines, "--drop-similarity", "0.5").failed(
        2, "--drop-similarity must be between --similarity (0.6) and 1, not 0.5"
    )
    run("dedup", lines, "--similarity", "0", "--drop-similarity", "0.8").failed(
        2, "--similarity 0 does not compare"
    )
    run("dedup", lines, "--keep", "first", "--keep-field", "score").failed(2, "exclude each other")
    run("dedup", lines, "--null").failed(2, "--null needs --drop-list FILE")
    run("dedup", lines, "--explain", "a", "b", "--output", "file").failed(2, "--explain writes no clusters")
    run("dedup").failed(2, "PATH", "name the files to read")
    run("dedup", "--explain", "a", "b").failed(2, "name the files to read: without them, --explain needs --table")


def test_texts_are_dropped_from_the_similarity_on_that_texts_are_reported_with():
    assert Rules().drop == 0.7
    assert Rules(similarity=0.8).drop == 0.8
    assert Rules(similarity=0.5, drop_similarity=0.5).drop == 0.5
    with pytest.raises(UsageError, match="between 0 and 64, not 65"):
        Rules(distance=65)


def test_documents_are_reported_and_dropped_by_their_similarity(dedup):
    everything, decided = dedup(TEXTS, "--similarity", "0.1")
    (cluster,) = everything.clusters
    similar = {member["id"]: member["similarity"] for member in cluster["members"]}
    assert cluster["representative"] == "whole"
    assert similar["close"] > similar["near"] > 0.7 > similar["half"] > 0.6 > similar["far"] > 0.1
    assert decided["near"] == "whole"
    assert decided["far"] == "far"
    assert decided["half"] == "half"
    assert set(dedup(TEXTS)[1]) == {"whole", "near", "close", "half"}
    assert set(dedup(TEXTS, "--similarity", "0.95")[1]) == set()


@pytest.mark.parametrize(
    ("options", "best"),
    [
        ([], "whole"),
        (["--keep", "first"], "close"),
        (["--keep", "longest"], "near"),
        (["--keep-field", "score"], "close"),
    ],
)
def test_the_document_that_is_kept_can_be_chosen(dedup, options, best):
    texts = {name: TEXTS[name] for name in ("close", "whole", "near")}
    scores = {"whole": 9.5, "close": 10, "near": None}
    records = [{"id": name, "text": words, "score": scores[name]} for name, words in texts.items()]
    found, decided = dedup(records, *options)
    assert set(decided.values()) == {best}
    other, _ = dedup(records[::-1], *options)
    if options != ["--keep", "first"]:
        assert [member["id"] for member in other.clusters[0]["members"]] == [
            member["id"] for member in found.clusters[0]["members"]
        ]


def test_the_value_of_a_column(tmp_path, home):
    rows = {"whole": "2024-05-01", "close": "2025-01-31", "near": ""}
    table = "".join(f"{name},{TEXTS[name]},{value}\n" for name, value in rows.items())
    (tmp_path / "a.csv").write_text(f"id,text,date\n{table}")
    found = run("dedup", tmp_path, "--distance", "20", "--keep-field", "date", home=home).done()
    assert {member["kept"] for member in found.clusters[0]["members"]} == {"close"}
    run("dedup", tmp_path, "--keep-field", "data", home=home).failed(1, "no document has a field 'data'")


def test_numbers_come_after_texts_and_equal_numbers_are_equal():
    ranks = rank_values(["10", "9", "9.0", "b", "a", "-1e3", "nan"])
    assert sorted(ranks, key=ranks.__getitem__) == ["a", "b", "nan", "-1e3", "9", "9.0", "10"]
    assert ranks["9"] == ranks["9.0"]


@pytest.mark.parametrize(
    ("names", "distance", "reason"),
    [
        (("whole", "WHOLE"), 0, "together: they have the same words; "),
        (("near", "WHOLE"), None, "together: near is dropped in favour of WHOLE (similarity "),
        (
            ("near", "half"),
            None,
            "together: both were compared with other documents of the cluster; near is dropped",
        ),
        (("whole", "far"), None, "apart: similarity 0.1"),
        (("whole", "none"), None, "apart: none has no words, so it has no fingerprint"),
    ],
)
def test_explanations(dedup, names, distance, reason):
    texts = TEXTS | {"WHOLE": TEXTS["whole"].upper(), "none": "..."}
    found, _ = dedup(texts, "--explain", *names)
    assert found.lines[:2] == list(names)
    assert found.lines[-1].startswith(reason)
    if distance is not None:
        assert f"distance    {distance}" in found.lines
    explained = json.loads(dedup(texts, "--explain", *names, "--format", "jsonl")[0].out)
    assert [document["id"] for document in explained["documents"]] == list(names)
    assert reason.split(": ")[0] == ("together" if explained["together"] else "apart")


def test_an_explanation_says_when_the_sketches_decided(dedup):
    # One of about 700 such pairs whose sketches differ in more than 22 bits.
    words = [f"w{place}x3060" for place in range(40)]
    changed = [f"x{place}" if place in (3, 20, 36) else word for place, word in enumerate(words)]
    found, _ = dedup({"a": " ".join(words), "b": " ".join(changed)}, "--explain", "a", "b")
    assert found.lines[2:] == [
        "distance    7",
        "estimate    0.28",
        "similarity  0.64",
        "apart: their sketches differ in 23 bits, more than 22, so their texts were not compared",
    ]
    found, _ = dedup(TEXTS, "--explain", "whole", "far", "--distance", "64")
    assert found.lines[-1].startswith("apart: similarity 0.1")
    assert re.search(r"their sketches, which differ in \d\d bits, decided without the texts$", found.lines[-1])


def test_a_pair_beyond_the_distance_is_apart(dedup, lines, home):
    found = run("dedup", lines, "--explain", "fox", "alone", home=home).done()
    away = int(found.lines[2].split()[-1])
    assert away > 10
    assert found.lines[-1] == f"apart: distance {away} is above 12"
    run("dedup", lines, "--explain", "fox", "fox", home=home).failed(2, "'fox' is one document")
    run("dedup", lines, "--explain", "fox", "cat", home=home).failed(2, "no document is called 'cat'")
