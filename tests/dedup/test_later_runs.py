"""Decisions that stay in a table: what a later run keeps, decides anew, or refuses."""

import os

import pytest
from program import READING, run, spawn, wait_until, write_lines
from sqlalchemy import text

WORDS = [f"word{number}" for number in range(200)]


def variant(start, changed=()):
    """Return 60 words, with some of them replaced by shorter ones."""
    words = WORDS[start : start + 60]
    return " ".join(f"x{at}" if at in changed else word for at, word in enumerate(words))


# "b" and "c" are similar to "a", and "d" and "e" are about something else.
TEXTS = {"a": variant(0), "b": variant(0, {3}), "c": variant(0, {58, 59}), "d": variant(100)}
TEXTS["e"] = variant(100, {30})


@pytest.fixture
def kept(newest, tmp_path):
    """Run on texts, with a table that stays; return the run, and what is kept in favour of each document."""

    def kept(texts, *options, table="kept"):
        path = write_lines(tmp_path / "texts.jsonl", texts)
        found = run("dedup", path, "--database", newest[1], "--table", table, *options).done()
        members = (member for cluster in found.clusters for member in cluster["members"])
        return found, {member["id"]: member["kept"] for member in members if member["id"] != member["kept"]}

    return kept


def test_earlier_decisions_stay_until_the_text_that_is_kept_changes(kept):
    _, before = kept(TEXTS)
    assert before == {"b": "a", "c": "a", "e": "d"}
    # In the middle of all, but what was kept stays.
    texts = TEXTS | {f"{number}": variant(0, {3, 57}) for number in range(3)}
    found, after = kept(texts)
    assert after == before | {"0": "a", "1": "a", "2": "a"}
    again, _ = kept(texts)
    assert again.stdout == found.stdout
    texts["a"] = variant(140)
    _, changed = kept(texts)
    assert changed == dict.fromkeys(["0", "1", "2", "c"], "b") | {"e": "d"}


def test_other_rules_need_to_be_decided_afresh(kept, newest, tmp_path):
    _, before = kept(TEXTS)
    options = [tmp_path / "texts.jsonl", "--database", newest[1], "--table", "kept"]
    for other in (
        ["--distance", "9"],
        ["--similarity", "0.5"],
        ["--drop-similarity", "0.75"],
        ["--keep", "first"],
        ["--keep-under", tmp_path],
    ):
        run("dedup", *options, *other).failed(
            1,
            "table kept holds decisions made with other rules: pass --distance 12 --similarity 0.6"
            " --drop-similarity 0.7 --keep central, or decide again with --redecide",
        )
    _, after = kept(TEXTS, "--drop-similarity", "1", "--redecide")
    assert before
    assert after == {}
    assert kept(TEXTS, "--drop-similarity", "1")[1] == {}
    assert kept(TEXTS, "--redecide")[1] == before


@pytest.fixture
def others(tmp_path):
    """A second file, with the texts that are not in `SOME`."""
    return write_lines(tmp_path / "others.jsonl", {name: TEXTS[name] for name in "cde"})


SOME = {name: TEXTS[name] for name in "ab"}


def test_documents_of_a_run_that_compared_no_texts_are_compared_once_they_are_read_again(
    kept, others, newest, tmp_path
):
    kept(SOME, others, "--similarity", "0")
    empty = write_lines(tmp_path / "empty.jsonl", {})
    found = run("dedup", empty, "--database", newest[1], "--table", "kept", "--redecide").done()
    assert found.clusters == []
    assert found.table["words unknown: not compared"] == "5"
    found, dropped = kept(SOME)
    assert dropped == {"b": "a"}
    assert found.table["words unknown: not compared"] == "3"
    assert "not compared: 3 documents whose words the table does not have" in found.err
    assert (found.table["new"], found.table["changed"], found.table["known already"]) == ("0", "0", "2")
    found, dropped = kept(SOME, others)
    assert dropped == {"b": "a", "c": "a", "e": "d"}
    assert "not compared" not in found.err
    with newest[0].connect() as connection:
        assert connection.execute(text("SELECT count(words) FROM kept")).scalar() == 5


def test_a_text_that_comes_back_is_compared_with_what_is_kept_since(tmp_path, home, newest, monkeypatch):
    folder = tmp_path / "texts"
    folder.mkdir()
    monkeypatch.chdir(folder)
    options = ["--database", newest[1], "--table", "kept", "--drop-list", tmp_path / "drop"]

    def drops(**texts):
        for name in "abc":
            (folder / name).unlink(missing_ok=True)
        for name, words in texts.items():
            (folder / name).write_text(words)
        run("dedup", ".", *options, home=home).done()
        return sorted((tmp_path / "drop").read_text().split())

    assert drops(a=TEXTS["a"], b=TEXTS["b"], c=TEXTS["c"]) == ["b", "c"]
    assert drops(b=TEXTS["b"], c=TEXTS["c"]) == ["c"]
    assert drops(a=TEXTS["a"], b=TEXTS["b"]) == ["a"]


def test_a_file_with_a_colon_in_its_name_is_not_taken_for_a_line_of_another(tmp_path, home, newest, monkeypatch):
    monkeypatch.chdir(tmp_path)
    drop = tmp_path / "drop"
    options = ["--database", newest[1], "--table", "kept", "--drop-list", drop]
    for name, words in {"a": TEXTS["d"], "a:b.txt": TEXTS["a"], "c": TEXTS["b"]}.items():
        (tmp_path / name).write_text(words)
    run("dedup", "a", "a:b.txt", "c", *options, home=home).done()
    assert drop.read_text() == "c\n"
    (tmp_path / "a:b.txt").unlink()
    run("dedup", "c", *options, home=home).done()
    assert drop.read_text() == ""


def test_values_of_another_field_decide_nothing(tmp_path, newest):
    """Neither those of an earlier field, nor one that its document no longer has."""
    options = [tmp_path / "texts.jsonl", "--database", newest[1], "--table", "kept"]

    def kept(field, *values, redecide=False):
        lines = [{"id": name, "text": TEXTS[name], **value} for name, value in zip("ab", values, strict=True)]
        write_lines(tmp_path / "texts.jsonl", lines)
        found = run("dedup", *options, "--keep-field", field, *["--redecide"] * redecide).done()
        return found.clusters[0]["representative"]

    assert kept("score", {"score": 9}, {"score": 1}) == "a"
    assert kept("date", {}, {"date": "2026-01-01"}, redecide=True) == "b"
    assert kept("date", {"date": "2025-01-01"}, {}, redecide=True) == "a"


def test_files_decide_in_later_runs_by_their_times_at_the_last_reading(tmp_path, drops):
    paths = [tmp_path / name for name in "abc"]
    for time, (path, name) in enumerate(zip(paths, "bac", strict=True)):
        path.write_text(TEXTS[name])
        os.utime(path, ns=(time, time))
    newest = ["--keep", "newest", "--redecide"]
    assert sorted(drops(*paths, options=newest)) == [f"{path}" for path in paths[:2]]
    os.utime(paths[0], ns=(9, 9))
    # Decisions stay, and the file that this run has not read has the time that it had.
    assert sorted(drops(*paths[:2], options=newest[:2])) == [f"{path}" for path in paths[:2]]
    assert sorted(drops(*paths[1:], options=newest)) == [f"{path}" for path in paths[1:]]


def test_nothing_below_a_folder_is_dropped_in_any_run(tmp_path, drops):
    for folder in ("archive", "inbox", "archive2"):
        (tmp_path / folder).mkdir()
    archive, inbox, other = tmp_path / "archive", tmp_path / "inbox", tmp_path / "archive2"
    (tmp_path / "link").symlink_to(archive)
    under = ["--keep-under", tmp_path / "link"]
    (archive / "a").write_text(TEXTS["b"])
    (other / "long").write_text(f"{TEXTS['a']} and more")
    assert sorted(drops(archive, other, options=under)) == [f"{other / 'long'}"]
    (inbox / "b").write_text(f"{TEXTS['a']} and more")
    (inbox / "d").write_text(TEXTS["d"])
    # This run has not read the archive. What it reads is dropped in favour of it, or kept.
    assert sorted(drops(inbox, options=under)) == [f"{inbox / 'b'}"]
    # Texts that are in the archive now, too: the same words take its place, and a similar one stays with it.
    (archive / "copy of d").write_text(TEXTS["d"].upper())
    (archive / "e").write_text(TEXTS["e"])
    assert sorted(drops(tmp_path / "link", inbox, options=under)) == [f"{inbox / 'b'}", f"{inbox / 'd'}"]
    # Rules of other folders: documents that this run has not read count by their places.
    other_rules = ["--keep-under", other, "--redecide"]
    everything = [archive / "a", archive / "e", inbox / "b", inbox / "d"]
    assert sorted(drops(archive, inbox, options=other_rules)) == list(map(str, everything))


def test_an_explanation_changes_nothing(kept, newest, tmp_path):
    kept({name: TEXTS[name] for name in "ab"})
    path = write_lines(tmp_path / "texts.jsonl", TEXTS)
    options = ["--database", newest[1], "--table", "kept"]
    found = run("dedup", path, *options, "--explain", "d", "e").done()
    assert found.lines[-1] == "together: d is kept; e is dropped in favour of d (similarity 0.90)"
    found = run("dedup", *options, "--explain", "a", "b").done()
    assert found.lines[-1] == "together: a is kept; b is dropped in favour of a (similarity 0.90)"
    run("dedup", *options, "--explain", "a", "e").failed(2, "no document is called 'e'")
    run("dedup", path, *options, "--redecide", "--keep", "longest").done()
    found = run("dedup", *options, "--explain", "a", "b").done()
    assert found.lines[-1] == "together: a is kept; b is dropped in favour of a (similarity 0.90)"
    run("dedup", "--database", newest[1], "--table", "typo", "--explain", "a", "b").failed(
        1, "there is no table typo: name the files to read"
    )


@pytest.fixture
def drops(tmp_path, newest):
    """Run on paths, with a table that stays, and keep the longest text; return the drop list."""

    def drops(*paths, options=()):
        kept = ["--database", newest[1], "--table", "kept", "--keep", "longest"]
        run("dedup", *paths, *kept, "--drop-list", tmp_path / "drop", *options).done()
        return (tmp_path / "drop").read_text().splitlines()

    return drops


LONGER = f"{TEXTS['a']} and two more"


def test_a_document_that_a_run_skips_is_not_kept_in_favour_of_others(tmp_path, drops):
    long = write_lines(
        tmp_path / "long.jsonl", [{"id": "A", "text": LONGER}, {"id": "C", "text": "something else"}]
    )
    (tmp_path / "b.txt").write_text(TEXTS["a"])
    paths = long, tmp_path / "b.txt"
    assert drops(*paths) == [f"{tmp_path / 'b.txt'}"]
    # This run has not read it, so it keeps the other one, and decisions stay.
    assert drops(*paths, options=["--max-document", str(len(LONGER) - 1)]) == []
    assert drops(*paths) == ["A"]


def test_a_file_whose_name_looks_like_a_line_of_another_is_not_gone(tmp_path, drops):
    for name, content in {"r:2": TEXTS["a"], "d0": LONGER, "r:1": "something else"}.items():
        (tmp_path / name).write_text(content)
    both = tmp_path / "r:2", tmp_path / "d0"
    assert drops(*both, options=["--keep", "first"]) == [f"{tmp_path / 'd0'}"]
    drops(tmp_path / "r:1", options=["--keep", "first"])
    assert drops(*both, options=["--keep", "first"]) == [f"{tmp_path / 'd0'}"]


def test_a_record_whose_id_another_document_has_is_listed_by_its_place(tmp_path, drops):
    texts = write_lines(tmp_path / "a.jsonl", [{"id": 1, "text": LONGER}, {"id": 2, "text": TEXTS["a"]}])
    assert drops(texts) == ["2"]
    other = write_lines(tmp_path / "b.jsonl", [{"id": 2, "text": "something else"}])
    assert drops(texts, other) == [f"{texts}:2"]
    replaced = write_lines(tmp_path / "c.jsonl", [{"id": "y\0z", "text": TEXTS["a"]}])
    assert drops(replaced) == []


def test_a_run_keeps_decisions_that_another_has_made_while_it_read(tmp_path, drops, newest):
    first = write_lines(tmp_path / "k.jsonl", [{"id": "K", "text": TEXTS["a"]}])
    second = write_lines(tmp_path / "x.jsonl", [{"id": "X", "text": LONGER}])
    engine, url = newest
    options = ["--database", url, "--table", "kept", "--keep", "longest", "--drop-list", tmp_path / "late"]
    late = spawn("dedup", "-", *options)
    late.stdin.write(first.read_bytes())
    late.stdin.flush()
    reading = text(f"{READING} AND datname = current_database()")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        wait_until(lambda: connection.execute(reading).first(), "it reads", late)
    assert drops(first) == []
    assert drops(second) == ["X"]
    late.stdin.close()
    assert late.wait(60) == 0
    # A copy of K, which stays.
    assert (tmp_path / "late").read_text() == "stdin:1\n"


def test_a_folder_that_has_lost_all_documents_may_be_a_disk_that_is_not_mounted(tmp_path, newest):
    disk, other = tmp_path / "disk", tmp_path / "other.txt"
    disk.mkdir()
    other.write_text(TEXTS["d"])
    (disk / "a.txt").write_text(TEXTS["a"])
    write_lines(disk / "a.jsonl", {"e": TEXTS["e"]})
    options = ["--database", newest[1], "--table", "kept"]
    run("dedup", disk, other, *options).done()
    disk.rename(tmp_path.parent / f"{tmp_path.name} gone")
    disk.mkdir()
    run("dedup", other, disk, *options).failed(1, f"{disk} has no documents now, but had some in an earlier run")
    assert run("dedup", other, *options).done().table["documents in the table"] == "3"
    (disk / "new.txt").write_text("something new")
    found = run("dedup", other, disk, *options).done()
    assert (found.table["gone: forgotten"], found.table["documents in the table"]) == ("2", "2")
    (disk / "new.txt").unlink()
    run("dedup", disk, other, *options).failed(1, "name the folder above it")
    assert run("dedup", tmp_path, *options).done().table["gone: forgotten"] == "1"
