"""`--clean` writes the input without the records to drop, and everything else byte for byte."""

import csv
import gzip
import io
import json
import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from drop_lists import lost
from program import run, write_lines
from pyarrow import parquet as pq
from reading import COMPRESSORS, DECOMPRESSORS, write
from stages import Stages

from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.sinks.clusters import ClusterOutput
from simsql.documents import Document, DocumentReader
from simsql.errors import SimsqlError


def clean(paths, target, stages=None, **output):
    """Run in this process, and return the places of the records to drop."""
    clusters = target.with_name("clusters")
    run_dedup(
        DedupOptions([str(path) for path in paths], output=ClusterOutput(clusters, clean=target, **output)),
        stages or Stages(),
    )
    members = [member for line in clusters.read_text().split("\n")[:-1] for member in json.loads(line)["members"]]
    return {member["place"] for member in members if member["droppable"]}


def assert_clean(path, copied, dropped):
    """A file of JSON lines has been copied as it is, but for these places."""
    lines = path.read_bytes().splitlines(keepends=True)
    stay = [line for number, line in enumerate(lines, 1) if f"{path}:{number}" not in dropped]
    assert copied.read_bytes() == b"".join(stay)


def texts_of(folder):
    """All texts in the records of a folder."""
    lines = [line for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    return {json.loads(line)["text"] for line in lines}


def test_a_folder_becomes_a_folder_of_the_same_shape(tmp_path, texts):
    """With every format and compression, each copied without its records to drop."""
    rows = [{"id": id_, "text": text} for id_, text in texts.items()]
    table = io.StringIO(newline="")
    csv.writer(table).writerows([["id", "text"], *texts.items()])
    for name, data in {
        "a.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "sub/a.json": json.dumps(rows),
        "sub/deep/c d.csv": table.getvalue(),
    }.items():
        for ending, pack in COMPRESSORS.items():
            write(tmp_path / "in" / (name + ending), pack(data.encode()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in/b.parquet")
    dropped = clean([tmp_path / "in"], tmp_path / "out")
    read = sorted(path.relative_to(tmp_path / "in") for path in (tmp_path / "in").rglob("*.*"))
    assert sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.*")) == read
    found = [item for item in DocumentReader([tmp_path / "out"]) if isinstance(item, Document)]
    left = [item for item in found if item.line]  # an array without records is a text
    assert len(left) == len(read) * len(texts) - len(dropped)
    assert lost(set(texts.values()), {item.text for item in left}) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clusters", "in", "out"]


@pytest.fixture
def folder(tmp_path, texts, monkeypatch):
    """The current folder, with two files that have the same ids."""
    write_lines(tmp_path / "a.jsonl", texts)
    (tmp_path / "sub").mkdir()
    write_lines(tmp_path / "sub/b.jsonl", texts)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_summary_and_standard_streams(folder):
    found = run("dedup", "a.jsonl", "--clean", "clean.jsonl", "--output", "clusters").done()
    assert found.table["left out of the clean corpus"] == found.table["documents that could be dropped"] == "3"
    expected = (folder / "clean.jsonl").read_bytes()
    assert [json.loads(line)["id"] for line in expected.splitlines()] == ["fox 2", "ship", "alone"]
    data = (folder / "a.jsonl").read_bytes()
    for ending, pack in COMPRESSORS.items():
        through = run("dedup", "-", "--clean", "-", "--output", "clusters", stdin=pack(data)).done()
        assert DECOMPRESSORS[ending](through.stdout) == expected
    run("dedup", "a.jsonl", "--clean", "-").failed(2, "--output and --clean both write to standard output")
    # An existing file is replaced.
    run("dedup", "a.jsonl", "--clean", "clean.jsonl", "--output", "clusters").done()
    assert (folder / "clean.jsonl").read_bytes() == expected


@pytest.mark.parametrize(
    ("arguments", "copied"),
    [
        (["a.jsonl", "sub"], ["a.jsonl", "sub/b.jsonl"]),
        (["sub/b.jsonl", "a.jsonl"], ["a.jsonl", "sub/b.jsonl"]),
        (["sub", "sub/b.jsonl"], ["b.jsonl"]),
        (["a.jsonl", "link.jsonl"], ["a.jsonl"]),
        (["sub/../link.jsonl", "a.jsonl"], ["link.jsonl"]),
        (["a.jsonl", "hard.jsonl"], ["a.jsonl", "hard.jsonl"]),
        (["a.jsonl", "link to folder"], ["a.jsonl", "link to folder/b.jsonl"]),
    ],
)
def test_names_in_the_folder(folder, arguments, copied):
    (folder / "link.jsonl").symlink_to("a.jsonl")
    (folder / "link to folder").symlink_to("sub")
    (folder / "hard.jsonl").hardlink_to("a.jsonl")
    out = folder / "new/out"
    out.mkdir(parents=True)  # an empty folder is replaced
    dropped = clean(arguments, out)
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.*")) == copied
    assert not lost(texts_of(folder / "sub"), texts_of(out))
    for name in copied:
        named = [argument for argument in arguments if Path(argument).name == name]
        path = next(Path(found) for found in (*named, f"sub/{name}", name) if Path(found).exists())
        assert_clean(path, out / name, dropped)


def test_what_cannot_be_copied_is_refused_before_it_is_compared(folder):
    (folder / "sub/page.txt").write_text("A page that is one document")
    (folder / "pages").mkdir()
    for number in range(30):
        (folder / f"pages/{number}.txt").write_text("One page")
    write_lines(folder / "pages/a.jsonl", {"1": "one text"})
    (folder / "full").mkdir()
    (folder / "full/file").touch()
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress((folder / "a.jsonl").read_bytes())[:-20])
    write_lines(folder / "line\n.jsonl", {"1": "one text"})
    write_lines(folder / "line\\n.jsonl", {"1": "one text"})
    os.mkfifo(folder / "pipe")
    for arguments, target, said in [
        (["sub"], "out", "and not sub/page.txt (one document): leave out"),
        (["pages"], "out", "(one document), pages/17.txt (one document) and 20 more: leave out other files"),
        (["sub/page.txt"], "out", "found none: list files to remove with --drop-list"),
        (["a.jsonl", "sub/b.jsonl"], "full", "full is not empty"),
        (["a.jsonl", "sub/b.jsonl"], "-", "would be one file"),
        (["a.jsonl", "sub/b.jsonl"], "full/file", "would be one file"),
        (["a.jsonl", "sub/b.jsonl"], "missing/out", "missing is not a folder"),
        (["a.jsonl", "sub"], "sub/out", "is inside"),
        (["a.jsonl", "sub"], "sub", "is not empty"),
        (["a.jsonl"], "sub", "sub is a folder"),
        (["a.jsonl"], "a.jsonl", "--clean is the same file as a.jsonl, which is read"),
        (["a.jsonl"], "clean.csv", "choose a name with the same ending"),
        (["a.jsonl"], "clean.jsonl.gz", "choose a name with the same ending"),
        (["a.jsonl", "-"], "out", "standard input alone"),
        (["pipe"], "out", "which a pipe does not allow"),
        (["line\n.jsonl", "line\\n.jsonl"], "out", "cannot tell two files"),
        (["a.jsonl", "--explain", "1", "2"], "out", "leave out"),
        (["a.jsonl", "sub/b.jsonl", "--report", "empty/report"], "empty", "is inside"),
    ]:
        (folder / "empty").mkdir(exist_ok=True)
        before = sorted(folder.rglob("*"))
        run("dedup", *arguments, "--output", "clusters", "--clean", target).failed(2, said)
        assert sorted(folder.rglob("*")) == before
    run("dedup", "cut.jsonl.gz", "-o", "clusters", "--clean", "new.jsonl.gz").failed(
        2, "not cut.jsonl.gz (the compressed data is damaged"
    )


CHANGES = {
    "another text": lambda path: path.write_text(path.read_text().replace("fox", "cat")),
    "a line more": lambda path: path.write_text(path.read_text() + "\n"),
    "the same again": lambda path: path.write_text(path.read_text()),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("stage", ["find", "write"])
@pytest.mark.parametrize("paths", [["a.jsonl"], ["a.jsonl", "sub"]])
def test_a_file_that_changes_is_not_copied(folder, change, stage, paths):
    changes = iter([CHANGES[change]])

    def once():
        next(changes, lambda _: None)(Path("a.jsonl"))

    with pytest.raises(SimsqlError, match=r"a\.jsonl has changed since this run read it"):
        clean(paths, folder / "out.jsonl", Stages(**{stage: once}), report=folder / "report")
    assert {path.name for path in folder.iterdir()} <= {"a.jsonl", "sub"}


def test_files_in_guessed_encodings(folder):
    text = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему."
    data = "".join(f'{{"id": {n}, "text": "{text if n < 3 else n}"}}\n' for n in range(6)).encode("cp1251")
    (folder / "r.jsonl").write_bytes(data)
    (folder / "k.txt").write_bytes(text.encode("koi8-r"))
    (folder / "u.txt").write_text(text)
    (folder / "z.txt").write_bytes(text.encode("cp866"))
    found = run("dedup", "r.jsonl", "k.txt", "u.txt", "--encoding", "detect", "--keep", "first").done()
    assert "files with a guessed encoding: 1 as cp1251, 1 as koi8_r" in found.err
    assert found.table["documents that could be dropped"] == "4"
    found = run("dedup", "r.jsonl", "--encoding", "detect", "--clean", "c.jsonl", "--drop-list", "drop").done()
    dropped = (folder / "drop").read_text().split()
    rest = [
        line for line in data.splitlines(keepends=True) if not any(b"%s," % n.encode() in line for n in dropped)
    ]
    assert len(dropped) == 2
    assert (folder / "c.jsonl").read_bytes() == b"".join(rest)
    found = run("dedup", "u.txt", "z.txt", "--encoding", "detect")
    assert (found.code, found.table["not utf-8"]) == (1, "1")


class Interrupted(Stages):
    """Stages in which the copying is interrupted, in the middle of a file."""

    @contextmanager
    def stage(self, name, total=None, *, shown=True):
        def report(done):
            raise KeyboardInterrupt

        yield report if name == "write clean corpus" else lambda done: None


@contextmanager
def full_disk(size):
    """No file can be longer."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("paths", [["a.jsonl"], ["a.jsonl", "sub"], ["sub/c.jsonl.gz"]])
def test_nothing_half_written_stays(folder, paths):
    with (folder / "a.jsonl").open("a") as file:
        file.write(" " * 200_000 + "\n")
    (folder / "sub/c.jsonl.gz").write_bytes(
        gzip.compress((folder / "a.jsonl").read_bytes() + os.urandom(200_000) + b"\n")
    )
    target = folder / ("out" + "".join(Path(paths[-1]).suffixes))
    before = sorted(folder.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        clean(paths, target, Interrupted())
    assert sorted(folder.rglob("*")) == before
    with full_disk(100_000), pytest.raises(SimsqlError, match=r"out.* cannot be written: File too large"):
        clean(paths, target)
    assert sorted(folder.rglob("*")) == before
    clean(paths, target)
    run("dedup", "a.jsonl", "-o", "clusters", "--clean", "/dev/full").failed(1, "/dev/full cannot be written")
