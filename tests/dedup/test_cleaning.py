"""`--clean` writes the input without the records to drop, and everything else byte for byte."""

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import re
import resource
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from drop_lists import lost, text_about
from hypothesis import given, settings
from hypothesis import strategies as st
from program import run, write_lines
from pyarrow import parquet as pq
from stages import Stages

from simsql.dedup.job import DedupOptions, run_dedup
from simsql.dedup.sinks.clusters import ClusterOutput
from simsql.documents.compression import zstd
from simsql.errors import SimsqlError

PACKED = {
    "": (bytes, bytes),
    ".gz": (gzip.compress, gzip.decompress),
    ".zst": (zstd.compress, zstd.decompress),
    ".bz2": (bz2.compress, bz2.decompress),
    ".xz": (lzma.compress, lzma.decompress),
}
PAGE = Path(__file__).parents[2] / "docs/guides/clean-a-corpus.md"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
csv.field_size_limit(1 << 30)


# What an independent program does, with Python's csv and all of a file in memory.


def pieces_of(ending, data, encoding="utf-8"):
    """The records of a file with their line ends, b"" for lines in which none begins."""
    text = data.decode(encoding, "surrogateescape")
    if ending not in DELIMITERS:
        return [line.encode(encoding, "surrogateescape") for line in io.StringIO(text, newline="\n")]
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(iter(lines), delimiter=DELIMITERS[ending], strict=True)
    found = []
    while (begin := reader.line_num) < len(lines):
        with suppress(csv.Error):
            next(reader)
        found.append("".join(lines[begin : reader.line_num]).encode(encoding, "surrogateescape"))
        found += [b""] * (reader.line_num - begin - 1)
    return found


def without(pieces, removed):
    return b"".join(piece for number, piece in enumerate(pieces, 1) if number not in removed)


FAMILIES = [text_about(subject, 14).split() for subject in ("fish", "bird", "stone")]
TEXTS = st.builds(
    lambda family, changed, end: " ".join([*family[:changed], "other", *family[changed + 1 :], end]),
    st.sampled_from(FAMILIES),
    st.integers(0, 13),
    st.sampled_from(["", "", "é", "语", '"', "\n", "\r\n", ",", "\t"]),
)
RECORDS = st.lists(st.tuples(st.sampled_from(["", "1", "2", "a.jsonl:1"]), TEXTS), min_size=1, max_size=6)
NOISE = st.sampled_from(["", " ", "{", '{"id": 1}', "[1]"])


@st.composite
def files(draw):
    """A file of records: its ending, and its content before compression."""
    ending = draw(st.sampled_from([".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"]))
    end = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    records = draw(RECORDS)
    if ending == ".parquet":
        ids, texts = zip(*records, strict=True)
        numbers = [{"a": [n]} for n in range(len(ids) + 1)]
        columns = {"n": numbers, "id": [*ids, "3"], "text": [*texts, None]}
        return ending, parquet_of(pa.table(columns), row_group_size=draw(st.integers(1, 7)))
    if ending in DELIMITERS:
        content = io.StringIO()
        writer = csv.writer(content, delimiter=DELIMITERS[ending], lineterminator=end)
        writer.writerows([("n", "id", "text"), *((n, *record) for n, record in enumerate(records))])
        text = content.getvalue()
    elif ending == ".json":
        text = json.dumps(
            [{"text": text, "id": id_} for id_, text in records], indent=draw(st.sampled_from([None, 1]))
        )
    else:
        lines = [json.dumps({"id": id_, "text": text, "n": 1.50}) for id_, text in records]
        for line in draw(st.lists(NOISE, max_size=3)):
            lines.insert(draw(st.integers(0, len(lines))), line)
        text = "".join(line + end for line in lines)
    if draw(st.booleans()):
        text = text.removesuffix(end)
    return ending, draw(st.sampled_from([b"", codecs.BOM_UTF8])) + text.encode()


def parquet_of(table, **options):
    """The bytes of a Parquet file."""
    data = io.BytesIO()
    pq.write_table(table, data, **options)
    return data.getvalue()


FOLDERS = st.dictionaries(st.sampled_from(["a", "b", "sub/a", "sub/deep/c d"]), files(), min_size=1)


def clean(paths, target, stages=None, **output):
    """Run in this process, and return the places of the records to drop."""
    clusters = target.with_name("clusters")
    run_dedup(
        DedupOptions([str(path) for path in paths], output=ClusterOutput(clusters, clean=target, **output)),
        stages or Stages(),
    )
    members = [member for line in clusters.read_text().split("\n")[:-1] for member in json.loads(line)["members"]]
    return {member["place"] for member in members if member["droppable"]}


def removed_from(path, dropped):
    """The lines of the records of a file that are among these places."""
    return {int(place.removeprefix(f"{path}:")) for place in dropped if place.startswith(f"{path}:")}


def assert_clean(path, copied, dropped):
    """A file has been copied as it is, but for these places."""
    removed = removed_from(path, dropped)
    if path.suffix == ".parquet":
        before, after = pq.read_table(path), pq.read_table(copied)
        assert after.schema.equals(before.schema, check_metadata=True)
        assert after.equals(before.filter(pa.array([n + 1 not in removed for n in range(len(before))])))
        assert removed or copied.read_bytes() == path.read_bytes()
        return
    _, unpack = PACKED.get(path.suffix, PACKED[""])
    if path.suffixes[0] == ".json":
        before, after = (json.loads(unpack(each.read_bytes())) for each in (path, copied))
        assert after == [record for number, record in enumerate(before, 1) if number not in removed]
        assert removed or copied.read_bytes() == path.read_bytes()
        return
    pieces = pieces_of(path.suffixes[0], unpack(path.read_bytes()))
    mark = codecs.BOM_UTF8 if pieces and pieces[0].startswith(codecs.BOM_UTF8) else b""
    if mark:
        pieces[0] = pieces[0].removeprefix(mark)
    assert unpack(copied.read_bytes()) == mark + without(pieces, removed)
    assert removed or copied.read_bytes() == path.read_bytes()


def texts_of(folder):
    """All texts in the records of a folder, as Python's csv and json read them."""
    found = set()
    for path in folder.rglob("*.*"):
        if path.suffix == ".parquet":
            found |= {*pq.read_table(path)["text"].to_pylist()} - {None}
            continue
        _, unpack = PACKED.get(path.suffix, PACKED[""])
        data = unpack(path.read_bytes()).decode("utf-8-sig")
        ending = path.suffixes[0]
        if ending in DELIMITERS:
            rows = csv.DictReader(io.StringIO(data, newline=""), delimiter=DELIMITERS[ending])
            found |= {row["text"] for row in rows}
            continue
        if ending == ".json":
            found |= {record["text"] for record in json.loads(data)}
            continue
        for line in data.split("\n"):
            with suppress(ValueError, KeyError, TypeError):
                found.add(json.loads(line)["text"])
    return found


@settings(max_examples=20)
@given(FOLDERS, st.sampled_from(sorted(PACKED)))
def test_a_folder_becomes_a_folder_of_the_same_shape(tmp_path_factory, folder, packed):
    root = tmp_path_factory.getbasetemp() / "folders"
    shutil.rmtree(root, ignore_errors=True)
    for name, (ending, data) in folder.items():
        by = "" if ending == ".parquet" else packed
        path = root / "in" / f"{name}{ending}{by}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PACKED[by][0](data))
    dropped = clean([root / "in"], root / "out")
    read = sorted(path for path in (root / "in").rglob("*") if path.is_file())
    assert sorted(path for path in (root / "out").rglob("*") if path.is_file()) == [
        root / "out" / path.relative_to(root / "in") for path in read
    ]
    for path in read:
        assert_clean(path, root / "out" / path.relative_to(root / "in"), dropped)
    before, after = texts_of(root / "in"), texts_of(root / "out")
    assert after <= before
    assert lost(before, after) == []
    assert sorted(path.name for path in root.iterdir()) == ["clusters", "in", "out"]


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
    for packed, (pack, unpack) in PACKED.items():
        through = run("dedup", "-", "--clean", "-", "--output", "clusters", stdin=pack(data)).done()
        assert unpack(through.stdout) == expected, packed
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
    (folder / "sub/c.jsonl.gz").write_bytes(gzip.compress((folder / "a.jsonl").read_bytes() + os.urandom(200_000)))
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


ODD = [
    "-rf",
    "--",
    "a b",
    "a\nb",
    "*",
    "$(touch pwned)",
    "'\"",
    "b\\n",
    b"\xff".decode("utf-8", "surrogateescape"),
    "é",
]


def test_the_documented_line_removes_files_of_any_name(folder, texts):
    """Every file is read before and after: no text goes that has no copy which is kept."""
    line = re.search(r"^\$ (xargs -0 .* < drop\.txt)$", PAGE.read_text(), re.MULTILINE)
    shutil.rmtree(folder / "sub")
    (folder / "a.jsonl").unlink()
    for number, name in enumerate(ODD * 2):
        path = folder / f"d {name}" / name
        path.parent.mkdir(exist_ok=True)
        path = path if number < len(ODD) else folder / name
        path.write_text(f"{texts['fox']} {'' if number % 3 else 'bank'}")
    (folder / "only").write_text(texts["alone"])
    (folder / "link").symlink_to("only")

    def read():
        return {path: path.read_text() for path in folder.rglob("*") if path.is_file()}

    before = read()
    for paths in (["d -rf", "d --"], ["."]):
        run("dedup", *paths, "-o", "/dev/null", "--drop-list", "drop.txt", "--null").done()
        names = (folder / "drop.txt").read_bytes().split(b"\0")[:-1]
        subprocess.run(["bash", "-c", line[1]], check=True)
        (folder / "drop.txt").unlink()
        after = read()
        assert len(before) - len(after) == len(names)
        assert lost(set(before.values()), set(after.values())) == []
        assert {path.name for path in before.keys() - after.keys()} <= set(ODD)
        before = after
    assert len(after) < 8
    run("dedup", ".", "-o", "/dev/null", "--drop-list", "drop.txt", "--null").done()
    subprocess.run(["bash", "-c", line[1]], check=True)  # of nothing
    assert read() == after | {folder / "drop.txt": ""}
