"""`simsql plan`: what it prints, what it refuses, and that it measures when asked to."""

import json
import re

import pytest
from articles import create_articles, create_index, create_table
from program import run
from skew import mean_candidates, skewed

from simsql import Design, plan
from simsql.cli._options import read_size

TABLE = ["--format", "table"]
HEADINGS = [
    "tables",
    "blocks",
    "lead",
    "inner",
    "prefix bits",
    "probes",
    "candidates",
    "disk",
    "search",
    "write",
]


def cells(line):
    return re.split(r" {2,}", line.strip())


def usage(*arguments, **options):
    found = run("plan", *arguments, **options)
    assert found.code == 2
    assert found.stdout == b""
    assert "Traceback" not in found.err
    return found.err


def test_each_design_is_one_line_with_units():
    found = run("plan", "--rows", 10**7, "--distance", 3, *TABLE).done()
    assert found.err == ""
    header, *lines = found.lines
    assert cells(header) == [*HEADINGS, "best for"]
    assert [cells(line) for line in lines] == [
        ["2", "2", "1", "-", "32", "66", "0.2", "1.1 GB", *times(0), "writing"],
        ["3", "3", "1", "-", "21-22", "25", "64", "1.6 GB", *times(1), "default"],
        ["10", "5", "2", "-", "25-26", "10", "2.1", "5.5 GB", *times(2), "reading"],
    ]


def times(place):
    """The last columns, by the costs that are built in."""
    choice = plan(10**7, 3).choices[place]
    return f"{choice.search_us:.0f} us", f"{choice.write_us:.0f} us"


def test_nested_designs_and_long_searches():
    found = run("plan", "--rows", 10**9, "--distance", 7, *TABLE).done()
    nested = [choice for choice in plan(10**9, 7).choices if choice.design.inner_blocks]
    assert nested
    assert [cells(line)[3] for line in found.lines[1:] if cells(line)[3] != "-"] == [
        str(choice.design.inner_blocks) for choice in nested
    ]
    assert all(re.search(r"\b\d+(\.\d)? (GB|TB) +\d+(\.\d)? ms +\d+ us", line) for line in found.lines[1:])
    assert re.search(r" \d+\.\d s ", run("plan", "--rows", 2**34, "--distance", 20, *TABLE).done().out)


def test_where_a_scan_is_faster_there_are_no_probes():
    found = run("plan", "--rows", 1000, "--distance", 20, *TABLE).done()
    assert [cells(line)[5:7] for line in found.lines[1:]] == [["scan", "-"], ["scan", "-"]]


@pytest.mark.parametrize(
    ("size", "found"),
    [
        ("1174000000", 1_174_000_000),
        ("1173MB", 1173 << 20),
        ("1.2gb", int(1.2 * 1024**3)),
        ("1,174,000kB", 1_174_000 << 10),
    ],
)
def test_sizes(size, found):
    assert read_size(size) == found


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "give the number of rows with --rows, or a table with --like"),
        (["--rows", 10, "--column", "fingerprint"], "--column needs --like"),
        (["--rows", "many"], "--rows"),
        (["--rows", -1], "it must be between 0 and"),
        (["--rows", 10**30], "it must be between 0 and 18,446,744,073,709,551,616"),
        (["--rows", 10, "--distance", 65], "between 0 and 64, not 65"),
        (["--rows", 10, "--database", "postgresql:///x"], "add --like"),
        (["--rows", 10, "--server-dir", "folder"], "add --like"),
    ],
)
def test_wrong_usage(arguments, part):
    assert part in usage(*arguments)


def test_a_database_of_the_environment_is_not_asked():
    found = run("plan", "--rows", 10, SIMSQL_DATABASE="postgresql://nobody@localhost:1/nothing").done()
    assert found.lines


def test_a_plan_for_the_fingerprints_of_a_table(connection, database_url):
    fingerprints = skewed(3_000, seed=3)
    create_table(connection, fingerprints)
    table = ["--like", "article", "--database", database_url]
    run("plan", *table).failed(2, "has no simhash index")
    planned = run("plan", *table, "--column", "fingerprint", "--distance", 7).done()
    rows = {(row["blocks"], row["lead"]): row for row in map(json.loads, planned.lines)}
    assert rows[4, 1]["candidates"] == pytest.approx(mean_candidates(fingerprints, (4, 1, 0), 7), rel=0.5)
    assert rows[4, 1]["candidates"] > 2 * Design(4).candidates(7, 3_000)
    create_index(connection)
    assert run("plan", *table, "--distance", 7).done().lines == planned.lines
    grown = run("plan", *table, "--distance", 7, "--rows", 3_000_000).done()
    least = min(json.loads(line)["candidates"] for line in grown.lines)
    assert least > 2 * min(choice.candidates for choice in plan(3_000_000, 7).choices)


def test_a_table_whose_fingerprints_are_all_equal_counts_as_random(connection, database_url):
    create_articles(connection, [5, 5, None])
    found = run("plan", "--like", "article", "--database", database_url).done()
    assert found.lines == run("plan", "--rows", 2).done().lines
    assert "too few different fingerprints" in found.err
