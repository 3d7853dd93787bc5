"""What happens to a table after it was indexed is searched rightly or is an error: never a silent miss."""

import re

import psycopg
import pytest
from articles import count_keys, create_index, create_table, missing_keys, near
from psycopg import errors, sql

# Names that break what is quoted once too often or not at all: (schema, table, column).
NAMES = [
    ("public", "Article", "Fingerprint"),
    ("my schema", "my table", "my column"),
    ("a%s", "b%1$s%%", "c%I%n"),
    ("a:b", "c::d", ":e"),
    ('a"b', 'c""d', 'e"'),
    ("a'b", "c''d", "e'"),
    ("a\\b", "c\\\\d", "e\\"),
    ("a.b", "c.d", "e.f"),
    ("$1", "$$", "$body$"),
    ("überall", "文書", "指紋"),
    ("select", "table", "user"),
    ("s" * 63, "t" * 63, "c" * 63),
    ("public", "key", "key"),
    ("public", "new_rows", "fp"),
]


@pytest.mark.fault("hostile names of schemas, tables and columns")
@pytest.mark.fault("hostile names of schemas, tables and columns", sabotage=True)
@pytest.mark.parametrize("names", NAMES, ids="-".join)
def test_any_name_can_be_indexed_written_searched_and_dropped(connection, names):
    schema, table, column = map(sql.Identifier, names)
    full = sql.SQL("{}.{}").format(schema, table)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
    connection.execute(sql.SQL("CREATE TABLE {} (id int, {} bigint)").format(full, column))
    name = full.as_string(connection)
    before = catalog(connection)
    create_index(connection, name, names[2], (3, 1, 0))
    connection.execute(sql.SQL("INSERT INTO {} VALUES (1, 1), (2, 3), (3, NULL)").format(full))
    connection.execute(sql.SQL("UPDATE {} SET {} = 7 WHERE id = 1").format(full, column))
    assert missing_keys(connection, name) == []
    assert near(connection, 3, 3, name) == [(3, 0), (7, 1)]
    with connection.transaction(force_rollback=True):
        connection.execute("DELETE FROM simsql.keys_1_0; DELETE FROM simsql.keys_1_1; DELETE FROM simsql.keys_1_2")
        assert (len(missing_keys(connection, name)), near(connection, 3, 3, name)) == (6, [])
    found = connection.execute("SELECT a, b FROM simsql.pairs(%s::regclass, 1, %s)", [name, names[2]])
    assert found.fetchall() == [(3, 7)]
    found = connection.execute("SELECT fingerprint FROM simsql.clusters(%s::regclass, 1)", [name])
    assert found.fetchall() == [(3,), (7,)]
    rows = connection.execute(sql.SQL("SELECT * FROM simsql.near_rows(NULL::{}, 3, 0)").format(full))
    assert rows.fetchall() == [(2, 3)]
    assert connection.execute("SELECT simsql.explain_near(%s::regclass, 3, 40)", [name]).fetchall()
    connection.execute("SELECT simsql.drop_index(%s::regclass, %s)", [name, names[2]])
    assert {kind for kind, *_ in set(catalog(connection)) - set(before)} <= {"index", "depend"}


def catalog(connection: psycopg.Connection) -> list[tuple[str, ...]]:
    """Every object of the database with what depends on it, apart from the catalog's own."""
    return connection.execute(
        "SELECT CASE relkind WHEN 'i' THEN 'index' ELSE 'relation' END, oid::regclass::text, relkind::text"
        "  FROM pg_class WHERE oid >= 16384 AND relkind <> 't' AND relname !~ '^pg_toast'"
        " UNION ALL SELECT 'function', oid::regprocedure::text, md5(prosrc) FROM pg_proc WHERE oid >= 16384"
        " UNION ALL SELECT 'trigger', tgname::text, tgrelid::regclass::text FROM pg_trigger WHERE oid >= 16384"
        " UNION ALL SELECT 'type', oid::regtype::text, '' FROM pg_type WHERE oid >= 16384 AND typname !~ 'toast'"
        " UNION ALL SELECT 'policy', polname::text, polrelid::regclass::text FROM pg_policy"
        " UNION ALL SELECT 'depend', pg_describe_object(classid, objid, objsubid),"
        " pg_describe_object(refclassid, refobjid, refobjsubid) FROM pg_depend WHERE objid >= 16384"
        " AND pg_describe_object(classid, objid, objsubid) !~ 'toast'"
        " UNION ALL SELECT 'registered', id::text, table_name FROM simsql.registry"
        " ORDER BY 1, 2, 3"
    ).fetchall()


@pytest.mark.parametrize(("scope", "b_tree"), [("{}", "fingerprint_idx"), ("{body}", "body_fingerprint_idx")])
def test_a_dropped_index_leaves_only_the_b_tree_behind(connection, scope, b_tree):
    create_table(connection, [1])
    create = "SELECT simsql.create_index('article', 'fingerprint', blocks => %s, scope => %s)"
    connection.execute(create, [4, scope])
    connection.execute("SELECT simsql.drop_index('article')")
    before = catalog(connection)
    assert ("index", f"article_{b_tree}", "i") in before
    connection.execute(create, [5, scope])
    assert catalog(connection) != before
    connection.execute("SELECT simsql.drop_index('article')")
    assert catalog(connection) == before


def test_creating_and_dropping_can_be_rolled_back(articles):
    before = catalog(articles)
    with articles.transaction(force_rollback=True):
        articles.execute("SELECT simsql.drop_index('article')")
        create_index(articles, design=(2, 1, 0))
        assert near(articles, 1, 3) == [(1, 0), (3, 1)]
    assert catalog(articles) == before
    with articles.transaction(force_rollback=True):
        articles.execute("SELECT simsql.drop_index('article')")
    assert catalog(articles) == before
    assert near(articles, 1, 3) == [(1, 0), (3, 1)]


SEARCHES = [
    "near('{0}', 1)",
    "near_rows(NULL::{0}, 1)",
    "pairs('{0}')",
    "clusters('{0}')",
    "explain_near('{0}', 1)",
]
searches = pytest.mark.parametrize("search", SEARCHES)
# Writers run with a search_path of their own, so they name the schema.
RENAMED = r"column fingerprint of (public\.)?article was renamed or dropped"


@pytest.mark.fault("renamed tables and columns")
@searches
def test_a_renamed_table_is_an_error_until_it_is_renamed_back(articles, search):
    articles.execute("ALTER TABLE article RENAME TO paper")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"paper was called public.article") as caught:
        articles.execute(f"SELECT * FROM simsql.{search.format('paper')}")
    assert "Rename it back" in caught.value.diag.message_hint
    assert articles.execute("SELECT state FROM simsql.indexes").fetchall() == [("table renamed",)]
    articles.execute("ALTER TABLE paper RENAME TO article")
    articles.execute(f"SELECT * FROM simsql.{search.format('article')}")


@pytest.mark.fault("renamed tables and columns")
def test_writers_of_a_renamed_table_go_on_and_the_hint_mends_it(articles, examine):
    articles.execute("ALTER TABLE article RENAME TO paper")
    articles.execute("INSERT INTO paper (fingerprint) VALUES (7)")
    assert missing_keys(articles, "paper") == []
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as caught:
        near(articles, 1, 3, "paper")
    articles.execute(caught.value.diag.message_hint.partition(": ")[2])
    examine(articles, {1: 1, 2: 3, 3: 7}, table="paper")


@pytest.mark.fault("tables and columns that swap names")
@searches
def test_a_table_swapped_by_rename_is_an_error(articles, search):
    articles.execute("CREATE TABLE copy (LIKE article)")
    articles.execute("INSERT INTO copy (id, fingerprint) VALUES (1, 5)")
    articles.execute("ALTER TABLE article RENAME TO old")
    articles.execute("ALTER TABLE copy RENAME TO article")
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index"):
        articles.execute(f"SELECT * FROM simsql.{search.format('article')}")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"old was called public.article"):
        articles.execute(f"SELECT * FROM simsql.{search.format('old')}")


@pytest.mark.fault("tables and columns that swap names")
def test_two_indexed_tables_that_swapped_names_are_an_error_until_they_are_repaired(articles, examine):
    articles.execute("CREATE TABLE copy (id int, fingerprint bigint)")
    create_index(articles, "copy")
    articles.execute("INSERT INTO copy VALUES (1, 9), (2, 11)")
    for old, new in (("article", "gone"), ("copy", "article"), ("gone", "copy")):
        articles.execute(f"ALTER TABLE {old} RENAME TO {new}")
    for table in ("article", "copy"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState):
            near(articles, 1, 3, table)
    for table, rows in (("article", {1: 9, 2: 11}), ("copy", {1: 1, 2: 3})):
        articles.execute(f"SELECT simsql.repair('{table}')")
        examine(articles, rows, table=table)


@pytest.mark.fault("renamed tables and columns")
def test_a_renamed_column_is_an_error_for_searchers_and_writers(articles):
    articles.execute("ALTER TABLE article RENAME fingerprint TO print")
    for search in SEARCHES:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
            articles.execute(f"SELECT * FROM simsql.{search.format('article')}")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
        articles.execute("INSERT INTO article (print) VALUES (7)")
    articles.execute("ALTER TABLE article RENAME print TO fingerprint")
    assert near(articles, 1, 3) == [(1, 0), (3, 1)]


@searches
def test_an_inheritance_child_since_is_an_error(articles, search):
    articles.execute("CREATE TABLE child () INHERITS (article)")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="part of an inheritance tree") as caught:
        articles.execute(f"SELECT * FROM simsql.{search.format('article')}")
    assert "detach the table" in caught.value.diag.message_hint


def test_a_dropped_table_is_gone_and_the_next_index_clears_up(articles):
    articles.execute("CREATE TABLE other (fingerprint bigint)")
    articles.execute("DROP TABLE article")
    assert articles.execute("SELECT table_name, state FROM simsql.indexes").fetchall() == [
        ("public.article", "table dropped")
    ]
    create_index(articles, "other")
    assert articles.execute("SELECT table_name, state FROM simsql.indexes").fetchall() == [
        ("public.other", "ready")
    ]
    of_the_first = re.compile(r"keys_1_|(search|scan|insert|update)_1\b")
    assert [row for row in catalog(articles) if of_the_first.search(row[1])] == []


def test_dropping_what_the_table_lives_in_drops_it_too(connection):
    connection.execute("CREATE SCHEMA app")
    connection.execute("CREATE TABLE app.article (fingerprint bigint)")
    create_index(connection, "app.article")
    connection.execute("DROP SCHEMA app CASCADE")
    assert connection.execute("SELECT state FROM simsql.indexes").fetchall() == [("table dropped",)]


def test_a_column_dropped_by_force_is_an_error_until_the_index_is_dropped(articles):
    articles.execute("ALTER TABLE article DROP COLUMN fingerprint CASCADE")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
        near(articles, 1, 3)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
        articles.execute("INSERT INTO article (body) VALUES ('text')")
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute("INSERT INTO article (body) VALUES ('text')")
    assert count_keys(articles) == []


def test_tables_of_the_same_name_in_two_schemas_have_an_index_each(articles):
    articles.execute("CREATE SCHEMA app")
    articles.execute("CREATE TABLE app.article (fingerprint bigint)")
    create_index(articles, "app.article", design=(2, 1, 0))
    articles.execute("INSERT INTO app.article VALUES (8)")
    assert near(articles, 0, 64, "app.article") == [(8, 1)]
    assert near(articles, 0, 64) == [(1, 1), (3, 2)]
    articles.execute("SET search_path = app, public")
    assert near(articles, 0, 64) == [(8, 1)]


@pytest.mark.parametrize(
    "function", ["near('article', 1, 3{})", "pairs('article', 3{})", "clusters('article', 3{})"]
)
def test_with_two_indexes_on_a_table_the_column_has_to_be_named(articles, function):
    articles.execute("ALTER TABLE article ADD COLUMN title_fp bigint")
    create_index(articles, column="title_fp")
    articles.execute("INSERT INTO article (fingerprint, title_fp) VALUES (9, 100), (10, 101)")
    with pytest.raises(errors.AmbiguousColumn, match="article has 2 simhash indexes") as caught:
        articles.execute(f"SELECT * FROM simsql.{function.format('')}")
    assert "fingerprint, title_fp" in caught.value.diag.message_hint
    named = articles.execute(f"SELECT count(*) FROM simsql.{function.format(', column_name => %s')}", ["title_fp"])
    assert named.fetchone() == ((2,) if "clusters" in function else (1,))
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index on column body"):
        articles.execute(f"SELECT * FROM simsql.{function.format(', column_name => %s')}", ["body"])
    with pytest.raises(errors.AmbiguousColumn, match="article has 2 simhash indexes"):
        articles.execute("SELECT simsql.drop_index('article')")
    articles.execute("SELECT simsql.drop_index('article', 'title_fp')")
    assert articles.execute("SELECT column_name FROM simsql.indexes").fetchall() == [("fingerprint",)]
    assert missing_keys(articles) == []


@pytest.mark.parametrize(("kind", "persistence"), [("", "p"), ("UNLOGGED", "u")])
def test_keys_are_as_lasting_as_the_table(connection, kind, persistence):
    connection.execute(f"CREATE {kind} TABLE article (fingerprint bigint)")
    create_index(connection)
    found = connection.execute(
        "SELECT DISTINCT relpersistence, relreplident FROM pg_class WHERE relname ~ '^keys_1_.$'"
    )
    assert found.fetchall() == [(persistence, "f")]


def test_an_existing_b_tree_is_taken_and_a_partial_one_is_not(connection):
    connection.execute("CREATE TABLE article (id int, fingerprint bigint)")
    connection.execute("CREATE INDEX part ON article (fingerprint) WHERE id > 5")
    connection.execute("CREATE INDEX behind ON article (id, fingerprint)")
    connection.execute("CREATE INDEX hashed ON article USING hash (fingerprint)")
    create_index(connection)
    assert connection.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'article'").fetchone() == (4,)
    connection.execute("SELECT simsql.drop_index('article')")
    create_index(connection)
    assert connection.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'article'").fetchone() == (4,)


def test_near_stays_exact_without_the_b_tree(articles):
    articles.execute("DROP INDEX article_fingerprint_idx")
    assert near(articles, 1, 3) == [(1, 0), (3, 1)]


@pytest.mark.parametrize(
    "change",
    [
        "VACUUM FULL article",
        "CLUSTER article USING article_fingerprint_idx",
        "REINDEX TABLE article",
        "ALTER TABLE article ADD COLUMN more text DEFAULT 'x'",
        "ALTER TABLE article SET UNLOGGED",
        "ALTER TABLE article ALTER COLUMN body TYPE varchar(9)",
        "ALTER TABLE article DROP COLUMN body",
        "ALTER TABLE article ALTER COLUMN fingerprint SET NOT NULL",
        "REINDEX SCHEMA simsql",
    ],
)
def test_maintenance_of_the_table_does_no_harm(articles, change):
    articles.execute(change)
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    assert near(articles, 1, 3) == [(1, 0), (3, 1), (7, 2)]
    assert missing_keys(articles) == []
