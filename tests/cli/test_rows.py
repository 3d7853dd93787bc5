"""`--format`: a table for people at a terminal, lines for programs elsewhere."""

import csv
import io
import json

import pytest
from articles import create_articles
from oracle import to_bigint
from program import run, run_at_terminal, write_lines

FINGERPRINTS = [5, 4, 2**64 - 1, 2**40, 5]


@pytest.fixture
def call(connection, database_url):
    """Run a command on a table with two clusters of fingerprints, one of them on two rows."""
    create_articles(connection, [to_bigint(number) for number in FINGERPRINTS])
    connection.execute("""UPDATE article SET body = E'one, "two"\n\\tthree' WHERE id = 1""")
    connection.execute(r"UPDATE article SET body = E'one\rtwo' WHERE id = 2")
    return lambda *arguments, **options: run(*arguments, "--database", database_url, **options)


def records(found, delimiter=","):
    return list(csv.DictReader(io.StringIO(found.out, newline=""), delimiter=delimiter))


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_csv_and_tsv_hold_the_same_as_json_lines(call, form, delimiter):
    search = ["near", "article", "--fingerprint", 5, "--distance", 1]
    rows = [json.loads(line) for line in call(*search).done().lines]
    assert {row["row"]["id"] for row in rows} == {1, 2, 5}
    for row, record in zip(rows, records(call(*search, "--format", form).done(), delimiter), strict=True):
        assert [record["fingerprint"], record["distance"]] == [str(row["fingerprint"]), str(row["distance"])]
        assert record["id"] == str(row["row"]["id"])
        assert record["body"] == (row["row"]["body"] or "")
        assert record["row.fingerprint"] == str(row["row"]["fingerprint"])
    listed = call("index", "list", "--format", form).done()
    assert records(listed, delimiter)[0]["scope"] == "[]"


def test_clusters_have_a_line_for_each_member(call):
    found = call("clusters", "article", "--distance", 1).done()
    assert [json.loads(line) for line in found.lines] == [{"cluster": 4, "fingerprints": [4, 5]}]
    found = call("clusters", "article", "--distance", 1, "--format", "csv").done()
    assert found.lines == ["cluster,fingerprint", "4,4", "4,5"]
    found = call("clusters", "article", "--distance", 1, "--format", "table").done()
    assert found.lines == ["cluster  fingerprint", "4        4", "4        5"]


def test_primary_keys_beside_fingerprints(call):
    pairs, clusters = (["pairs", "article", "--distance", 1, "--keys"], ["clusters", "article", "--keys"])
    (line,) = call(*pairs).done().lines
    assert json.loads(line) == {"a": 4, "b": 5, "distance": 1, "a_keys": [2], "b_keys": [1, 5]}
    assert call(*pairs, "--format", "csv").done().lines[1:] == ['4,5,1,[2],"[1, 5]"']
    assert call(*pairs, "--format", "table").done().lines[1].split() == ["4", "5", "1", "2", "1,", "5"]
    clusters += ["--distance", 1]
    (line,) = call(*clusters).done().lines
    assert json.loads(line) == {"cluster": 4, "fingerprints": [4, 5], "keys": [[2], [1, 5]]}
    found = call(*clusters, "--format", "csv").done()
    assert found.lines == ["cluster,fingerprint,key", "4,4,2", "4,5,1", "4,5,5"]
    call(*clusters, "--into", "found").failed(2, "leave out --format and --keys")


def test_primary_keys_of_several_columns_in_a_scope(connection, database_url):
    connection.execute(
        'CREATE TABLE "a b" ("the key" text, tenant int, f bigint, PRIMARY KEY (tenant, "the key"));'
        "INSERT INTO \"a b\" VALUES ('x', 1, -1), ('y', 1, -2), ('x', 2, -1);"
        "SELECT simsql.create_index('\"a b\"', 'f', scope => '{tenant}')"
    )
    options = ["--keys", "--database", database_url]
    found = run("pairs", '"a b"', "--scope", "tenant=1", *options).done()
    assert json.loads(found.out) == {
        **{"a": 2**64 - 2, "b": 2**64 - 1, "distance": 1},
        **{"a_keys": [[1, "y"]], "b_keys": [[1, "x"]]},
    }
    connection.execute('ALTER TABLE "a b" DROP CONSTRAINT "a b_pkey"')
    connection.execute('CREATE UNIQUE INDEX "odd one" ON "a b" ("the key", tenant)')
    assert json.loads(run("pairs", '"a b"', "--scope", "tenant=1", *options).done().out)["a_keys"] == [["y", 1]]
    near = ["near", '"a b"', "--scope", "tenant=2", "--fingerprint", 2**64 - 1, "--explain", "(x,2)", *options[1:]]
    assert "\nfound: " in run(*near).done().out
    connection.execute("INSERT INTO \"a b\" VALUES ('1,x', 2, 0)")
    near[-3] = '("1,x",2)'
    assert "\nnot found: distance 64 is above 3" in run(*near).done().out
    connection.execute('DROP INDEX "odd one"')
    run("clusters", '"a b"', "--scope", "tenant=1", *options).failed(
        2, '"a b" has neither a primary key nor a unique index on NOT NULL columns: leave out --keys'
    )


def test_nothing_found_is_no_table_and_a_header_of_csv(call):
    search = ["near", "article", "--fingerprint", 2**50, "--distance", 0]
    for form, lines in (("table", []), ("jsonl", []), ("csv", ["fingerprint,distance"])):
        found = call(*search, "--format", form).done()
        assert (found.lines, found.err) == (lines, "no matches\n")


def test_a_table_at_a_terminal_fits_on_it(call, connection, database_url):
    connection.execute(
        "UPDATE article SET body = repeat('long ', 100) WHERE id = 2; ALTER TABLE article RENAME body TO a_body"
    )
    search = ["near", "article", "--fingerprint", 5, "--distance", 1, "--database", database_url]
    found = run_at_terminal(*search, redirected={"stderr"}, COLUMNS="80")
    header, *rows = found.terminal.splitlines()
    assert header.split() == ["fingerprint", "distance", "id", "a_body", "row.fingerprint"]
    assert len(rows) == 3
    assert all(len(row) <= 80 for row in rows)
    assert "…" in rows[2]
    assert r'one, "two"\n\tthree' in rows[0] + rows[1]
    written = call(*search[:-2], "--format", "table", COLUMNS="100").done().lines
    assert max(map(len, written)) == 100
    assert "…" in written[3]
    assert "long " * 100 in call(*search[:-2], "--format", "table").done().lines[3]
    piped = run_at_terminal(*search, redirected={"stdout", "stderr"})
    assert [json.loads(line)["distance"] for line in piped.lines] == [0, 0, 1]


def test_numbers_are_never_cut_off(call, connection, database_url):
    names = [f"number_{place}" for place in range(4)]
    connection.execute(
        f"ALTER TABLE article {', '.join(f'ADD {name} bigint DEFAULT {2**62}' for name in names)};"
        "UPDATE article SET body = repeat('long ', 100)"
    )
    search = ["near", "article", "--fingerprint", 5, "--distance", 1, "--database", database_url]
    header, *rows = run_at_terminal(*search, redirected={"stderr"}, COLUMNS="80").terminal.splitlines()
    assert set(names) <= set(header.split())
    for row in rows:
        assert row.split().count(str(2**62)) == 4
        assert row.count("…") == 1
        assert "long long l…" in row


def test_counts_are_grouped_in_tables_alone(call, connection):
    connection.execute("DELETE FROM article")
    connection.execute("INSERT INTO article (fingerprint) SELECT 1000000 + n FROM generate_series(1, 2000) AS n")
    connection.execute("DELETE FROM simsql.keys_1_0")
    at = ["index", "verify", "--format"]
    assert " 2,000 " in call(*at, "table").out
    assert ",2000," in call(*at, "csv").out
    assert json.loads(call(*at, "jsonl").lines[0])["keys"] == 2000


def test_results_in_a_table_of_the_database_have_no_format(call):
    call("pairs", "article", "--into", "found", "--format", "csv").failed(2, "leave out --format and --keys")


def test_clusters_of_files(tmp_path):
    texts = {f"copy {number}": "One and the same text." for number in range(12)}
    lines = write_lines(tmp_path / "a.jsonl", {**texts, 'a "name"': "Something else", "b": "something ELSE"})
    dedup = ["dedup", lines]
    found = run_at_terminal(*dedup, redirected={"stderr"})
    header, first, *others = found.terminal.splitlines()
    assert header.split() == ["cluster", "size", "distance", "similarity", "document"]
    assert first.split() == ["1", "12", "0", "1.00", "copy", "0"]
    assert [row.split() for row in others[8:]] == [
        ["0", "1.00", "copy", "7"],
        ["and", "2", "more"],
        ["2", "2", "0", "1.00", "a", '"name"'],
        ["0", "1.00", "b"],
    ]
    found = records(run(*dedup, "--format", "csv").done())
    assert len(found) == 14
    assert found[12] == {
        "cluster": "2",
        "id": 'a "name"',
        "place": f"{lines}:13",
        "representative": 'a "name"',
        "distance": "0",
        "similarity": "1.0",
        "kept": 'a "name"',
        "kept_distance": "0",
        "kept_similarity": "1.0",
        "kind": "",
        "droppable": "false",
    }
    assert found[13]["droppable"] == "true"
    run_at_terminal(*dedup, "--output", tmp_path / "out", redirected={"stderr"})
    assert json.loads((tmp_path / "out").read_text().splitlines()[1])["size"] == 2
    none = write_lines(tmp_path / "none.jsonl", {"a": "one text", "b": "quite another thing"})
    assert run("dedup", none, "--format", "table").done().out == ""


def test_a_terminal_shows_the_largest_clusters(tmp_path):
    texts = {f"{number} {copy}": f"This text is about {number}." for number in range(30) for copy in range(2)}
    lines = write_lines(tmp_path / "a.jsonl", texts)
    dedup = ["dedup", lines, "--distance", 0]
    found = run_at_terminal(*dedup, redirected={"stderr"})
    *_, last, end = found.terminal.splitlines()
    assert len(found.terminal.splitlines()) == 1 + 20 * 2 + 1
    assert last.split()[:2] == ["0", "1.00"]
    assert end == "and 10 more clusters: --output FILE writes them all"
    assert len(run(*dedup).done().clusters) == 30
    everything = run_at_terminal(*dedup, "--format", "table", redirected={"stderr"}).terminal
    assert len(everything.splitlines()) == 1 + 30 * 2
    assert run(*dedup, "--format", "table").done().out == everything
    shown = run_at_terminal(*dedup, redirected=()).terminal
    assert "write clusters" in shown.partition("document\n")[0]
    assert "and 10 more clusters" in shown.partition("document\n")[2]
