"""`simsql load --unique`: what it lists, says and counts."""

import json

import pytest
from program import run, write_lines
from sqlalchemy import make_url

from simsql import similarity

BODY = " ".join(f"word{number}" for number in range(80))
TEXTS = {"a": BODY, "b": BODY + " more", "c": "entirely different words", "d": "?!", "e": BODY + " and more"}


@pytest.fixture
def options(connection, database_url):
    connection.execute("CREATE TABLE post (slug text PRIMARY KEY, body text, fp bigint)")
    connection.execute("SELECT simsql.create_index('post', 'fp', recipe => 'words12-log-1')")
    return ["--unique", "--id-column", "slug", "--text-column", "body", "--database", database_url]


def slugs(connection):
    return [slug for (slug,) in connection.execute("SELECT slug FROM post ORDER BY slug")]


def test_what_is_left_out_is_listed_and_every_input_is_counted(connection, options, tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", {**TEXTS, "f": "", "g": "a \0 word"})
    dry = run("load", "post", lines, *options, "--dry-run")
    assert (dry.code, slugs(connection)) == (3, [])
    assert (dry.table["would be loaded"], dry.table["would be left out: near-duplicates"]) == ("3", "2")
    found = run("load", "post", lines, *options).done()
    assert found.lines == dry.lines
    left_out = [json.loads(line) for line in found.lines]
    assert [(row["id"], row["place"], row["kept"]) for row in left_out] == [
        ("b", f"{lines}:2", "a"),
        ("e", f"{lines}:5", "a"),
    ]
    assert left_out[0]["similarity"] == round(similarity(BODY, TEXTS["b"]), 6)
    counts = {"documents": "5", "loaded": "3", "left out: near-duplicates": "2", "skipped": "2"}
    counts |= {"without words: no fingerprint": "1", "empty": "1", "not storable": "1"}
    assert counts.items() <= found.table.items()
    assert slugs(connection) == ["a", "c", "d"]
    again = run("load", "post", lines, *options, "--output", tmp_path / "out.csv").done()
    assert (again.out, again.table["loaded"], again.table["loaded before"]) == ("", "0", "3")
    rows = (tmp_path / "out.csv").read_text().splitlines()
    assert rows[0] == "id,place,kept,distance,similarity"
    assert [row.split(",")[0] for row in rows[1:]] == ["b", "e"]
    nothing_new = write_lines(tmp_path / "b.jsonl", {"c": TEXTS["c"]})
    assert run("load", "post", nothing_new, *options, "--dry-run").done().out == ""


def test_the_same_id_with_another_text(connection, options, tmp_path):
    run("load", "post", write_lines(tmp_path / "a.jsonl", TEXTS), *options).done()
    lines = write_lines(tmp_path / "b.jsonl", {"c": "new words for the document"})
    run("load", "post", lines, *options).failed(
        1, f"{lines}:1: id 'c' is in post with another text: use --replace"
    )
    found = run("load", "post", lines, *options, "--replace").done()
    assert (found.out, found.table["replaced"]) == ("", "1")
    assert connection.execute("SELECT body FROM post WHERE slug = 'c'").fetchone() == (
        "new words for the document",
    )


def test_options_that_do_not_fit(options, tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", TEXTS)
    for given in (["--distance", 3], ["--dry-run"], ["--format", "csv"], ["--scope", "a=b"], ["--replace"]):
        run("load", "post", lines, *options[1:], *given).failed(2, f"{given[0]} needs --unique")
    for wrong in ("--id-column", "--text-column", "--column"):
        given = dict(zip(options[1::2], options[2::2], strict=True)) | {wrong: "missing"}
        words = [word for option in given.items() for word in option]
        run("load", "post", lines, "--unique", *words).failed(2, "missing")
    run("load", "missing", lines, *options).failed(2, 'PostgreSQL: relation "missing" does not exist')
    run("load", "post", lines, "--unique").failed(2, "give --id-column and --text-column")
    run("load", "post", lines, "--unique", "--fingerprint-field", "h").failed(2, "leave out --fingerprint-field")
    output = ["--output", tmp_path / "x", "--format", "table"]
    run("load", "post", lines, *options, *output).failed(2, "--format table is for stdout")
    run("load", "post", tmp_path, *options, "--include", "*.txt").failed(1, "no documents in")


def test_row_level_security_is_named(connection, options, new_role, tmp_path):
    role, lines = new_role(), write_lines(tmp_path / "a.jsonl", TEXTS)
    connection.execute(f"GRANT ALL ON post TO {role}; ALTER TABLE post ENABLE ROW LEVEL SECURITY")
    options[-1] = make_url(options[-1]).set(username=role).render_as_string(hide_password=False)
    for given in (options, options[1:]):
        run("load", "post", lines, *given).failed(1, f"row-level security of public.post applies to role {role},")
