"""`simsql load`, and what `simsql pairs` and `simsql clusters` list of a table."""

import json

import pyarrow
import pytest
from articles import create_articles, missing_keys, near
from program import run, write_lines
from pyarrow import parquet

from simsql import Recipe, simhash, similarity, sketch
from simsql.database import create_index as index_column
from simsql.database import to_bigint

FOX = "The quick brown fox jumps over the lazy dog"


@pytest.fixture
def posts(connection):
    """An indexed table with ids and texts; the server's own numbers come before its ids."""
    connection.execute(
        "CREATE TABLE post (number bigint GENERATED ALWAYS AS IDENTITY, slug text UNIQUE, body text, fp bigint)"
    )
    connection.execute("SELECT simsql.create_index('post', 'fp', recipe => 'words12-log-1')")
    return connection


def stored(connection):
    return connection.execute("SELECT slug, body, fp FROM post ORDER BY number").fetchall()


# load


def test_documents_of_all_kinds(posts, database_url, tmp_path):
    (tmp_path / "a.txt").write_text(FOX)
    write_lines(tmp_path / "b.jsonl", {"x": FOX + " again", "naïve\n'id'": "Ωmega\n\ttext", "none": "?!"})
    (tmp_path / "c.csv").write_text('id,text\n7,"one, two"\n8,\n')
    found = run(
        "load", "post", tmp_path, "--id-column", "slug", "--text-column", "body", "--database", database_url
    )
    assert found.done().out == ""
    expected = {str(tmp_path / "a.txt"): FOX, "x": FOX + " again", "naïve\n'id'": "Ωmega\n\ttext", "7": "one, two"}
    assert stored(posts) == [
        *((name, text, to_bigint(simhash(text))) for name, text in list(expected.items())[:3]),
        ("none", "?!", None),
        ("7", "one, two", to_bigint(simhash("one, two"))),
    ]
    assert missing_keys(posts, "post") == []
    lines = [line.split() for line in found.err.splitlines()]
    assert ["documents", "5"] in lines
    assert ["without", "words:", "no", "fingerprint", "1"] in lines
    assert ["skipped", "1"] in lines
    assert f"skipped {tmp_path}/c.csv:3: empty" in found.err


def test_texts_are_loaded_with_sketches_and_compared(posts, database_url, tmp_path):
    posts.execute("ALTER TABLE post ADD sketch bigint")
    texts = {"same": FOX.upper(), "near": FOX + " again", "none": "?!"}
    lines = write_lines(tmp_path / "a.jsonl", texts)
    columns = ["--text-column", "body", "--sketch-column", "sketch", "--database", database_url]
    found = run("load", "post", lines, "--id-column", "slug", *columns).done()
    assert ["without", "words:", "no", "fingerprint", "1"] in [line.split() for line in found.err.splitlines()]
    values = {slug: (to_bigint(simhash(text)), to_bigint(sketch(text))) for slug, text in texts.items()}
    rows = posts.execute("SELECT slug, fp, sketch FROM post").fetchall()
    assert {slug: tuple(numbers) for slug, *numbers in rows} == values
    search = ["near", "post", "--text", FOX, "--distance", 20]
    for least, slugs in ((0, ["same", "near"]), (0.9, ["same"])):
        rows = [json.loads(line) for line in run(*search, "--similarity", least, *columns).done().lines]
        assert [(row["row"]["slug"], row["similarity"]) for row in rows] == [
            (slug, similarity(texts[slug], FOX)) for slug in slugs
        ]
    csv = run(*search, "--similarity", 0.9, *columns, "--format", "csv").done().lines
    assert csv[0].startswith("fingerprint,distance,similarity,fp,body,slug")
    assert csv[1].startswith(f"{simhash(FOX)},0,1.0,{values['same'][0]},{FOX.upper()},same")
    table = run(*search, "--similarity", 0, *columns, "--format", "table").done().lines
    assert [line.split()[2] for line in table] == ["similarity", "1.00", "0.64"]
    run(*search, *columns).failed(2, "--text-column and --sketch-column need --similarity")
    run(*search, "--similarity", 1, *columns[4:]).failed(2, "post(fp) has no source, so there is no single text")
    posts.execute("SELECT simsql.alter_index('post', 'fp', sources => '{\"body\": 1}')")
    for more in ([], columns[2:4]):
        assert "same" in run(*search, "--similarity", 1, *columns[4:], *more).done().out
    posts.execute("SELECT simsql.alter_index('post', 'fp', sources => '{\"body\": 1, \"slug\": 1}')")
    run(*search, *columns[4:]).failed(2, "pass a fingerprint or, in Python, text={'body': ..., 'slug': ...}")


@pytest.mark.parametrize("type_name", ["text", "integer", "numeric(20,0)"])
def test_fingerprints_go_into_a_bigint_column_alone(posts, database_url, type_name):
    posts.execute(f"ALTER TABLE post ADD COLUMN other {type_name}")
    found = run("load", "post", "-", "--column", "other", "--database", database_url, stdin=b'{"text": "a"}')
    found.failed(2, f"column other of post is {type_name}, not bigint")
    assert stored(posts) == []


def test_only_what_is_named_is_stored(posts, database_url):
    data = json.dumps({"key": "k", "content": FOX}).encode()
    options = ["--text-field", "content", "--id-field", "key", "--database", database_url]
    run("load", "public.post", "-", *options, stdin=data).done()
    run("load", "post", "-", "--id-column", "slug", *options, stdin=data).done()
    run("load", "post", "-", "--text-column", "body", *options, stdin=data).done()
    number = to_bigint(simhash(FOX))
    assert stored(posts) == [(None, None, number), ("k", None, number), (None, FOX, number)]


def test_the_recipe_is_that_of_the_index(connection, database, database_url, tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", {"x": FOX})
    recipe = Recipe(tokens="characters", shingles=(4,))
    connection.execute("CREATE TABLE post (title bigint, fp bigint, plain bigint)")
    with database.begin() as transaction:
        index_column(transaction, "post", "title", recipe=recipe)
        index_column(transaction, "post", "fp")
    options = [lines, "--database", database_url]
    run("load", "post", *options).failed(2, "post has several simhash indexes (title, fp): name the column")
    for column in ("title", "fp", "plain"):
        run("load", "post", *options, "--column", column).done()
    number, other = to_bigint(simhash(FOX)), to_bigint(simhash(FOX, recipe))
    found = connection.execute("SELECT * FROM post").fetchall()
    assert found == [(other, None, None), (None, number, None), (None, None, number)]


def test_many_documents_are_loaded_by_several_processes(posts, database_url, tmp_path):
    texts = {f"id {number}": f"text of the document number {number} " * 4 for number in range(12_000)}
    lines = write_lines(tmp_path / "a.jsonl", texts)
    run("load", "post", lines, "--id-column", "slug", "--database", database_url).done()
    assert [name for name, _, _ in stored(posts)] == list(texts)
    assert missing_keys(posts, "post") == []
    name, last = list(texts.items())[-1]
    number = to_bigint(simhash(last))
    assert (number, 0) in near(posts, number, 0, table="post")
    assert stored(posts)[-1] == (name, None, number)


def test_repeated_ids_are_skipped_and_named(posts, database_url, tmp_path):
    first = write_lines(tmp_path / "first.jsonl", {"a": "some words", "b": "other words"})
    rows = [("c", "new"), ("b", "in the table"), ("d", "?!"), ("c", "again"), ("e", "new as well"), ("d", "?!")]
    second = write_lines(tmp_path / "second.jsonl", [{"id": name, "text": text} for name, text in rows])
    options = ["--id-column", "slug", "--text-column", "body", "--database", database_url]
    run("load", "post", first, *options).done()
    found = run("load", "post", second, *options).done()
    assert found.err.splitlines()[:3] == [
        f"skipped {second}:2: duplicate id: 'b' is already in post",
        f"skipped {second}:4: duplicate id: 'c' was already read at {second}:1",
        f"skipped {second}:6: duplicate id: 'd' was already read at {second}:3",
    ]
    assert found.table["documents"] == found.table["duplicate id"] == "3"
    assert found.table["without words: no fingerprint"] == "1"
    assert [row[:2] for row in stored(posts)] == [
        ("a", "some words"),
        ("b", "other words"),
        ("c", "new"),
        ("d", "?!"),
        ("e", "new as well"),
    ]
    assert missing_keys(posts, "post") == []
    again = run("load", "post", second, first, *options).done()
    assert (again.table["documents"], again.table["duplicate id"]) == ("0", "8")


def test_a_load_adds_all_or_nothing(posts, database_url, tmp_path):
    lines = write_lines(tmp_path / "a.jsonl", {"c": "more words", "long": "x" * 100, "d": "other words"})
    options = ["--database", database_url]
    run("load", "post", lines, "--id-column", "slug", *options).done()
    before = stored(posts)
    posts.execute("ALTER TABLE post ADD short varchar(50), ADD CONSTRAINT few CHECK (slug <> 'few')")
    # Every one of them names the document, also beside repeated ids.
    for texts, options_, said in (
        ({"e": "e", "long": "x" * 100}, ["--text-column", "short"], ":2: id 'long': PostgreSQL: value too long"),
        (
            {"c": "c", "long": "x" * 100},
            ["--text-column", "short"],
            ":2: id 'long': PostgreSQL: value too long",
        ),
        ({"e": "e", "few": "f"}, [], ":2: id 'few': PostgreSQL: new row for relation"),
        ({"c": "c", "g": "g", "few": "f"}, [], ":3: id 'few': PostgreSQL: new row for relation"),
    ):
        path = write_lines(tmp_path / "b.jsonl", texts)
        run("load", "post", path, "--id-column", "slug", *options_, *options).failed(1, f"{path}{said}")
    path = write_lines(tmp_path / "c.jsonl", {"7": "seven", "x": "no number"})
    run("load", "post", path, "--id-column", "number", "--column", "fp", *options).failed(
        1, f"{path}:2: id 'x': PostgreSQL: invalid input syntax for type bigint"
    )
    run("load", "post", lines, "--id-column", "fp", *options).failed(1, "PostgreSQL: ")
    run("load", "post", lines, "--id-column", "nothing", *options).failed(2, "nothing")
    assert stored(posts) == before


def test_a_damaged_file_is_not_loaded_in_part(posts, database_url, tmp_path):
    """Batches that are compared stay: the same call loads the rest of the mended file."""
    path = tmp_path / "a.csv"
    options = [path, "--id-column", "slug", "--text-column", "body", "--database", database_url]
    rows = [f"{number},{FOX} {number} {number * 7919} {number * 104729}\n" for number in range(20)]
    path.write_text("id,text\n" + "".join(rows).replace("\n10,", '\n10,"'))
    said = f"{path} was not read in full (corrupt: line 12: a quote is never closed: 10 lines are lost;"
    found = run("load", "post", *options)
    assert (found.code, f"error: nothing is loaded: {said}" in found.err) == (1, True)
    assert f"skipped {path}: corrupt: line 12: " in found.err
    assert stored(posts) == []
    found = run("load", "post", *options, "--unique", "--distance", 0)
    assert (found.code, f"error: the results are incomplete: {said}" in found.err) == (1, True)
    assert [row[0] for row in stored(posts)] == [str(number) for number in range(10)]
    path.write_text("id,text\n" + "".join(rows))
    run("load", "post", *options, "--unique", "--distance", 0).done()
    assert [row[0] for row in stored(posts)] == [str(number) for number in range(20)]


def test_texts_that_postgresql_cannot_store_are_skipped_where_they_would_be(posts, database_url):
    texts = {"nul": "a \0 word", "half": "a \ud800 word", "x": "b"}
    data = "".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()).encode()
    options = ["--id-column", "slug", "--database", database_url]
    found = run("load", "post", "-", "--text-column", "body", *options, stdin=data).done()
    assert "skipped stdin:1: not storable" in found.err
    assert "skipped stdin:2: not storable" in found.err
    assert [name for name, _, _ in stored(posts)] == ["x"]
    posts.execute("TRUNCATE post")
    run("load", "post", "-", *options, stdin=data).done()
    assert [name for name, _, _ in stored(posts)] == ["nul", "half", "x"]


def test_what_cannot_be_loaded(posts, database_url, tmp_path):
    posts.execute("CREATE TABLE plain (f bigint)")
    options = ["--database", database_url]
    lines = write_lines(tmp_path / "a.jsonl", {"x": FOX})
    run("load", "plain", lines, *options).failed(2, "plain has no simhash index: name the column")
    run("load", "missing", lines, *options).failed(2, 'relation "missing" does not exist')
    run("load", "post", tmp_path / "nothing", *options).failed(2, "no such file or folder")
    (tmp_path / "empty").mkdir()
    run("load", "post", tmp_path / "empty", *options).failed(1, "no documents in")
    run("load", "post", "-", *options, stdin=b"oops\n").failed(1, "no documents in -: skipped 1 not JSON")
    assert stored(posts) == []


def test_a_database_without_simsql(empty_database, tmp_path):
    url = empty_database.url.render_as_string(hide_password=False)
    with empty_database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE post (fp bigint)")
    lines = write_lines(tmp_path / "a.jsonl", {"x": FOX})
    for command in (["load", "post", lines], ["pairs", "post"], ["clusters", "post"]):
        run(*command, "--database", url).failed(1, "simsql is not installed in the database: run simsql install")


# pairs and clusters


def fill_articles(connection):
    """Two clusters, one of them with a chain, and a fingerprint on two rows."""
    create_articles(connection, [0, 7, 7 | 56, -1, -2, 2**40, 2**40, 2**50, None])


def test_pairs(articles, database_url):
    options = ["--database", database_url]
    found = [json.loads(line) for line in run("pairs", "article", *options).done().lines]
    ones = 2**64 - 1
    expected = [
        {"a": 0, "b": 7, "distance": 3},
        {"a": 0, "b": 2**40, "distance": 1},
        {"a": 0, "b": 2**50, "distance": 1},
        {"a": 7, "b": 63, "distance": 3},
        {"a": 2**40, "b": 2**50, "distance": 2},
        {"a": ones - 1, "b": ones, "distance": 1},
    ]
    assert sorted(found, key=lambda pair: (pair["a"], pair["b"])) == expected
    found = run("pairs", "public.article", "--distance", 1, "--column", "fingerprint", *options).done()
    assert len(found.lines) == 3
    found = run("pairs", "article", "--distance", 0, *options).done()
    assert (found.out, found.err) == ("", "there are no pairs\n")


def test_clusters(articles, database_url):
    options = ["--database", database_url]
    found = [json.loads(line) for line in run("clusters", "article", *options).done().lines]
    ones = 2**64 - 1
    assert found == [
        {"cluster": ones - 1, "fingerprints": [ones - 1, ones]},
        {"cluster": 0, "fingerprints": [0, 7, 63, 2**40, 2**50]},
    ]
    found = run("clusters", "article", "--distance", 0, *options).done()
    assert [json.loads(line) for line in found.lines] == [{"cluster": 2**40, "fingerprints": [2**40]}]


def test_into_a_table(articles, database_url):
    options = ["--database", database_url]
    assert run("pairs", "article", "--into", "near_pairs", *options).done().out == "near_pairs: 6 rows\n"
    assert run("clusters", "article", "--into", "public.groups", *options).done().out == "public.groups: 7 rows\n"
    pairs = articles.execute("SELECT * FROM near_pairs").fetchall()
    assert sorted(pairs) == articles.execute("SELECT * FROM simsql.pairs('article', 3) ORDER BY 1, 2").fetchall()
    members = articles.execute("SELECT * FROM groups").fetchall()
    assert members == articles.execute("SELECT * FROM simsql.clusters('article', 3)").fetchall()
    run("pairs", "article", "--into", "near_pairs", *options).failed(1, 'relation "near_pairs" already exists')


def test_what_cannot_be_listed(articles, database_url):
    options = ["--database", database_url]
    for command in ("pairs", "clusters"):
        run(command, "missing", *options).failed(2, 'relation "missing" does not exist')
        run(command, "article", "--column", "body", *options).failed(2, "no simhash index on column body")
        run(command, "article", "--distance", 65, *options).failed(2, "between 0 and 64, not 65")
        run(command, "article", "--into", "a.b.c", *options).failed(2, "not a table name")


FORMS = {  # of -1, 2**63 and 0x1234567890123456, which only has decimal digits
    "hex.csv": ("h", "id,h\n1,ffffffffffffffff\n2,0x8000000000000000\n3,1234567890123456\n4,12\n5,\n"),
    "unpadded.csv": ("h=hex", "id,h\n1,0xFFFFFFFFffffffff\n2,8000000000000000\n3,1234567890123456\n4,+12\n5,\n"),
    "decimal.csv": ("h=decimal", f"id,h\n1,-1\n2,{2**63}\n3,{0x1234567890123456}\n4,ffffffffffffffff\n5,\n"),
    "hex.jsonl": (
        "h",
        '{"id": 1, "h": -1}\n{"id": 2, "h": "8000000000000000"}\n{"id": 3, "h": 1311768467284833366}\n'
        '{"id": 4, "h": 1.5}\n{"id": 5, "h": null}\n',
    ),
}


@pytest.mark.parametrize("name", [*FORMS, "h.parquet", "bytes.parquet"])
def test_fingerprints_that_are_there_are_loaded(posts, database_url, tmp_path, name):
    expected = [("1", -1), ("2", -(2**63)), ("3", 0x1234567890123456)]
    source = tmp_path / name
    if name in FORMS:
        field, content = FORMS[name]
        source.write_text(content)
    else:
        field, numbers = "h", [number for _, number in expected]
        column = (
            pyarrow.array([*numbers, None])
            if name == "h.parquet"
            else pyarrow.array([*(number.to_bytes(8, signed=True) for number in numbers), b"\0"])
        )
        parquet.write_table(pyarrow.table({"id": [1, 2, 3, 4], "h": column}), source)
    options = ["--fingerprint-field", field, "--id-column", "slug", "--database", database_url]
    (tmp_path / "text.txt").write_text(FOX)
    found = run("load", "post", source, tmp_path / "text.txt", *options)
    assert found.code == 1
    assert f"error: nothing is loaded: {tmp_path}/text.txt was not read (not a fingerprint: " in found.err
    assert posts.execute("SELECT count(*) FROM post").fetchone() == (0,)
    assert f"skipped {tmp_path}/text.txt: not a fingerprint: only records have fingerprints" in found.err
    found = run("load", "post", source, *options).done()
    assert found.table["documents"] == "3"
    assert ("not a fingerprint: the field 'h' is " in found.err) == (name != "h.parquet")
    assert posts.execute("SELECT slug, fp FROM post ORDER BY slug").fetchall() == expected
    assert missing_keys(posts, "post") == []


def test_fingerprints_are_not_texts(tmp_path):
    (tmp_path / "a.csv").write_text("h\n12\n")
    found = run("load", "post", tmp_path, "--fingerprint-field", "h", "--text-column", "body")
    found.failed(2, "--fingerprint-field reads no texts: leave out --text-field, --text-column")
