"""Where clusters go: files that are complete or not there at all, pipes, and whatever stdout is."""

import csv
import json
import os
import stat
import subprocess
import threading
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from program import PROGRAM, environment, finish, run, run_apart, spawn, write_lines
from pyarrow import parquet as pq

from simsql.documents import UnfitError
from simsql.documents.formats import parquet as parquet_output
from simsql.errors import missing_package

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@pytest.fixture
def many(tmp_path):
    """Enough documents in clusters of two that neither their clusters nor their ids fit in a pipe."""
    texts = {f"{n} {'x' * 100}": f"{n // 2} words {n // 2} of which no two {n // 2} are near" for n in range(1600)}
    return write_lines(tmp_path / "many.jsonl", texts)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def out(tmp_path):
    """An empty folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("option", ["--output", "--drop-list"])
def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path, lines, option):
    # Without a home any work would fail otherwise.
    run("dedup", lines, option, tmp_path).failed(2, f"{tmp_path} is a folder: name a file")
    run("dedup", lines, option, tmp_path / "no" / "file").failed(
        2, f"{tmp_path / 'no'} is not a folder: create it"
    )
    run("dedup", lines, option, lines / "file").failed(2, f"{lines} is not a folder")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_before_any_work(lines, out):
    out.chmod(0o500)
    run("dedup", lines, "--output", out / "file").failed(2, f"no permission to write in {out}")


def test_a_file_is_replaced_and_keeps_its_mode_also_through_a_link(lines, home, out):
    (out / "clusters").write_text("old")
    (out / "clusters").chmod(0o604)
    (out / "link").symlink_to("clusters")
    for name in ("clusters", "link"):
        found = run("dedup", lines, "--output", out / name, home=home).done()
        assert found.stdout == b""
        assert (out / "clusters").read_text().count("\n") == 2
        assert stat.S_IMODE((out / "clusters").stat().st_mode) == 0o604
        assert left_in(out) == ["clusters", "link"]
        (out / "clusters").write_text("old")
    assert (out / "link").is_symlink()


def test_a_new_file_has_the_mode_that_the_umask_leaves(lines, home, out):
    before = os.umask(0o027)
    try:
        run("dedup", lines, "--output", out / "clusters", home=home).done()
    finally:
        os.umask(before)
    assert stat.S_IMODE((out / "clusters").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "name", [b"with space", b"two\nlines", b"'quotes\"", b"\xff bytes", b"[bold]", b"n" * 255, "文".encode() * 85]
)
def test_files_of_any_name(lines, home, out, name):
    path = Path(os.fsdecode(os.fsencode(out) + b"/" + name))
    run("dedup", lines, "--output", path, home=home).done()
    assert [os.fsencode(path.name) for path in out.iterdir()] == [name]
    assert path.read_bytes().count(b"\n") == 2


@needs_full
@pytest.mark.parametrize("option", ["--drop-list", "--report"])
def test_a_run_that_fails_while_writing_leaves_the_old_file(lines, home, out, option):
    (out / "clusters").write_text("old")
    options = ["--output", out / "clusters", option, "/dev/full"]
    run("dedup", lines, *options, home=home).failed(1, "/dev/full cannot be written: No space left on device")
    assert (out / "clusters").read_text() == "old"
    assert left_in(out) == ["clusters"]


def test_a_named_pipe_is_written_into(lines, home, out):
    os.mkfifo(out / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((out / "pipe").read_text()))
    reader.start()
    run("dedup", lines, "--output", out / "pipe", home=home).done()
    reader.join()
    assert read[0].count("\n") == 2
    assert stat.S_ISFIFO((out / "pipe").stat().st_mode)


@needs_full
def test_a_run_whose_clusters_reach_nobody_leaves_the_old_drop_list(lines, home, out):
    (out / "drop").write_text("old")
    run("dedup", lines, "--output", "/dev/full", "--drop-list", out / "drop", home=home).failed(1, "/dev/full")
    with Path("/dev/full").open("wb") as full:
        found = finish(spawn("dedup", lines, "--drop-list", out / "drop", home=home, stdout=full))
    found.failed(1, "standard output")
    assert (out / "drop").read_text() == "old"
    assert left_in(out) == ["drop"]


# Standard output of a process


def test_who_reads_may_stop_reading(many, home, out):
    process = spawn("dedup", many, "--drop-list", out / "drop", home=home, stdin=subprocess.DEVNULL)
    first = process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert json.loads(first)["cluster"] == 1
    assert err == b""
    assert left_in(out) == []


def test_closed_streams(lines, home, out):
    """As under some supervisors: the job goes on, and writes nothing anywhere else."""
    script = '"$0" dedup "$1" --output "$2" <&- >&- 2>&-'
    subprocess.run(["/bin/sh", "-c", script, PROGRAM, lines, out / "clusters"], env=environment(home), check=True)
    assert (out / "clusters").read_bytes() == run("dedup", lines, home=home).done().stdout


def test_stdout_is_utf8_whatever_the_terminal_is(tmp_path, home):
    path = write_lines(tmp_path / "文書.jsonl", {"é": "ein paar Wörter", "文": "ein paar Wörter"})
    found = run_apart("dedup", path, home=home, variables={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}).done()
    assert found.groups == {frozenset("é文")}
    assert run("dedup", path, "--output", tmp_path / "file", home=home).done()
    assert (tmp_path / "file").read_bytes() == found.stdout


@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables_hold_ids_of_any_characters(tmp_path, home, name, delimiter):
    ids = ["a\rb", "a\nb", 'a\t"b",']
    lines = write_lines(tmp_path / "a.jsonl", dict.fromkeys(ids, "the same words"))
    run("dedup", lines, "--output", tmp_path / name, home=home).done()
    with (tmp_path / name).open(newline="") as file:
        assert {row["id"] for row in csv.DictReader(file, delimiter=delimiter)} == set(ids)


@pytest.mark.parametrize(
    ("name", "first"), [("a.csv", "cluster,id,"), ("a.TSV", "cluster\tid\t"), ("a", '{"cluster"')]
)
def test_the_ending_of_a_file_chooses_the_format(lines, out, home, name, first):
    run("dedup", lines, "--output", out / name, home=home).done()
    assert (out / name).read_text().startswith(first)
    run("dedup", lines, "--output", out / name, "--format", "jsonl", home=home).done()
    assert (out / name).read_text().startswith("{")


@pytest.mark.parametrize("group", [1, 3, 1 << 15])
def test_parquet_has_the_values_of_the_json_lines(tmp_path, out, monkeypatch, group):
    monkeypatch.setattr(parquet_output, "_GROUP", group)
    texts = {
        f"{kind}{n} é\n": f"a {kind} of words, and {n % 3} more {kind} of them" for kind in "abc" for n in range(8)
    }
    write_lines(tmp_path / "a.jsonl", texts)
    (tmp_path / "page").write_text(texts["a1 é\n"])
    for name in ("clusters.jsonl", "clusters.parquet"):
        run("dedup", tmp_path, "--exclude", "out", "--similarity", "0.4", "--output", out / name).done()
    clusters = map(json.loads, (out / "clusters.jsonl").read_text().splitlines())
    names = ("cluster", "representative")
    expected = [
        member | {name: found[name] for name in names} for found in clusters for member in found["members"]
    ]
    found = pq.ParquetFile(out / "clusters.parquet")
    assert found.read().to_pylist() == expected
    assert len(expected) > 20
    assert (found.num_row_groups > 2) == (group < 4)
    run("dedup", tmp_path / "page", "--output", out / "clusters.parquet").done()
    assert pq.read_table(out / "clusters.parquet").schema == found.schema_arrow


def test_parquet_is_refused_before_any_work(lines, out, monkeypatch):
    path = out / "x.parquet"
    run("dedup", lines, "--output", path, "--format", "csv").failed(2, "--format csv does not fit")
    pq.write_table(pa.table({"simsql": ["results"]}), path)
    run("dedup", out, "--output", path).failed(2, f"--output would overwrite {path}")
    path.unlink()
    (out / "clusters.parquet").symlink_to("/dev/full")
    run("dedup", lines, "-o", out / "clusters.parquet").failed(1, "clusters.parquet cannot be written: No space")
    missing = UnfitError("Parquet", str(missing_package("Parquet", "pyarrow")))
    monkeypatch.setattr(parquet_output, "import_parquet", mock.Mock(side_effect=missing))
    run("dedup", lines, "--output", path).failed(2, "Parquet needs the package pyarrow: pip install pyarrow\n")
    assert not path.exists()
