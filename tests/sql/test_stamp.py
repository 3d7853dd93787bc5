"""What somebody changes and changes back leaves a mark: a search refuses until the keys have been compared."""

import contextlib

import pytest
from articles import create_articles, create_index, create_table, missing_keys, near
from internals import begin_build, build_batch
from psycopg import errors
from sessions import ONE_SNAPSHOT, begin, blocked
from upkeep import problems

pytestmark = pytest.mark.oldest_version

OLD, NEW = 5, 7
WRITE = f"INSERT INTO article (fingerprint) VALUES ({NEW})"
# What an owner does, and undoes: the rows written in between have no keys.
THERE_AND_BACK = {
    "trigger disabled": (
        "ALTER TABLE article DISABLE TRIGGER simsql_1_insert",
        "ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_insert",
    ),
    "trigger dropped": (
        "CREATE TABLE definition AS SELECT pg_get_triggerdef(oid) AS sql FROM pg_trigger"
        " WHERE tgname = 'simsql_1_insert';"
        " DROP TRIGGER simsql_1_insert ON article",
        "DO $$ BEGIN EXECUTE (SELECT sql FROM definition); END $$;"
        " ALTER TABLE article ENABLE ALWAYS TRIGGER simsql_1_insert",
    ),
    "trigger function replaced": (
        "CREATE TABLE definition AS SELECT pg_get_functiondef('simsql.add_on_insert_1'::regproc) AS sql;"
        " CREATE OR REPLACE FUNCTION simsql.add_on_insert_1() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN RETURN NULL; END'",
        "DO $$ BEGIN EXECUTE (SELECT sql FROM definition); END $$",
    ),
    "keys emptied": ("TRUNCATE simsql.keys_1_0, simsql.keys_1_1, simsql.keys_1_2, simsql.keys_1_3", ""),
}


# What keeps keys away as long as it is there. Who owns key tables can also delete keys, which only verify finds.
THERE = {
    "trigger on keys": "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
    " CREATE TRIGGER one BEFORE INSERT ON simsql.keys_1_2 FOR EACH ROW EXECUTE FUNCTION nothing()",
    "rule on keys": "CREATE RULE one AS ON INSERT TO simsql.keys_1_2 DO INSTEAD NOTHING",
}


def fill_articles(connection):
    create_articles(connection, [OLD])


@pytest.mark.parametrize("together", [False, True], ids=["in transactions of their own", "in one transaction"])
@pytest.mark.parametrize(("there", "back"), THERE_AND_BACK.values(), ids=THERE_AND_BACK)
def test_there_and_back(articles, there, back, together):
    with articles.transaction() if together else contextlib.nullcontext():
        for statement in (there, WRITE, back):
            if statement:
                articles.execute(statement)
    if missing_keys(articles):
        with pytest.raises(errors.ObjectNotInPrerequisiteState) as refused:
            near(articles, NEW, 0)
        assert "simsql.repair('public.article')" in refused.value.diag.message_hint
        assert articles.execute("SELECT state FROM simsql.indexes").fetchone() != ("ready",)
        articles.execute("SELECT FROM simsql.repair('article')")
    assert missing_keys(articles) == []
    assert near(articles, NEW, 0) == [(NEW, 0)]
    assert problems(articles) == set()


@pytest.mark.parametrize("there", THERE.values(), ids=THERE)
def test_what_keeps_keys_away(articles, there):
    articles.execute(there)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="keys of rows of article were not stored"):
        articles.execute(WRITE)


@pytest.mark.parametrize("search", ["near('article', 7, 0)", "near_many('article', '{7}', 0)"])
def test_keys_that_this_transaction_has_added_since(articles, search):
    """The snapshot of a cursor is older than they are, but its index was already complete in this transaction."""
    articles.execute("BEGIN")
    articles.execute("SELECT FROM simsql.repair('article')")
    for statement in (*THERE_AND_BACK["trigger disabled"][:1], WRITE, *THERE_AND_BACK["trigger disabled"][1:]):
        articles.execute(statement)
    articles.execute(f"DECLARE late CURSOR FOR SELECT * FROM simsql.{search}")
    articles.execute("SELECT FROM simsql.repair('article')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        articles.execute("FETCH ALL late")


def test_keys_in_another_table(articles):
    articles.execute(
        "ALTER TABLE simsql.keys_1_0 RENAME TO other; CREATE TABLE simsql.keys_1_0 (LIKE simsql.other)"
    )
    articles.execute(WRITE)
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        near(articles, NEW, 0)


def test_an_index_and_what_undid_it_in_one_transaction(connection):
    """Marks are more than the transaction that wrote a row."""
    connection.execute(
        "CREATE TABLE article (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, fingerprint bigint)"
    )
    there, back = THERE_AND_BACK["trigger disabled"]
    with connection.transaction():
        create_index(connection)
        for statement in (there, WRITE, back):
            connection.execute(statement)
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(connection, NEW, 0)
    connection.execute("VACUUM FULL pg_trigger")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(connection, NEW, 0)
    connection.execute("SELECT FROM simsql.repair('article')")
    assert near(connection, NEW, 0) == [(NEW, 0)]


def test_rows_of_the_catalogue_in_the_places_of_others(articles):
    """VACUUM FULL moves rows of the same transaction to where those of the first index were."""
    articles.execute("SELECT simsql.drop_index('article')")
    articles.execute("VACUUM FULL pg_trigger")
    with articles.transaction():
        create_index(articles)
        for number in range(12):
            articles.execute(f"CREATE TABLE other_{number} (fingerprint bigint)")
            articles.execute(f"SELECT simsql.create_index('other_{number}', 'fingerprint')")
    (index,) = articles.execute("SELECT id FROM simsql.registry WHERE table_id = 'article'::regclass").fetchone()
    for statement in (*THERE_AND_BACK["trigger disabled"][:1], WRITE, *THERE_AND_BACK["trigger disabled"][1:]):
        articles.execute(statement.replace("simsql_1", f"simsql_{index}"))
    articles.execute("VACUUM FULL pg_trigger")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(articles, NEW, 0)


def test_new_rows_of_the_catalogue_in_the_places_of_old_ones(connection):
    """VACUUM FULL moves what the transaction of the index wrote last to where it had written first."""
    create_table(connection)
    connection.execute("CREATE TABLE other (a integer)")
    with connection.transaction():
        create_index(connection)
        triggers = connection.execute(
            "SELECT (ctid::text::point)[1]::integer, tgname, tgenabled, starts_with(tgname::text, 'simsql_1_')"
            " FROM pg_trigger ORDER BY ctid"
        ).fetchall()
        rows = [name for _, name, _, is_ours in triggers if not is_ours]
        for place, name, fires, _ in [trigger for trigger in triggers if trigger[3]]:
            while len(rows) < place - 1:
                rows.append(f"trigger_{place}_{len(rows)}")
                connection.execute(
                    f"CREATE TRIGGER {rows[-1]} AFTER INSERT ON other EXECUTE FUNCTION simsql.add_on_insert_1()"
                )
            connection.execute(f"ALTER TABLE article DISABLE TRIGGER {name}")
            if name == "simsql_1_insert":
                connection.execute(WRITE)
            always = {"A": "ALWAYS", "R": "REPLICA", "O": ""}[fires]
            connection.execute(f"ALTER TABLE article ENABLE {always} TRIGGER {name}")
            rows.append(name)
    connection.execute("VACUUM FULL pg_trigger")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(connection, NEW, 0)


def test_there_and_back_while_maintain_verifies(articles, connect):
    """It must not stamp what it has not looked at."""
    articles.execute("BEGIN")
    articles.execute("LOCK TABLE simsql.keys_1_0")
    maintain = "SELECT simsql._maintain_index(r, false) FROM simsql.registry AS r"
    with blocked(connect, lambda session: session.execute(maintain)) as waiting:
        for statement in (*THERE_AND_BACK["trigger disabled"][:1], WRITE, *THERE_AND_BACK["trigger disabled"][1:]):
            connect().execute(statement)
        articles.execute("COMMIT")
        waiting.result()
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(articles, NEW, 0)


def test_there_and_back_while_a_build_ends(connection, connect):
    create_table(connection, [OLD])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    begin_build(connection)
    connection.execute("BEGIN")
    connection.execute("SELECT FROM simsql.registry FOR UPDATE")
    with blocked(connect, build_batch) as waiting:
        for statement in (*THERE_AND_BACK["trigger disabled"][:1], WRITE, *THERE_AND_BACK["trigger disabled"][1:]):
            connect().execute(statement)
        connection.execute("COMMIT")
        assert waiting.result()
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled"):
        near(connection, NEW, 0)


def test_maintain_notices_what_a_statement_that_was_rolled_back_left(articles):
    """It wrote the number of its command into rows of the catalogue, by which they are known after VACUUM FULL."""
    articles.execute("BEGIN")
    articles.execute("ALTER TABLE article DISABLE TRIGGER ALL")
    articles.execute("ROLLBACK")
    articles.execute("CALL simsql.maintain()")
    articles.execute("VACUUM FULL pg_trigger")
    assert near(articles, OLD, 0) == [(OLD, 0)]


def test_an_expression_that_comes_back(connection):
    """Its function was another one meanwhile."""
    if connection.info.server_version < 170000:
        pytest.skip("SET EXPRESSION came with PostgreSQL 17")
    function = (
        "CREATE OR REPLACE FUNCTION f(body text) RETURNS bigint LANGUAGE sql IMMUTABLE RETURN length(body) + {}"
    )
    connection.execute(function.format(0))
    connection.execute("CREATE TABLE article (body text, fingerprint bigint GENERATED ALWAYS AS (f(body)) STORED)")
    connection.execute("INSERT INTO article VALUES ('12345')")
    create_index(connection)
    assert near(connection, 5, 0) == [(5, 0)]
    connection.execute(function.format(2))
    connection.execute("ALTER TABLE article ALTER fingerprint SET EXPRESSION AS (f(body))")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="expression of a generated column"):
        near(connection, NEW, 0)
    connection.execute("SELECT FROM simsql.repair('article')")
    assert near(connection, NEW, 0) == [(NEW, 0)]


# What leaves no mark, or one that an index outlives.
HARMLESS = {
    "written": "UPDATE article SET fingerprint = fingerprint + 1; UPDATE article SET fingerprint = 5",
    "vacuumed": "VACUUM (FREEZE, ANALYZE) article",
    "rewritten": "VACUUM FULL article",
    "keys rewritten": "VACUUM FULL simsql.keys_1_0",
    "keys clustered": "CLUSTER simsql.keys_1_1 USING keys_1_1_key_idx",
    "catalogue rewritten": "VACUUM FULL",
    "granted": "GRANT SELECT ON article TO PUBLIC; GRANT SELECT (fingerprint) ON article TO PUBLIC",
    "another column": "ALTER TABLE article ADD more text DEFAULT random()::text",
    "another trigger": "CREATE TRIGGER other AFTER INSERT ON article EXECUTE FUNCTION simsql._clear_fingerprint();"
    " DROP TRIGGER other ON article",
    "rolled back": "BEGIN; ALTER TABLE article DISABLE TRIGGER ALL; ROLLBACK",
    "renamed and back": "ALTER TABLE article RENAME TO other; ALTER TABLE other RENAME TO article",
    "emptied and filled": f"TRUNCATE article; INSERT INTO article (fingerprint) VALUES ({OLD})",
    "unlogged and logged": "ALTER TABLE article SET UNLOGGED; ALTER TABLE article SET LOGGED",
    "B-trees made anew": "REINDEX TABLE article; REINDEX TABLE simsql.keys_1_0",
    "a child that is gone": "CREATE TABLE child () INHERITS (article); DROP TABLE child",
}


@pytest.mark.parametrize("statements", HARMLESS.values(), ids=HARMLESS)
def test_an_index_outlives_what_loses_no_key(articles, statements):
    for statement in statements.split("; "):
        articles.execute(statement)
    assert near(articles, OLD, 0) == [(OLD, 0)]
    articles.execute("CALL simsql.maintain()")
    assert near(articles, OLD, 0) == [(OLD, 0)]
    assert problems(articles) == set()


@pytest.mark.parametrize("level", [*ONE_SNAPSHOT, "READ COMMITTED"])
def test_a_search_that_is_older_than_what_repair_added(articles, connect, level):
    """It must not miss the keys that its snapshot does not show."""
    articles.execute("ALTER TABLE article SET UNLOGGED")
    articles.execute("SELECT simsql.drop_index('article'); SELECT simsql.create_index('article', 'fingerprint')")
    articles.execute("ALTER TABLE article SET LOGGED")
    session = connect()
    begin(session, level)
    articles.execute("SELECT FROM simsql.repair('article')")
    try:
        assert near(session, OLD, 0) == [(OLD, 0)]
    except errors.ObjectNotInPrerequisiteState:
        assert level != "READ COMMITTED"
    assert near(articles, OLD, 0) == [(OLD, 0)]


POLICIES = {
    "altered": "ALTER POLICY readers ON simsql.keys_1_2 USING (false)",
    "added": "CREATE POLICY more ON simsql.keys_1_2 AS RESTRICTIVE USING (false)",
}


@pytest.mark.parametrize("level", ["READ COMMITTED", *ONE_SNAPSHOT])
@pytest.mark.parametrize("statement", POLICIES.values(), ids=POLICIES)
def test_a_policy_that_hides_keys_after_the_snapshot(articles, connect, new_role, statement, level):
    """PostgreSQL applies the current policies, whatever the snapshot."""
    role = new_role()
    articles.execute(f"GRANT SELECT ON article TO {role}")
    session = connect()
    session.execute(f"SET ROLE {role}")
    begin(session, level)
    assert near(session, OLD, 0) == [(OLD, 0)]
    session.execute("ROLLBACK")
    begin(session, level)
    articles.execute(statement)
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        near(session, OLD, 0)


def test_a_policy_in_the_place_that_it_had_before(connection, connect, new_role):
    """VACUUM FULL removes the version of the policy that the same transaction had written before."""
    create_table(connection, [OLD])
    role = new_role()
    connection.execute(f"GRANT SELECT ON article TO {role}")
    with connection.transaction():
        create_index(connection)
        last_policy = "SELECT polrelid::regclass FROM pg_policy ORDER BY ctid DESC LIMIT 1"
        (last,) = connection.execute(last_policy).fetchone()
        connection.execute(f"ALTER POLICY readers ON {last} USING (false)")
    connection.execute("VACUUM FULL pg_policy")
    with pytest.raises(errors.ObjectNotInPrerequisiteState):
        near(connect(role), OLD, 0)


def test_crash_between_unlogged_logged_unlogged_needs_the_file_of_the_table(articles):
    """A crash empties key tables that stay unlogged, also while the table is a logged one."""
    articles.execute("ALTER TABLE article SET UNLOGGED")
    articles.execute("SELECT simsql.drop_index('article'); SELECT simsql.create_index('article', 'fingerprint')")
    articles.execute("ALTER TABLE article SET LOGGED")
    articles.execute("DELETE FROM simsql.keys_2_0; DELETE FROM simsql.keys_2_3")  # as a crash does
    articles.execute("ALTER TABLE article SET UNLOGGED")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="emptied or rewritten"):
        near(articles, OLD, 0)
    articles.execute("SELECT FROM simsql.repair('article')")
    assert near(articles, OLD, 0) == [(OLD, 0)]


def test_an_unlogged_table_that_a_crash_has_emptied_is_searched(articles):
    articles.execute("ALTER TABLE article SET UNLOGGED")
    articles.execute("SELECT simsql.drop_index('article'); SELECT simsql.create_index('article', 'fingerprint')")
    articles.execute("DELETE FROM article; DELETE FROM simsql.keys_2_0; DELETE FROM simsql.keys_2_1")
    assert near(articles, OLD, 0) == []
    articles.execute(WRITE)
    assert near(articles, NEW, 0) == [(NEW, 0)]
