"""The rules of the decisions on the command line: thresholds, what is kept, and explanations."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import run, write_lines

from simsql.decide.criteria import criterion, rank_values, value_of_file
from simsql.decide.rules import Keep, Rules
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
    run("dedup").failed(2, "PATH")


def test_the_ends_of_the_ranges_are_in_them():
    assert Rules(0, 1.0).drop == Rules(64, 0.5, 1.0).drop == 1.0
    for wrong in ((-1, 0.5), (65, 0.5), (3, -0.1), (3, 1.1), (3, 0.5, 1.1)):
        with pytest.raises(UsageError, match=f"between .* not {wrong[-1] if wrong[0] == 3 else wrong[0]}$"):
            Rules(*wrong)


@pytest.mark.parametrize("under", ["/", "/data/X", "/data/X/"])
def test_what_is_kept_under_a_folder(under):
    rules = Rules(keep_under=("/elsewhere", under))
    assert rules.protects("/data/X/a.txt")
    assert rules.protects("/data/X2/a.txt") == (under == "/")
    assert rules.protects("/elsewhere")


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
    assert similar["close"] > similar["near"] > 0.7 > similar["half"] > 0.6
    assert decided["near"] == "whole"
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
        "apart: their bands, sketches and fingerprints are too far apart, so their texts were not compared",
    ]


def test_a_pair_beyond_the_limits_is_apart(dedup, lines, home):
    found = run("dedup", lines, "--explain", "fox", "alone", home=home).done()
    assert found.lines[-1].startswith("apart: similarity 0.0")
    found = run("dedup", lines, "--explain", "fox", "alone", "--similarity", "0", home=home).done()
    away = int(found.lines[2].split()[-1])
    assert away > 12
    assert found.lines[-1] == f"apart: distance {away} is above 12"
    run("dedup", lines, "--explain", "fox", "fox", home=home).failed(2, "'fox' is one document")
    run("dedup", lines, "--explain", "fox", "cat", home=home).failed(2, "no document is called 'cat'")


# A file, or a stream without a path and a time, and the line of a record in it.
PLACES = st.lists(
    st.tuples(
        st.none() | st.tuples(st.sampled_from(["/a", "/b", "/long/a"]), st.sampled_from([1, 2, 10**18 + 1])),
        st.sampled_from([0, 1, 2, 1 << 40]),
    ),
    max_size=12,
)


@given(PLACES, st.sampled_from([Keep.NEWEST, Keep.OLDEST, Keep.SHORTEST_PATH]))
def test_files_decide_by_their_times_and_paths(places, keep):
    def preference(file, line):
        path, time = file or ("", 0)
        order = {Keep.NEWEST: (time, line), Keep.OLDEST: (-time, -line), Keep.SHORTEST_PATH: (-len(path),)}[keep]
        return (file is not None, *order)

    values = [file and value_of_file(keep, *file) for file, _ in places]
    ranks = rank_values(filter(None, values)) | {None: 0}
    lines = np.array([line for _, line in places], dtype=np.int64)
    ranked = np.array([ranks[value] for value in values], dtype=np.int64)
    found = criterion(Rules(keep=keep), lines * 0, lines * 0, ranked, lines).tolist()
    expected = [preference(*place) for place in places]
    for one, a in zip(found, expected, strict=True):
        for other, b in zip(found, expected, strict=True):
            assert (one > other, one == other) == (a > b, a == b)


def test_the_time_and_the_path_of_files_decide(tmp_path, home):
    """A folder of copies that differ in a word, and a file with two more."""
    times = {"deep/er/b": 10**18, "c": 10**18 + 7, "long name": 3, "records.jsonl": 10**18 + 7}
    (tmp_path / "deep/er").mkdir(parents=True)
    for number, name in enumerate(times):
        (tmp_path / name).write_text(without(30 + number))
    write_lines(tmp_path / "records.jsonl", {"first": without(35), "last": without(36)})
    for name, time in times.items():
        os.utime(tmp_path / name, ns=(time, time))

    def kept(keep, *options):
        found = run("dedup", tmp_path, "--distance", "64", "--keep", keep, *options, home=home).done()
        (cluster,) = found.clusters
        return {member["kept"].removeprefix(f"{tmp_path}/") for member in cluster["members"]}

    assert kept("newest") == {"last"}
    assert kept("oldest") == {"long name"}
    assert kept("shortest-path") == {"c"}
    # Both stay, whichever of them is preferred.
    under = ["--keep-under", tmp_path / "deep", "--keep-under", tmp_path / "records.jsonl"]
    assert kept("oldest", *under) == {"first", "last", "deep/er/b"}
    found = run("dedup", tmp_path, *under, "--distance", "64", "--explain", "first", tmp_path / "c", home=home)
    assert "first is kept, because of --keep-under" in found.done().lines[-1]
    run("dedup", tmp_path / "c", *under).failed(1, "no document that was read is below", "among the paths to read")
    run("dedup", tmp_path, "--keep-under", tmp_path / "typo").failed(2, "--keep-under", "there is no folder or")


MENU = "".join(f'<li><a href="/{name}">Everything about {name}</a></li>\n' for name in WORDS[:50])
PAGE = "<!DOCTYPE html><title>A site</title><nav><ul>{menu}</ul></nav><article><h1>{name}</h1>{text}</article>"


def test_web_pages_are_compared_by_their_main_content(tmp_path, home):
    def article(name, edit=""):
        parts = (f"The {ordinal} thing about {name} is how it {name}s {edit}." for ordinal in WORDS[50:])
        return "".join(f"<p>{part}</p>" for part in parts)

    for number, name in enumerate(["wolf", "bee", "owl"]):
        page = PAGE.format(menu=MENU, name=name, text=article(name))
        (tmp_path / f"{number}.html").write_text(page)
    # The same article on another site, whose encoding is declared, and a text that is not a page.
    other = "<meta charset=latin-1>" + PAGE.format(menu="<li>Caf\xe9</li>" * 90, name="bee", text=article("bee"))
    (tmp_path / "copy.HTM").write_bytes(other.encode("latin-1"))
    (tmp_path / "wolf.html.txt").write_text(PAGE.format(menu=MENU, name="wolf", text=article("wolf")))
    (tmp_path / "picture.html").write_bytes(b"GIF89a\1\0\1\0\0\0\0;" + bytes(99))
    (tmp_path / "nothing.html").write_text("<nav></nav>")
    paths = [f"{tmp_path}/{name}" for name in ("1.html", "copy.HTM", "0.html", "wolf.html.txt", "2.html")]
    source = run("dedup", tmp_path, home=home).done()
    assert {paths[0], paths[2], paths[3], paths[4]} in source.groups
    report = tmp_path / "report.out"
    main = run("dedup", tmp_path, "--html", "main", "--report", report, home=home).done()
    assert main.groups == {frozenset(paths[:2])}
    assert main.table["image"] == main.table["empty"] == "1"
    assert MENU not in report.read_text()
    found = run("dedup", tmp_path, "--html", "main", "--explain", paths[0], paths[2], home=home).done()
    assert found.lines[-1].startswith("apart: ")
    assert found.lines[-1].endswith("; of web pages, only the main content was compared")
