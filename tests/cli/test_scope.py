"""`--scope-column` and `--scope` of `simsql index`, `near`, `pairs` and `clusters`."""

import json

import pytest
from program import run
from servers import find_programs

import simsql as library
from simsql.database import open_engine

pytestmark = pytest.mark.parametrize(
    "server", find_programs()[:1], indirect=True, ids=lambda program: program.name
)


@pytest.fixture
def simsql(database_url, connection):
    """Run a command on a database with the table `article`."""
    connection.execute(
        "CREATE TABLE article (id integer, tenant integer, lang text, fingerprint bigint);"
        "INSERT INTO article VALUES"
        " (1, 1, 'de', 0), (2, 1, 'de', 1), (3, 1, 'a=b', 1), (4, 2, 'de', 3), (5, 1, 'de', 7)"
    )
    return lambda *arguments: run(*arguments, "--database", database_url)


@pytest.mark.parametrize("options", [[], ["--concurrently"]], ids=["at once", "concurrently"])
def test_an_index_with_a_scope_is_made_listed_and_searched(simsql, options):
    columns = ["--scope-column", "tenant", "--scope-column", "lang"]
    simsql("index", "create", "article", "fingerprint", *columns, *options).done()
    assert json.loads(simsql("index", "list").done().out)["scope"] == ["tenant", "lang"]
    scope = ["--scope", "tenant=1", "--scope", "lang=de"]
    found = simsql("near", "article", "--fingerprint", 0, *scope).done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [1, 2, 5]
    found = simsql("near", "article", "--fingerprint", 0, "--scope", "tenant=1", "--scope", "lang=a=b").done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [3]
    found = simsql("pairs", "article", "--distance", 1, *scope).done()
    assert [json.loads(line) for line in found.lines] == [{"a": 0, "b": 1, "distance": 1}]
    found = simsql("clusters", "article", "--distance", 1, *scope).done()
    assert [json.loads(line) for line in found.lines] == [{"cluster": 0, "fingerprints": [0, 1]}]


def test_a_wrong_scope(simsql):
    simsql("index", "create", "article", "fingerprint", "--scope-column", "missing").failed(
        2, "has no column missing"
    )
    simsql("index", "create", "article", "fingerprint", "--scope-column", "tenant").done()
    for command in (["near", "--fingerprint", 0], ["pairs"], ["clusters"]):
        name, *options = command
        simsql(name, "article", *options).failed(1, "needs a scope", "--scope")
        simsql(name, "article", *options, "--scope", "lang=de").failed(1, "no value for tenant")
        simsql(name, "article", *options, "--scope", "tenant=x").failed(1, "type integer")
        simsql(name, "article", *options, "--scope", "tenant").failed(
            2, "write a scope as COLUMN=VALUE, not tenant"
        )
        simsql(name, "article", *options, "--scope", "=1").failed(2, "write a scope as COLUMN=VALUE")
        simsql(name, "article", *options, "--scope", "tenant=1", "--scope", "tenant=2").failed(
            2, "names a column twice"
        )


def test_why_a_search_does_not_find_a_row(simsql, connection):
    words = [f"w{place}x3060" for place in range(40)]
    texts = {"same": words, "near": [*words[:30], "other"], "far": ["x", *words[20:]]}
    # Sketches of this pair differ in 23 bits, more than the filter for a similarity of 0.6 lets pass.
    texts["lost"] = [f"x{place}" if place in (3, 20, 36) else word for place, word in enumerate(words)]
    connection.execute(
        "CREATE TABLE post (id text PRIMARY KEY, tenant int DEFAULT 1, body text, sketch bigint, fp bigint)"
    )
    for name, body in texts.items():
        text = " ".join(body)
        numbers = [number - (number >> 63 << 64) for number in (library.sketch(text), library.simhash(text))]
        connection.execute("INSERT INTO post VALUES (%s, 1, %s, %s, %s)", [name, text, *numbers])
    copy = "INSERT INTO post SELECT {}, sketch, {} FROM post WHERE id = 'same'"
    connection.execute("INSERT INTO post VALUES ('empty', 1, '')")
    connection.execute(copy.format("'away', 2, body", "fp"))
    connection.execute(copy.format("'stale', 1, 'another'", "~fp"))
    simsql("index", "create", "post", "fp", "--scope-column", "tenant").done()
    columns = ["--text-column", "body", "--sketch-column", "sketch"]

    search = ["near", "post", "--scope", "tenant=1", "--text", " ".join(words)]

    def explain(key, *options):
        return simsql(*search, *options, "--explain", key).done().lines

    assert explain("same") == ["same", "distance    0", "found: the search finds it: distance 0 is at most 3"]
    assert explain("none") == ["none", "not found: post has no row with this key"]
    assert explain("empty")[1:] == ["not found: column fp of the row is null: fill it with simsql backfill"]
    assert explain("away")[-1] == "not found: the row is in another scope: tenant=2"
    assert explain("far")[-1].startswith("not found: distance ")
    assert explain("far")[-1].endswith(" is above 3")
    assert explain("stale", *columns)[-1].endswith("by another recipe, or the text has changed since")
    similar = ["--similarity", 0.6, *columns]
    compared = [*similar, "--distance", 20]
    assert explain("near", *compared)[2:4] == ["estimate    0.53", "similarity  0.66"]
    assert explain("near", *compared)[-1].startswith("found: the search finds it: distance ")
    assert explain("near", *compared)[-1].endswith(" is at most 20, and similarity 0.66 is at least 0.6")
    assert explain("far", *similar, "--distance", 64)[-1] == "not found: similarity 0.44 is below 0.6"
    assert explain("lost", *compared)[2:4] == ["estimate    0.28", "similarity  0.64"]
    assert explain("lost", *compared)[-1].startswith("not found: the sketches differ in more than 22 bits")
    rows = simsql(*search, *compared).done().lines
    assert [json.loads(row)["row"]["id"] for row in rows] == ["same", "near"]
    for number in range(4):
        connection.execute(f"DELETE FROM simsql.keys_1_{number}")
    assert explain("same")[-1].startswith("not found: the index has no key of the row: look for faults")


def test_row_level_security_may_be_why(simsql, connection, database_url, new_role):
    role = new_role()
    connection.execute("ALTER TABLE article ADD PRIMARY KEY (id)")
    simsql("index", "create", "article", "fingerprint").done()
    connection.execute(
        "CREATE POLICY own ON article FOR SELECT USING (tenant = 1);"
        f"ALTER TABLE article ENABLE ROW LEVEL SECURITY; GRANT SELECT ON article TO {role}"
    )
    url = open_engine(database_url).url.set(username=role).render_as_string(hide_password=False)

    def explain(key, database):
        return (
            run("near", "article", "--fingerprint", 0, "--explain", key, "--database", database).done().lines[-1]
        )

    found = "found: the search finds it: distance {} is at most 3"
    assert (explain("4", database_url), explain("5", url)) == (found.format(2), found.format(3))
    # The role learns no more of a row that is hidden than of one that is not there.
    hidden = "not found: article has no row with this key, or row-level security hides it from this role"
    assert explain("4", url) == explain("6", url) == hidden
    assert explain("6", database_url) == "not found: article has no row with this key"
