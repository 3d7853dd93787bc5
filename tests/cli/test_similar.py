"""`simsql similar`, and `simsql fingerprint --query`, which makes the query of the same search in SQL."""

import json

import pytest
from program import run
from psycopg import errors

from simsql import simhash, similarity, sketch, visible_text
from simsql.database import to_bigint
from simsql.fingerprint import KNOWN_RECIPES, show_similarity

WORDS = [f"w{place}x3060" for place in range(120)]
TEXT = " ".join(WORDS)
EDITED = " ".join("edited" if place % 14 == 0 else word for place, word in enumerate(WORDS))
BODIES = {"same": TEXT.upper(), "edited": EDITED, "half": " ".join([*WORDS[:60], *"abcdefgh"]), "empty": ""}


def fill_articles(connection):
    """Texts beside their fingerprints, one of them stale."""
    connection.execute("CREATE TABLE article (id text PRIMARY KEY, body text, sketch bigint, fp bigint)")
    for name, body in BODIES.items():
        numbers = [None if found is None else to_bigint(found) for found in (sketch(body), simhash(body))]
        connection.execute("INSERT INTO article VALUES (%s, %s, %s, %s)", [name, body, *numbers])
    connection.execute("INSERT INTO article SELECT 'stale', body, sketch, ~fp FROM article WHERE id = 'same'")
    connection.execute(
        "SELECT simsql.create_index('article', 'fp', recipe => 'words12-log-1', sources => '{\"body\": 1}')"
    )


pytestmark = pytest.mark.usefixtures("articles")


@pytest.fixture
def similar(database_url):
    return lambda *arguments, **options: run(
        "similar", "article", *arguments, "--database", database_url, **options
    )


def test_the_most_similar_rows_come_first(similar, tmp_path):
    found = similar("--text", TEXT).done()
    assert found.err == ""
    rows = [json.loads(line) for line in found.lines]
    assert list(rows[0]) == ["fingerprint", "distance", "similarity", "row"]
    exact = similarity(TEXT, EDITED)
    assert [(row["row"]["id"], row["similarity"]) for row in rows] == [("same", 1.0), ("edited", exact)]
    (tmp_path / "a.txt").write_text(TEXT)
    assert similar("--file", tmp_path / "a.txt", "--sketch-column", "sketch").done().lines == found.lines
    assert similar("--text", "-", "--text-column", "body", stdin=TEXT.encode()).done().lines == found.lines
    assert similar("--text", TEXT, "--limit", 1).done().lines == found.lines[:1]
    assert similar("--text", TEXT, "--similarity", 0.9).done().lines == found.lines[:1]
    table = similar("--text", TEXT, "--limit", 1, "--format", "csv").done().lines
    assert table[0] == "fingerprint,distance,similarity,fp,id,body,sketch"


def test_what_cannot_be_searched_for(similar, database_url, connection):
    assert similar("--text", "something else").done().err == "no matches\n"
    similar().failed(2, "use either --text or --file")
    similar("--text", TEXT, "--file", "a.txt").failed(2, "use either --text or --file")
    similar("--text", "?!").failed(1, "the text has too few letters and digits for a fingerprint")
    similar("--text", TEXT, "--recall", 1).failed(2, "recall must be below 1")
    similar("--text", TEXT, "--sketch-column", "nothing").failed(2, "nothing")
    connection.execute("SELECT simsql.drop_index('article')")
    similar("--text", TEXT).failed(2, "simhash index")


def test_a_recall_that_is_out_of_reach_is_a_remark(similar):
    found = similar("--text", TEXT, "--similarity", 0.3, "--recall", 0.99).done()
    assert len(found.lines) == 3
    assert found.err.startswith("a search for texts of similarity 0.3 is expected to find 0.")
    assert found.err.count("\n") == 1
    assert similar("--text", TEXT, "--similarity", 0.3, "--recall", 0.99, "--quiet").done().err == ""


def test_why_a_row_is_found_or_not(similar):
    def explain(key, *options):
        return similar("--text", TEXT, *options, "--explain", key).done().lines[-1]

    exact = show_similarity(similarity(TEXT, EDITED))
    assert explain("edited") == f"found: the search finds it: similarity {exact} is at least 0.6"
    assert explain("edited", "--similarity", 0.9) == f"not found: similarity {exact} is below 0.9"
    assert explain("half").startswith("not found: similarity 0.")
    assert explain("empty").startswith("not found: column fp of the row is null")
    unlikely = "not found: its fingerprint is an unlikely one for such a text: the search expects to find 0.94 of"
    assert explain("stale").startswith(unlikely)
    assert explain("stale").endswith("by another recipe, or the text has changed since")


def test_near_compares_the_fingerprint_of_a_row_with_the_sources_of_the_index(connection, database_url):
    def explain(key):
        search = ("near", "article", "--fingerprint", simhash(TEXT), "--explain", key)
        return run(*search, "--database", database_url).done().lines[-1]

    assert explain("half").startswith("not found: distance ")
    assert explain("half").endswith(" is above 3")
    connection.execute("ALTER TABLE article ADD head text")
    for sources in ('{"body": 1}', '{"body": 1, "head": 2}'):
        connection.execute("SELECT simsql.alter_index('article', 'fp', sources => %s)", [sources])
        assert explain("stale").endswith("by another recipe, or the text has changed since")


def test_the_texts_of_several_columns_are_joined(similar, connection, database_url):
    connection.execute("ALTER TABLE article ADD head text, ADD rest text")
    connection.execute(
        r"UPDATE article SET head = substring(body FROM '^(?:\S+ ){9}');"
        " UPDATE article SET rest = substr(body, coalesce(length(head), 0) + 1), head = nullif(head, '')"
    )
    columns = ["--text-column", "head", "--text-column", "rest"]
    near = ["near", "article", "--distance", 20, "--database", database_url]
    for search in (similar, lambda *more: run(*near, "--similarity", 0.6, *more)):
        found = search("--text", TEXT, *columns).done().lines
        assert found == search("--text", TEXT).done().lines != []
        assert search("--text", TEXT, "--text-column", "head").done().lines == []
        first, backwards = found[0], search("--text", TEXT, *columns[2:], *columns[:2]).done().lines[0]
        assert json.loads(backwards)["similarity"] < json.loads(first)["similarity"] == 1
        explained = search("--text", TEXT, *columns, "--explain", "edited").done().lines
        assert explained == search("--text", TEXT, "--explain", "edited").done().lines
        wrong = search("--text", TEXT, *columns, "--sketch-column", "sketch")
        wrong.failed(2, "a sketch is of one text, not of head, rest: omit sketch_column")
        search("--text", TEXT, *columns, "--text-column", "fp").failed(
            2, "column fp of article is bigint, not text"
        )


def test_columns_of_html_have_a_recipe_with_a_function(database_url, connection, tmp_path):
    """As `load`, `backfill`, `near`, `similar`, `dedup-table` and `index verify` have it."""
    connection.execute("CREATE TABLE page (id text PRIMARY KEY, body text, fp bigint)")
    given = ["--database", database_url]
    recipe = "words12-log-1 of simsql.visible_text"
    run("index", "create", "page", "fp", "--recipe", recipe, "--source", "body", *given).done()
    html = f"<nav class=a><p>{TEXT[:300]}</p><!-- {TEXT} --><p>{TEXT[300:]}</p><script>no()</script></nav>"
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "loaded", "text": html}))
    run("load", "page", tmp_path / "a.jsonl", "--id-column", "id", "--text-column", "body", *given).done()
    connection.execute(
        "INSERT INTO page VALUES ('filled', %s), ('other', '<b>text</b>')", [html.replace("p>", "div>")]
    )
    assert run("backfill", "page", *given).done().lines == ["Fingerprinted 2 rows"]
    plain = visible_text(html)
    for search in (["similar"], ["near", "--similarity", 0.9]):
        rows = [json.loads(row) for row in run(*search, "page", "--text", plain, *given).done().lines]
        assert sorted((row["row"]["id"], row["similarity"]) for row in rows) == [("filled", 1.0), ("loaded", 1.0)]
        explained = run(*search, "page", "--text", plain, "--explain", "filled", *given).done().lines
        assert "similarity 1.00 is at least" in explained[-1]
    assert run("index", "verify", "page", "--texts", *given).done().lines == []
    decided = run("dedup-table", "page", "--into", "decisions", *given).done().table
    assert (decided["rows that could be dropped"], decided["identical"]) == ("1", "1")


def test_titles_are_compared_by_their_trigrams(database_url, connection):
    title = "Deep learning for protein design"
    fingerprint = to_bigint(simhash(title.replace("protein", "proteins"), KNOWN_RECIPES["pg_trgm"]))
    connection.execute("CREATE TABLE paper (id integer PRIMARY KEY, title text, fp bigint)")
    connection.execute("INSERT INTO paper VALUES (1, 'Deep learning for proteins design', %s)", [fingerprint])
    connection.execute(
        "SELECT simsql.create_index('paper', 'fp', recipe => 'trigrams1-set-1', sources => '{\"title\": 1}')"
    )
    search = ["similar", "paper", "--text", title, "--database", database_url]
    (found,) = run(*search).done().lines
    assert json.loads(found)["similarity"] > 0.9
    explained = run(*search, "--similarity", 0.99, "--explain", 1).done().lines[-1]
    assert explained == "not found: similarity 0.90 is below 0.99"
    near = ["near", *search[1:], "--distance", 64, "--similarity", 0.5, "--explain", 1]
    assert run(*near).done().lines[-1].endswith("similarity 0.90 is at least 0.5")


def test_the_query_of_a_file_searches_in_sql(connection, tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    query = run("fingerprint", tmp_path / "a.txt", "--query").done().out
    search = (
        "SELECT id, n.distance FROM simsql.similar_candidates('article', %s) AS n JOIN article ON fp = fingerprint"
    )
    found = connection.execute(search, [query]).fetchall()
    assert ("same", 0) in found
    assert {name for name, _ in found} >= {"same", "edited"}
    options = ["--similarity", 0.9, "--recall", 0.5, "--recipe", "words12-log-1"]
    fewer = json.loads(run("fingerprint", tmp_path / "a.txt", "--query", *options).done().out)
    assert fewer[0]["cost"] < json.loads(query)[0]["cost"]
    other = run("fingerprint", tmp_path / "a.txt", "--query", "--blocks", 5, "--lead", 2).done().out
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"design \[4, 1, 0\], .* for \[5, 2, 0\]"):
        connection.execute(search, [other])


def test_queries_of_lines():
    text = f"{TEXT}\n--\n{EDITED}\n"
    found = run("fingerprint", "-", "--lines", "--query", stdin=text.encode()).done()
    first, none, last = found.lines
    assert none == ""
    assert [json.loads(query)[0]["fingerprint"] for query in (first, last)] == [
        to_bigint(simhash(TEXT)),
        to_bigint(simhash(EDITED)),
    ]
    run("fingerprint", "-", "--blocks", 5).failed(2, "add --query")
    for option in ("--sketches", "--encode=hex"):
        run("fingerprint", "-", "--query", option).failed(2, "leave out --sketches and --encode")
    run("fingerprint", "-", "--lines", "--query", "--recipe", "phash", stdin=text.encode()).failed(2, "use near")
