"""After an upgrade of the operating system, B-trees on texts may lack rows: no key is removed for their sake."""

import contextlib

import pytest
from articles import missing_keys
from internals import begin_build, build_batch, set_batch_size
from psycopg import errors
from sqlalchemy.exc import DBAPIError
from upkeep import problems

from simsql.database import SearchIndex, install_schema, open_engine

pytestmark = pytest.mark.every_version

ROWS = 900
TENANTS = [f"{letter}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
CHANGE = "UPDATE pg_collation SET collversion = 'before' WHERE oid = '{}'::regcollation"
# A B-tree whose entries stand in another order than PostgreSQL believes.
TURN = "UPDATE pg_index SET indoption = '0 0' WHERE indexrelid = 'turned'::regclass"
TURN_BACK = TURN.replace("0 0", "3 0")


@pytest.fixture
def collation(connection):
    found = connection.execute(
        "SELECT oid::regcollation::text FROM pg_collation"
        " WHERE pg_collation_actual_version(oid) IS NOT NULL AND collisdeterministic AND collencoding IN (-1, 6)"
        " ORDER BY collname LIKE 'und-%', collname DESC LIMIT 1"
    ).fetchone()
    if not found:
        pytest.skip("no collation of this server has a version")
    return found[0]


def create_rows(connection, collation):
    connection.execute(
        f"CREATE TABLE article (id bigint, tenant text COLLATE {collation}, fingerprint bigint);"
        "CREATE INDEX turned ON article (tenant DESC, fingerprint)"
    )
    connection.execute(
        "INSERT INTO article SELECT n, (%s::text[])[1 + n %% 26], hashint8extended(n, 0)"
        " FROM generate_series(1, %s) AS n",
        [TENANTS, ROWS],
    )


def create(connection, collation, storage="tables"):
    create_rows(connection, collation)
    connection.execute(
        "SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}', storage => %s)", [storage]
    )


def state_of(connection):
    return connection.execute("SELECT state, hint FROM simsql.indexes").fetchone()


def lost(connection):
    return len(missing_keys(connection))


def test_a_vacuum_removes_no_key_that_a_row_needs(connection, connect, collation):
    create(connection, collation)
    connection.execute("DELETE FROM article WHERE id % 3 = 0")
    connection.execute(TURN)
    connection.execute(CHANGE.format(collation))
    owner = connect()
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState,
        match=f"collation {collation} has changed since B-trees",
    ) as refused:
        owner.execute("CALL simsql.vacuum('article')")
    assert lost(connection) == 0
    (remedy,) = refused.value.diag.message_hint.split("anew: ")[1:]
    assert state_of(owner) == (
        "collation changed",
        f"B-trees sorted by the old one may lack rows. Sort them anew: {remedy}",
    )
    connection.execute(TURN_BACK)
    for statement in remedy.rstrip(";").split("; "):
        connection.execute(statement)
    assert state_of(owner)[0] == "ready"
    connect().execute("CALL simsql.vacuum('article')")
    assert lost(connection) == 0
    assert connection.execute("SELECT simsql.superfluous_keys('article')").fetchone() == (0,)
    # This is what it would have done: nothing tells PostgreSQL that this order is wrong.
    connection.execute(TURN)
    connect().execute("CALL simsql.vacuum('article')")
    assert lost(connection) > ROWS


def test_verify_says_so_and_counts_right(connection, connect, collation):
    create(connection, collation)
    connection.execute("DELETE FROM article WHERE id % 3 = 0")
    connection.execute(TURN)
    connection.execute(CHANGE.format(collation))
    session = connect()
    assert problems(session) == {("collation changed", collation)}
    assert session.execute("SELECT simsql.superfluous_keys('article')").fetchone() == (4 * ROWS // 3,)
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match=r"failed for 1 index: .* collation changed \("
    ) as told:
        session.execute("CALL simsql.maintain()")
    assert "REFRESH VERSION" in told.value.diag.message_hint
    session.execute("ALTER TABLE article DISABLE TRIGGER simsql_1_insert; INSERT INTO article VALUES (0, 'aa', 7)")
    assert session.execute("SELECT problem, keys FROM simsql.repair('article') ORDER BY 1").fetchall() == [
        *[("keys missing", 1)] * 4,
        ("trigger not enabled always", None),
    ]
    assert problems(session) == {("collation changed", collation)}
    for setting in ("enable_indexscan", "enable_indexonlyscan"):
        assert session.execute(f"SHOW {setting}").fetchone() == ("on",)


def test_with_b_trees_verify_says_so(connection, collation):
    create(connection, collation, "expression")
    connection.execute(CHANGE.format(collation))
    assert problems(connection) == {("collation changed", collation)}
    assert state_of(connection)[0] == "collation changed"


def test_a_build_passes_no_row(connection, collation):
    create_rows(connection, collation)
    set_batch_size(connection, 100)
    begin_build(connection, scope=["tenant"], storage="tables")
    build_batch(connection)
    connection.execute(CHANGE.format(collation))
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"simsql\.build: collation .* has changed"):
        build_batch(connection)
    connection.execute("SELECT simsql.drop_index('article', 'fingerprint')")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"simsql\.build: collation .* has changed"):
        begin_build(connection, scope=["tenant"], storage="tables")


def test_a_backfill_passes_no_row(connection, database, collation):
    connection.execute(
        f"CREATE TABLE article (name text COLLATE {collation} PRIMARY KEY, body text, fingerprint bigint);"
        "INSERT INTO article VALUES ('a', 'some text')"
    )
    index = SearchIndex(database, "article", "fingerprint")
    connection.execute(CHANGE.format(collation))
    with pytest.raises(DBAPIError, match=r"simsql\.backfill: collation .* has changed"):
        index.backfill("body")


def test_other_types_and_columns_have_no_version(connection, collation):
    connection.execute(
        f"CREATE TABLE article (id bigint, tenant int, name text COLLATE {collation}, fingerprint bigint);"
        "SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}')"
    )
    connection.execute(CHANGE.format(collation))
    connection.execute("CALL simsql.vacuum('article')")
    assert state_of(connection)[0] == "ready"


@pytest.mark.unpooled("a template with another collation")
def test_the_default_collation_of_the_database(server):
    if server.major < 15:
        pytest.skip("PostgreSQL 14 records no version for it")
    locale = "builtin BUILTIN_LOCALE 'C.UTF-8'" if server.major >= 17 else "icu ICU_LOCALE 'und'"
    template = f"template0 ENCODING utf8 LOCALE_PROVIDER {locale}"
    with contextlib.ExitStack() as stack:
        try:
            url = stack.enter_context(server.new_database(template=template))
        except errors.FeatureNotSupported:
            pytest.skip("a server without ICU")
        engine = open_engine(url)
        install_schema(engine)
        engine.dispose()
        connection = stack.enter_context(server.connect(url.database))
        create(connection, '"default"')
        connection.execute("UPDATE pg_database SET datcollversion = 'before' WHERE datname = current_database()")
        with pytest.raises(
            errors.ObjectNotInPrerequisiteState, match='collation "default" has changed'
        ) as refused:
            connection.execute("CALL simsql.vacuum('article')")
        assert problems(connection) == {("collation changed", '"default"')}
        for statement in refused.value.diag.message_hint.split("anew: ")[1].rstrip(";").split("; "):
            connection.execute(statement)
        connection.execute("CALL simsql.vacuum('article')")
        assert problems(connection) == set()
