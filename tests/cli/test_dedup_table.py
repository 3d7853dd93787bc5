"""`simsql dedup-table`: what it prints, and what it refuses."""

import csv
import json
import re

import pytest
from corpus import make_texts
from program import run, write_lines

FOX = "The quick brown fox jumps over the lazy dog and runs away from the old barn near the river"
STAGES = ("sort keys", "read and fingerprint", "check texts", "find clusters", "write decisions")
TIMES = dict.fromkeys(("seconds", *STAGES), "")


@pytest.fixture
def articles(connection, database_url):
    connection.execute("CREATE TABLE article (slug text PRIMARY KEY, body text, score int)")
    texts = {
        "a": FOX,
        "b": f"{FOX} bank",
        "c": FOX.upper(),
        "d": "Nothing else is like this",
        "e": None,
        "f": "?!",
    }
    for score, (slug, text) in enumerate(texts.items()):
        connection.execute("INSERT INTO article VALUES (%s, %s, %s)", [slug, text, score])
    options = ["--text-column", "body", "--database", database_url]
    return connection, lambda *more, table="article": run("dedup-table", table, *options, *more)


def test_decisions_go_to_a_new_table(articles):
    connection, dedup = articles
    found = dedup("--into", "decisions").done()
    assert found.lines == ["decisions: 4 rows"]
    assert found.table | TIMES == {
        "rows": "6",
        "without a text: not decided": "1",
        "without words: not decided": "1",
        "clusters": "1",
        "rows in them": "3",
        "rows that could be dropped": "2",
        "similar": "2",
        **TIMES,
    }
    assert connection.execute(
        "SELECT slug, drop, distance > 0, kept_slug FROM decisions ORDER BY 1"
    ).fetchall() == [
        ("a", True, True, "b"),
        ("b", False, False, "b"),
        ("c", True, True, "b"),
        ("d", False, False, "d"),
    ]
    dedup("--into", "decisions").failed(2, "decisions exists already: choose another name with --into")


def test_decisions_are_those_about_the_same_texts_in_files(connection, database_url, tmp_path):
    texts = make_texts(5, families=150, alone=30)
    texts |= {f"copy of {name}": text.upper() for name, text in texts.items() if len(name) % 2}
    lines = write_lines(tmp_path / "texts.jsonl", texts)
    connection.execute('CREATE TABLE article (id text COLLATE "C" PRIMARY KEY, body text, fingerprint bigint)')
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', recipe => 'words12-log-1')")
    columns = ["--id-column", "id", "--text-column", "body", "--database", database_url]
    run("load", "article", lines, *columns).done()
    pages = tmp_path / "table.html", tmp_path / "files.html"
    run("dedup-table", "article", *columns[2:], "--into", "decisions", "--report", pages[0]).done()
    of_files = run("dedup", lines, "--format", "csv", "--quiet", "--report", pages[1]).done()
    rows = csv.DictReader(of_files.lines)
    clustered = {row["id"]: (row["kept"], row["representative"]) for row in rows}
    found = connection.execute("SELECT id, kept_id, representative_id FROM decisions").fetchall()
    assert {name: (kept, star) for name, kept, star in found} == {
        name: clustered.get(name, (name, name)) for name in texts
    }
    assert 100 < sum(kept != name for name, (kept, _) in clustered.items()) < len(clustered) < len(texts)
    shown = [read_page(page) for page in pages]
    assert shown[0] == shown[1]
    assert sum(map(len, shown[0][1])) == len(clustered)
    # Two that are together, and two that are alone.
    dropped = next(name for name, (kept, _) in clustered.items() if kept != name)
    alone = [name for name in texts if name not in clustered]
    for pair in [(dropped, clustered[dropped][0]), (alone[0], dropped), alone[:2]]:
        explained = run("dedup-table", "article", *columns[2:], "--explain", *pair).done()
        assert explained.lines == run("dedup", lines, "--explain", *pair).done().lines
    assert connection.execute("SELECT count(*) FROM pg_class WHERE relname LIKE 'simsql%%'").fetchone() == (0,)


def read_page(page):
    """The texts of a report, and of its clusters the members but their places."""
    scripts = re.findall(r"<script[^>]*>([\[{].*?)</script>", page.read_text(encoding="utf-8"), re.DOTALL)
    *chunks, index = map(json.loads, scripts)
    return chunks, [[(row[0], row[2:8]) for row in rows] for *_, rows in index["clusters"]]


@pytest.mark.unpooled("PgBouncer answers for a session that was ended")
def test_the_reason_of_a_lost_connection_is_shown(articles):
    _, dedup = articles
    ended = "terminating connection due to administrator command"  # older versions of psycopg say more before it
    dedup("--into", "decisions", "--where", "pg_terminate_backend(pg_backend_pid())").failed(1, ended)


def test_options_are_those_of_files(articles):
    connection, dedup = articles
    dedup("--into", "by_score", "--keep-field", "score", "--quiet", "--workers", 1).done()
    assert connection.execute("SELECT DISTINCT kept_slug FROM by_score WHERE drop").fetchall() == [("c",)]
    assert dedup("--into", "near", "--distance", 0, "--similarity", 0).done().table["rows in them"] == "2"
    strict = dedup("--into", "strict", "--drop-similarity", 1, "--recipe", "words1-set-1").done()
    assert strict.table["rows that could be dropped"] == "1"


def test_scopes_conditions_and_earlier_decisions(articles):
    connection, dedup = articles
    connection.execute("ALTER TABLE article ADD lang text; UPDATE article SET lang = 'en' WHERE slug <> 'c'")
    found = dedup("--into", "decisions", "--scope-column", "lang", "--scope-column", "lang").done()
    assert found.lines == ["decisions: 3 rows"]
    assert found.table["without a scope: not decided"] == found.table["rows that could be dropped"] == "1"
    some = dedup("--into", "decisions", "--replace", "--where", "lang = 'en' AND slug < 'b'", "--quiet").done()
    assert some.lines == ["decisions: 1 rows"]
    dedup("--into", "decisions", "--replace", "--where", "lang =").failed(2, "--where is not a condition on")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["article", "--text-column", "body"], "name the table for the decisions with --into"),
        (
            ["article", "--text-column", "body", "--into", "a", "--explain", "b", "c"],
            "--explain writes no decisions",
        ),
        (
            ["article", "--text-column", "body", "--report", "a", "--explain", "b", "c"],
            "leave out --into, --replace",
        ),
        (["article", "--text-column", "body", "--explain", "b", "b"], "'b' is one row: name two"),
        (["article", "--text-column", "a", "--into", "b", "--keep", "first", "--keep-field", "c"], "exclude each"),
        (["article", "--text-column", "a", "--into", "b", "--all-scopes", "--scope-column", "c"], "exclude each"),
    ],
)
def test_options_that_are_missing_or_do_not_fit(arguments, part):
    run("dedup-table", *arguments).failed(2, part)


def test_the_index_names_the_text_column(articles, database_url):
    connection, dedup = articles
    search = ["dedup-table", "article", "--database", database_url]
    run(*search, "--into", "decisions").failed(2, "name it with --text-column")
    connection.execute("ALTER TABLE article ADD fp bigint")
    create = "SELECT simsql.create_index('article', 'fp', recipe => 'words12-log-1')"
    connection.execute(create)
    run(*search, "--into", "decisions").failed(2, "--text-column")
    connection.execute("SELECT simsql.alter_index('article', sources => '{\"body\": 1}')")
    assert run(*search, "--into", "decisions").done().lines == ["decisions: 4 rows"]
    explained = dedup("--explain", "a", "b").done().lines
    assert run(*search, "--explain", "a", "b").done().lines == explained


def test_several_columns_are_compared_as_one_text(articles):
    """The last one used to decide alone."""
    connection, dedup = articles
    connection.execute("ALTER TABLE article ADD title text DEFAULT 'Weekly'")
    found = dedup("--text-column", "title", "--into", "decisions").done()
    assert (found.lines, found.table["rows that could be dropped"]) == (["decisions: 6 rows"], "3")
    dropped = connection.execute("SELECT slug FROM decisions WHERE drop ORDER BY 1").fetchall()
    assert dropped == [("a",), ("c",), ("e",)]  # and neither d, nor e for b
    explained = dedup("--text-column", "title", "--explain", "e", "f").done()
    assert explained.lines[-1].startswith("together: ")
    # An empty text is left out, as an empty field of a record is.
    connection.execute("UPDATE article SET title = ''; INSERT INTO article VALUES ('g', NULL, 1, NULL)")
    connection.execute("INSERT INTO article VALUES ('h', %s, 1, NULL)", [FOX])
    exact = dedup("--text-column", "title", "--exact", "--into", "exact").done()
    assert [exact.table[f"{what}: not decided"] for what in ("empty", "without a text")] == ["1", "1"]
    assert connection.execute("SELECT slug, kept_slug FROM exact WHERE drop").fetchall() == [("h", "a")]


def test_the_main_content_of_pages_is_compared(articles):
    connection, dedup = articles
    pages = {
        "g": f"<title>News</title><nav>Home</nav><p>{FOX}</p>",
        "h": f"<h1>News</h1>Home <b>{FOX.upper()}</b>",
    }
    connection.execute("DELETE FROM article")
    for slug, page in pages.items():
        connection.execute("INSERT INTO article VALUES (%s, %s)", [slug, page])
    for options, dropped in (((), "0"), (["--html", "main"], "1")):
        found = dedup("--into", "decisions", "--replace", *options).done()
        assert found.table["rows that could be dropped"] == dropped
    explained = dedup("--html", "main", "--explain", "g", "h").done()
    assert "same words" in explained.lines[-1]


def test_errors_of_postgresql(articles, database_url):
    _, dedup = articles
    dedup("--into", "missing.decisions").failed(2, 'PostgreSQL: schema "missing" does not exist')
    dedup("--into", "decisions", table="99999").failed(2, "there is no table 99999")
    dedup("--into", "decisions", table="missing").failed(2, 'PostgreSQL: relation "missing" does not exist')


def test_short_texts_are_compared_by_their_features(articles):
    connection, dedup = articles
    connection.execute("DELETE FROM article")
    for slug, body in (("a", "blue steel desk lamp"), ("b", "steel desk lamp"), ("c", "round oak chair")):
        connection.execute("INSERT INTO article VALUES (%s, %s, 1)", [slug, body])
    for options, dropped in (((), "0"), (("--by-features",), "1")):
        found = dedup("--into", "decisions", "--replace", *options).done()
        assert found.table["rows that could be dropped"] == dropped
    ((similarity,),) = connection.execute("SELECT similarity FROM decisions WHERE drop").fetchall()
    assert similarity == pytest.approx(5 / 7)


def test_identical_texts_alone(articles):
    connection, dedup = articles
    connection.execute("INSERT INTO article VALUES ('g', '?!'), ('h', ''), ('i', ''), ('j', %s)", [FOX])
    found = dedup("--exact", "--into", "decisions").done()
    rows = connection.execute("SELECT slug, kept_slug, kind FROM decisions WHERE drop ORDER BY slug").fetchall()
    assert rows == [("g", "f", "identical"), ("j", "a", "identical")]
    assert found.table["empty: not decided"] == "2"
    assert dedup("--exact", "--explain", "h", "i").done().lines[-1] == "apart: h is empty"
