"""`simsql stats`: what it prints."""

import csv
import io
import json

import pytest
from articles import create_articles
from program import run
from skew import skewed

FINGERPRINTS = skewed(3_000, seed=2)


@pytest.fixture
def stats(connection, database_url):
    """Run `simsql stats article` on a table of skewed fingerprints."""
    create_articles(connection, FINGERPRINTS)
    return lambda *arguments: run("stats", "article", *arguments, "--database", database_url).done()


def test_each_number_is_a_row(stats):
    rows = [json.loads(line) for line in stats().lines]
    assert all(list(row) == ["statistic", "table", "of", "value"] for row in rows)
    assert rows[0] == {"statistic": "rows", "table": None, "of": None, "value": len(FINGERPRINTS)}
    bits = [row for row in rows if row["statistic"] == "bit mean"]
    assert [row["of"] for row in bits] == list(range(63, -1, -1))
    assert bits[0]["value"] == sum(fingerprint < 0 for fingerprint in FINGERPRINTS) / len(FINGERPRINTS)
    prefixes = [row for row in rows if row["statistic"] == "prefix keys"]
    assert [row["table"] for row in prefixes] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert prefixes[0]["value"] == sum(
        fingerprint >> 48 & 0xFFFF == int(prefixes[0]["of"], 16) for fingerprint in FINGERPRINTS
    )
    candidates = {(row["statistic"].split()[1], row["of"]): row["value"] for row in rows[-9:]}
    assert set(candidates) == {(kind, d) for kind in ("uniform", "sampled", "measured") for d in (3, 7, 10)}
    for distance in (3, 7, 10):
        assert 2 * candidates["uniform", distance] < candidates["sampled", distance]
        assert candidates["sampled", distance] == pytest.approx(candidates["measured", distance], rel=0.5)
    assert list(csv.DictReader(io.StringIO(stats("--format", "csv").out)))[-1] == {
        "statistic": "candidates measured",
        "table": "",
        "of": "10",
        "value": str(candidates["measured", 10]),
    }


def test_a_table_is_sections_for_a_reader(stats):
    lines = stats("--format", "table").lines
    print("\n".join(lines))
    assert lines[0] == f"{len(FINGERPRINTS):,} fingerprints, {len(FINGERPRINTS):,} distinct"
    assert lines[2] == "share of fingerprints with each bit set, most significant first"
    assert [line.split()[0] for line in lines[4:12]] == [
        *("63-56", "55-48", "47-40", "39-32", "31-24", "23-16", "15-8", "7-0")
    ]
    assert lines[13] == "most frequent prefixes of each key table"
    assert lines[14].split() == ["table", "bits", "prefix", "keys", "times", "the", "mean"]
    assert lines[28] == "keys that a search reads"
    assert lines[29].split() == ["distance", "uniform", "sampled", "measured"]
    assert [line.split()[0] for line in lines[30:]] == ["3", "7", "10"]


def test_an_empty_table(connection, database_url):
    create_articles(connection)
    at = ["--database", database_url]
    assert run("stats", "article", "--format", "table", *at).done().out == "0 fingerprints, 0 distinct\n"
    assert len(run("stats", "article", *at).done().lines) == 2 + 9


def test_a_scope_and_what_is_refused(connection, database_url):
    connection.execute("CREATE TABLE article (tenant integer, fingerprint bigint)")
    connection.execute("INSERT INTO article VALUES (1, 5), (1, 6), (2, 7)")
    at = ["--database", database_url]
    run("stats", "article", *at).failed(2, "has no simhash index")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', scope => ARRAY['tenant'])")
    run("stats", "article", *at).failed(1, "needs a scope")
    found = run("stats", "article", "--scope", "tenant=1", "--format", "table", *at).done()
    assert found.lines[0] == "2 fingerprints, 2 distinct"
    run("stats", "article", "--scope", "tenant", *at).failed(2, "COLUMN=VALUE")
