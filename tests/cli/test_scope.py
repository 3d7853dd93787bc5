"""`--scope-column` and `--scope` of `simsql index`, `near`, `pairs` and `clusters`."""

import json

import pytest
from program import run
from servers import find_programs

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
        1, "has no column missing"
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
