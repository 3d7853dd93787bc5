"""The drop list never names the last copy of a text, whatever changes during the run."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from drop_lists import apply, lost, run, text_about, texts_in
from histories import Histories
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from program import run as command


def test_histories(tmp_path):
    """For more of them: python tests/generators/drops.py --examples 1000."""

    class Here(Histories):
        parent = tmp_path

    run_state_machine_as_test(
        Here, settings=settings(max_examples=25, stateful_step_count=12, deadline=None, derandomize=True)
    )
    assert Here.runs > 25
    assert Here.dropped > 25


def as_line(**record: object) -> str:
    return json.dumps(record)


def other(text: str) -> str:
    """A text of the same size that has no word in common."""
    return text.replace("x", "y")


def replace(path: Path, text: str) -> None:
    (path.parent / "new").write_text(text)
    (path.parent / "new").replace(path)


def keep_times(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def relink(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def hard_link(path: Path, target: Path) -> None:
    path.unlink()
    path.hardlink_to(target)


CHANGES: dict[str, Callable[[Path, Path, str], object]] = {
    "another text": lambda a, b, text: a.write_text(other(text)),
    "same size and time": lambda a, b, text: keep_times(a, other(text)),
    "replaced": lambda a, b, text: replace(a, other(text)),
    "removed": lambda a, b, text: a.unlink(),
    "renamed to the copy": lambda a, b, text: a.rename(b),
    "link to the copy": lambda a, b, text: relink(a, b.name),
    "hard link of the copy": lambda a, b, text: hard_link(a, b),
    "copy is a hard link": lambda a, b, text: hard_link(b, a),
    "copy is a link": lambda a, b, text: relink(b, a.name),
    "a folder": lambda a, b, text: (a.unlink(), a.mkdir()),
    "a pipe": lambda a, b, text: (a.unlink(), os.mkfifo(a)),
    "closed": lambda a, b, text: a.chmod(0),
    "folder renamed": lambda a, b, text: a.parent.rename(a.parent.with_name(f"{a.parent.name} renamed")),
}


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_a_text_that_changes_during_a_run_is_not_kept(tmp_path, kind):
    """After it has been read, and before the list is written."""
    root = tmp_path / "in"
    made = []
    for number, name in enumerate(CHANGES):
        text, folder = text_about(f"f{number}"), root / str(number)
        folder.mkdir(parents=True)
        for file in ("a", "b"):
            content = text if kind == "txt" else as_line(id=file, text=text) + "\n"
            (folder / f"{file}.{kind}").write_text(content)
            (folder / f"same {file}.txt").write_text(text_about(f"same {number}"))
        made.append((name, folder / f"a.{kind}", folder / f"b.{kind}", text))
    there = set()

    def change():
        for name, a, b, text in made:
            CHANGES[name](a, b, text if kind == "txt" else a.read_text())
        there.update(texts_in(root))

    dropped = run([root], root, change)
    apply(dropped, [root])
    assert len(dropped) >= len(CHANGES) - 1, "those that stay the same are dropped"
    assert lost(there, texts_in(root)) == []


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
    # A broken line first, so that the other name is not refused as one of records.
    Path("c.jsonl").write_text("-\n" + "".join(as_line(text=text) + "\n" for text in texts))
    Path("c_text.txt").hardlink_to("c.jsonl")
    shutil.copy("c.jsonl", "x.txt")
    found = command("dedup", ".", "--keep", "first", "--drop-list", "drop").done()
    assert Path("drop").read_text().splitlines() == [f"c.jsonl:{line}" for line in (2, 3, 4)]
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
    assert "a.jsonl:1: several documents: another document is called so, too" in found.err


def test_a_file_whose_name_looks_like_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("+a.txt", "-rf"):
        Path(name).write_text(text_about("one"))
    command("dedup", "./+a.txt", "./-rf", "--drop-list", "drop", "--null").done()
    assert Path("drop").read_text() == "./-rf\0"


@pytest.mark.parametrize("null", [False, True])
def test_a_list_for_xargs_removes_files_whatever_bytes_are_in_their_names(tmp_path, monkeypatch, null):
    monkeypatch.chdir(tmp_path)
    names = [b"caf\xe9", rb"caf\xe9 not", rb"a\xe9 " + b"\xe8", rb"a\b", b"-\xc3", b"\\x41", "é".encode()]
    names += [b"\n\\\xff\r"] if null else []
    for number, name in enumerate(names):
        Path(f"{number}").write_text(text_about(f"t{number}"))
        Path(os.fsdecode(name)).write_text(text_about(f"t{number}"))
    before = set(map(os.fsencode, Path().iterdir()))
    options = ["--keep", "first", "--drop-list", tmp_path / "drop", "--report", tmp_path / "page.html"]
    paths = [*map(str, range(len(names))), *(f"./{os.fsdecode(name)}" for name in names)]
    command("dedup", *paths, *options, *(["--null"] if null else [])).done()
    (tmp_path / "page.html").read_text()
    separator = "-0" if null else "-d '\\n'"
    subprocess.run(f"xargs {separator} -r rm -- < drop", shell=True, check=True)
    assert before - set(map(os.fsencode, Path().iterdir())) == set(names)
