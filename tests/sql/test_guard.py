"""A role that searches or maintains an index runs no code of the table's owner, whatever the table has become."""

import contextlib

import pytest
from articles import missing_keys, near
from psycopg import Connection, Error, errors
from sessions import blocked
from similar import like_near
from upkeep import problems

pytestmark = pytest.mark.oldest_version

BOB = "'bob.article'"
CALLS = [
    "CALL simsql.vacuum('bob.article')",
    "SELECT * FROM simsql.pairs('bob.article', 3{scope})",
    "SELECT * FROM simsql.clusters('bob.article', 3{scope})",
    "SELECT * FROM simsql.near('bob.article', 1, 3{scope})",
    "SELECT * FROM simsql.near('bob.article', 1, 40{scope})",
    "SELECT * FROM simsql.near_rows(NULL::bob.article, 1, 3{scope})",
    "SELECT * FROM simsql.near_many('bob.article', ARRAY[1, 2], 3{scope})",
    "SELECT * FROM simsql.near_many('bob.article', ARRAY(SELECT generate_series(1, 3000)), 20{scope})",
    "SELECT * FROM simsql.near_wide('bob.article', ARRAY[1], 3, ARRAY['fingerprint']{scope})",
    "SELECT * FROM simsql.near_wide('bob.article', ARRAY[1], 40, ARRAY['fingerprint']{scope})",
    "SELECT * FROM simsql.claim('bob.article', 1{scope})",
    "SELECT * FROM simsql.explain_near('bob.article', 1, 3{scope})",
    *(
        f"SELECT * FROM simsql.{search}('bob.article', {like_near(1, 3, BOB)}{{scope}})"
        for search in ("similar_candidates", "explain_similar")
    ),
    "SELECT simsql._packed_pieces('bob.article', 'fingerprint', 100{scope})",
    "SELECT * FROM simsql._keys_of_rows('bob.article', ARRAY[1, 2], 'fingerprint'{scope_or_null})",
    "SELECT simsql.superfluous_keys('bob.article')",
    "SELECT * FROM simsql.verify('bob.article')",
    "SELECT * FROM simsql.repair('bob.article')",
    "SELECT simsql.drop_index('bob.article'), simsql.create_index('bob.article', 'fingerprint')",
]
# These read no scope columns of the table.
SAMPLES = [
    "SELECT * FROM simsql._sampled_fingerprints('bob.article', NULL, 100)",
    "SELECT * FROM simsql._sampled_fingerprints('bob.article', 'fingerprint', 100)",
]


@pytest.fixture
def bob(connection, new_role, connect) -> Connection:
    """A connection of a role that owns the schema bob, and a function that notes who calls it."""
    role = new_role()
    connection.execute(f"CREATE SCHEMA bob AUTHORIZATION {role}")
    session = connect(role)
    session.execute("CREATE SEQUENCE bob.calls; GRANT ALL ON SEQUENCE bob.calls TO PUBLIC")
    # A sequence keeps its value when the transaction rolls back.
    session.execute(
        "CREATE FUNCTION bob.seize() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN"
        " IF current_user = 'postgres' THEN PERFORM nextval('bob.calls'); END IF; RETURN 1; END $$"
    )
    return session


def calls(connection: Connection) -> int:
    return connection.execute("SELECT last_value - 1 + is_called::integer FROM bob.calls").fetchone()[0]


@pytest.mark.parametrize("storage", ["tables", "expression"])
@pytest.mark.parametrize("column", ["fingerprint", "tenant"])
def test_a_replaced_column_is_not_evaluated(connection, bob, column, storage):
    """Its owner also forges the trigger by which the index knows its columns."""
    bob.execute("CREATE TABLE bob.article (id serial PRIMARY KEY, tenant integer, fingerprint bigint)")
    bob.execute("INSERT INTO bob.article (tenant, fingerprint) SELECT 1, generate_series(1, 3)")
    scope = ", scope => '{tenant}'" if column == "tenant" else ""
    call = f"SELECT simsql.create_index('bob.article', 'fingerprint', storage => '{storage}'{scope})"
    (number,) = connection.execute(call).fetchone()
    columns = "fingerprint, tenant" if scope else "fingerprint"
    kept = {"fingerprint": "bigint", "tenant": "integer"}[column]
    for statement in (
        "CREATE TYPE bob.evil AS ENUM ('x')",
        f"CREATE FUNCTION bob.cast_it(bob.evil) RETURNS {kept} LANGUAGE sql AS 'SELECT bob.seize()::{kept}'",
        f"CREATE CAST (bob.evil AS {kept}) WITH FUNCTION bob.cast_it(bob.evil) AS IMPLICIT",
        "CREATE FUNCTION bob.noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        f"ALTER TABLE bob.article DROP COLUMN {column} CASCADE",
        f"ALTER TABLE bob.article ADD COLUMN {column} bob.evil DEFAULT 'x'",
        f"CREATE INDEX ON bob.article ({'tenant, ' if scope else ''}fingerprint)",
        f"CREATE TRIGGER simsql_{number}_column AFTER UPDATE OF {columns}"
        " ON bob.article FOR EACH STATEMENT EXECUTE FUNCTION bob.noop()",
    ):
        bob.execute(statement)
    given = """, scope => '{"tenant": 1}'""" if scope else ""
    refused = 0
    for call in [*SAMPLES, *CALLS]:
        try:
            connection.execute(call.format(scope=given, scope_or_null=given or ", NULL"))
        except (errors.DatatypeMismatch, errors.ObjectNotInPrerequisiteState, errors.UndefinedObject):
            refused += call in CALLS
        assert calls(connection) == 0, call
    assert refused >= len(CALLS) - 2  # verify reports


@pytest.mark.parametrize(
    "call",
    [
        "SELECT simsql.create_index('bob.article', 'fingerprint')",
        "SELECT simsql.create_index('bob.article', 'fingerprint', 3, 4)",
        "CALL simsql.build('bob.article', 'fingerprint')",
        "SELECT * FROM simsql.verify()",
        "CALL simsql.vacuum('bob.article')",
        "SELECT * FROM simsql.repair('bob.article')",
        "SELECT * FROM simsql.near('bob.article', 1)",
        "SELECT * FROM simsql.pairs('bob.article')",
    ],
)
@pytest.mark.parametrize("storage", ["tables", "expression"])
def test_a_view_that_takes_the_name_is_not_read(connection, connect, bob, call, storage):
    bob.execute("CREATE TABLE bob.article (fingerprint bigint); CREATE INDEX ON bob.article (fingerprint)")
    bob.execute("INSERT INTO bob.article SELECT generate_series(1, 50)")
    if "create_index" in call or "build" in call:
        call = call.replace(")", f", storage => '{storage}')")
    else:
        connection.execute(f"SELECT simsql.create_index('bob.article', 'fingerprint', storage => '{storage}')")
    bob.execute("BEGIN; ALTER TABLE bob.article RENAME TO old")
    bob.execute("CREATE VIEW bob.article AS SELECT bob.seize() AS fingerprint")
    with blocked(connect, lambda session: session.execute(call)) as future:
        bob.execute("COMMIT")
        with contextlib.suppress(Error):
            future.result()
    assert calls(connection) == 0


def test_casts_to_json_are_not_called(connection, bob):
    bob.execute("CREATE TYPE bob.mood AS ENUM ('x')")
    bob.execute("CREATE FUNCTION bob.as_json(bob.mood) RETURNS json LANGUAGE sql AS 'SELECT to_json(bob.seize())'")
    bob.execute("CREATE CAST (bob.mood AS json) WITH FUNCTION bob.as_json(bob.mood)")
    bob.execute("CREATE DOMAIN bob.number AS integer")
    bob.execute(
        "CREATE TABLE bob.article (id bob.number, fingerprint bigint, mood bob.mood, none bob.mood, tags text[],"
        " PRIMARY KEY (id, mood))"
    )
    bob.execute("INSERT INTO bob.article VALUES (7, 5, 'x', NULL, '{a,b}')")
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint')")
    ((document,),) = connection.execute(
        "SELECT document FROM simsql._near_documents('bob.article', 5, 0, NULL, NULL)"
    ).fetchall()
    (key,) = connection.execute(
        "SELECT key FROM simsql._keys_of_rows('bob.article', '{5}', 'fingerprint', NULL)"
    ).fetchone()
    assert key == [7, "x"]
    assert document == {"id": 7, "fingerprint": 5, "mood": "x", "none": None, "tags": ["a", "b"]}
    assert calls(connection) == 0


@pytest.mark.parametrize("call", ["create_index", "repair"])
def test_a_table_that_was_renamed_meanwhile_is_not_taken_for_the_new_one(connection, connect, call):
    """A lock is taken by name. Without a lock on the table that was meant, its writers would go unnoticed."""
    connection.execute("CREATE TABLE article (fingerprint bigint); CREATE TABLE new (fingerprint bigint)")
    if call == "repair":
        connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
        statement = "SELECT * FROM simsql.repair('article')"
    else:
        statement = "SELECT simsql.create_index('article', 'fingerprint', 3, 4)"
    swap = connect()
    swap.execute("BEGIN; ALTER TABLE article RENAME TO old; ALTER TABLE new RENAME TO article")
    with blocked(connect, lambda session: session.execute(statement)) as future:
        swap.execute("COMMIT")
        with pytest.raises(errors.UndefinedTable, match="was renamed while this statement waited for it"):
            future.result()


def test_rows_that_foreign_keys_change_twice_in_one_statement_have_keys(connection):
    connection.execute("CREATE TABLE tenant (id integer PRIMARY KEY); INSERT INTO tenant VALUES (1), (2)")
    connection.execute("CREATE TABLE print (fp bigint PRIMARY KEY); INSERT INTO print VALUES (10), (9)")
    connection.execute(
        "CREATE TABLE article (name text, tenant integer DEFAULT 2 REFERENCES tenant ON DELETE SET DEFAULT,"
        " fingerprint bigint REFERENCES print ON UPDATE CASCADE)"
    )
    connection.execute("INSERT INTO article VALUES ('a', 1, 10), ('c', 2, 9)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}')")
    connection.execute(
        "WITH gone AS (DELETE FROM tenant WHERE id = 1 RETURNING 1) UPDATE print SET fp = fp + 1 FROM gone"
    )
    assert set(connection.execute("SELECT * FROM article").fetchall()) == {("a", 2, 11), ("c", 2, 10)}
    assert missing_keys(connection) == []
    assert problems(connection) == set()
    connection.execute("UPDATE article SET name = 'd'")
    assert missing_keys(connection) == []


def test_other_foreign_keys_cost_no_keys(connection):
    connection.execute("CREATE TABLE author (id integer PRIMARY KEY); INSERT INTO author VALUES (1), (2)")
    connection.execute(
        "CREATE TABLE article (author integer REFERENCES author ON DELETE SET NULL ON UPDATE CASCADE,"
        " fingerprint bigint)"
    )
    connection.execute("INSERT INTO article VALUES (1, 10), (2, 9)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    connection.execute("UPDATE author SET id = id + 10; DELETE FROM author WHERE id = 11")
    connection.execute("UPDATE article SET author = NULL")
    assert connection.execute("SELECT simsql.superfluous_keys('article')").fetchone() == (0,)


def test_a_table_restored_over_itself_is_indexed_again(connection, server, tmp_path):
    connection.execute("CREATE TABLE article (fingerprint bigint)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    file = str(tmp_path / "dump")
    name = connection.info.dbname
    server.run("pg_dump", "--format=custom", "--table=article", f"--file={file}", name)
    server.run("pg_restore", "--exit-on-error", "--clean", f"--dbname={name}", file)
    connection.execute("INSERT INTO article VALUES (5)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert connection.execute("SELECT table_name, state FROM simsql.indexes").fetchall() == [
        ("public.article", "ready")
    ]
    assert near(connection, 5, 0) == [(5, 0)]
    assert problems(connection, None) == set()


@pytest.mark.parametrize("name", ["simsql_99999999999_insert", "mine"])
def test_a_renamed_trigger_does_not_keep_an_index_from_being_dropped(connection, name):
    connection.execute("CREATE TABLE article (fingerprint bigint, other bigint)")
    (number,) = connection.execute("SELECT simsql.create_index('article', 'fingerprint')").fetchone()
    connection.execute(f"ALTER TRIGGER simsql_{number}_insert ON article RENAME TO {name}")
    connection.execute("SELECT simsql.create_index('article', 'other')")
    connection.execute("SELECT simsql.repair('article')")
    connection.execute("SELECT simsql.drop_index('article', 'fingerprint')")
    assert problems(connection) == set()
