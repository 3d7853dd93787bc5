"""verify names what is wrong with an index, repair mends it, and then searches are exact."""

import contextlib
from functools import partial

import articles as articles_module
import pytest
from articles import DESIGNS, create_articles, create_index, create_table, fingerprints_of, missing_keys, near
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from internals import begin_build
from oracle import EXTREMES, clustered
from oracle import near as expected_near
from psycopg import errors
from sessions import ALL_LEVELS, ONE_SNAPSHOT, begin, blocked
from upkeep import problems

pytestmark = pytest.mark.oldest_version

KEYS = [f"simsql.keys_1_{number}" for number in range(4)]


def fill_articles(connection):
    create_articles(connection, clustered(60, seed=1))


@pytest.fixture(scope="module")
def _sound(server):
    """A connection to a database of this module's own, with an index as `articles`."""
    with server.new_database() as url, server.connect(url.database) as connection:
        create_articles(connection, clustered(60, seed=1))
        yield connection


@pytest.fixture
def sound(_sound):
    """As `articles`, in a transaction that is rolled back: for what needs no other session."""
    with _sound.transaction(force_rollback=True):
        yield _sound


def execute_all(connection, statements):
    for statement in statements:
        connection.execute(statement)


def repaired(connection, table="article"):
    found = connection.execute("SELECT problem, object FROM simsql.repair(%s::regclass)", [table])
    return set(found.fetchall())


searches_are_exact = partial(articles_module.searches_are_exact, queries=(7, *EXTREMES[2:4]), distances=(3, 9, 64))


@pytest.mark.parametrize("design", [*DESIGNS[3::3], (64, 1, 0)], ids=str)
def test_of_a_sound_index_nothing_is_said(connection, design):
    create_articles(connection, clustered(60, seed=2), design)
    assert problems(connection) == set()
    assert repaired(connection) == set()
    assert problems(connection) == set()


def test_nothing_is_said_where_there_is_nothing(connection):
    assert problems(connection, None) == set()
    create_table(connection)
    for function in ("verify", "repair"):
        with pytest.raises(errors.UndefinedObject, match="article has no simhash index"):
            connection.execute(f"SELECT * FROM simsql.{function}('article')")


def keys(problem):
    return {(problem, name) for name in KEYS}


def triggers(problem, *names):
    return {(problem, f"simsql_1_{name}") for name in names}


def changed(problem):
    """What the stamp tells of the whole index."""
    return (problem, "public.article")


def functions(problem, *names):
    return {(problem, f"simsql.{name}_1") for name in names}


WRITE = "INSERT INTO article (fingerprint) VALUES (12345), (-5), (99999)"
UPDATE = "UPDATE article SET fingerprint = 77 WHERE id < 4"
INVALID = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{}'::regclass"
BOTH = ("insert", "update")
NOT_ALWAYS = triggers("trigger not enabled always", *BOTH)
ALL_OFF = NOT_ALWAYS | triggers("trigger not enabled for replication", "replica")
MISSING = keys("keys missing")

# What has happened, and what is found.
DAMAGES = {
    "keys deleted": (
        "DELETE FROM simsql.keys_1_0; DELETE FROM simsql.keys_1_2 WHERE key > 0",
        {("keys missing", KEYS[0]), ("keys missing", KEYS[2])},
    ),
    "keys truncated": ("TRUNCATE simsql.keys_1_1", {("keys missing", KEYS[1]), changed("keys lost")}),
    "triggers disabled": (
        f"ALTER TABLE article DISABLE TRIGGER simsql_1_insert, DISABLE TRIGGER simsql_1_update; {WRITE}; {UPDATE}",
        NOT_ALWAYS | MISSING,
    ),
    "triggers enabled, but not always": (
        "ALTER TABLE article ENABLE TRIGGER simsql_1_insert, ENABLE TRIGGER simsql_1_update",
        NOT_ALWAYS,
    ),
    "all triggers disabled and enabled": (
        f"ALTER TABLE article DISABLE TRIGGER ALL; {WRITE}; ALTER TABLE article ENABLE TRIGGER ALL",
        ALL_OFF | MISSING,
    ),
    "triggers disabled and enabled as they were": (
        f"ALTER TABLE article DISABLE TRIGGER simsql_1_insert; {WRITE};"
        " ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_insert",
        {*MISSING, changed("triggers changed")},
    ),
    "triggers dropped": (
        "DROP TRIGGER simsql_1_insert ON article; DROP TRIGGER simsql_1_column ON article;"
        f" DROP TRIGGER simsql_1_no_parent ON article; {WRITE}",
        triggers("trigger missing", "insert", "column", "no_parent") | MISSING,
    ),
    "trigger altered": (
        "CREATE OR REPLACE TRIGGER simsql_1_insert AFTER INSERT ON article REFERENCING NEW TABLE AS new_rows"
        " FOR EACH STATEMENT WHEN (pg_trigger_depth() > 5) EXECUTE FUNCTION simsql.add_on_insert_1();"
        f" ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_insert; {WRITE}",
        triggers("trigger altered", "insert") | MISSING,
    ),
    "trigger function altered": (
        "CREATE OR REPLACE FUNCTION simsql.add_on_insert_1() RETURNS trigger LANGUAGE plpgsql"
        f" AS 'BEGIN RETURN NULL; END'; {WRITE}",
        {*functions("function altered", "add_on_insert"), *MISSING, changed("trigger functions changed")},
    ),
    "trigger function with the caller's rights": (
        "ALTER FUNCTION simsql.add_on_update_1() SECURITY INVOKER",
        {*functions("function altered", "add_on_update"), changed("trigger functions changed")},
    ),
    "trigger function dropped": (
        f"DROP FUNCTION simsql.add_on_update_1 CASCADE; {UPDATE}",
        functions("function missing", "add_on_update") | triggers("trigger missing", "update", "column") | MISSING,
    ),
    "search function altered": (
        "CREATE OR REPLACE FUNCTION simsql.search_1(bigint, integer) RETURNS SETOF simsql.match"
        " LANGUAGE sql STABLE ROWS 10 AS 'SELECT $1, $2 LIMIT 0'",
        functions("function altered", "search"),
    ),
    "search function without its settings": (
        "ALTER FUNCTION simsql.search_1(bigint, integer) RESET ALL",
        functions("function altered", "search"),
    ),
    "search functions dropped": (
        "DROP FUNCTION simsql.search_1, simsql.scan_1",
        functions("function missing", "search", "scan"),
    ),
    "key table dropped": ("DROP TABLE simsql.keys_1_1", {("key table missing", KEYS[1])}),
    "first key table dropped": ("DROP TABLE simsql.keys_1_0", {("key table missing", KEYS[0])}),
    "all key tables dropped": (f"DROP TABLE {', '.join(KEYS)}", keys("key table missing")),
    "key table of another type": (
        "ALTER TABLE simsql.keys_1_3 ALTER key TYPE numeric",
        {("key table altered", KEYS[3])},
    ),
    "key table set unlogged": ("ALTER TABLE simsql.keys_1_3 SET UNLOGGED", {("key table unlogged", KEYS[3])}),
    "B-tree of keys dropped": (
        "DROP INDEX simsql.keys_1_2_key_idx",
        {("B-tree missing", "simsql.keys_1_2 (key)")},
    ),
    "B-tree of keys invalid": (
        INVALID.format("simsql.keys_1_2_key_idx"),
        {("B-tree invalid", "simsql.keys_1_2_key_idx")},
    ),
    "B-tree dropped": (
        "DROP INDEX article_fingerprint_idx",
        {("B-tree missing", "public.article (fingerprint)")},
    ),
    "B-tree invalid": (
        f"{INVALID.format('article_fingerprint_idx')}; {WRITE}",
        {("B-tree invalid", "public.article_fingerprint_idx")},
    ),
    "B-tree neither valid nor written": (
        f"{INVALID.format('article_fingerprint_idx').replace('SET', 'SET indisready = false,')}; {WRITE}",
        {("B-tree invalid", "public.article_fingerprint_idx")},
    ),
    "policy dropped": (
        "DROP POLICY readers ON simsql.keys_1_0",
        {("policy altered", KEYS[0]), changed("policies changed")},
    ),
    "policy added": (
        "CREATE POLICY more ON simsql.keys_1_1 AS RESTRICTIVE USING (key > 0)",
        {("policy altered", KEYS[1]), changed("policies changed")},
    ),
    "policies switched off": (
        "ALTER TABLE simsql.keys_1_2 DISABLE ROW LEVEL SECURITY",
        {("policy altered", KEYS[2])},
    ),
    "grant revoked": (
        "REVOKE SELECT ON simsql.keys_1_0 FROM PUBLIC",
        {("policy altered", KEYS[0]), ("privilege missing", KEYS[0])},
    ),
    "much at once": (
        "DROP TABLE simsql.keys_1_1; DROP FUNCTION simsql.search_1; ALTER TABLE article DISABLE TRIGGER ALL;"
        f" {WRITE}; ALTER TABLE article ENABLE TRIGGER ALL;"
        " DROP INDEX article_fingerprint_idx, simsql.keys_1_2_key_idx",
        {("key table missing", KEYS[1]), ("B-tree missing", "public.article (fingerprint)")}
        | {("B-tree missing", "simsql.keys_1_2 (key)")}
        | functions("function missing", "search")
        | ALL_OFF
        | (MISSING - {("keys missing", KEYS[1])}),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_is_named_and_mended(sound, damage):
    statements, expected = damage
    sound.execute(statements)
    found = sound.execute("SELECT problem, object, fault, hint, keys FROM simsql.verify('article')").fetchall()
    assert {(problem, where) for problem, where, *_ in found} == expected
    for problem, _, fault, hint, count in found:
        assert fault
        assert hint == "SELECT * FROM simsql.repair('public.article');"
        assert (count is None) == (problem != "keys missing")
    mended = repaired(sound)
    if not any(problem.startswith("key table") and problem != "key table unlogged" for problem, _ in expected):
        assert mended == expected
    else:  # then all keys are made anew
        assert mended == expected - MISSING
    assert problems(sound) == set()
    searches_are_exact(sound)
    sound.execute(f"{WRITE}; {UPDATE}")
    searches_are_exact(sound)


def superfluous(connection):
    return connection.execute("SELECT simsql.superfluous_keys('article')").fetchone()[0]


def test_superfluous_keys_are_counted_and_are_no_fault(articles):
    """After updates and backfills there are some. A monitor wants to know whether something is wrong."""
    articles.execute("INSERT INTO simsql.keys_1_1 VALUES (555), (556), (556)")
    articles.execute("INSERT INTO simsql.keys_1_2 SELECT key FROM simsql.keys_1_2 WHERE key > 0 LIMIT 2")
    assert problems(articles) == set()
    assert superfluous(articles) == 5
    assert repaired(articles) == set()
    articles.execute("CALL simsql.vacuum('article')")
    assert superfluous(articles) == 0


def test_superfluous_keys_are_not_counted_by_whoever_does_not_see_all_rows(articles, new_role, connect):
    role = new_role()
    articles.execute(f"GRANT SELECT ON article TO {role}")
    guest = connect(role)
    assert superfluous(guest) == 0
    articles.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    for statement in ("SELECT simsql.superfluous_keys('article')", "SELECT * FROM simsql.verify('article')"):
        with pytest.raises(errors.InsufficientPrivilege, match="row-level security hides rows"):
            guest.execute(statement)


few_values = st.sampled_from([*EXTREMES, None, 5, 1 << 48, -(1 << 16)])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(few_values, max_size=9), stored=st.lists(few_values.filter(lambda f: f is not None), max_size=12)
)
def test_keys_are_counted_rightly(connection, rows, stored):
    connection.execute("DROP TABLE IF EXISTS article")
    create_articles(connection, rows, (2, 1, 0))
    (index,) = connection.execute("SELECT max(id) FROM simsql.registry").fetchone()
    execute_all(connection, [f"DELETE FROM simsql.keys_{index}_0 WHERE key IS NOT NULL"])
    connection.execute(
        f"INSERT INTO simsql.keys_{index}_0 SELECT unnest(%s::bigint[])", [stored]
    )  # keys as they are
    live = set(rows) - {None}
    missing = len(live - set(stored))
    found = connection.execute("SELECT problem, keys FROM simsql.verify('article')").fetchall()
    assert found == ([("keys missing", missing)] if missing else [])
    assert superfluous(connection) == len(stored) - len(live & set(stored))
    connection.execute("SELECT simsql.repair('article')")
    assert missing_keys(connection) == []


# Names


def test_a_renamed_table_is_followed(sound):
    execute_all(
        sound, ["CREATE SCHEMA app", "ALTER TABLE article RENAME TO paper", "ALTER TABLE paper SET SCHEMA app"]
    )
    assert problems(sound, "app.paper") == {("table renamed", "app.paper")}
    assert repaired(sound, "app.paper") == {("table renamed", "app.paper")}
    assert problems(sound, None) == set()
    searches_are_exact(sound, table="app.paper")


def test_of_two_swapped_tables_each_keeps_its_index(sound):
    sound.execute("CREATE TABLE copy (id bigint, fingerprint bigint)")
    sound.execute("INSERT INTO copy VALUES (1, 7), (2, -9)")
    create_index(sound, "copy", design=(3, 1, 0))
    for old, new in (("article", "gone"), ("copy", "article"), ("gone", "copy")):
        sound.execute(f"ALTER TABLE {old} RENAME TO {new}")
    renamed = {("table renamed", "public.article"), ("table renamed", "public.copy")}
    assert problems(sound, None) == problems(sound, "article") == renamed
    assert repaired(sound) == {("table renamed", "public.article")}
    searches_are_exact(sound)
    assert repaired(sound, "copy") == {("table renamed", "public.copy")}
    searches_are_exact(sound, table="copy")
    assert problems(sound, None) == set()


def test_the_index_of_a_table_whose_name_another_one_has_got_is_named(articles):
    articles.execute("CREATE TABLE copy (LIKE article)")
    execute_all(articles, ["ALTER TABLE article RENAME TO old", "ALTER TABLE copy RENAME TO article"])
    assert problems(articles) == {("table renamed", "public.old")}
    (hint,) = articles.execute("SELECT hint FROM simsql.verify('article')").fetchone()
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index"):
        repaired(articles)
    articles.execute(hint)
    searches_are_exact(articles, table="old")


def test_swapped_columns_are_followed(sound):
    sound.execute("ALTER TABLE article ADD COLUMN other bigint")
    sound.execute("UPDATE article SET other = id")
    create_index(sound, column="other", design=(3, 1, 0))
    for old, new in (("fingerprint", "gone"), ("other", "fingerprint"), ("gone", "other")):
        sound.execute(f"ALTER TABLE article RENAME {old} TO {new}")
    assert problems(sound) == {("column renamed", "fingerprint"), ("column renamed", "other")}
    assert sound.execute("SELECT state FROM simsql.indexes").fetchall() == [("column renamed",)] * 2
    assert repaired(sound) == {("column renamed", "fingerprint"), ("column renamed", "other")}
    assert problems(sound) == set()
    for column in ("fingerprint", "other"):
        searches_are_exact(sound, column=column)


def test_a_column_that_took_the_name_is_not_mistaken_for_the_other(sound):
    sound.execute("ALTER TABLE article RENAME fingerprint TO old")
    sound.execute("ALTER TABLE article ADD COLUMN fingerprint bigint DEFAULT 5")
    assert repaired(sound) == {("column renamed", "old")}
    searches_are_exact(sound, column="old")


def test_names_at_their_longest(connection):
    table, column, other = "t" * 63, 'c"' * 31, "ü" * 31
    connection.execute(
        f'CREATE TABLE "{table}" ("{column.replace(chr(34), chr(34) * 2)}" bigint, "{other}" bigint)'
    )
    create_index(connection, table, column)
    create_index(connection, table, other)
    quoted = column.replace('"', '""')
    for old, new in ((quoted, "gone"), (other, quoted), ("gone", other)):
        connection.execute(f'ALTER TABLE "{table}" RENAME "{old}" TO "{new}"')
    connection.execute(f'ALTER TABLE "{table}" RENAME TO "Odd ""%s"" \'name"')
    assert {problem for problem, _ in problems(connection, None)} == {"table renamed", "column renamed"}
    (hint,) = connection.execute("SELECT DISTINCT hint FROM simsql.verify()").fetchone()
    connection.execute(hint)
    assert problems(connection, None) == set()
    connection.execute('CALL simsql.vacuum(\'"Odd ""%s"" \'\'name"\', %s)'.replace('%s""', '%%s""'), [other])


# What repair cannot mend


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["ALTER TABLE article DROP COLUMN fingerprint CASCADE"], "column dropped"),
        (
            ["DROP TRIGGER simsql_1_column ON article", "ALTER TABLE article ALTER fingerprint TYPE numeric"],
            "column is no longer a stored bigint",
        ),
    ],
)
def test_without_its_column_an_index_can_only_be_dropped(articles, changes, problem):
    execute_all(articles, changes)
    found = articles.execute("SELECT object, hint FROM simsql.verify() WHERE problem = %s", [problem]).fetchall()
    ((column, hint),) = found
    assert column == "fingerprint"
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=problem):
        repaired(articles)
    articles.execute(hint)
    assert problems(articles, None) == set()


def test_a_dropped_table_is_named_and_the_hint_clears_up(sound):
    sound.execute("DROP TABLE article")
    assert problems(sound, None) >= {("table dropped", "public.article")}
    (hint,) = sound.execute("SELECT hint FROM simsql.verify() WHERE problem = 'table dropped'").fetchone()
    sound.execute(hint)
    assert problems(sound, None) == set()
    assert sound.execute("SELECT FROM pg_class WHERE relname ~ '^keys_1_'").fetchall() == []


@pytest.mark.parametrize(
    ("attach", "detach"),
    [
        ("CREATE TABLE child () INHERITS (article)", "DROP TABLE child"),
        (
            "CREATE TABLE child () INHERITS (article); INSERT INTO child (id, fingerprint) VALUES (900, 900)",
            "ALTER TABLE child NO INHERIT article",
        ),
    ],
)
def test_a_child_has_to_be_detached_first(articles, attach, detach):
    articles.execute(attach)
    assert problems(articles) == {("table has a parent or a child", "public.article")}
    with pytest.raises(errors.FeatureNotSupported, match="takes part in inheritance"):
        repaired(articles)
    articles.execute(detach)
    assert problems(articles) == set()
    searches_are_exact(articles)


def test_what_depends_on_a_key_table_has_to_go_first(articles):
    """Repair drops an altered key table, and whoever drops the index or creates another one drops it, too."""
    articles.execute("CREATE TABLE child () INHERITS (simsql.keys_1_1)")
    for statement in ("repair", "drop_index"):
        with pytest.raises(errors.DependentObjectsStillExist, match=r"needs table simsql\.keys_1_1") as refused:
            articles.execute(f"SELECT simsql.{statement}('article')")
        assert refused.value.diag.message_detail == "table public.child depends on table simsql.keys_1_1"
        assert "ALTER TABLE public.child NO INHERIT simsql.keys_1_1;" in refused.value.diag.message_hint
    articles.execute("ALTER TABLE child NO INHERIT simsql.keys_1_1; CREATE VIEW seen AS TABLE simsql.keys_1_1")
    with pytest.raises(errors.DependentObjectsStillExist, match=r"needs table simsql\.keys_1_1"):
        articles.execute("SELECT simsql.drop_index('article')")
    assert repaired(articles) == set()
    searches_are_exact(articles)


# Transactions and rights


def test_repair_does_not_run_with_an_older_snapshot(articles):
    for level in ONE_SNAPSHOT:
        begin(articles, level)
        with pytest.raises(errors.ActiveSqlTransaction, match="must be read committed"):
            repaired(articles)
        articles.execute("ROLLBACK")


def test_verify_reads_one_snapshot_and_writes_nothing(articles, connect):
    readers = {level: connect() for level in ALL_LEVELS}
    for level, reader in readers.items():
        reader.execute(f"BEGIN ISOLATION LEVEL {level} READ ONLY")
        assert problems(reader) == set()
    articles.execute(f"{WRITE}; DELETE FROM article WHERE id = 1")
    for level, reader in readers.items():
        assert problems(reader) == set()
        assert superfluous(reader) == (4 if level == "READ COMMITTED" else 0)


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_repair_waits_for_writers_and_sees_their_rows(articles, connect, level):
    writer = connect()
    begin(writer, level)
    writer.execute(WRITE)
    execute_all(articles, [f"DELETE FROM {name}" for name in KEYS])
    with blocked(connect, repaired) as mended:
        writer.execute("INSERT INTO article (fingerprint) VALUES (31)")
        writer.execute("COMMIT")
    assert mended.result() == keys("keys missing")
    searches_are_exact(articles)


def test_a_repair_can_be_rolled_back(articles):
    execute_all(articles, ["DROP TABLE simsql.keys_1_1", "ALTER TABLE article DISABLE TRIGGER ALL"])
    before = problems(articles)
    with articles.transaction(force_rollback=True):
        repaired(articles)
        searches_are_exact(articles)
    assert problems(articles) == before


@pytest.mark.parametrize(
    ("level", "damage"),
    [
        ("SERIALIZABLE", "key table dropped"),
        ("REPEATABLE READ", "all triggers disabled and enabled"),
        ("REPEATABLE READ", "search functions dropped"),
    ],
)
def test_a_snapshot_older_than_the_repair_is_refused_or_exact(articles, connect, level, damage):
    live = fingerprints_of(articles)
    articles.execute(DAMAGES[damage][0])
    reader = connect()
    begin(reader, level)
    repaired(articles)
    with contextlib.suppress(errors.UndefinedObject, errors.ObjectNotInPrerequisiteState):
        assert near(reader, 0, 9) == expected_near(live, 0, 9)
    reader.execute("ROLLBACK")
    searches_are_exact(reader)


def test_an_unlogged_table_that_is_set_logged(connection):
    """It is not searched before the repair, since a crash would empty its keys."""
    connection.execute("CREATE UNLOGGED TABLE article (id int, fingerprint bigint)")
    create_index(connection)
    connection.execute("INSERT INTO article VALUES (1, 7)")
    assert near(connection, 7, 0) == [(7, 0)]
    connection.execute("ALTER TABLE article SET LOGGED")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="article was set logged") as caught:
        near(connection, 7, 0)
    assert problems(connection) == keys("key table unlogged")
    connection.execute(caught.value.diag.message_hint.partition(": ")[2])
    searches_are_exact(connection)
    assert connection.execute(
        "SELECT DISTINCT relpersistence FROM pg_class WHERE relname ~ '^keys_1_'"
    ).fetchall() == [("p",)]


def test_who_may_read_the_column_may_verify_and_only_the_owner_may_repair(connection, owner, new_role, connect):
    name = new_role()
    connection.execute(f"GRANT SELECT (fingerprint) ON article TO {name}")
    connection.execute("DELETE FROM simsql.keys_1_0")
    reader = connect(name)
    assert problems(reader) == {("keys missing", KEYS[0])}
    with pytest.raises(errors.InsufficientPrivilege):
        repaired(reader)
    assert repaired(connect(owner)) == {("keys missing", KEYS[0])}
    stranger = connect(new_role())
    with pytest.raises(errors.InsufficientPrivilege):
        problems(stranger)


def test_row_level_security_that_hides_rows_is_refused(connection, owner, connect):
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY none ON article FOR SELECT USING (false)")
    for function in (problems, repaired):
        with pytest.raises(errors.InsufficientPrivilege, match=r"row-level security hides rows of public.article"):
            function(connect(owner))
    assert problems(connection) == set()


@pytest.mark.parametrize(
    "damage",
    ["all key tables dropped", "key table dropped", "trigger function dropped", "search functions dropped"],
)
def test_what_a_superuser_has_repaired_is_still_the_owners(connection, owner, connect, damage):
    connection.execute(DAMAGES[damage][0])
    repaired(connection)
    owning = connect(owner)
    searches_are_exact(owning)
    owning.execute("INSERT INTO article (fingerprint) VALUES (1), (2)")
    owning.execute("CALL simsql.vacuum('article')")
    searches_are_exact(owning)
    owning.execute("SELECT simsql.drop_index('article')")
    assert connection.execute("TABLE simsql.indexes").fetchall() == []


# Unfinished builds


def test_an_unfinished_build_is_named(connection):
    create_table(connection, [1, 2, 3])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    begin_build(connection)
    assert problems(connection) == {("not ready", "public.article")}
    assert repaired(connection) == set()
    connection.execute("DROP TABLE simsql.keys_1_2")
    assert repaired(connection) == {("key table missing", KEYS[2])}
    (hint,) = connection.execute("SELECT hint FROM simsql.verify()").fetchone()
    connection.execute(hint)
    assert problems(connection) == set()
    searches_are_exact(connection)


@pytest.mark.parametrize(
    ("change", "found"),
    {
        "SELECT simsql.drop_index('article', 'fingerprint')": [],
        "SELECT simsql.change_storage('article', 'expression')": [],
        "DROP TABLE article": ["table dropped"],
    }.items(),
)
def test_changes_that_it_waits_for(connection, connect, change, found):
    create_articles(connection, [5, 6])

    def search(session):
        return [problem for (problem,) in session.execute("SELECT problem FROM simsql.verify()")]

    connection.execute("BEGIN")
    connection.execute(change)
    with blocked(connect, search) as waiting:
        connection.execute("COMMIT")
        assert waiting.result() == found


def test_superfluous_keys_wait_for_another_storage(connection, connect):
    create_articles(connection, [5, 6])
    connection.execute("BEGIN")
    connection.execute("SELECT simsql.change_storage('article', 'expression')")
    with blocked(
        connect, lambda session: session.execute("SELECT simsql.superfluous_keys('article')").fetchone()
    ) as waiting:
        connection.execute("COMMIT")
        assert waiting.result() == (0,)


def test_few_float_digits(connection):
    connection.execute("SET extra_float_digits = -5")
    assert connection.execute("SELECT * FROM simsql.verify()").fetchall() == []


@pytest.mark.oldest_version
@pytest.mark.parametrize("storage", ["tables", "expression"])
def test_what_an_interrupted_reindex_leaves_is_named_and_repaired(connection, connect, storage):
    create_articles(connection, [1, 3])
    if storage == "expression":
        connection.execute("SELECT simsql.change_storage('article', 'expression')")
    btree = {"tables": "simsql.keys_1_0_key_idx", "expression": "simsql_1_0"}[storage]
    other = connect()
    other.execute("BEGIN; SELECT FROM article; SELECT FROM simsql.near('article', 1, 0)")
    connection.execute("SET statement_timeout = '300ms'")
    with pytest.raises(errors.QueryCanceled):
        connection.execute(f"REINDEX INDEX CONCURRENTLY {btree}")
    connection.execute("RESET statement_timeout")
    other.execute("COMMIT")
    left = {("REINDEX unfinished", {"tables": "", "expression": "public."}[storage] + btree + "_ccold")}
    assert problems(connection) == left
    assert set(connection.execute("SELECT problem, object FROM simsql.problems")) == left
    assert set(connection.execute("SELECT problem, object FROM simsql.repair('article')")) == left
    assert problems(connection) == set()
    assert near(connection, 1, 1) == [(1, 0), (3, 1)]


@pytest.mark.oldest_version
def test_a_reindex_that_goes_on_is_not_a_fault(connection, connect):
    create_articles(connection, [1, 3])
    other = connect()
    other.execute("BEGIN; SELECT FROM article; SELECT FROM simsql.near('article', 1, 0)")
    with blocked(connect, lambda session: session.execute("REINDEX TABLE CONCURRENTLY simsql.keys_1_0")) as done:
        invalid = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
        assert connection.execute(invalid).fetchone() == (1,)
        assert connection.execute("SELECT problem FROM simsql.problems").fetchall() == []
        other.execute("COMMIT")
    done.result()
    assert problems(connection) == set()
