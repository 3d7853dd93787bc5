"""New documents against an archive, and the days of a corpus whose table stays, compared with plain Python."""

import contextlib
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import stars
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program import run, write_lines
from sqlalchemy import text
from stages import Stages

from simsql import hamming_distance, simhash, similarity
from simsql.decide.rules import Keep, Rules
from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.store.destination import Destination
from simsql.dedup.sinks.clusters import ClusterOutput
from simsql.fingerprint import sketch, sketch_distance

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
    near = hamming_distance(simhash(a), simhash(b)) <= 12
    bits = (sketch(a) ^ sketch(b)).bit_count()
    return similarity(a, b) if near and bits <= sketch_distance(0.6) else 0.0


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
    old = {name: name for name in order if name.startswith("old")}

    def alike_by_name(a, b):
        return alike(named[a], named[b])

    kept, representing = stars.decide(order, alike_by_name, 0.6, 0.7, old, old, to_earlier=True)
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


FILES = ["a.jsonl", "b.jsonl", "c.txt", "d.txt"]
CHANGES = st.dictionaries(st.tuples(st.sampled_from(FILES), st.integers(0, 5)), TEXTS | st.none(), max_size=12)


def write(documents):
    for file in FILES:
        Path(file).unlink(missing_ok=True)
        texts = {f"{file} {number}": written for (of, number), written in documents.items() if of == file}
        if file.endswith(".jsonl"):
            write_lines(Path(file), texts)
        elif texts:
            Path(file).write_text(next(iter(texts.values())))


def on_disk():
    """Return the texts that are there now, by their places."""
    texts = {}
    for file in filter(Path.exists, map(Path, FILES)):
        if file.suffix == ".txt":
            texts[f"{file}"] = file.read_text()
        else:
            records = map(json.loads, file.read_text().splitlines())
            texts |= {f"{file}:{line}": record["text"] for line, record in enumerate(records, 1)}
    return texts


COLUMNS = "place, id, coalesce(kept, id), coalesce(representative, coalesce(kept, id)), text_digest"


@given(st.lists(st.tuples(CHANGES, st.sets(st.sampled_from(FILES), min_size=1)), min_size=3, max_size=3))
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_day_lists_what_is_new_and_drops_nothing_for_a_text_that_is_gone(newest, days):
    engine, url = newest
    documents, before = {}, {}
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS kept"))
    with folder() as here:
        for changes, read in days:
            documents |= changes
            documents = {place: written for place, written in documents.items() if written is not None}
            write(documents)
            now = on_disk()
            paths = sorted(file for file in read if any(place.split(":")[0] == file for place in now))
            if not paths:
                continue
            destination = Destination(url, None, "kept")
            summary, members, dropped = outcome(paths, destination=destination, new_only=True)
            with engine.connect() as connection:
                rows = connection.execute(text(f"SELECT {COLUMNS} FROM kept")).all()
            places = {id_: place.removeprefix(f"{here}/") for place, id_, *_ in rows}
            # The table has what the files have that the run was told to read.
            was_read = [place for place in places.values() if place.split(":")[0] in paths]
            assert sorted(was_read) == sorted(place for place in now if place.split(":")[0] in paths)
            assert summary.stored == len(rows)
            new = [row for row in rows if before.get(row[1]) != (row[2], row[4])]
            related = {id_ for _, *ids, _ in new for id_ in ids}
            sizes = Counter(row[3] for row in rows if row[1] in related)
            expected = {row[0] for row in rows if row[1] in related and sizes[row[3]] > 1}
            assert {f"{here}/{place}".replace(f"{here}/{here}", f"{here}") for place in members} == expected
            kept = {places[row[1]]: places[row[2]] for row in rows}
            for name in dropped:
                place = next(place for place, member in members.items() if name in (member["id"], place))
                assert kept[place] != place
                assert similarity(now[place], now[kept[place]]) >= 0.7
            before = {row[1]: (row[2], row[4]) for row in rows}


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
    kept = ["--new-only", "--server-dir", tmp_path / "server"]
    run("dedup", new, *kept, "--clean", tmp_path / "x.jsonl").failed(2, "leave out --new-only")
    run("dedup", new, "--new-only").failed(2, "--new-only needs the decisions of earlier runs: add --table")


def test_an_archive_cannot_hold_new_documents(tmp_path, both):
    archive, new = both
    run("dedup", new, "--against", tmp_path).failed(2, "new.jsonl is in --against, so nothing in it would be new")
    run("dedup", new, "--against", archive, "--keep-under", archive).failed(2, "exclude each other")
    run("dedup", new, "--against", archive, "--server-dir", tmp_path / "server").failed(2, "--new-only")
    assert run("dedup", tmp_path, "--against", archive).groups == run("dedup", new, "--against", archive).groups


def test_decisions_that_rest_on_texts_that_are_not_read_are_named(newest, tmp_path, both):
    archive, new = both
    options = ["--database", newest[1], "--table", "kept", "--keep", "first"]
    run("dedup", archive, *options).done()
    other = write_lines(tmp_path / "other.jsonl", {"e": variant(30, {})})
    found = run("dedup", other, *options).done()
    assert found.table["dropped in favour of a text not read"] == "1"
    assert f"not checked: {archive}:2: kept text not read: this run has not read {archive}:1" in found.err
    assert run("dedup", other, *options, "--new-only").done().clusters == []
    # A text that is near is read again.
    assert "not checked" not in run("dedup", new, *options).done().err
