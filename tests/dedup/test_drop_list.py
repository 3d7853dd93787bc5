"""The drop list never names the last copy of a text, whatever has changed since an earlier run."""

# ruff: noqa: N805 - the functions of Files and Records are no methods

import bz2
import gzip
import json
import lzma
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from drop_lists import LIMIT, apply, lost, run, text_about, texts_in
from histories import Histories
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from program import run as command

from simsql.dedup.safety.identity import Identities, read_status
from simsql.documents import Document, DocumentReader

Change = Callable[[Path, Path, str], object]


def relink(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def hard_link(path: Path, target: Path) -> None:
    path.unlink()
    path.hardlink_to(target)


def other(text: str) -> str:
    """A text of the same size that has no word in common."""
    return text.replace("x", "y")


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def rewrite(path: Path, second: str) -> None:
    lines = lines_of(path)
    path.write_text("\n".join([lines[0], second, *lines[2:]]) + "\n")


def as_line(**record: object) -> str:
    return json.dumps(record)


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "white space": lambda data: b" \n\t\n",
    "punctuation": lambda data: b"... --- ...",
    "binary": lambda data: bytes(range(256)) * 9,
    "zeros": lambda data: bytes(5000),
    "PDF": lambda data: b"%PDF-1.7 " + data,
    "program": lambda data: b"\x7fELF" + data,
    "archive": lambda data: data.ljust(257, b" ") + b"ustar" + data,
    "not UTF-8": lambda data: data + b" caf\xe9",
    "UTF-16 without a mark": lambda data: data.decode().encode("utf-16-le"),
    "UTF-32 without a mark": lambda data: data.decode().encode("utf-32-be"),
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "another text in UTF-16": lambda data: other(data.decode()).encode("utf-16"),
    "gzip": gzip.compress,
    "broken gzip": lambda data: b"\x1f\x8b\x08" + data,
    "half of gzip": lambda data: gzip.compress(os.urandom(9) + data)[:40],
    "gzip of another text": lambda data: gzip.compress(other(data.decode()).encode()),
    "gzip twice": lambda data: gzip.compress(gzip.compress(data)),
    "half of xz": lambda data: lzma.compress(data)[:60],
    "broken bzip2": lambda data: bz2.compress(data)[:30] + b"\0" * 30,
    "too large": lambda data: (data + b" ") * (LIMIT // len(data) + 1),
    "too large in gzip": lambda data: gzip.compress((data + b" ") * (LIMIT // len(data) + 1)),
    "another text": lambda data: other(data.decode()).encode(),
    "cut": lambda data: data[: len(data) // 4],
    "continued": lambda data: data + b" " + other(data.decode() * 3).encode(),
    "beginning replaced": lambda data: other(data[: len(data) // 2].decode()).encode() + data[len(data) // 2 :],
    "one word changed": lambda data: data.replace(b"x7 ", b"y7 "),
    "the same": lambda data: data,
}


class Files:
    """What happens to a file that an earlier run has kept, once there is a copy of it."""

    def same_size_and_time(a, b, text):
        before = a.stat()
        a.write_text(other(text))
        os.utime(a, ns=(before.st_atime_ns, before.st_mtime_ns))

    def same_size_and_time_replaced(a, b, text):
        before = a.stat()
        replace(a, other(text).encode())
        os.utime(a, ns=(before.st_atime_ns, before.st_mtime_ns))

    def renamed_to_the_copy_and_written_anew(a, b, text):
        a.rename(b)
        a.write_text(other(text))

    def swapped(a, b, text):
        b.write_text(other(text))
        a.rename(a.with_name("c"))
        b.rename(a)
        a.with_name("c").rename(b)

    def link_over_links(a, b, text):
        a.unlink()
        a.with_name("c.txt").symlink_to("b.txt")
        a.symlink_to("../" + a.parent.name + "/c.txt")

    def pipe(a, b, text):
        a.unlink()
        os.mkfifo(a)

    def socket_of_a_server(a, b, text):
        a.unlink()
        before = Path.cwd()
        os.chdir(a.parent)  # the path may be too long
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(a.name)
        os.chdir(before)

    def folder(a, b, text):
        a.unlink()
        a.mkdir()

    def folder_with_another_text(a, b, text):
        a.unlink()
        a.mkdir()
        (a / "a.txt").write_text(other(text))

    def parent_is_a_link_to_the_copy(a, b, text):
        target = a.parent.with_name(a.parent.name + " target")
        target.mkdir()
        b.rename(target / "a.txt")
        shutil.rmtree(a.parent)
        a.parent.symlink_to(target.name)

    def parent_is_a_file(a, b, text):
        target = a.parent.with_name(a.parent.name + " target")
        target.mkdir()
        b.rename(target / "b.txt")
        shutil.rmtree(a.parent)
        a.parent.write_text(other(text))

    def parents_swapped(a, b, text):
        target = a.parent.with_name(a.parent.name + " target")
        target.mkdir()
        b.rename(target / "a.txt")
        a.write_text(other(text))


FILES: dict[str, Change] = {
    "removed": lambda a, b, text: a.unlink(),
    "moved_out": lambda a, b, text: a.rename(a.parents[2] / f"moved {a.parent.name}"),
    "renamed": lambda a, b, text: a.rename(a.with_name("c.txt")),
    "renamed_to_the_copy": lambda a, b, text: a.rename(b),
    "link_to_the_copy": lambda a, b, text: relink(a, "b.txt"),
    "hard_link_of_the_copy": lambda a, b, text: hard_link(a, b),
    "copy_is_a_hard_link": lambda a, b, text: hard_link(b, a),
    "copy_is_a_link": lambda a, b, text: relink(b, "a.txt"),
    "dangling_link": lambda a, b, text: relink(a, "nothing"),
    "link_to_itself": lambda a, b, text: relink(a, "a.txt"),
    "link_to_a_device": lambda a, b, text: relink(a, "/dev/null"),
    "closed": lambda a, b, text: a.chmod(0),
    "parent_renamed": lambda a, b, text: a.parent.rename(a.parent.with_name(a.parent.name + " renamed")),
    **{name: change for name, change in vars(Files).items() if not name.startswith("_")},
}
for name, content in CONTENTS.items():
    FILES[name] = lambda a, b, text, content=content: a.write_bytes(content(text.encode()))
    FILES[f"{name}, replaced"] = lambda a, b, text, content=content: replace(a, content(text.encode()))


LINES: dict[str, Callable[[str, str], str]] = {
    "line cut": lambda line, text: line[:-9],
    "text null": lambda line, text: as_line(id="r", text=None),
    "text a number": lambda line, text: as_line(id="r", text=7),
    "text empty": lambda line, text: as_line(id="r", text=" "),
    "text without words": lambda line, text: as_line(id="r", text="--"),
    "text of another": lambda line, text: as_line(id="r", text=other(text)),
    "no text": lambda line, text: as_line(id="r"),
    "another field": lambda line, text: as_line(id="r", body=text),
    "array": lambda line, text: f"[{line}]",
    "blank": lambda line, text: "",
    "not JSON": lambda line, text: "oops",
    "too large": lambda line, text: as_line(id="r", text=text, more="x" * LIMIT),
    "another id": lambda line, text: as_line(id="other " + line[:30], text=text),
    "id null": lambda line, text: as_line(id=None, text=text),
    "the same line": lambda line, text: line,
}


class Records:
    """What happens to the second record of a file of three."""

    def line_not_utf_8(a, b, text):
        lines = a.read_bytes().split(b"\n")
        lines[1] = lines[1].replace(b"x1 ", b"x1 \xe9 ")
        a.write_bytes(b"\n".join(lines))

    def record_deleted(a, b, text):
        lines = lines_of(a)
        a.write_text(f"{lines[0]}\n{lines[2]}\n")

    def record_moved(a, b, text):
        lines = lines_of(a)
        a.write_text(f"{lines[1]}\n{lines[0]}\n{lines[2]}\n")

    def record_moved_up_and_another_in_its_line(a, b, text):
        lines = lines_of(a)
        a.write_text(f"{lines[1]}\n{as_line(id='s', text=other(text))}\n")

    def texts_swapped(a, b, text):
        one, two, three = (json.loads(line) for line in lines_of(a))
        two["text"], three["text"] = three["text"], two["text"]
        a.write_text("\n".join(json.dumps(record) for record in (one, two, three)) + "\n")

    def ids_swapped_and_text_gone(a, b, text):
        one, two, three = (json.loads(line) for line in lines_of(a))
        two["id"], three["id"] = three["id"], two["id"]
        two["text"] = other(text)
        a.write_text("\n".join(json.dumps(record) for record in (one, two, three)) + "\n")

    def id_given_again_before(a, b, text):
        lines = lines_of(a)
        again = as_line(id=json.loads(lines[1])["id"], text=other(text))
        a.write_text("\n".join([again, *lines]) + "\n")

    def id_given_again_without_it(a, b, text):
        lines = lines_of(a)
        again = as_line(id=json.loads(lines[1])["id"], text=other(text))
        a.write_text("\n".join([lines[0], again, lines[2]]) + "\n")

    def id_in_another_file(a, b, text):
        identity = json.loads(lines_of(a)[1])["id"]
        a.with_name("again.jsonl").write_text(as_line(id=identity, text=other(text)) + "\n")

    def id_in_an_earlier_file_and_record_gone(a, b, text):
        identity = json.loads(lines_of(a)[1])["id"]
        rewrite(a, "")
        a.with_name("0.jsonl").write_text(as_line(id=identity, text=other(text)) + "\n")

    def id_is_the_place_of_another(a, b, text):
        a.with_name("more.jsonl").write_text(as_line(id=f"{b}:1", text=other(text)) + "\n")

    def compressed(a, b, text):
        a.with_name(a.name + ".gz").write_bytes(gzip.compress(a.read_bytes()))
        a.unlink()

    def compressed_without_it(a, b, text):
        rewrite(a, "")
        a.with_name(a.name + ".xz").write_bytes(lzma.compress(a.read_bytes()))
        a.unlink()

    def file_renamed_and_record_gone(a, b, text):
        rewrite(a, "")
        a.rename(a.with_name("r.jsonl"))


RECORDS: dict[str, Change] = {
    "id_is_the_path_of_the_copy": lambda a, b, text: rewrite(a, as_line(id=str(b), text=text)),
    "file_renamed": lambda a, b, text: a.rename(a.with_name("r.jsonl")),
    "file_is_one_text": lambda a, b, text: a.rename(a.with_name("r.txt")),
    "file_is_a_table": lambda a, b, text: replace(a, b"id,text\n1,2\n"),
    "record_given_to_the_copy": lambda a, b, text: rewrite(a, ""),
    "all_records_alike": lambda a, b, text: a.write_text(lines_of(a)[1] + "\n" + lines_of(a)[1] + "\n"),
    **{name: change for name, change in vars(Records).items() if not name.startswith("_")},
}
for name, line in LINES.items():
    RECORDS[name] = lambda a, b, text, line=line: rewrite(a, line(lines_of(a)[1], text))
for name in (*CONTENTS, *FILES):
    if name in ("removed", "link_to_the_copy", "hard_link_of_the_copy", "pipe", "folder", "dangling_link"):
        RECORDS[name] = FILES[name]
    if name in ("emptied", "binary", "zeros", "broken gzip", "half of gzip", "half of xz"):
        RECORDS[f"file {name}"] = FILES[name]


def cases(folder: Path) -> dict[str, tuple[Path, Path, str, Change]]:
    """Make the folders of all cases; return the file that changes, its copy, the text and the change of each."""
    made = {}
    for number, (name, change) in enumerate(FILES.items()):
        case = folder / f"file {number}"
        case.mkdir(parents=True)
        text = text_about(f"f{number}")
        (case / "a.txt").write_text(text)
        made[f"file: {name}"] = case / "a.txt", case / "b.txt", text, change
    for kind in ("b.txt", "b.jsonl"):
        for number, (name, change) in enumerate(RECORDS.items()):
            subject = f"{kind[2]}{number}"
            case = folder / f"records {subject}"
            case.mkdir()
            texts = [text_about(f"first{subject}"), text_about(subject), text_about(f"last{subject}")]
            lines = [as_line(id=f"{subject} {line}", text=text) for line, text in enumerate(texts)]
            (case / "a.jsonl").write_text("\n".join(lines) + "\n")
            made[f"record, copied to {kind}: {name}"] = case / "a.jsonl", case / kind, texts[1], change
    return made


def write_copy(b: Path, text: str) -> None:
    b.write_text(text if b.suffix == ".txt" else as_line(id=f"copy of {text[:8]}", text=text) + "\n")


def make_copies(made: dict[str, tuple[Path, Path, str, Change]]) -> list[Path]:
    """Copy each text, and change the file that had it. Return the copies."""
    for a, b, text, change in made.values():
        write_copy(b, text)
        change(a, b, text)
    return [b for _, b, _, _ in made.values()]


@pytest.mark.parametrize("second", ["all", "copies"])
def test_a_text_that_a_later_run_cannot_read_is_not_kept(newest, tmp_path, monkeypatch, second):
    """The later run gets everything, from another folder, or only the copies."""
    root = tmp_path / "in"
    made = cases(root)
    assert len(made) > 60
    monkeypatch.chdir(tmp_path)
    assert run(newest[1], "kept", ["in"], root) == []
    copies = make_copies(made)
    monkeypatch.chdir(root)
    paths = ["."] if second == "all" else [path for path in copies if path.is_file()]
    before = texts_in(root)
    dropped = run(newest[1], "kept", paths, root)
    assert dropped, "nothing is tested"
    apply(dropped, paths)
    failed = lost(before, texts_in(root))
    names = {text: name for name, (_, _, text, _) in made.items()}
    assert sorted(names.get(text, text) for text in failed) == []


def test_a_text_that_changes_during_a_run_is_not_kept(newest, tmp_path):
    """After it has been read, and before the list is written."""
    root = tmp_path / "in"
    made = cases(root)
    there = set()

    def change():
        for a, b, text, change in made.values():
            change(a, b, text)
        there.update(texts_in(root))

    for _, b, text, _ in made.values():
        write_copy(b, text)
    dropped = run(newest[1], "kept", [root], root, change)
    assert dropped, "nothing is tested"
    apply(dropped, [root])
    names = {text: name for name, (_, _, text, _) in made.items()}
    assert sorted(names.get(text, text) for text in lost(there, texts_in(root))) == []


def test_what_an_earlier_run_read_from_standard_input(newest, tmp_path, home):
    """It cannot be read again: decisions stay, but nothing is listed in its favour."""
    text, other_text = text_about("one"), text_about("two")
    options = ["--database", newest[1], "--table", "kept", "--drop-list", tmp_path / "drop"]

    def dedup(*paths, lines=()):
        data = "".join(as_line(id=identity, text=text) + "\n" for identity, text in lines).encode()
        found = command("dedup", *paths, *options, stdin=data).done()
        return found, (tmp_path / "drop").read_text().splitlines()

    found, dropped = dedup("-", lines=[("k", text), ("l", other_text), (None, text), ("k", text)])
    assert dropped == ["stdin:4", "stdin:3"]
    (tmp_path / "a.txt").write_text(text)
    found, dropped = dedup(tmp_path / "a.txt")
    assert dropped == []
    # The same stream is the same documents, and a file is better than a stream that has ended.
    found, dropped = dedup("-", lines=[("k", text), ("l", other_text), (None, text), ("k", text)])
    assert (found.table["new"], found.table["known already"]) == ("0", "4")
    # Another stream holds other documents in the same lines.
    found, dropped = dedup("-", lines=[("k", other_text), ("m", text)])
    assert (found.table["new"], found.table["changed"]) == ("2", "0")
    assert found.table["documents in the table"] == "7"


def test_a_kept_file_that_this_run_overwrites_is_not_kept(newest, tmp_path):
    text = text_about("one")
    a, b, drop = (tmp_path / name for name in ("a.txt", "b.txt", "drop"))
    options = ["--database", newest[1], "--table", "kept"]
    for path in (a, b):
        path.write_text(text)
    command("dedup", a, *options).done()
    command("dedup", b, "--output", a, "--drop-list", drop, *options).done()
    assert drop.read_text() == a.read_text() == ""


def test_links_to_one_file_are_not_dropped(tmp_path):
    text = text_about("one")
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").hardlink_to(tmp_path / "a.txt")
    (tmp_path / "a.jsonl").write_text(as_line(text=text) + "\n" + as_line(text=text) + "\n")
    (tmp_path / "b.jsonl").hardlink_to(tmp_path / "a.jsonl")
    drop = tmp_path / "drop"
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    found = command("dedup", *paths, "--drop-list", drop).done()
    assert drop.read_text() == ""
    assert found.table["documents that could be dropped"] == "0"
    assert found.table["same file"] == "1"
    assert f"not droppable: {paths[1]}: same file: {paths[0]}, which is kept" in found.err
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    command("dedup", *paths, "--drop-list", drop).done()
    assert drop.read_text().splitlines() == [f"{paths[0]}:2", f"{paths[1]}:2"]


def test_a_kept_file_is_not_one_whose_records_are_dropped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [text_about(f"topic {number}") for number in range(3)]
    for number, text in enumerate(texts):
        Path(f"a{number}.txt").write_text(text)
    Path("c.jsonl").write_text("".join(as_line(text=text) + "\n" for text in texts))
    Path("c_text.txt").hardlink_to("c.jsonl")
    shutil.copy("c.jsonl", "x.txt")
    found = command("dedup", ".", "--keep", "first", "--drop-list", "drop").done()
    assert lines_of(Path("drop")) == [f"c.jsonl:{line}" for line in (1, 2, 3)]
    assert "x.txt: same file: c_text.txt, which is kept in its favour, is also read as records" in found.err


def test_a_name_that_is_also_the_place_of_another_document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = text_about("one"), text_about("two")
    Path("t.csv").write_text(f"id,text\n1,{one}\n1,{two}\nt.csv:2,{two}\n")
    command("dedup", "t.csv", "--drop-list", "drop").done()
    assert Path("drop").read_text() == "t.csv:4\n"
    Path("0.txt").write_text(two)
    Path("a.jsonl:1").write_text(two)
    Path("a.jsonl").write_text(as_line(id="k", text=one) + "\n")
    paths = "0.txt", "a.jsonl", "./a.jsonl:1"
    found = command("dedup", *paths, "--drop-list", "drop").done()
    assert Path("drop").read_text() == ""
    assert "a.jsonl:1: place and path: the path of this file" in found.err


def test_a_file_whose_name_looks_like_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("+a.txt", "-rf"):
        Path(name).write_text(text_about("one"))
    command("dedup", "./+a.txt", "./-rf", "--drop-list", "drop", "--null").done()
    assert Path("drop").read_text() == "./-rf\0"


def test_a_file_that_takes_the_name_of_the_one_that_is_read(tmp_path):
    """The status is that of the file whose texts were read."""
    path = tmp_path / "a.jsonl"
    path.write_text(as_line(text="one") + "\n")
    status = read_status(path)
    identities = Identities()
    for item in DocumentReader([path]):
        (tmp_path / "new").write_text(as_line(text="two") + "\n")
        (tmp_path / "new").replace(path)
        assert isinstance(item, Document)
        identities.identify(item)
    assert identities.status == status
    assert read_status(path) != status


def test_histories(newest, tmp_path):
    """For more of them: python tests/generators/drops.py --examples 1000."""

    class Here(Histories):
        url, parent = newest[1], tmp_path

    run_state_machine_as_test(
        Here, settings=settings(max_examples=10, stateful_step_count=12, deadline=None, derandomize=True)
    )
    assert Here.runs > 10
    assert Here.dropped > 10


@pytest.mark.parametrize("kept", [False, True])
def test_a_list_for_xargs_removes_files_whatever_bytes_are_in_their_names(newest, tmp_path, monkeypatch, kept):
    monkeypatch.chdir(tmp_path)
    names = [
        b"caf\xe9",
        rb"caf\xe9 not",
        rb"a\xe9 " + b"\xe8",
        rb"a\b",
        b"\n\\\xff\r",
        b"-\xc3",
        b"\\x41",
        "é".encode(),
    ]
    for number, name in enumerate(names):
        Path(f"{number}").write_text(text_about(f"t{number}"))
        Path(os.fsdecode(name)).write_text(text_about(f"t{number}"))
    # A file and a link that have the same name in the output: nobody knows which of them is meant.
    Path(os.fsdecode(b"l\xe9")).write_text(text_about("link"))
    Path("9").write_text(text_about("link"))
    Path(r"l\xe9").symlink_to(os.fsdecode(b"l\xe9"))
    before = set(map(os.fsencode, Path().iterdir()))
    options = ["--keep", "first", "--drop-list", tmp_path / "drop", "--null", "--report", tmp_path / "page.html"]
    paths = [*map(str, range(10)), *(f"./{os.fsdecode(name)}" for name in names), r"l\xe9", os.fsdecode(b"l\xe9")]
    paths.remove("8")
    if kept:
        options += ["--database", newest[1], "--table", "kept"]
    found = command("dedup", *paths, *options).done()
    assert found.table["documents that could be dropped"] == "8"
    mixed = names.pop(2)  # a byte and a backslash: it is not found again
    listed = Path("drop").read_bytes().split(b"\0")[:-1]
    assert sorted(map(os.path.normpath, listed)) == sorted(names)
    (tmp_path / "page.html").read_text()
    subprocess.run("xargs -0 -r rm -- < drop", shell=True, check=True)
    after = set(map(os.fsencode, Path().iterdir()))
    assert before - after == set(names)
    assert mixed in after
