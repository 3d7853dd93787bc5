"""simsql find-pairs and find-clusters: numbers in, JSON arrays out, as the programs of simhash-cpp."""

import json
import random

import pytest
from oracle import clusters, pairs
from program import run, run_apart

CHANCE = random.Random(12)
FINGERPRINTS = [0, 2**64 - 1, 2**63, *(CHANCE.getrandbits(64) for _ in range(60))]
FINGERPRINTS += [number ^ (1 << CHANCE.randrange(64)) for number in FINGERPRINTS for _ in range(3)]
LINES = "".join(f"{number}\n" for number in [*FINGERPRINTS, *FINGERPRINTS[:9]]).encode()


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("options", [[], ["--distance", "1"], ["--blocks", "6"], ["-d", "9", "-b", "12"]])
def test_pairs_are_those_of_brute_force(options):
    within = {0: 3, 2: int(options[1]) if options and options[0] == "--distance" else 3, 4: 9}[len(options)]
    found = run("find-pairs", *options, stdin=LINES).done()
    assert lines(found.out) == [[a, b] for a, b, _ in pairs(FINGERPRINTS, within)]
    assert found.err == ""


@pytest.mark.parametrize("options", [[], ["--blocks", "5"]])
def test_clusters_are_those_of_brute_force(options):
    found = lines(run("find-clusters", *options, stdin=LINES).done().out)
    assert sorted((cluster[0], member) for cluster in found for member in cluster) == clusters(
        set(FINGERPRINTS), 3
    )
    assert all(len(cluster) > 1 and cluster == sorted(cluster) for cluster in found)


def test_files_are_read_and_written(tmp_path):
    source, output = tmp_path / "in.txt", tmp_path / "out.json"
    source.write_bytes(b"\r\n 1 \r\n3\n\n18446744073709551615")
    assert run("find-pairs", "--input", source, "--output", output).done().out == ""
    assert output.read_text() == "[1, 3]\n"
    run("find-clusters", "-i", source, "-o", output).done()
    assert output.read_text() == "[1, 3]\n"


@pytest.mark.parametrize("name", ["find-pairs", "find-clusters"])
def test_nothing_in_is_nothing_out(name):
    for content in (b"", b"\n\n", b"17"):
        assert run(name, stdin=content).done().out == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"-9223372036854775809", "-9223372036854775809"),
        (b"18446744073709551616", "18446744073709551616"),
        (b"9" * 5000, "9" * 40),
        (b"1 2", "1 2"),
        (b"1_000", "1_000"),
        (b"0x10", "0x10"),
        (b"c" * 16, "c" * 16),
        (b"\xff", "\\xff"),
        ("\u0663".encode(), "\u0663"),
    ],
)
def test_what_is_no_fingerprint_is_named_with_its_line(line, shown):
    run("find-pairs", stdin=b"5\n\n" + line + b"\n7\n").failed(1, f"stdin, line 3: {shown} is not a fingerprint")


def test_numbers_are_written_in_several_forms():
    written = b"-1\n0xFFFFFFFFFFFFFFFE\n 18446744073709551613\r\n"
    assert run("find-clusters", stdin=written).done().out == f"{[2**64 - 3, 2**64 - 2, 2**64 - 1]}\n"


def test_wrong_usage_and_missing_files(tmp_path):
    run("find-pairs", "--distance", "65").failed(2, "between 0 and 64, not 65")
    run("find-clusters", "--blocks", "65").failed(2, "between 1 and 64, not 65")
    missing = tmp_path / "missing"
    run("find-pairs", "--input", missing).failed(2, f"no such file: {missing}")
    run("find-pairs", "--output", missing / "x", stdin=b"1\n").failed(2, f"{missing} is not a folder")


@pytest.mark.parametrize("command", ["find-pairs", "find-clusters"])
def test_output_that_cannot_be_written_is_named(command, tmp_path):
    found = run_apart(command, "--output", "/dev/full", stdin=b"1\n3\n")
    found.failed(1, "/dev/full cannot be written: No space left on device")
    (tmp_path / "file").write_text("old")
    run(command, "--output", tmp_path / "file", stdin=b"1\nx\n").failed(1, "x is not a fingerprint")
    assert (tmp_path / "file").read_text() == "old"
    run(command, "--output", tmp_path / "file", stdin=b"1\n3\n").done()
    assert (tmp_path / "file").read_text() == "[1, 3]\n"
