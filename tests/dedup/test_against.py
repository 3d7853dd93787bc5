"""New documents against an archive, compared with plain Python."""

import contextlib
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import stars
from hypothesis import given, settings
from hypothesis import strategies as st
from minima import are_candidates
from program import run, write_lines
from stages import Stages

from simsql import hamming_distance, simhash, similarity
from simsql.decide.rules import Keep, Rules
from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.sinks.clusters import ClusterOutput

WORDS = [f"word{number}" for number in range(60)]


def variant(start, changed):
    """Return 24 words, some of them replaced."""
    return " ".join("x" if at in changed else word for at, word in enumerate(WORDS[start : start + 24]))


# Texts that differ in up to four words, copies with other letters, and texts about something else.
TEXTS = st.builds(variant, st.sampled_from([0, 0, 0, 30]), st.frozensets(st.integers(0, 23), max_size=4))
TEXTS |= TEXTS.map(lambda words: words.upper() + "!")


def words_of(written):
    return written.lower().strip("!")


def alike(a, b):
    """Return the similarity of two texts, 0.0 if they are not compared."""
    if words_of(a) == words_of(b):
        return 1.0
    return similarity(a, b) if are_candidates(a, b) else 0.0


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        yield Path(name)


def outcome(paths, **options):
    """Run, and return the members of clusters by place, and the drop list."""
    output = ClusterOutput(Path("clusters"), drop_list=Path("drop"))
    summary = run_dedup(DedupOptions(paths, output=output, **options), Stages())
    clusters = map(json.loads, Path("clusters").read_text().splitlines())
    members = [
        member | {"representative": each["representative"]} for each in clusters for member in each["members"]
    ]
    return summary, {member["place"]: member for member in members}, Path("drop").read_text().splitlines()


@given(st.lists(TEXTS, min_size=1, max_size=7), st.lists(TEXTS, max_size=7))
@settings(max_examples=60)
def test_new_documents_are_decided_about_and_the_archive_is_not(archive, new):
    named = {f"old {number}": written for number, written in enumerate(archive)}
    named |= {f"new {number}": written for number, written in enumerate(new)}
    first = {words_of(written): name for name, written in reversed(named.items()) if name.startswith("new")}
    # What was read last is assigned last: the first name of the archive, or else of the new documents, wins.
    first |= {words_of(written): name for name, written in reversed(named.items()) if name.startswith("old")}
    order = sorted(first.values(), key=lambda name: (name.startswith("new"), int(name.split()[1])))
    old = [name for name in order if name.startswith("old")]

    def alike_by_name(a, b):
        return alike(named[a], named[b])

    kept, representing = stars.decide(order, alike_by_name, 0.6, 0.7, old, to_archive=True)
    expected = {}
    for name, written in named.items():
        if name.startswith("new"):
            same = first[words_of(written)]
            expected[name] = kept[same], representing[same]
    listed = {id_ for name, both in expected.items() for id_ in (name, *both)}
    representative = {name: expected.get(name, (name, name))[1] for name in listed}
    sizes = Counter(representative.values())
    with folder():
        write_lines(Path("archive.jsonl"), {name: written for name, written in named.items() if name[0] == "o"})
        write_lines(Path("new.jsonl"), {name: written for name, written in named.items() if name[0] == "n"})
        rules = Rules(keep=Keep.FIRST)
        _, members, dropped = outcome(["new.jsonl"], against=["archive.jsonl"], rules=rules)
    found = {member["id"]: member for member in members.values()}
    assert found.keys() == {name for name in listed if sizes[representative[name]] > 1}
    for name, member in found.items():
        if name in expected:
            assert (member["kept"], member["representative"]) == expected[name]
            assert member["kept_similarity"] == round(similarity(named[name], named[member["kept"]]), 6)
            assert member["kept_distance"] == hamming_distance(
                simhash(named[name]), simhash(named[member["kept"]])
            )
        else:
            assert (member["kept"], member["droppable"]) == (name, False)
        if name in expected and expected[name][0] == name:
            nearest = max((alike(named[name], named[other]) for other in old), default=0)
            assert member["similarity"] == round(nearest, 6) or nearest < 0.6
    assert sorted(dropped) == sorted(name for name, (centre, _) in expected.items() if centre != name)


@pytest.fixture
def both(tmp_path):
    """An archive with two similar texts, and new documents: two that are similar to them, and one that is not."""
    archive = {"a": variant(0, {1}), "b": variant(0, {1, 20})}
    new = {"c": variant(0, {}), "d": variant(0, {1, 5}), "e": variant(30, {})}
    return write_lines(tmp_path / "archive.jsonl", archive), write_lines(tmp_path / "new.jsonl", new)


def test_the_exit_code_says_whether_new_documents_could_be_dropped(tmp_path, both):
    archive, new = both
    found = run("dedup", new, "--against", archive)
    assert found.code == 3
    members = [member for cluster in found.clusters for member in cluster["members"]]
    assert {member["id"] for member in members if member["kept"] in "ab"} >= set("cd")
    other = write_lines(tmp_path / "other.jsonl", {"e": variant(30, {})})
    found = run("dedup", other, "--against", archive).done()
    assert found.clusters == []
    found = run("dedup", new, "--against", "-", stdin=archive.read_bytes())
    assert found.code == 3
    assert found.groups == run("dedup", new, "--against", archive).groups


def test_every_new_document_is_listed_with_the_nearest_one_of_the_archive(tmp_path):
    """Also those that are too different to be dropped, and do not resemble each other."""
    archive = write_lines(tmp_path / "archive.jsonl", {"a": variant(0, {}), "b": variant(0, {8})})
    new = {"c": variant(0, {0, 1, 2, 3}), "d": variant(0, {19, 20, 21}), "e": variant(30, {})}
    assert similarity(new["c"], new["d"]) < 0.6
    found = run("dedup", write_lines(tmp_path / "new.jsonl", new), "--against", archive).done()
    (cluster,) = found.clusters
    assert cluster["representative"] == "a"
    listed = {member["id"]: member for member in cluster["members"]}
    assert listed.keys() == set("acd")
    assert listed["a"]["place"] == f"{archive}:1"
    for name in "cd":
        assert not listed[name]["droppable"]
        assert listed[name]["similarity"] == round(similarity(new[name], variant(0, {})), 6)
        assert listed[name]["distance"] == hamming_distance(simhash(new[name]), simhash(variant(0, {})))
    assert found.table["documents"] == "5"
    assert (found.table["of the archive"], found.table["new"]) == ("2", "3")


def test_the_archive_is_not_copied_to_the_clean_corpus(tmp_path, both):
    archive, new = both
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.txt").write_text(variant(0, {1}))
    for against in (archive, pages):
        clean = tmp_path / f"clean of {against.name}.jsonl"
        assert run("dedup", new, "--against", against, "--clean", clean).code == 3
        assert clean.read_text().splitlines() == [line for line in new.read_text().splitlines() if '"e"' in line]


def test_an_archive_cannot_hold_new_documents(tmp_path, both):
    archive, new = both
    run("dedup", new, "--against", tmp_path).failed(2, "new.jsonl is in --against, so nothing in it would be new")
    run("dedup", new, "--against", archive, "--keep-under", archive).failed(2, "exclude each other")
    assert run("dedup", tmp_path, "--against", archive).groups == run("dedup", new, "--against", archive).groups
