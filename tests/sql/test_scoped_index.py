"""The life of a scoped index: renames, upkeep, builds, dumps; every scope keeps its keys."""

import random
import re

import oracle
import pytest
from articles import missing_keys
from internals import begin_build, build_batch, set_batch_size
from psycopg import errors
from scoped import (
    RENAMED,
    SEARCHES,
    check,
    check_tenants,
    create_index,
    create_scoped,
    create_tenants,
    search,
    stored_keys,
)
from upkeep import problems

fill_articles = create_tenants


def test_a_renamed_scope_column_is_an_error_until_it_is_named_as_before_or_repaired(articles):
    articles.execute("ALTER TABLE article RENAME tenant TO customer")
    assert articles.execute("SELECT state FROM simsql.indexes").fetchall() == [("column renamed",)]
    assert ("column renamed", "customer") in problems(articles)
    for function in SEARCHES:
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED) as caught:
            search(articles, function, {"tenant": 1}, 3)
        assert "simsql.repair('public.article')" in caught.value.diag.message_hint
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
        articles.execute("INSERT INTO article (customer, print) VALUES (1, 5)")
    articles.execute("SELECT simsql.repair('article')")
    assert problems(articles) == set()
    assert articles.execute("SELECT scope, state FROM simsql.indexes").fetchall() == [(["customer"], "ready")]
    articles.execute("INSERT INTO article (customer, print) VALUES (1, 5)")
    check(articles, {"customer": 1}, [0, 1, 7, 5])
    articles.execute("ALTER TABLE article RENAME customer TO tenant; ALTER TABLE article ADD customer integer")
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match=r"column customer of public\.article was renamed"
    ):
        search(articles, "near", {"customer": 1}, 3)


def test_scope_columns_that_swap_their_names_are_not_taken_for_one_another(connection):
    rows = [(1, 2, 0), (1, 2, 1), (2, 1, 3), (2, 1, 7)]
    create_scoped(connection, ["tenant integer", "shop integer"], ["tenant", "shop"], rows)
    connection.execute("ALTER TABLE article RENAME tenant TO other; ALTER TABLE article RENAME shop TO tenant")
    connection.execute("ALTER TABLE article RENAME other TO shop")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
        search(connection, "near", {"tenant": 1, "shop": 2}, 3)
    connection.execute("SELECT simsql.repair('article')")
    assert problems(connection) == set()
    check(connection, {"tenant": 1, "shop": 2}, [3, 7])
    check(connection, {"tenant": 2, "shop": 1}, [0, 1])


def test_a_scope_column_is_neither_dropped_nor_of_another_type_in_passing(articles):
    with pytest.raises(errors.FeatureNotSupported, match="used in a trigger definition"):
        articles.execute("ALTER TABLE article ALTER tenant TYPE bigint")
    with pytest.raises(errors.DependentObjectsStillExist):
        articles.execute("ALTER TABLE article DROP tenant")
    articles.execute("ALTER TABLE article DROP tenant CASCADE")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED) as caught:
        search(articles, "near", {"tenant": 1}, 3)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=RENAMED):
        articles.execute("INSERT INTO article (print) VALUES (1)")
    assert ("column dropped", "tenant") in problems(articles)
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match=r"column tenant of public\.article: column dropped"
    ):
        articles.execute("SELECT simsql.repair('article')")
    articles.execute(caught.value.diag.message_hint.partition(": ")[2])
    articles.execute("INSERT INTO article (print) VALUES (1)")
    assert stored_keys(articles) == []


def test_verify_names_missing_keys_of_one_scope_and_repair_adds_them(articles):
    articles.execute("DELETE FROM simsql.keys_1_2 WHERE scope_1 = 2")
    articles.execute("ALTER TABLE article DISABLE TRIGGER ALL")
    articles.execute("UPDATE article SET tenant = 2 WHERE print = 7")
    articles.execute("ALTER TABLE article ENABLE TRIGGER ALL")
    found = articles.execute("SELECT object, keys FROM simsql.verify('article') WHERE problem = 'keys missing'")
    assert sorted(found.fetchall()) == [(f"simsql.keys_1_{table}", 4 if table == 2 else 1) for table in range(4)]
    articles.execute("SELECT simsql.repair('article')")
    assert problems(articles) == set()
    assert articles.execute("SELECT simsql.superfluous_keys('article')").fetchone() == (4,)
    articles.execute("CALL simsql.vacuum('article')")
    assert articles.execute("SELECT simsql.superfluous_keys('article')").fetchone() == (0,)
    check_tenants(articles)


DAMAGES = [
    ("DROP INDEX simsql.keys_1_1_scope_1_key_idx", ("B-tree missing", "simsql.keys_1_1 (scope_1, key)")),
    ("DROP INDEX article_tenant_print_idx", ("B-tree missing", "public.article (tenant, print)")),
    ("ALTER TABLE simsql.keys_1_1 RENAME scope_1 TO scope_2", ("key table altered", "simsql.keys_1_1")),
    (
        "ALTER TABLE simsql.keys_1_1 ALTER scope_1 TYPE text",
        ("key table altered", "simsql.keys_1_1"),
    ),
    ("DROP TABLE simsql.keys_1_0", ("key table missing", "simsql.keys_1_0")),
    ("DROP FUNCTION simsql.search_1", ("function missing", "simsql.search_1")),
    ("DROP TRIGGER simsql_1_column ON article", ("trigger missing", "simsql_1_column")),
]


def test_objects_of_a_scoped_index_are_mended(articles):
    assert problems(articles) == set()
    for damage, found in DAMAGES:
        with articles.transaction(force_rollback=True):
            articles.execute(damage)
            assert found in problems(articles)
            articles.execute("SELECT simsql.repair('article')")
            assert problems(articles) == set()
            articles.execute("UPDATE article SET tenant = 2 WHERE id = 1")
            check_tenants(articles, (3,))


@pytest.mark.parametrize("size", [2, 3, 1000])
def test_vacuum_removes_superfluous_keys_of_all_scopes_batch_by_batch(articles, size):
    articles.execute("UPDATE article SET tenant = 3 - tenant")
    articles.execute("INSERT INTO article (tenant, print) VALUES (1, -5), (2, 1), (5, -5)")
    articles.execute("INSERT INTO article (tenant, print) VALUES (1, -5)")
    articles.execute("DELETE FROM article WHERE tenant = 5 OR print = 3")
    articles.execute("INSERT INTO simsql.keys_1_2 VALUES (9, 9), (1, 17)")  # in one table alone
    set_batch_size(articles, size)
    articles.execute("CALL simsql.vacuum('article')")
    assert problems(articles) == set()
    vacuumed = stored_keys(articles)
    check_tenants(articles)
    articles.execute("SELECT simsql.drop_index('article')")
    create_index(articles, ["tenant"])
    assert stored_keys(articles) == vacuumed


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_build_makes_the_keys_that_create_index_makes(connection, size):
    chance = random.Random(6)
    rows = [
        (chance.choice(["a", "A", "ä", "it's", None]), chance.choice([1, 2]), found)
        for found in [*oracle.clustered(60, seed=34), None, 5, 5]
    ]
    scope = ["tenant", "shop"]
    create_scoped(connection, ["tenant text", "shop integer"], scope, rows)
    expected_keys = stored_keys(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    set_batch_size(connection, size)
    connection.execute("CALL simsql.build('article', 'print', blocks => 4, scope => %s)", [scope])
    assert stored_keys(connection) == expected_keys
    assert problems(connection) == set()


def test_a_build_goes_on_beside_writers_with_the_same_scope_only(articles):
    articles.execute("SELECT simsql.drop_index('article'); DROP INDEX article_tenant_print_idx")
    set_batch_size(articles, 2)
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match=r"columns tenant, print of .* have no B-tree"
    ) as caught:
        begin_build(articles, column="print", scope=["tenant"])
    articles.execute(caught.value.diag.message_hint)
    begin_build(articles, column="print", scope=["tenant"])
    with pytest.raises(errors.DuplicateObject, match="has other arguments") as caught:
        begin_build(articles, column="print")
    assert not build_batch(articles, column="print")
    # Behind the place that the build has come to, and before it.
    articles.execute("UPDATE article SET tenant = 3 - tenant WHERE id IN (1, 2, 4)")
    articles.execute("INSERT INTO article (tenant, print) VALUES (0, 9), (3, 9)")
    articles.execute(re.search("CALL .*?;", caught.value.diag.message_hint)[0])
    check_tenants(articles)


def test_a_long_build_and_a_long_vacuum_say_how_far_they_are(articles):
    heard = []
    articles.add_notice_handler(lambda diagnostic: heard.append(diagnostic.message_primary))
    articles.execute("INSERT INTO article (tenant, print) SELECT n % 3, n FROM generate_series(1, 400) AS n")
    articles.execute("SELECT simsql.drop_index('article'); ANALYZE article")
    set_batch_size(articles, 20)
    articles.execute("CALL simsql.build('article', 'print', scope => '{tenant}')")
    articles.execute("CALL simsql.vacuum('article')")
    for name in ("build", "vacuum"):
        shares = [
            int(re.search(r"(\d+) % done", notice)[1])
            for notice in heard
            if f"simsql.{name}: " in notice and "done" in notice
        ]
        assert shares == sorted(shares)
        assert shares
        assert shares[-1] < 100


def test_a_snapshot_sees_rows_in_the_scopes_that_it_sees(articles, connect):
    reader = connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    check(reader, {"tenant": 1}, [0, 1, 7])
    articles.execute("UPDATE article SET tenant = 3 - tenant")
    articles.execute("CALL simsql.vacuum('article')")
    assert missing_keys(reader) == []
    check(reader, {"tenant": 1}, [0, 1, 7])
    check(articles, {"tenant": 1}, [1, 3, -1, 3])
    reader.execute("COMMIT")
    check_tenants(reader)


def test_a_b_tree_on_the_same_columns_is_taken_and_no_other_is(articles):
    def b_trees():
        return articles.execute("SELECT count(*) FROM pg_indexes WHERE tablename = 'article'").fetchone()[0]

    assert b_trees() == 2
    for others in (
        "CREATE INDEX article_tenant_print_idx ON article (tenant) INCLUDE (print)",
        "CREATE INDEX article_tenant_print_idx ON article (print, tenant)",
        "CREATE INDEX article_tenant_print_idx ON article (tenant, print) WHERE print > 0",
    ):
        articles.execute("SELECT simsql.drop_index('article'); DROP INDEX article_tenant_print_idx")
        articles.execute(others)
        create_index(articles, ["tenant"])
        assert b_trees() == 3
        articles.execute("DROP INDEX article_tenant_print_idx1")
    articles.execute("SELECT simsql.drop_index('article'); DROP INDEX article_tenant_print_idx")
    articles.execute("CREATE INDEX ON article (tenant, print, id)")
    create_index(articles, ["tenant"])
    assert b_trees() == 2


def test_without_a_design_the_largest_scope_chooses_it(connection):
    connection.execute(
        "CREATE TABLE article (tenant integer, print bigint);"
        " INSERT INTO article SELECT n % 4, n FROM generate_series(1, 100) AS n"
    )
    # As many rows as a table of another design has: their number is all that is asked for.
    connection.execute(
        "CREATE OR REPLACE FUNCTION"
        " simsql._design(rows bigint, distance integer, OUT blocks integer, OUT lead integer)"
        " LANGUAGE sql IMMUTABLE AS $$ SELECT rows::integer / 5, 1 $$"
    )
    create = "SELECT simsql.create_index('article', 'print', scope => %s)"
    for scope, blocks in (([], 20), (["tenant"], 5)):
        connection.execute(create, [scope])
        assert connection.execute("SELECT blocks FROM simsql.indexes").fetchall() == [(blocks,)]
        connection.execute("SELECT simsql.drop_index('article')")


def test_what_is_refused_by_null_or_empty_scopes_of_an_index(connection):
    create_scoped(connection, scope=())
    connection.execute("SELECT simsql.drop_index('article')")
    connection.execute("SELECT simsql.create_index('article', 'print', scope => NULL)")
    assert connection.execute("SELECT scope FROM simsql.indexes").fetchall() == [([],)]
    assert search(connection, "near", None, 3) == []


def test_a_dump_restores_a_scoped_index(connection, restore):
    create_scoped(
        connection,
        ["gone integer", "name text", "tenant integer"],
        ["name", "tenant"],
        [(0, "a", 1, 0), (0, "a", 1, 1), (0, "b", 1, 3), (0, None, 1, 0)],
    )
    connection.execute("ALTER TABLE article DROP COLUMN gone")  # the others have other numbers afterwards
    restored = restore()
    assert problems(restored) == set()
    restored.execute("UPDATE article SET name = 'a' WHERE name = 'b'")
    assert missing_keys(restored) == []
    check(restored, {"name": "a", "tenant": 1}, [0, 1, 3])
    restored.execute("ALTER TABLE article RENAME name TO title")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"column name of public\.article was renamed"):
        search(restored, "near", {"name": "a", "tenant": 1}, 3)


@pytest.mark.parametrize("column", ["a", "z"])
def test_a_look_at_the_stamp_is_enough_whatever_the_names_of_the_columns(connection, storage, column):
    create_scoped(connection, [f"{column} integer"], [column], storage=storage)
    connection.execute("ANALYZE")  # the catalogue, too: its statistics decide how PostgreSQL reads it
    looks = connection.execute("SELECT simsql._is_complete(id, stamp_id) FROM simsql.registry").fetchall()
    assert looks == [(True,)]
