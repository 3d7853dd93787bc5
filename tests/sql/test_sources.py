"""The sources of an index, and the trigger that clears a fingerprint whose text alone changes."""

import pytest
from psycopg import errors
from upkeep import problems

SOURCES = {"body": 1, "Its title": 3}
TRIGGERS = (
    "SELECT tgname FROM pg_trigger WHERE tgrelid = 'article'::regclass AND tgname LIKE 'zz_simsql%' ORDER BY 1"
)


@pytest.fixture
def articles(connection):
    connection.execute(
        'CREATE TABLE article (id integer, "Its title" varchar(9), body text, note json, fingerprint bigint);'
        " CREATE INDEX ON article (fingerprint)"
    )
    return connection


@pytest.fixture
def indexed(articles):
    create(articles)
    return articles


def create(connection, call="SELECT simsql.create_index", more=""):
    connection.execute(f"{call}('article', 'fingerprint', sources => '{{\"Its title\": 3, \"body\": 1}}'{more})")


def sources(connection):
    return connection.execute("SELECT sources FROM simsql.indexes").fetchone()[0]


def clears(connection, change):
    """Whether a change clears the fingerprint of a row."""
    connection.execute("TRUNCATE article")
    connection.execute("""INSERT INTO article VALUES (1, 'a', 'b', '{}', 5)""")
    connection.execute(f"UPDATE article SET {change}")
    return connection.execute("SELECT fingerprint FROM article").fetchone() == (None,)


@pytest.mark.every_version
@pytest.mark.parametrize("call", ["SELECT simsql.create_index", "CALL simsql.build"])
@pytest.mark.parametrize("storage", ["tables", "expression"])
def test_an_index_with_sources_has_the_trigger(articles, call, storage):
    create(articles, call, f", storage => '{storage}'")
    assert sources(articles) == SOURCES
    assert clears(articles, "body = 'x'")
    assert clears(articles, "\"Its title\" = 'x'")
    assert not clears(articles, "note = '[]'")
    assert problems(articles) == set()
    articles.execute("SELECT simsql.change_storage('article', 'tables')")
    assert sources(articles) == SOURCES
    assert clears(articles, "body = 'x'")
    articles.execute("SELECT simsql.drop_index('article')")
    assert articles.execute(TRIGGERS).fetchall() == []


@pytest.mark.every_version
@pytest.mark.parametrize(
    ("statement", "problem", "name"),
    [
        ("DROP TRIGGER zz_simsql_clear_1 ON article", "clearing trigger missing", "zz_simsql_clear_1"),
        (
            "DROP TRIGGER zz_simsql_clear_1_column ON article",
            "clearing trigger missing",
            "zz_simsql_clear_1_column",
        ),
        ("SELECT simsql.drop_clear_on_change('article', 'fingerprint')", "clearing trigger missing", None),
        ("ALTER TABLE article DISABLE TRIGGER zz_simsql_clear_1", "clearing trigger altered", "zz_simsql_clear_1"),
        ("ALTER TABLE article DISABLE TRIGGER ALL", "clearing trigger altered", "zz_simsql_clear_1"),
        (
            "CREATE OR REPLACE TRIGGER zz_simsql_clear_1 BEFORE UPDATE ON article FOR EACH ROW"
            " WHEN (NEW.body = 'z') EXECUTE FUNCTION simsql._clear_fingerprint()",
            "clearing trigger altered",
            "zz_simsql_clear_1",
        ),
        ("ALTER TABLE article RENAME body TO content", "source renamed", 'content, "Its title"'),
        (
            "ALTER TABLE article RENAME body TO t; ALTER TABLE article RENAME fingerprint TO fp",
            "source renamed",
            't, "Its title"',
        ),
    ],
)
def test_verify_finds_and_repair_mends(indexed, statement, problem, name):
    indexed.execute(statement)
    found = {(what, of) for what, of in problems(indexed) if what.startswith(("clearing", "source"))}
    assert found == {(problem, name or "zz_simsql_clear_1")}
    indexed.execute("SELECT * FROM simsql.repair('article')")
    assert problems(indexed) == set()
    assert sorted(sources(indexed).values()) == [1, 3]
    for column in sources(indexed):
        indexed.execute("TRUNCATE article")
        indexed.execute("INSERT INTO article VALUES (1, 'a', 'b', '{}', 5)")
        indexed.execute(f"UPDATE article SET \"{column}\" = 'x'")
        assert indexed.execute("SELECT count(*) FROM article AS a WHERE to_jsonb(a)::text ~ ': 5'").fetchone() == (
            0,
        )


def test_weights_follow_columns_that_swap_their_names(indexed):
    for old, new in (("body", "c"), ("Its title", "body"), ("c", "Its title")):
        indexed.execute(f'ALTER TABLE article RENAME "{old}" TO "{new}"')
    assert problems(indexed) == {("source renamed", 'body, "Its title"')}
    indexed.execute("SELECT * FROM simsql.repair('article')")
    assert sources(indexed) == {"Its title": 1, "body": 3}


def test_a_dropped_source_leaves_an_index_of_unknown_texts(indexed):
    indexed.execute("ALTER TABLE article DROP COLUMN body CASCADE")
    ((problem, name, hint),) = indexed.execute("SELECT problem, object, hint FROM simsql.verify()").fetchall()
    assert (problem, name) == ("source dropped", "body")
    indexed.execute("SELECT * FROM simsql.repair('article')")
    indexed.execute(hint)
    assert sources(indexed) is None
    assert problems(indexed) == set()


def test_what_an_index_is_can_be_said_later(articles):
    articles.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert articles.execute("SELECT recipe, sources FROM simsql.indexes").fetchone() == (None, None)
    articles.execute("SELECT simsql.alter_index('article', recipe => 'words12-log-1')")
    assert not clears(articles, "body = 'x'")
    articles.execute("SELECT simsql.alter_index('article', 'fingerprint', sources => '{\"body\": 1}')")
    assert articles.execute("SELECT recipe, sources FROM simsql.indexes").fetchone() == (
        "words12-log-1",
        {"body": 1},
    )
    assert clears(articles, "body = 'x'")
    articles.execute("SELECT simsql.alter_index('article', sources => '{\"Its title\": 1}')")
    assert not clears(articles, "body = 'x'")
    with pytest.raises(errors.InvalidParameterValue, match="has other sources than body"):
        articles.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    articles.execute("SELECT simsql.alter_index('article', sources => '{}')")
    assert articles.execute(TRIGGERS).fetchall() == []
    assert problems(articles) == set()


def test_a_trigger_that_was_made_by_hand_stays(articles):
    articles.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    articles.execute("SELECT simsql.create_index('article', 'fingerprint', sources => '{}')")
    articles.execute("SELECT simsql.alter_index('article', sources => '{}')")
    articles.execute("SELECT simsql.drop_index('article')")
    assert len(articles.execute(TRIGGERS).fetchall()) == 2


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("[]", errors.InvalidParameterValue, "a JSON object of columns and their weights, from 1 to 1000000, not"),
        ("null", errors.InvalidParameterValue, "not null"),
        ('{"body": 0}', errors.InvalidParameterValue, 'not {"body": 0}'),
        ('{"body": 1.5}', errors.InvalidParameterValue, "from 1 to 1000000"),
        ('{"body": "x"}', errors.InvalidParameterValue, "from 1 to 1000000"),
        ('{"body": null}', errors.InvalidParameterValue, "from 1 to 1000000"),
        ('{"Body": 1}', errors.UndefinedColumn, 'article has no column "Body"'),
        ('{"fingerprint": 1}', errors.InvalidParameterValue, "cannot be its own source"),
    ],
)
@pytest.mark.parametrize("call", ["create_index", "alter_index", "build"])
def test_what_cannot_be_sources_is_refused(articles, call, given, error, said):
    if call == "alter_index":
        articles.execute("SELECT simsql.create_index('article', 'fingerprint')")
    with pytest.raises(error, match=said):
        articles.execute(
            f"{'CALL' if call == 'build' else 'SELECT'} simsql.{call}('article', 'fingerprint', sources => %s)",
            [given],
            prepare=False,
        )


def test_an_unfinished_build_has_the_recipe_and_the_sources_that_it_began_with(articles):
    begin = "SELECT simsql._begin_build('article', 'fingerprint', 3, NULL, NULL, NULL, {})"
    articles.execute(begin.format("NULL"))
    for more in ("'phash64'", "NULL, sources => '{\"body\": 1}'"):
        with pytest.raises(errors.DuplicateObject, match="other arguments"):
            articles.execute(begin.format(more))
    articles.execute(begin.format("NULL"))


def test_the_statement_that_creates_an_index_again_keeps_what_it_is(indexed):
    indexed.execute("SELECT simsql.alter_index('article', recipe => 'words12-log-1')")
    before = indexed.execute("SELECT recipe, sources, distance, blocks FROM simsql.indexes").fetchone()
    ((again,),) = indexed.execute("SELECT simsql._create_again(r) FROM simsql.registry AS r").fetchall()
    indexed.execute(again)
    assert indexed.execute("SELECT recipe, sources, distance, blocks FROM simsql.indexes").fetchone() == before


def test_the_partitions_of_a_table_are_cleared(connection):
    connection.execute(
        "CREATE TABLE article (id integer, body text, fingerprint bigint) PARTITION BY LIST (id);"
        " CREATE TABLE one PARTITION OF article FOR VALUES IN (1)"
    )
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', sources => '{\"body\": 1}')")
    connection.execute("INSERT INTO article VALUES (1, 'a', 5)")
    connection.execute("UPDATE one SET body = 'b'")
    assert connection.execute("SELECT fingerprint FROM article").fetchone() == (None,)
    assert problems(connection) == set()
    connection.execute("ALTER TABLE article DISABLE TRIGGER zz_simsql_clear_1")
    assert problems(connection) == {("clearing trigger altered", "zz_simsql_clear_1")}
    connection.execute("SELECT * FROM simsql.repair('article')")
    assert problems(connection) == set()
