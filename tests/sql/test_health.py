"""Every fault there is: searches, the shortcut of searches, simsql.indexes, verify and repair agree about it.

A case puts one in. `refuses` is the problem for which searches refuse the index, if they do; `state` is that of
simsql.indexes; `problems` are those of verify, where "*" stands for others that go with it; `beyond` is the error
of repair, if it cannot mend them.
"""

import contextlib
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from oracle import clustered
from oracle import near as expected_near
from psycopg import errors
from sessions import ONE_SNAPSHOT, begin
from similar import like_near

SQL = Path(__file__).parents[2] / "sql"
ROWS = [(number % 3, fingerprint) for number, fingerprint in enumerate(clustered(40, seed=5))]
TABLES, EXPRESSION, BOTH = ("tables",), ("expression",), ("tables", "expression")


@dataclass(frozen=True)
class Case:
    statements: str
    refuses: str | None = None
    state: str = ""  # by default, the problem for which searches refuse the index, or "ready"
    problems: frozenset[str] | set[str] = frozenset()  # by default, that problem
    beyond: str | None = None
    storages: tuple[str, ...] = BOTH
    scopes: tuple[str, ...] = ("", "tenant")
    exact: bool = True  # whether searches that are not refused find every row
    newest: bool = False  # whether only PostgreSQL 18 can do it


INVALID = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{}'::regclass"
OFF = "triggers disabled"
UNSTORED = "column is no longer a stored bigint"
DETACH = "takes part in inheritance"
NO_COLUMN = "DROP TRIGGER simsql_1_column ON app.article;"
FORGED = (
    " CREATE TRIGGER simsql_1_column AFTER UPDATE OF fingerprint{scope} ON app.article FOR EACH STATEMENT"
    " WHEN (false) EXECUTE FUNCTION simsql.add_on_update_1()"
)
CONDITION = (
    "CREATE OR REPLACE TRIGGER simsql_1_{0} AFTER {1} ON app.article REFERENCING {2} FOR EACH STATEMENT {3}"
    " EXECUTE FUNCTION simsql.add_on_{0}_1();"
)
BEHIND = "CREATE TABLE app.other (LIKE app.article); "
NO_BTREES = "DROP INDEX app.simsql_1_0, app.simsql_1_1, app.simsql_1_2, app.simsql_1_3;"
MISSING = "search B-tree missing"

CASES = {
    "none": Case("SELECT"),
    "table renamed": Case("ALTER TABLE app.article RENAME TO paper", "table renamed"),
    "table moved": Case("ALTER TABLE app.article SET SCHEMA public", "table renamed"),
    "schema renamed": Case("ALTER SCHEMA app RENAME TO web", "table renamed"),
    "table replaced": Case(
        BEHIND + "ALTER TABLE app.article RENAME TO old; ALTER TABLE app.other RENAME TO article",
        "table renamed",
    ),
    "table dropped": Case("DROP TABLE app.article", "table dropped", beyond="no longer exists"),
    "table re-created": Case(
        "DROP TABLE app.article; CREATE TABLE app.article (id int, tenant int, fingerprint bigint, spare bigint);"
        " CREATE TRIGGER simsql_1_column AFTER UPDATE OF fingerprint{scope} ON app.article FOR EACH STATEMENT"
        " WHEN (false) EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "table re-created",
    ),
    "column renamed": Case("ALTER TABLE app.article RENAME fingerprint TO print", "column renamed"),
    "columns swapped": Case(
        "ALTER TABLE app.article RENAME fingerprint TO before;"
        " ALTER TABLE app.article RENAME spare TO fingerprint; ALTER TABLE app.article RENAME before TO spare",
        "column renamed",
    ),
    "column dropped": Case(
        "ALTER TABLE app.article DROP fingerprint CASCADE",
        "column dropped",
        beyond="cannot repair column fingerprint",
    ),
    "column of the scope renamed": Case(
        "ALTER TABLE app.article RENAME tenant TO client",
        "column renamed",
        scopes=("tenant",),
    ),
    "column of the scope dropped": Case(
        "ALTER TABLE app.article DROP tenant CASCADE",
        "column dropped",
        beyond="cannot repair column tenant",
        scopes=("tenant",),
    ),
    "column replaced": Case(
        "ALTER TABLE app.article DROP fingerprint CASCADE; ALTER TABLE app.article ADD fingerprint bigint",
        *("trigger missing", OFF, {"trigger missing", "B-tree missing"}),
        storages=TABLES,
    ),
    "column replaced beside B-trees": Case(
        "ALTER TABLE app.article DROP fingerprint CASCADE; ALTER TABLE app.article ADD fingerprint bigint",
        state="B-trees missing",
        problems={MISSING, "B-tree missing"},
        storages=EXPRESSION,
    ),
    "column virtual": Case(
        "ALTER TABLE app.article DROP fingerprint CASCADE;"
        " ALTER TABLE app.article ADD fingerprint bigint GENERATED ALWAYS AS (1) VIRTUAL",
        *(UNSTORED, "column type changed", {UNSTORED, "*"}, "cannot repair column fingerprint"),
        newest=True,
    ),
    "column of another type": Case(
        NO_COLUMN + "ALTER TABLE app.article ALTER fingerprint TYPE numeric",
        *(UNSTORED, "column type changed", {UNSTORED, "trigger missing"}, "cannot repair column fingerprint"),
        storages=TABLES,
    ),
    "column of another type beside B-trees": Case(
        NO_BTREES + "ALTER TABLE app.article ALTER fingerprint TYPE numeric",
        *(UNSTORED, "column type changed", {UNSTORED, MISSING}, "cannot repair column fingerprint"),
        storages=EXPRESSION,
    ),
    "column of the scope of another type": Case(
        "ALTER TABLE app.article ALTER tenant TYPE bigint",
        "column type changed",
        storages=EXPRESSION,
        scopes=("tenant",),
    ),
    "column of the scope of a type that fits no scope": Case(
        "ALTER TABLE app.article ALTER tenant TYPE numeric",
        "column type changed",
        beyond="cannot be in a scope",
        storages=EXPRESSION,
        scopes=("tenant",),
    ),
    "column of the scope of another type beside key tables": Case(
        NO_COLUMN + "ALTER TABLE app.article ALTER tenant TYPE bigint",
        "column type changed",
        problems={"column type changed", "trigger missing", "key table altered"},
        storages=TABLES,
        scopes=("tenant",),
    ),
    "not ready": Case(
        "UPDATE simsql.registry SET ready = false; CREATE TABLE simsql.built_1 (fp bigint, scope text[]);"
        " ALTER TABLE simsql.built_1 ENABLE ROW LEVEL SECURITY",
        "not ready",
        "building",
    ),
    # Functions
    "search function dropped": Case("DROP FUNCTION simsql.search_1", "function missing", "damaged"),
    "scan function dropped": Case("DROP FUNCTION simsql.scan_1", problems={"function missing"}, exact=False),
    "similar function dropped": Case("DROP FUNCTION simsql.similar_1", problems={"function missing"}, exact=False),
    "rows function dropped": Case("DROP FUNCTION simsql.rows_1", problems={"function missing"}, exact=False),
    "search function altered": Case("ALTER FUNCTION simsql.search_1 VOLATILE", problems={"function altered"}),
    "trigger function altered": Case(
        "ALTER FUNCTION simsql.add_on_insert_1() SECURITY INVOKER",
        *("trigger functions changed", "keys not compared", {"function altered", "trigger functions changed"}),
        storages=TABLES,
    ),
    "trigger function dropped": Case(
        "DROP FUNCTION simsql.add_on_replica_1 CASCADE",
        *("trigger missing", OFF, {"function missing", "trigger missing"}),
        storages=TABLES,
    ),
    "trigger function granted": Case(
        "GRANT EXECUTE ON FUNCTION simsql.add_on_insert_1() TO PUBLIC",
        problems={"privilege granted to others"},
        storages=TABLES,
    ),
    # The B-tree on the fingerprint column
    "B-tree dropped": Case("DROP INDEX app.{btree}", problems={"B-tree missing"}),
    "B-tree invalid": Case(INVALID.format("app.{btree}"), problems={"B-tree invalid"}),
    # Triggers
    **{
        f"{name} trigger dropped": Case(
            f"DROP TRIGGER simsql_1_{name} ON app.article", "trigger missing", OFF, storages=TABLES
        )
        for name in ("insert", "update", "replica", "column", "no_parent")
    },
    **{
        f"{name} trigger {how.lower()}": Case(
            f"ALTER TABLE app.article {how} TRIGGER simsql_1_{name}",
            *(f"trigger not enabled {when}", OFF),
            storages=TABLES,
        )
        for name, when in (("insert", "always"), ("update", "always"), ("replica", "for replication"))
        for how in ("DISABLE", "ENABLE")
    },
    "triggers disabled and enabled": Case(
        "ALTER TABLE app.article DISABLE TRIGGER ALL; ALTER TABLE app.article ENABLE TRIGGER ALL",
        *("trigger not enabled always", OFF),
        {"trigger not enabled always", "trigger not enabled for replication"},
        storages=TABLES,
    ),
    "insert trigger with a condition": Case(
        CONDITION.format("insert", "INSERT", "NEW TABLE AS pg_am", "WHEN (false)")
        + "ALTER TABLE app.article ENABLE ALWAYS TRIGGER simsql_1_insert",
        *("trigger altered", OFF),
        storages=TABLES,
    ),
    "update trigger with a condition": Case(
        CONDITION.format("update", "UPDATE", "OLD TABLE AS pg_amop NEW TABLE AS pg_am", "WHEN (false)")
        + "ALTER TABLE app.article ENABLE ALWAYS TRIGGER simsql_1_update",
        *("trigger altered", OFF),
        storages=TABLES,
    ),
    "column trigger without its condition": Case(
        "CREATE OR REPLACE TRIGGER simsql_1_column AFTER UPDATE OF fingerprint{scope} ON app.article"
        " FOR EACH STATEMENT EXECUTE FUNCTION simsql.add_on_update_1()",
        *("trigger altered", OFF),
        storages=TABLES,
    ),
    "column trigger of another column": Case(
        "CREATE OR REPLACE TRIGGER simsql_1_column AFTER UPDATE OF spare{scope} ON app.article"
        " FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION simsql.add_on_update_1()",
        *("column renamed", "column renamed", {"column renamed", "*"}),
        storages=TABLES,
    ),
    # A search does not read what a trigger does.
    "insert trigger without its argument": Case(
        CONDITION.format("insert", "INSERT", "NEW TABLE AS pg_am", "")
        + "ALTER TABLE app.article ENABLE ALWAYS TRIGGER simsql_1_insert",
        *("triggers changed", "triggers disabled", {"trigger altered", "triggers changed"}),
        storages=TABLES,
    ),
    "a trigger that could pass for another": Case(
        "ALTER TABLE app.article DISABLE TRIGGER simsql_1_insert;"
        ' CREATE TRIGGER "simsql_1_insertA" BEFORE UPDATE ON app.article FOR EACH ROW WHEN (false)'
        " EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        *("trigger not enabled always", OFF),
        storages=TABLES,
    ),
    "generated column computed again": Case(
        "ALTER TABLE app.article DROP fingerprint CASCADE;"
        " ALTER TABLE app.article ADD fingerprint bigint GENERATED ALWAYS AS (id) STORED;"
        " SELECT simsql.repair('app.article');"
        " ALTER TABLE app.article ALTER fingerprint SET EXPRESSION AS (id + 7)",
        *("expression changed", "expression changed", {"expression changed", "*"}),
        storages=TABLES,
        newest=True,
    ),
    # Key tables
    "first key table dropped": Case("DROP TABLE simsql.keys_1_0", "key table missing", "damaged", storages=TABLES),
    "another key table dropped": Case(
        "DROP TABLE simsql.keys_1_2", problems={"key table missing"}, storages=TABLES, exact=False
    ),
    "key table of another type": Case(
        "ALTER TABLE simsql.keys_1_0 ALTER key TYPE numeric",
        problems={"key table altered"},
        storages=TABLES,
        exact=False,
    ),
    "first key table unlogged": Case(
        "ALTER TABLE simsql.keys_1_0 SET UNLOGGED", "key table unlogged", "damaged", storages=TABLES
    ),
    "another key table unlogged": Case(
        "ALTER TABLE simsql.keys_1_1 SET UNLOGGED", problems={"key table unlogged"}, storages=TABLES
    ),
    "table set logged": Case(
        "ALTER TABLE app.article SET UNLOGGED; ALTER TABLE simsql.keys_1_0 SET UNLOGGED;"
        " ALTER TABLE simsql.keys_1_1 SET UNLOGGED; ALTER TABLE simsql.keys_1_2 SET UNLOGGED;"
        " ALTER TABLE simsql.keys_1_3 SET UNLOGGED; ALTER TABLE app.article SET LOGGED",
        *("key table unlogged", "damaged"),
        storages=TABLES,
    ),
    "unlogged like its table": Case(
        "ALTER TABLE app.article SET UNLOGGED; ALTER TABLE simsql.keys_1_0 SET UNLOGGED", storages=TABLES
    ),
    "table unlogged": Case("ALTER TABLE app.article SET UNLOGGED", storages=TABLES),
    "policy dropped": Case(
        *("DROP POLICY readers ON simsql.keys_1_0", None, "damaged", {"policy altered", "policies changed"}),
        storages=TABLES,
    ),
    "policies switched off": Case(
        *("ALTER TABLE simsql.keys_1_0 DISABLE ROW LEVEL SECURITY", None, "damaged", {"policy altered"}),
        storages=TABLES,
    ),
    "open to replication": Case(
        "ALTER TABLE simsql.keys_1_1 DISABLE TRIGGER simsql_keep_own",
        problems={"replication can delete keys"},
        storages=TABLES,
    ),
    "B-tree of keys dropped": Case("DROP INDEX simsql.{keys}", problems={"B-tree missing"}, storages=TABLES),
    "B-tree of keys invalid": Case(INVALID.format("simsql.{keys}"), problems={"B-tree invalid"}, storages=TABLES),
    "keys deleted": Case("DELETE FROM simsql.keys_1_0", problems={"keys missing"}, storages=TABLES, exact=False),
    # Inheritance
    "child": Case(
        "CREATE TABLE app.child () INHERITS (app.article)",
        "table has a parent or a child",
        beyond=DETACH,
        storages=TABLES,
    ),
    "parent": Case(
        "DROP TRIGGER simsql_1_no_parent ON app.article; CREATE TABLE app.parent (id int);"
        " ALTER TABLE app.article INHERIT app.parent",
        *("trigger missing", OFF, {"trigger missing", "table has a parent or a child"}, DETACH),
        storages=TABLES,
    ),
    # Somebody has created a trigger again that PostgreSQL would not have let through.
    "parent behind a forged trigger": Case(
        "DROP TRIGGER simsql_1_no_parent ON app.article; CREATE TABLE app.parent (id int);"
        " ALTER TABLE app.article INHERIT app.parent;"
        " CREATE TRIGGER simsql_1_no_parent AFTER INSERT ON app.article FOR EACH STATEMENT WHEN (false)"
        " EXECUTE FUNCTION simsql.add_on_insert_1()",
        "table has a parent or a child",
        problems={"trigger altered", "table has a parent or a child"},
        beyond=DETACH,
        storages=TABLES,
    ),
    "column virtual behind a forged trigger": Case(
        "ALTER TABLE app.article DROP fingerprint CASCADE;"
        " ALTER TABLE app.article ADD fingerprint bigint GENERATED ALWAYS AS (1) VIRTUAL;" + FORGED,
        *(UNSTORED, "column type changed", {UNSTORED, "*"}, "cannot repair column fingerprint"),
        storages=TABLES,
        newest=True,
    ),
    "column of another type behind a forged trigger": Case(
        NO_COLUMN + "ALTER TABLE app.article ALTER fingerprint TYPE numeric;" + FORGED,
        *(UNSTORED, "column type changed", {UNSTORED}, "cannot repair column fingerprint"),
        storages=TABLES,
    ),
    "column of the scope of another type behind a forged trigger": Case(
        NO_COLUMN + "ALTER TABLE app.article ALTER tenant TYPE bigint;" + FORGED,
        "column type changed",
        problems={"column type changed", "*"},
        storages=TABLES,
        scopes=("tenant",),
    ),
    "another function with the name of the search": Case(
        "CREATE FUNCTION simsql.search_1(text) RETURNS integer LANGUAGE sql AS 'SELECT 1'"
    ),
    "child that is gone": Case("CREATE TABLE app.child () INHERITS (app.article); DROP TABLE app.child"),
    "child beside B-trees": Case("CREATE TABLE app.child () INHERITS (app.article)", storages=EXPRESSION),
    # B-trees
    "first search B-tree dropped": Case(
        "DROP INDEX app.simsql_1_0", state="B-trees missing", problems={MISSING}, storages=EXPRESSION
    ),
    "all search B-trees dropped": Case(
        NO_BTREES, state="B-trees missing", problems={MISSING}, storages=EXPRESSION
    ),
    "search B-tree invalid": Case(
        INVALID.format("app.simsql_1_3"),
        state="B-trees missing",
        problems={"search B-tree invalid"},
        storages=EXPRESSION,
    ),
    "search B-tree on something else": Case(
        "DROP INDEX app.simsql_1_0; CREATE INDEX simsql_1_0 ON app.article ((spare & 7), id)",
        problems={"search B-tree altered"},
        storages=EXPRESSION,
    ),
    "without B-trees, column renamed": Case(
        NO_BTREES + "ALTER TABLE app.article RENAME fingerprint TO print",
        "column dropped",
        beyond="cannot repair column fingerprint",
        storages=EXPRESSION,
    ),
    # Of several, searches name the first.
    "several": Case(
        "ALTER TABLE app.article RENAME TO paper; ALTER TABLE app.paper RENAME fingerprint TO print;"
        " ALTER TABLE app.paper DISABLE TRIGGER USER; DROP TABLE simsql.keys_1_0;"
        " CREATE TABLE app.child () INHERITS (app.paper)",
        *("table renamed", "table renamed"),
        {
            *("table renamed", "column renamed", "key table missing", "table has a parent or a child"),
            *("trigger not enabled always", "trigger not enabled for replication"),
        },
        DETACH,
        storages=TABLES,
    ),
}
PARAMETERS = [
    pytest.param(storage, scope, name, id=f"{name}-{storage}{'-' if scope else ''}{scope}")
    for storage in BOTH
    for scope in ("", "tenant")
    for name, case in CASES.items()
    if storage in case.storages and scope in case.scopes
]


@pytest.fixture(scope="module")
def indexed(server):
    """Connections to databases of this module's own, by storage and scope, each with an index on app.article."""
    with contextlib.ExitStack() as stack:
        opened = {}
        for storage, scope in itertools.product(BOTH, ("", "tenant")):
            database = stack.enter_context(server.new_database()).database
            opened[storage, scope] = stack.enter_context(contextlib.closing(server.connect(database)))
            create_index(opened[storage, scope], storage, scope)
        yield opened


def create_index(connection, storage, scope):
    connection.execute(
        "CREATE SCHEMA app;"
        " CREATE TABLE app.article"
        " (id int GENERATED ALWAYS AS IDENTITY, tenant int, fingerprint bigint, spare bigint)"
    )
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO app.article (tenant, fingerprint) VALUES (%s, %s)", ROWS)
    connection.execute(
        "SELECT simsql.create_index('app.article', 'fingerprint', blocks => 4, scope => %s, storage => %s)",
        [[scope] if scope else [], storage],
    )


def faults_of(connection, thorough):
    return connection.execute(
        "SELECT f.problem, f.effect, f.message, f.advice, f.remedy, f.state FROM simsql.registry AS r"
        " CROSS JOIN LATERAL unnest(simsql._faults(r, %s)) WITH ORDINALITY AS f ORDER BY f.ordinality",
        [thorough],
    ).fetchall()


SEARCHES = {
    "near": "SELECT fingerprint, distance FROM simsql.near({table}, 0, 9, scope => {scope})",
    "similar_candidates": "SELECT fingerprint, distance FROM simsql.similar_candidates({table},"
    f" {like_near(0, 9, '{table}')}, scope => {{scope}})",
    "near_many": "SELECT fingerprint, distance FROM simsql.near_many({table}, '{{0}}', 9, scope => {scope})"
    " ORDER BY 2, 1",
    "pairs": "SELECT * FROM simsql.pairs({table}, 3, scope => {scope})",
    "claim": "SELECT * FROM simsql.claim({table}, 0, 9, scope => {scope})",
}


def search(connection, name, table, scope):
    value = "'{\"tenant\": 1}'::jsonb" if scope else "NULL"
    with connection.transaction():
        return connection.execute(SEARCHES[name].format(table=f"{table}::regclass", scope=value)).fetchall()


def state_of(connection):
    return connection.execute("SELECT state FROM simsql.indexes").fetchone()[0]


@pytest.mark.parametrize(("storage", "scope", "name"), PARAMETERS)
def test_all_answers_agree(indexed, server, storage, scope, name):
    case, connection = CASES[name], indexed[storage, scope]
    if case.newest and server.major < 18:
        pytest.skip("virtual generated columns came with PostgreSQL 18")
    with connection.transaction(force_rollback=True):
        (table,) = connection.execute("SELECT table_id::oid FROM simsql.registry").fetchone()
        leading = "tenant_fingerprint" if scope else "fingerprint"
        connection.execute(
            case.statements.replace("{scope}", ", tenant" if scope else "")
            .replace("{btree}", f"article_{leading}_idx")
            .replace("{keys}", "keys_1_0_scope_1_key_idx" if scope else "keys_1_0_key_idx")
        )
        if name == "table re-created":
            (table,) = connection.execute("SELECT 'app.article'::regclass::oid").fetchone()
        quick, thorough = faults_of(connection, False), faults_of(connection, True)
        refusing = [fault for fault in quick if fault[1] == "refuses"]
        # A quick look sees everything that makes searches refuse.
        assert [fault for fault in thorough if fault[1] == "refuses"] == refusing
        assert (refusing[0][0] if refusing else None) == case.refuses
        certain = connection.execute("SELECT simsql._is_complete(id, stamp_id) FROM simsql.registry").fetchone()
        assert not (certain[0] and refusing) or case.refuses == "function missing"
        for one in SEARCHES:
            # That search does not call the function.
            if refusing and (one, case.refuses) != ("similar_candidates", "function missing"):
                _, _, message, advice, remedy, _ = refusing[0]
                with pytest.raises(errors.ObjectNotInPrerequisiteState) as caught:
                    search(connection, one, table, scope)
                assert caught.value.diag.message_primary == f"simsql: {message}"
                assert caught.value.diag.message_hint == " ".join(filter(None, (advice, remedy)))
        if not refusing and case.exact:
            check_searches(connection, table, scope)
        state = case.state or case.refuses or "ready"
        assert state_of(connection) == state_of_stranger(connection) == state
        check_verify(connection, case, thorough)
        check_repair(connection, case, name, table, scope)


def check_searches(connection, table, scope):
    (name, column) = connection.execute(
        "SELECT r.table_name, quote_ident(r.column_name) FROM simsql.registry AS r WHERE r.table_id = %s", [table]
    ).fetchone()
    rows = connection.execute(f"SELECT {column} FROM {name} {'WHERE tenant = 1' if scope else ''}")
    expected = expected_near([row[0] for row in rows], 0, 9)
    assert search(connection, "near", table, scope) == search(connection, "near_many", table, scope) == expected


def state_of_stranger(connection):
    """The state as a role sees it that may not use the schema of the table."""
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE ROLE stranger; SET LOCAL ROLE stranger")
        return state_of(connection)


def check_verify(connection, case, thorough):
    found = connection.execute("SELECT problem, hint FROM simsql.verify()").fetchall()
    problems = {problem for problem, _ in found}
    expected = case.problems or {case.refuses} - {None}
    if "*" in expected:
        assert problems >= expected - {"*"}
    else:
        assert problems == expected
    assert [row for row in found if row[0] != "keys missing"] == [(fault[0], fault[4]) for fault in thorough]


def check_repair(connection, case, name, table, scope):
    def repair():
        with connection.transaction():
            connection.execute("SELECT * FROM simsql.repair(%s::oid::regclass)", [table])

    if case.refuses == "not ready":
        repair()
        assert faults_of(connection, True)[0][0] == "not ready"
    elif case.beyond:
        with pytest.raises(psycopg.Error, match=case.beyond):
            repair()
    else:
        repair()
        assert connection.execute("SELECT * FROM simsql.verify()").fetchall() == []
        assert faults_of(connection, True) == []
        assert connection.execute("SELECT simsql._is_complete(id, stamp_id) FROM simsql.registry").fetchone() == (
            True,
        )
        assert state_of(connection) == "ready"
        if name != "column of the scope renamed":
            check_searches(connection, table, scope)


def test_every_fault_is_among_the_cases():
    """Those of Citus, partitions and transactions with an older snapshot have tests of their own."""
    elsewhere = {
        *("table distributed", "row-level security", "index dropped", "partition without search B-tree"),
        *("search B-tree missing on a shard", "search B-tree invalid on a shard"),
        *("B-tree missing on a shard", "B-tree invalid on a shard", "privilege missing", "keys not compared"),
        "keys lost",
    }
    names = (
        "faults.sql",
        "inventory.sql",
        "privileges.sql",
        "stamp.sql",
        "verify.sql",
        "storage/expression/btrees.sql",
    )
    files = [*SQL.glob("storage/*/faults.sql"), *(SQL / name for name in names)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    subject = "table|column|trigger|function|key|keys|expression|replication|policy|(?:search )?B-tree|partition"
    subject += "|index|not|row-level|privilege|triggers|policies"
    named = set(re.findall(rf"'((?:{subject}) [a-zB-]+(?: [a-zB-]+)*)'", text)) - {
        "B-trees missing",
        "triggers disabled",
        "key table",
        "key bigint",
    }
    tested = {problem for case in CASES.values() for problem in case.problems or {case.refuses}} - {"*", None}
    assert tested <= named
    assert named - tested == elsewhere & named
    assert len(tested) > 15


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
@pytest.mark.parametrize("storage", BOTH)
def test_an_index_that_was_dropped_after_the_snapshot(connection, connect, storage, level):
    create_index(connection, storage, "")
    reader = connect()
    begin(reader, level)
    assert state_of(reader) == "ready"
    connection.execute("SELECT simsql.drop_index('app.article')")
    (fault,) = faults_of(reader, True)
    assert fault[0] == state_of(reader) == "index dropped"
    with pytest.raises(errors.UndefinedObject, match="was dropped after this transaction took its") as caught:
        search(reader, "near", "'app.article'", "")
    assert caught.value.diag.message_hint == "Start a new transaction."
