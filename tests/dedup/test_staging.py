"""Bad input through the whole job: it is skipped, counted and named, and everything else is compared."""

import json
import os
import re
from pathlib import Path

import pytest
from program import run, run_apart, write_lines

from simsql.database.transfer import to_bigint

WORDS = "the same twelve words are written here once more so they match"
BAD_LINES = {
    "not JSON": b'{"id": 1, "text": "cut off\n',
    "not an object": b"[1, 2]\n",
    "no field": b'{"id": 3, "body": "x"}\n',
    "no text": b'{"id": 4, "text": null}\n',
    "not a string": b'{"id": 5, "text": 6}\n',
    "empty": b'{"id": 6, "text": "  "}\n',
    "not utf-8": b'{"id": 7, "text": "caf\xe9"}\n',
}


def line(name, text=WORDS):
    return json.dumps({"id": name, "text": text}).encode() + b"\n"


def skipped(found):
    return [message for message in found.err.split("\n") if re.match(r"skipped \S", message)]


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_is_named_and_the_lines_around_it_are_compared(tmp_path, home, reason):
    path = tmp_path / "a.jsonl"
    path.write_bytes(line("before") + BAD_LINES[reason] + line("after"))
    found = run("dedup", path, home=home).done()
    assert found.groups == {frozenset({"before", "after"})}
    (message,) = skipped(found)
    assert message.startswith(f"skipped {path}:2: {reason}: ")
    assert found.table[reason] == found.table["skipped"] == "1"


def test_files_that_cannot_be_used_are_named(tmp_path, home):
    for name in ("1.txt", "2.txt"):
        (tmp_path / name).write_text(WORDS)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes(WORDS.encode() + b" caf\xe9")
    (tmp_path / "damaged.txt.gz").write_bytes(b"\x1f\x8b\x08 and nothing of the kind")
    (tmp_path / "wrong.csv").write_text("a,b\n1,2\n")
    found = run("dedup", tmp_path, home=home)
    assert found.code == 1  # the only file of records
    assert found.groups == {frozenset(str(tmp_path / name) for name in ("1.txt", "2.txt"))}
    reasons = {Path(message.split(": ")[0]).name: message.split(": ")[1] for message in skipped(found)}
    assert reasons == {
        "empty.txt": "empty",
        "latin.txt": "not utf-8",
        "damaged.txt.gz": "corrupt",
        "wrong.csv": "no field",
    }
    assert "--encoding" in found.err
    assert "--text-field" in found.err
    assert found.table["skipped"] == "4"


def test_ten_of_a_reason_are_named_and_all_are_counted(tmp_path, home):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"oops\n" * 1_234 + line("1") + line("2") + b"{}\n")
    found = run("dedup", path, home=home).done()
    assert found.groups == {frozenset("12")}
    assert (found.table["skipped"], found.table["not JSON"], found.table["no field"]) == ("1,235", "1,234", "1")
    messages = skipped(found)
    assert len(messages) == 12
    assert messages[9].startswith(f"skipped {path}:10: not JSON")
    assert messages[11] == "skipped 1,224 more: not JSON"


# Ids


def test_records_with_the_same_id_are_named_by_their_places(tmp_path, home):
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    a.write_bytes(line("x") + line("twice") + line("twice", "something else entirely is written in this line"))
    b.write_bytes(line("twice", "something else entirely is written in this line") + line("y") + line("twice"))
    found = run("dedup", a, b, "--drop-list", tmp_path / "drop", home=home).done()
    names = [[(member["id"], member["kept"]) for member in cluster["members"]] for cluster in found.clusters]
    assert names == [
        [("twice", f"{a}:2"), ("twice", f"{a}:2"), ("x", f"{a}:2"), ("y", f"{a}:2")],
        [("twice", f"{a}:3"), ("twice", f"{a}:3")],
    ]
    assert (tmp_path / "drop").read_text().splitlines() == [f"{b}:3", "x", "y", f"{b}:1"]
    assert found.table["skipped"] == "0"
    assert (
        "ids are not unique: 4 documents in clusters share theirs with another one, such as 'twice'" in found.err
    )
    explained = ["dedup", a, b, "--explain", f"{a}:2"]
    found = run(*explained, "y", home=home).done()
    assert found.lines[-1].endswith(f"{a}:2 is kept; y is dropped in favour of {a}:2 (similarity 1.00)")
    found = run(*explained, "twice", home=home)
    found.failed(2, f"4 documents are called 'twice': name one by its place: {a}:2, {a}:3, {b}:1, {b}:3")


def test_odd_ids(tmp_path, home):
    names = [
        "two\nlines",
        "return\r",
        "n" * 5000,
        "n" * 4999 + "m",
        "nul\0",
        "[bold]",
        "'\"\\",
        "é 文書 🙂",
        " ",
        "%s",
    ]
    path = tmp_path / "a.jsonl"
    numbers = [17, 1.5, True, {"a": [1]}]
    path.write_bytes(b"".join(line(name) for name in [*names, *numbers]))
    found = run("dedup", path, "--drop-list", tmp_path / "drop", home=home).done()
    stored = [name.replace("\0", "\\x00") for name in names] + ["17", "1.5", "true", '{"a": [1]}']
    (members,) = ([member["id"] for member in cluster["members"]] for cluster in found.clusters)
    assert members == sorted(stored)
    # A line end would make two ids of one, and another id may hold the characters that stand for a NUL.
    listed = [name for name in sorted(stored)[1:] if not re.search(r"[\n\r]|\\x00", name)]
    assert (tmp_path / "drop").read_text().split("\n") == [*listed, ""]
    assert found.table["not in the drop list"] == "3"
    run("dedup", path, "--drop-list", tmp_path / "drop", "--null", home=home).done()
    assert (tmp_path / "drop").read_bytes().decode().split("\0") == [
        *(name for name in sorted(stored)[1:] if name != "nul\\x00"),
        "",
    ]
    assert "not in the drop list: return\\r: line end: the name would be more than one line" in found.err


def test_long_and_odd_ids_are_told_apart_in_a_kept_table(tmp_path, database_url):
    names = ["n" * 5000, "n" * 4999 + "m", "two\nlines", "two", "lines", "N", "n", "n ", "nul\0"]
    path = write_lines(tmp_path / "a.jsonl", dict.fromkeys(names, WORDS))
    options = ["--database", database_url, "--table", "kept"]
    first = run("dedup", path, *options).done()
    assert first.clusters[0]["size"] == len(names)
    assert run("dedup", path, *options).done().table["known already"] == str(len(names))


def test_file_names_of_any_kind(tmp_path, home):
    names = [
        b"with space",
        b"two\nlines",
        b"'quotes\"",
        b"\xff\xfe bytes",
        b"[bold]markup[\\bold]",
        b"-option",
        "é文".encode(),
    ]
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text(WORDS)
        Path(os.fsdecode(os.fsencode(folder) + b"/bad " + name)).touch()
    found = run("dedup", folder, "--drop-list", tmp_path / "drop", home=home).done()
    (cluster,) = found.clusters
    # A line end makes two lines, and a backslash in a path may stand for a byte that is not UTF-8.
    listed = [member["id"] for member in cluster["members"][1:] if not re.search(r"[\n\\]", member["id"])]
    assert (tmp_path / "drop").read_text().splitlines() == listed
    shown = {os.path.relpath(member["id"], folder) for member in cluster["members"]}
    assert shown == {name.decode("utf-8", "backslashreplace") for name in names}
    places = [message.removeprefix(f"skipped {folder}/bad ").split(": empty")[0] for message in skipped(found)]
    assert sorted(places) == sorted(
        ["with space", "two\\nlines", "'quotes\"", "\\xff\\xfe bytes", "[bold]markup[\\bold]", "-option", "é文"]
    )


@pytest.mark.parametrize("name", [b"with space", b"two\nlines", b"\xff bytes", b"[red]x"])
def test_arguments_of_any_kind_in_a_process(tmp_path, home, name):
    folder = os.fsencode(tmp_path) + b"/" + name
    Path(os.fsdecode(folder)).mkdir()
    run_apart("dedup", folder, home=home).failed(1, "no documents in ", "found nothing to read")
    run("dedup", folder + b"/missing", home=home).failed(2, "no such file or folder: ")


# Texts


def test_a_text_with_nul_bytes(tmp_path, home):
    (tmp_path / "file.txt").write_bytes(WORDS.encode().replace(b"twelve", b"twelve\0"))
    (tmp_path / "a.jsonl").write_bytes(line("json", WORDS.replace("twelve", "twelve\0")))
    (tmp_path / "a.csv").write_bytes(b"id,text\ncsv," + WORDS.encode().replace(b"twelve", b"twelve\0") + b"\n")
    found = run("dedup", tmp_path, home=home).done()
    assert found.groups == {frozenset({str(tmp_path / "file.txt"), "json", "csv"})}
    assert found.table["skipped"] == "0"


def test_lone_surrogates_in_a_text_and_in_an_id(tmp_path, home):
    path = tmp_path / "a.jsonl"
    path.write_bytes(line("\ud800", WORDS + " \ud800") + line("\udcff", WORDS))
    found = run("dedup", path, home=home).done()
    assert found.groups == {frozenset({"\\ud800", "\\udcff"})}


def test_a_line_of_30_megabytes(tmp_path, home):
    # Long words, which are fewer: what takes time is not the length of the line.
    data = b" ".join(b"%d" % number * 200 for number in range(35_000))
    assert len(data) > 30_000_000
    (tmp_path / "a.jsonl").write_bytes(b'{"id": "json", "text": "' + data + b'"}\n' + line("next"))
    (tmp_path / "b.csv").write_bytes(b"id,text\ncsv," + data + b"\nlast," + WORDS.encode() + b"\n")
    found = run("dedup", tmp_path, home=home).done()
    assert found.groups == {frozenset({"json", "csv"}), frozenset({"next", "last"})}
    assert found.table["skipped"] == "0"


# Nothing at all to compare


def test_an_empty_folder(tmp_path, home):
    run("dedup", tmp_path, home=home).failed(1, f"no documents in {tmp_path}: found nothing to read")


def test_nothing_but_bad_input_says_what_was_wrong_first(tmp_path, home):
    (tmp_path / "a.jsonl").write_text("oops\noops\n")
    (tmp_path / "b").write_bytes(bytes(100))
    found = run("dedup", tmp_path, home=home)
    found.failed(1, "skipped 2 not JSON, 1 binary; the first was ", f"{tmp_path}/a.jsonl:1: ")
    assert "stdin" not in found.err
    table = run("dedup", "-", home=home, stdin=b"id,body\na,some words\n")
    table.failed(
        1, "skipped 2 not JSON; the first was ", "; stdin must be JSON lines, or a table with a column 'text'"
    )


def test_missing_paths_are_named_before_any_work(tmp_path):
    # There is no home either, and nobody notices.
    found = run("dedup", tmp_path, tmp_path / "a", tmp_path / "b")
    found.failed(2, f"no such file or folder: '{tmp_path}/a', '{tmp_path}/b'")


def test_a_kept_table_is_compared_even_when_nothing_new_can_be_read(tmp_path, lines, groups, database_url):
    options = ["--database", database_url, "--table", "kept"]
    run("dedup", lines, *options).done()
    (tmp_path / "empty").mkdir()
    assert run("dedup", tmp_path / "empty", *options).done().groups == groups


# What is known already


def test_texts_that_are_known_are_not_fingerprinted_again(tmp_path, texts, database, database_url):
    options = ["--database", database_url, "--table", "kept"]
    path = write_lines(tmp_path / "a.jsonl", texts)
    run("dedup", path, *options).done()
    # A fingerprint that no text has: it would be overwritten if the text were fingerprinted again.
    mark = to_bigint(0xFEDC_BA98_7654_3210)
    with database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE kept SET fingerprint = {mark} WHERE name = 'alone'")
    texts["ship 2"] = texts["fox"]
    texts["new"] = texts["ship"]
    found = run("dedup", write_lines(path, texts), *options).done()
    with database.connect() as connection:
        kept = connection.exec_driver_sql("SELECT fingerprint FROM kept WHERE name = 'alone'").scalar()
    assert kept == mark
    counts = ("new", "changed", "known already")
    assert [found.table[name] for name in counts] == ["1", "1", "5"]
    assert found.groups == {frozenset({"fox", "fox 2", "fox 3", "ship 2"}), frozenset({"ship", "new"})}


def test_a_changed_text_may_lose_its_words_and_get_them_back(tmp_path, database_url):
    options = ["--database", database_url, "--table", "kept"]
    for text, expected in ((WORDS, [2]), ("...", []), (WORDS, [2])):
        path = write_lines(tmp_path / "a.jsonl", {"1": WORDS, "2": text})
        assert [cluster["size"] for cluster in run("dedup", path, *options).done().clusters] == expected
    assert run("dedup", write_lines(path, {"2": "..."}), *options).done().groups == set()
