"""The main job from the command line: files in, clusters out."""

import csv
import fcntl
import io
import json
import lzma
import os
import pty
import re
import struct
import termios

from program import finish, run, run_apart, run_at_terminal, spawn, write_lines

STAGES = [
    "read and fingerprint",
    "check texts",
    "find clusters",
    "check files",
    "write clusters",
]


def as_json_lines(texts, text_field="text", id_field="id"):
    return "".join(json.dumps({id_field: name, text_field: text}) + "\n" for name, text in texts.items()).encode()


def as_csv(texts, text_field="text", id_field="id"):
    output = io.StringIO()
    csv.writer(output).writerows([(id_field, text_field), *texts.items()])
    return output.getvalue().encode()


# What is read


def test_other_names_of_fields(tmp_path, home, texts, groups):
    for name, convert in (("a.jsonl", as_json_lines), ("a.csv", as_csv)):
        (tmp_path / name).write_bytes(convert(texts, "body", "number"))
        options = ["--text-field", "body", "--id-field", "number"]
        assert run("dedup", tmp_path / name, *options, home=home).done().groups == groups


def test_folders_files_and_standard_input_together(tmp_path, home, texts, groups):
    folder = tmp_path / "folder"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "fox.txt").write_text(texts["fox"])
    (folder / "deep" / "fox").write_text(texts["fox 2"])
    (folder / "deep" / "deeper" / "fox.md.xz").write_bytes(lzma.compress(texts["fox 3"].encode()))
    (folder / "picture.txt").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "ship.txt").write_text(texts["ship"])
    line = as_json_lines({"ship 2": texts["ship 2"]})
    found = run("dedup", folder, tmp_path / "ship.txt", "-", stdin=line, home=home).done()
    assert found.groups == {
        frozenset(map(str, (folder / "fox.txt", folder / "deep/fox", folder / "deep/deeper/fox.md.xz"))),
        frozenset({str(tmp_path / "ship.txt"), "ship 2"}),
    }
    assert found.table["documents"] == "5"
    assert found.table["skipped"] == found.table["binary"] == "1"
    assert "picture" not in found.err  # binary files are counted, and lie in every folder


def test_another_encoding(tmp_path, home):
    text = "Ein Fürst, der Äpfel über alles liebte, ließ im Frühjahr tausend Bäume für sein Schloß setzen"
    (tmp_path / "1.txt").write_bytes(text.encode("latin-1"))
    (tmp_path / "2.txt").write_bytes((text + " und gießen").encode("latin-1"))
    (tmp_path / "3.txt").write_bytes(text.encode("utf-16"))
    found = run("dedup", tmp_path / "1.txt", tmp_path / "2.txt", "--encoding", "latin-1", home=home).done()
    assert len(found.groups) == 1
    (tmp_path / "1.txt").write_text(text, encoding="utf-8")
    (tmp_path / "2.txt").unlink()
    assert len(run("dedup", tmp_path, home=home).done().groups) == 1


def test_standard_input_of_a_process(home, texts, groups):
    found = run_apart("dedup", "-", stdin=as_json_lines(texts), home=home).done()
    assert found.groups == groups
    assert {m["place"] for c in found.clusters for m in c["members"]} == {f"stdin:{n}" for n in range(1, 6)}


def test_large_input_is_fingerprinted_in_processes_with_the_same_result(tmp_path, home):
    # More than two tasks for processes; each text is a copy of another but for one word.
    texts = {f"{n}": f"{'lorem ipsum dolor sit amet ' * 60}{n % 1500} {n % 1500}" * 2 for n in range(3000)}
    path = write_lines(tmp_path / "a.jsonl", texts)
    assert path.stat().st_size > 9_000_000
    found = run("dedup", path, "--distance", "0", "--similarity", "0", home=home).done()
    assert sum(cluster["size"] for cluster in found.clusters) == 3000
    alone = run("fingerprint", path, home=home).done()
    by_fingerprint = {}
    for line in alone.lines:
        fingerprint, name = line.split("\t")
        by_fingerprint.setdefault(fingerprint, set()).add(name)
    assert found.groups == {frozenset(names) for names in by_fingerprint.values()}


# What is written


def test_a_cluster(lines, home):
    (fox, ship) = run("dedup", lines, home=home).done().clusters
    assert (fox["cluster"], fox["size"], ship["cluster"], ship["size"]) == (1, 3, 2, 2)
    # The two texts with the same words are as central as the third, which is longer.
    assert fox["representative"] == "fox 2"
    away = fox["members"][1]["distance"]
    assert 0 < away <= 7
    others = {"similarity": 0.791667, "kept": "fox 2", "kept_distance": away, "kept_similarity": 0.791667}
    itself = {"similarity": 1.0, "kept": "fox 2", "kept_distance": 0, "kept_similarity": 1.0}
    assert fox["members"] == [
        {"id": "fox 2", "place": f"{lines}:2", "distance": 0, **itself, "kind": None, "droppable": False},
        {"id": "fox", "place": f"{lines}:1", "distance": away, **others, "kind": "similar", "droppable": True},
        {"id": "fox 3", "place": f"{lines}:3", "distance": away, **others, "kind": "similar", "droppable": True},
    ]
    assert ship["representative"] == "ship"
    assert [member["distance"] for member in ship["members"]] == [0, 0]


def test_the_summary(lines, tmp_path, home):
    (tmp_path / "bad.jsonl").write_text('{"text": ""}\nnot json\n{"body": "x"}\n{"text": "... !"}\n')
    found = run("dedup", lines, tmp_path / "bad.jsonl", home=home).done()
    wanted = {
        "documents": "7",
        "without words: no fingerprint": "1",
        "skipped": "3",
        "empty": "1",
        "not JSON": "1",
        "no field": "1",
        "clusters": "2",
        "documents in them": "5",
        "documents that could be dropped": "3",
    }
    assert {name: found.table[name] for name in wanted} == wanted
    assert list(found.table)[-6:] == ["seconds", *STAGES]
    assert all(re.fullmatch(r"\d+\.\d\d", found.table[stage]) for stage in STAGES)
    assert float(found.table["seconds"]) >= sum(float(found.table[stage]) for stage in STAGES) - 0.05


def test_the_distance(lines, home, groups):
    exactly = run("dedup", lines, "--distance", "0", "--similarity", "0", home=home).done().groups
    assert exactly == {frozenset({"fox", "fox 3"}), frozenset({"ship", "ship 2"})}
    assert run("dedup", lines, "--distance", "64", home=home).done().groups == groups
    (everything,) = run("dedup", lines, "--distance", "64", "--similarity", "0", home=home).done().clusters
    assert everything["size"] == 6
    assert run("dedup", lines, "--distance", "7", "--similarity", "0", home=home).done().groups == groups


def test_no_clusters_are_no_error(tmp_path, home, texts):
    (tmp_path / "alone.txt").write_text(texts["alone"])
    found = run("dedup", tmp_path, home=home).done()
    assert found.stdout == b""
    assert found.table["clusters"] == found.table["documents that could be dropped"] == "0"


def test_texts_without_words_are_in_no_cluster(tmp_path, home):
    for number in range(3):
        (tmp_path / f"{number}").write_text("... --- ...")
    found = run("dedup", tmp_path, home=home).done()
    assert found.stdout == b""
    assert (found.table["documents"], found.table["without words: no fingerprint"]) == ("3", "3")
    assert f"not compared: {tmp_path / '0'}: no words: " in found.err


def test_two_runs_give_the_same_bytes(tmp_path, home, lines):
    first = run("dedup", lines, home=home).done()
    assert run("dedup", lines, home=home).done().stdout == first.stdout
    assert run("dedup", lines, "--output", tmp_path / "out", home=home).done().stdout == b""
    assert (tmp_path / "out").read_bytes() == first.stdout


def test_the_drop_list_leaves_one_of_each_cluster(tmp_path, home, lines):
    found = run("dedup", lines, "--drop-list", tmp_path / "drop", home=home).done()
    dropped = (tmp_path / "drop").read_text().splitlines()
    members = [[member["id"] for member in cluster["members"]] for cluster in found.clusters]
    assert dropped == [name for names in members for name in names[1:]]
    assert str(len(dropped)) == found.table["documents that could be dropped"]


# Bars and no bars


def test_a_terminal_shows_a_bar_for_each_stage(home, lines, groups):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = spawn("dedup", lines, home=home, stderr=slave, variables={"TERM": "xterm-256color"})
    os.close(slave)
    screen = b""
    while data := read_terminal(master):
        screen += data
    os.close(master)
    found = finish(process)
    assert found.code == 0
    assert found.groups == groups
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.decode())
    for stage in STAGES:
        assert re.search(rf"{stage} +━+ 100% ", shown), stage
    assert re.search(r"clusters +2\b", shown)
    assert "\x1b[?25h" in screen.decode()  # the cursor is back


def read_terminal(descriptor):
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def test_at_a_terminal_the_skips_of_a_reason_share_a_line(tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").touch()
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    (tmp_path / "text.txt").write_text("some words")
    places = [f"{tmp_path}/{number}.txt" for number in range(4)]
    shown = run_at_terminal("dedup", tmp_path, redirected={"stdout"}).terminal
    assert f"skipped 4: empty: {', '.join(places[:3])}, ...: the file is empty\n" in shown
    assert f"skipped {tmp_path}/latin.txt: not utf-8: " in shown
    (tmp_path / "3.txt").unlink()
    shown = run_at_terminal("dedup", tmp_path, redirected={"stdout"}).terminal
    assert f"skipped 3: empty: {', '.join(places[:3])}: the file is empty\n" in shown
    lines = run("dedup", tmp_path).err.splitlines()
    assert lines[:3] == [f"skipped {place}: empty: the file is empty" for place in places[:3]]


def test_without_a_terminal_there_are_no_bars(home, lines):
    found = run_apart("dedup", lines, home=home).done()
    assert "━" not in found.err
    assert "\x1b" not in found.err
    assert "\r" not in found.err
    assert found.err.count("read and fingerprint") == 1  # in the table
