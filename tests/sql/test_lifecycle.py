"""What PostgreSQL itself refuses on an indexed table, and what the catalogue holds of an index.

Columns that changed names, tables that came under a parent and rewritten fingerprints are the changes that no
trigger sees: each is refused, or every search raises.
"""

import psycopg
import pytest
from articles import create_articles, create_index, missing_keys, near
from psycopg import errors
from roles import allow_indexes

pytestmark = pytest.mark.oldest_version

SEARCHES = [
    "near('{0}', 1, 3, '{1}')",
    "near_rows(NULL::{0}, 1, 3, '{1}')",
    "pairs('{0}', 3, '{1}')",
    "clusters('{0}', 3, '{1}')",
    "explain_near('{0}', 1, 3, '{1}')",
]
searches = pytest.mark.parametrize("search", SEARCHES, ids=lambda search: search.partition("(")[0])
SWAP = [
    "ALTER TABLE article RENAME fingerprint TO interim",
    "ALTER TABLE article RENAME other TO fingerprint",
    "ALTER TABLE article RENAME interim TO other",
]


@pytest.fixture
def two_columns(articles):
    """A second column of fingerprints, far from those of the first."""
    articles.execute("ALTER TABLE article ADD COLUMN other bigint")
    articles.execute("UPDATE article SET other = ~fingerprint")
    return articles


def execute_all(connection: psycopg.Connection, statements: list[str]) -> None:
    for statement in statements:
        connection.execute(statement)


def state(connection: psycopg.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT state FROM simsql.indexes ORDER BY id")]


# Columns


@pytest.mark.fault("tables and columns that swap names")
@pytest.mark.parametrize("indexed", [["fingerprint"], ["fingerprint", "other"]], ids="-".join)
@searches
def test_columns_swapped_by_rename_are_an_error(two_columns, search, indexed):
    for column in indexed[1:]:
        create_index(two_columns, column=column)
    execute_all(two_columns, SWAP)
    for column in indexed:
        with pytest.raises(
            errors.ObjectNotInPrerequisiteState, match=rf"column {column} of public\.article was renamed"
        ):
            two_columns.execute(f"SELECT * FROM simsql.{search.format('article', column)}")


@pytest.mark.fault("tables and columns that swap names")
@pytest.mark.parametrize(
    "write", ["INSERT INTO article (fingerprint, other) VALUES (5, 6)", "UPDATE article SET fingerprint = 5"]
)
def test_nothing_can_be_written_into_swapped_columns_and_nothing_is_lost_when_they_are_back(two_columns, write):
    execute_all(two_columns, SWAP)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"column fingerprint of public\.article"):
        two_columns.execute(write)
    execute_all(two_columns, SWAP)
    two_columns.execute(write)
    assert missing_keys(two_columns) == []
    assert (5, 1) in near(two_columns, 1, 1)


@pytest.mark.fault("tables and columns that swap names")
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_writer_with_an_older_snapshot_than_the_swap_fails_too(two_columns, connect, level):
    writer = connect()
    writer.execute(f"BEGIN ISOLATION LEVEL {level}")
    writer.execute("SELECT 1 FROM pg_class")
    execute_all(two_columns, SWAP)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"column fingerprint of public\.article"):
        writer.execute("INSERT INTO article (fingerprint) VALUES (5)")


@pytest.mark.fault("tables and columns that swap names")
def test_the_hint_about_a_renamed_column_mends_it(two_columns):
    execute_all(two_columns, SWAP)
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as caught:
        near(two_columns, 1, 3)
    two_columns.execute(caught.value.diag.message_hint.partition(": ")[2])
    assert near(two_columns, 1, 3) == [(1, 0), (3, 1)]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("ALTER COLUMN fingerprint TYPE numeric", errors.FeatureNotSupported),
        ("ALTER COLUMN fingerprint TYPE bigint USING fingerprint + 4", errors.FeatureNotSupported),
        ("DROP COLUMN fingerprint", errors.DependentObjectsStillExist),
    ],
)
def test_the_column_is_neither_rewritten_nor_dropped_while_it_is_indexed(articles, change, error):
    with pytest.raises(error) as caught:
        articles.execute(f"ALTER TABLE article {change}")
    assert "trigger simsql_1_column on table article depends on column" in caught.value.diag.message_detail
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute(f"ALTER TABLE article {change}")


@pytest.mark.parametrize("scope", ["{}", "{s}"])
def test_a_new_expression_of_a_generated_column_is_an_error_until_the_index_is_repaired(connection, server, scope):
    if server.major < 17:
        pytest.skip("ALTER COLUMN SET EXPRESSION came with PostgreSQL 17")
    connection.execute(
        "CREATE TABLE article (n bigint, fingerprint bigint GENERATED ALWAYS AS (n) STORED,"
        " s integer GENERATED ALWAYS AS ((n % 2)::integer) STORED)"
    )
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', scope => %s)", [scope])
    connection.execute("INSERT INTO article VALUES (1)")
    value = '{"s": 1}' if scope == "{s}" else None
    search = "SELECT fingerprint FROM simsql.near('article', 5, 1, scope => %s::jsonb)"
    for change, found in (
        ("ALTER fingerprint SET EXPRESSION AS (n + 4)", [(5,)]),
        (
            "ALTER fingerprint SET EXPRESSION AS (n + 3); ALTER TABLE article ALTER fingerprint DROP EXPRESSION",
            [(4,)],
        ),
        ("ALTER s SET EXPRESSION AS ((n % 3)::integer)", [(4,)]),
    ):
        assert connection.execute(search, [value]).fetchall() != found or " s " in change
        connection.execute(f"ALTER TABLE article {change}")
        if "ALTER s" in change and not value:
            continue
        with pytest.raises(
            errors.ObjectNotInPrerequisiteState, match="expression of a generated column"
        ) as caught:
            connection.execute(search, [value])
        connection.execute(caught.value.diag.message_hint.partition(": ")[2])
        assert connection.execute(search, [value]).fetchall() == found
        assert missing_keys(connection) == []


# Tables


@pytest.mark.parametrize(
    ("parent", "change"),
    [
        (
            "CREATE TABLE whole (LIKE article) PARTITION BY LIST (id)",
            "ALTER TABLE whole ATTACH PARTITION article DEFAULT",
        ),
        ("CREATE TABLE whole (fingerprint bigint)", "ALTER TABLE article INHERIT whole"),
    ],
    ids=["partition", "inheritance child"],
)
def test_no_parent_can_take_an_indexed_table(articles, parent, change):
    # Rows written through the parent would be missed, and for ever: nothing tells once it is detached.
    articles.execute("ALTER TABLE article ALTER COLUMN id DROP IDENTITY")
    articles.execute(parent)
    with pytest.raises(errors.FeatureNotSupported, match='"simsql_1_no_parent" prevents table "article" from'):
        articles.execute(change)
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute(change)


def test_a_table_is_searched_again_once_its_child_is_gone(articles):
    articles.execute("CREATE TABLE child () INHERITS (article)")
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    articles.execute("INSERT INTO child (id, fingerprint) VALUES (9, 9)")
    articles.execute("UPDATE article SET fingerprint = fingerprint + 8")
    articles.execute("ALTER TABLE child NO INHERIT article")
    assert near(articles, 15, 3) == [(15, 0), (11, 1), (9, 2)]
    assert missing_keys(articles) == []


def test_a_table_outside_the_search_path_is_searched_by_its_full_name(articles):
    articles.execute("SET search_path = ''")
    for search in SEARCHES:
        assert articles.execute(
            f"SELECT * FROM simsql.{search.format('public.article', 'fingerprint')}"
        ).fetchall()
    articles.execute("INSERT INTO public.article (fingerprint) VALUES (7)")
    articles.execute("SELECT simsql.drop_index('public.article')")
    create_index(articles, "public.article")
    assert near(articles, 1, 3, "public.article") == [(1, 0), (3, 1), (7, 2)]


def test_the_leftovers_of_another_owner_stop_nobody(articles, new_role, connect):
    name = new_role()
    allow_indexes(articles, name)
    role = connect(name)
    for table in ("first", "second"):
        role.execute(f"CREATE TABLE {table} (fingerprint bigint)")
        create_index(role, table)
    articles.execute("DROP TABLE article")
    role.execute("DROP TABLE first")
    role.execute("CREATE TABLE third (fingerprint bigint)")
    create_index(role, "third")
    # The role's own leftovers are gone; those of the superuser wait for their owner.
    assert state(articles) == ["table dropped", "ready", "ready"]
    create_articles(articles, [5])
    assert state(articles) == ["ready", "ready", "ready"]
    assert near(articles, 5, 0) == [(5, 0)]


# The index


@searches
def test_an_index_that_is_not_ready_is_an_error(articles, search):
    articles.execute("UPDATE simsql.registry SET ready = false")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="still being built"):
        articles.execute(f"SELECT * FROM simsql.{search.format('article', 'fingerprint')}")
    assert state(articles) == ["building"]


def test_an_index_created_anew_has_a_new_id(articles):
    articles.execute("SELECT simsql.drop_index('article')")
    assert create_index(articles) == 2
    with articles.transaction(force_rollback=True):
        articles.execute("SELECT simsql.drop_index('article')")
        assert create_index(articles) == 3
    assert near(articles, 1, 3) == [(1, 0), (3, 1)]


def test_triggers_that_add_keys_fire_always_and_with_the_rights_of_the_owner(articles):
    triggers = articles.execute(
        "SELECT t.tgname, t.tgenabled, p.prosecdef, p.proconfig FROM pg_trigger AS t"
        " JOIN pg_proc AS p ON p.oid = t.tgfoid WHERE t.tgrelid = 'article'::regclass AND t.tgqual IS NULL"
        " ORDER BY t.tgname"
    )
    settings = (True, ["search_path=pg_catalog, pg_temp"])
    assert triggers.fetchall() == [
        ("simsql_1_insert", "A", *settings),
        ("simsql_1_replica", "R", *settings),
        ("simsql_1_update", "A", *settings),
    ]


def test_no_function_depends_on_the_table_and_no_column_stops_pg_upgrade(articles):
    # A function that depends on a table or its row type stops DROP TABLE.
    depending = articles.execute(
        "SELECT objid::regprocedure FROM pg_depend WHERE classid = 'pg_proc'::regclass AND"
        " (refclassid, refobjid) IN (SELECT 'pg_class'::regclass, oid FROM pg_class WHERE relname = 'article'"
        " UNION ALL SELECT 'pg_type'::regclass, oid FROM pg_type WHERE typname IN ('article', '_article'))"
    )
    assert depending.fetchall() == []
    kept_by_oid = articles.execute(
        "SELECT attrelid::regclass::text, attname FROM pg_attribute JOIN pg_class AS c ON c.oid = attrelid"
        " WHERE relnamespace = 'simsql'::regnamespace AND attnum > 0 AND atttypid = ANY ("
        "'{regproc,regprocedure,regoper,regoperator,regconfig,regdictionary,regnamespace,regcollation}'::regtype[])"
    )
    assert kept_by_oid.fetchall() == []


@pytest.mark.parametrize("identity", ["FULL", "DEFAULT", "NOTHING"])
def test_any_replica_identity_of_the_table_will_do(articles, identity):
    articles.execute(f"ALTER TABLE article REPLICA IDENTITY {identity}")
    articles.execute("INSERT INTO article (fingerprint) VALUES (7)")
    articles.execute("UPDATE article SET fingerprint = 9 WHERE id = 1")
    assert near(articles, 7, 3) == [(7, 0), (3, 1), (9, 3)]


@pytest.mark.parametrize("scopes", [("", ", scope => '{tenant}'"), (", scope => '{tenant}'", "")])
def test_a_new_index_drops_the_functions_of_another_with_its_id(connection, scopes):
    """A schema-only dump contains them, and the restored registry starts ids from 1 again."""
    connection.execute("CREATE TABLE article (fingerprint bigint, tenant integer)")
    for scope in scopes:
        connection.execute("TRUNCATE simsql.registry RESTART IDENTITY")
        connection.execute(f"SELECT simsql.create_index('article', 'fingerprint'{scope})")
    connection.execute("INSERT INTO article VALUES (5, 1)")
    given = ", scope => '{\"tenant\": 1}'" if scopes[1] else ""
    assert connection.execute(f"SELECT * FROM simsql.near('article', 7, 3{given})").fetchall() == [(5, 1)]
    assert connection.execute("SELECT * FROM simsql.verify('article')").fetchall() == []
    connection.execute("SELECT simsql.drop_index('article')")
    functions = "SELECT count(*) FROM pg_proc WHERE proname ~ '^(search|scan)_1$'"
    assert connection.execute(functions).fetchone() == (0,)
