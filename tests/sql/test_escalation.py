"""What a table's owner controls, types, casts and views, never runs with the rights of the index's owner."""

import re

import pytest
from articles import missing_keys, near
from psycopg import Connection, Error, errors
from upkeep import problems

pytestmark = pytest.mark.oldest_version

SEIZED = "seized by postgres"
# What the table's owner replaces the column by: statements with the function `seize`, and a value to write.
REPLACEMENTS = {
    "enum": (
        "CREATE TYPE bob.evil AS ENUM ('x');"
        " CREATE FUNCTION bob.cast_it(bob.evil) RETURNS bigint LANGUAGE sql AS 'SELECT bob.seize()';"
        " CREATE CAST (bob.evil AS bigint) WITH FUNCTION bob.cast_it(bob.evil) AS IMPLICIT",
        "'x'",
    ),
    # Inlined, such a cast is called when a statement is planned, whether there are rows or not.
    "enum, when planned": (
        "CREATE TYPE bob.evil AS ENUM ('x');"
        " CREATE FUNCTION bob.cast_it(bob.evil) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT bob.seize()';"
        " CREATE CAST (bob.evil AS bigint) WITH FUNCTION bob.cast_it(bob.evil) AS IMPLICIT",
        "(SELECT 'x'::bob.evil WHERE false)",
    ),
    "composite": (
        "CREATE TYPE bob.evil AS (a int);"
        " CREATE FUNCTION bob.cast_it(bob.evil) RETURNS bigint LANGUAGE sql AS 'SELECT bob.seize()';"
        " CREATE CAST (bob.evil AS bigint) WITH FUNCTION bob.cast_it(bob.evil) AS IMPLICIT",
        "'(1)'",
    ),
    "numeric": ("CREATE DOMAIN bob.evil AS numeric", "1.5"),
    "text": ("CREATE DOMAIN bob.evil AS text", "'1'"),
}


@pytest.fixture
def bob(connection, new_role, connect) -> Connection:
    """A connection of a role that owns the schema bob and the table bob.article, which a superuser has indexed."""
    role = new_role()
    connection.execute(f"CREATE SCHEMA bob AUTHORIZATION {role}")
    session = connect(role)
    session.execute("SET search_path = bob")
    session.execute("CREATE TABLE bob.article (id int, fingerprint bigint, tenant text DEFAULT 'a')")
    session.execute("INSERT INTO bob.article VALUES (1, 5)")
    session.execute(
        "CREATE FUNCTION bob.seize() RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN"
        " IF current_user = 'postgres' THEN RAISE EXCEPTION 'seized by %', current_user; END IF; RETURN 1; END $$"
    )
    return session


def error_of(session: Connection, statement: str) -> str:
    """The message of the error that a statement ends in, or nothing."""
    try:
        session.execute(statement)
    except Error as error:
        return str(error)
    return ""


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("column", ["fingerprint", "tenant"])
@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_replaced_column_is_never_evaluated(connection, bob, connect, kind, column, level):
    scope = "scope => '{tenant}'" if column == "tenant" else "scope => '{}'"
    connection.execute(f"SELECT simsql.create_index('bob.article', 'fingerprint', {scope})")
    statements, value = REPLACEMENTS[kind]
    if column == "tenant":
        statements = statements.replace("bigint", "text").replace("bob.seize()", "bob.seize()::text")
    writer = connect(bob.info.user)
    # A snapshot from before shows the column as it was.
    writer.execute(f"BEGIN ISOLATION LEVEL {level}")
    writer.execute("SELECT 1")
    for statement in statements.split(";"):
        bob.execute(statement)
    bob.execute(f"ALTER TABLE bob.article DROP COLUMN {column} CASCADE")
    bob.execute(f"ALTER TABLE bob.article ADD COLUMN {column} bob.evil")
    writer.execute("SAVEPOINT written")
    for statement in (
        f"INSERT INTO bob.article ({column}) VALUES ({value})",
        f"INSERT INTO bob.article ({column}) SELECT {value}::bob.evil WHERE false",
        f"UPDATE bob.article SET {column} = {value}",
    ):
        assert SEIZED not in error_of(writer, statement)
        writer.execute("ROLLBACK TO SAVEPOINT written")


def test_a_replaced_column_is_an_error_that_says_so(connection, bob):
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint', scope => '{tenant}')")
    bob.execute("ALTER TABLE bob.article DROP COLUMN fingerprint CASCADE")
    bob.execute("ALTER TABLE bob.article ADD COLUMN fingerprint numeric")
    message = r"column fingerprint or tenant of bob\.article changed its type after"
    with pytest.raises(errors.DatatypeMismatch, match=message) as refused:
        bob.execute("INSERT INTO bob.article (fingerprint) VALUES (1)")
    assert "simsql.drop_index('bob.article', 'fingerprint')" in refused.value.diag.message_hint
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL session_replication_role = replica")
        with pytest.raises(errors.DatatypeMismatch, match=message):
            connection.execute("INSERT INTO bob.article (fingerprint) VALUES (1)")
    assert ("column is no longer a stored bigint", "fingerprint") in problems(connection, "bob.article")


def test_a_domain_in_the_scope_is_the_type_below_it(connection, bob):
    bob.execute("CREATE DOMAIN bob.tenant_name AS text CHECK (bob.seize() = 1)")
    bob.execute("ALTER TABLE bob.article ALTER tenant TYPE bob.tenant_name")
    connection.execute("SET row_security = on")
    bob.execute("ALTER TABLE bob.article ALTER tenant DROP DEFAULT")
    connection.execute("ALTER DOMAIN bob.tenant_name DROP CONSTRAINT tenant_name_check")
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint', scope => '{tenant}')")
    bob.execute("ALTER DOMAIN bob.tenant_name ADD CHECK (bob.seize() = 1)")
    bob.execute("INSERT INTO bob.article (fingerprint, tenant) VALUES (6, 'b')")
    assert missing_keys(connection, "bob.article") == []


def test_a_virtual_generated_column_is_refused_in_plain_words(connection, bob, server):
    if server.major < 18:
        with pytest.raises(errors.SyntaxError):
            bob.execute("CREATE TABLE bob.generated (a int, b bigint GENERATED ALWAYS AS (a) VIRTUAL)")
        return
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint')")
    bob.execute("ALTER TABLE bob.article DROP COLUMN fingerprint CASCADE")
    bob.execute("ALTER TABLE bob.article ADD COLUMN fingerprint bigint GENERATED ALWAYS AS (id * 2) VIRTUAL")
    with pytest.raises(
        errors.ObjectNotInPrerequisiteState, match="replaced by a virtual generated column"
    ) as refused:
        bob.execute("INSERT INTO bob.article (id) VALUES (1)")
    assert "simsql.drop_index" in refused.value.diag.message_hint


# Trigger functions that pg_restore --no-acl has left to everybody, on tables of the attacker's own.
ATTACHED = {
    "with transition tables": "AFTER {event} ON {table} REFERENCING NEW TABLE AS {name} FOR EACH STATEMENT",
    "without": "AFTER {event} ON {table} FOR EACH STATEMENT",
    "for each row": "AFTER {event} ON {table} FOR EACH ROW",
    "before": "BEFORE {event} ON {table} FOR EACH ROW",
}


@pytest.mark.parametrize("function", ["insert", "update", "replica"])
@pytest.mark.parametrize("attached", ATTACHED)
def test_trigger_functions_that_all_may_call_evaluate_nothing_of_theirs(connection, bob, attached, function):
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint')")
    names = connection.execute(
        "SELECT proname FROM pg_proc WHERE proname = %s", [f"add_on_{function}_1"]
    ).fetchall()
    for (name,) in names:
        connection.execute(f"GRANT EXECUTE ON FUNCTION simsql.{name}() TO PUBLIC")
    # The nonce is no secret.
    arguments = connection.execute(
        "SELECT coalesce(max(encode(tgargs, 'escape')), '') FROM pg_trigger WHERE tgname LIKE 'simsql%%insert'"
    ).fetchone()[0]
    nonce = re.sub(r"\\000$", "", arguments)
    statements, value = REPLACEMENTS["enum"]
    for statement in statements.split(";"):
        bob.execute(statement)
    for relation in ("new_rows", "old_rows", "pg_am", "pg_amop", "pg_class", "pg_trigger"):
        bob.execute(f"CREATE TEMPORARY VIEW {relation} AS SELECT {value}::bob.evil AS fingerprint, 1 AS oid")
    errors_seen = []
    for kind in ("TABLE", "TEMPORARY TABLE"):
        bob.execute(f"CREATE {kind} mine (fingerprint bob.evil, tg_relid bob.evil, tg_op bob.evil)")
        for name in ("new_rows", "pg_am", "pg_class", "pg_trigger"):
            for event in ("INSERT", "UPDATE"):
                how = ATTACHED[attached].format(event=event, table="mine", name=name)
                with bob.transaction(force_rollback=True):
                    try:
                        with bob.transaction():
                            call = f"simsql.add_on_{function}_1('{nonce}')"
                            bob.execute(f"CREATE TRIGGER forged {how} EXECUTE FUNCTION {call}")
                    except errors.UndefinedFunction:
                        continue
                    for statement in (
                        f"INSERT INTO mine VALUES ({value}, {value}, {value})",
                        f"UPDATE mine SET fingerprint = {value}",
                    ):
                        with bob.transaction(force_rollback=True):
                            errors_seen.append(error_of(bob, statement))
        bob.execute("DROP TABLE mine")
    assert [message for message in errors_seen if SEIZED in message] == []


def test_a_column_that_is_called_like_a_function_is_not_called(connection, bob, connect):
    """n.to_jsonb means to_jsonb(n) where n has no such column, and calls a cast to jsonb or json."""
    bob.execute("CREATE TABLE bob.named (id int, to_jsonb bigint)")
    connection.execute("SELECT simsql.create_index('bob.named', 'to_jsonb')")
    bob.execute("CREATE TYPE bob.evil AS ENUM ('x')")
    bob.execute(
        "CREATE FUNCTION bob.to_json(bob.evil) RETURNS json LANGUAGE sql AS $$ SELECT to_json(bob.seize()) $$"
    )
    bob.execute("CREATE CAST (bob.evil AS json) WITH FUNCTION bob.to_json(bob.evil)")
    writer = connect(bob.info.user)
    writer.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    writer.execute("SELECT 1")
    bob.execute("ALTER TABLE bob.named DROP COLUMN to_jsonb CASCADE")
    bob.execute("ALTER TABLE bob.named ADD COLUMN evil bob.evil")
    message = error_of(writer, "INSERT INTO bob.named (evil) VALUES ('x')")
    assert message
    assert SEIZED not in message


def test_rights_that_a_restore_has_dropped_are_found_and_given_back(connection, bob):
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint')")
    assert problems(connection, "bob.article") == set()
    connection.execute("GRANT EXECUTE ON FUNCTION simsql.add_on_insert_1() TO PUBLIC")
    connection.execute(f"GRANT EXECUTE ON FUNCTION simsql.add_on_update_1() TO {bob.info.user} WITH GRANT OPTION")
    found = {("privilege granted to others", f"simsql.add_on_{event}_1()") for event in ("insert", "update")}
    assert problems(connection, "bob.article") == found
    repaired = connection.execute("SELECT problem, object FROM simsql.repair('bob.article')").fetchall()
    assert set(repaired) == found
    assert problems(connection, "bob.article") == set()
    for event in ("insert", "update"):
        with pytest.raises(errors.InsufficientPrivilege):
            bob.execute(f"SELECT simsql.add_on_{event}_1()")


def test_what_one_dropped_table_leaves_behind_stops_no_other(connection, bob):
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint')")
    connection.execute("GRANT EXECUTE ON FUNCTION simsql.add_on_insert_1() TO PUBLIC")
    bob.execute("CREATE TABLE bob.mine (fingerprint bigint)")
    bob.execute("CREATE TRIGGER mine AFTER INSERT ON bob.mine EXECUTE FUNCTION simsql.add_on_insert_1()")
    bob.execute("DROP TABLE bob.article")
    for name in ("gone", "kept"):
        connection.execute(f"CREATE TABLE {name} (fingerprint bigint)")
    assert error_of(connection, "SELECT simsql.create_index('gone', 'fingerprint')") == ""
    connection.execute("DROP TABLE gone")
    connection.execute("SELECT simsql.create_index('kept', 'fingerprint')")
    left = connection.execute("SELECT table_name FROM simsql.registry ORDER BY id").fetchall()
    assert left == [("bob.article",), ("public.kept",)]
    bob.execute("DROP TABLE bob.mine")


@pytest.mark.parametrize(
    "call",
    [
        "CALL simsql.vacuum('public.article')",
        "CALL simsql.build('public.other', 'fingerprint')",
        "CALL simsql.maintain()",
    ],
)
def test_a_type_on_the_search_path_is_not_used_by_procedures(connection, bob, call):
    connection.execute("CREATE TABLE public.article (fingerprint bigint)")
    connection.execute("CREATE TABLE public.other (fingerprint bigint)")
    connection.execute("CREATE INDEX ON public.other (fingerprint)")
    connection.execute("SELECT simsql.create_index('public.article', 'fingerprint')")
    for name in ("text", "int8", "int4", "bool", "regclass", "record", "float8"):
        bob.execute(f"CREATE DOMAIN bob.{name} AS pg_catalog.text CHECK (bob.seize() = 1)")
    connection.execute("SET search_path = bob, pg_catalog")
    assert SEIZED not in error_of(connection, call)


WORDS_OF_PLPGSQL = """
    and as at begin call commit committed constant declare else elsif end errcode exception execute exit false for
    hint if in into is isolation level loop next not null or perform query raise read return rollback set sqlerrm
    then transaction true using when while
"""


def unqualified_names(body, names):
    """The words of a PL/pgSQL body that are looked up on the search_path, and its operators."""
    declarations = body.partition("BEGIN")[0]
    declared = re.findall(r"^ +(\w+) [\w.]+;", declarations, re.MULTILINE)
    code = re.sub(r"--[^\n]*|'(?:[^']|'')*'|OPERATOR\([^)]*\)|:=|=>|(?:ERRCODE|HINT) =", " ", body)
    words = re.findall(r"(?<![.\w$])[a-z_]\w*(?![\w.])", code, re.IGNORECASE)
    operators = re.findall(r"[-+*/<>=~!@#%^&|]+", code)
    return {word for word in words if word in names} - {*declared, *WORDS_OF_PLPGSQL.split()} | set(operators)


def test_procedures_qualify_every_type_function_and_operator(connection):
    """They commit, and so may have no search_path of their own: the caller's counts."""
    known = connection.execute(
        "SELECT typname FROM pg_type UNION SELECT format_type(oid, NULL) FROM pg_type"
        " UNION SELECT proname FROM pg_proc"
    )
    names = {name for (name,) in known}
    found = connection.execute(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'simsql'::regnamespace AND prokind = 'p'"
    ).fetchall()
    assert {name: unqualified_names(body, names) for name, body in found} == {
        "_leave_transaction": set(),
        "build": set(),
        "maintain": set(),
        "vacuum": set(),
    }
    unsafe = "DECLARE\n    a text;\nBEGIN a := upper(a) || 'b'; END"
    assert unqualified_names(unsafe, names) == {"text", "upper", "||"}


def test_the_policy_follows_the_column_and_not_its_name(connection, bob, new_role, connect):
    """A role that may read a new column of the old name does not read the keys of the one that is hidden now."""
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint')")
    reader = new_role()
    bob.execute(f"GRANT USAGE ON SCHEMA bob TO {reader}")
    session = connect(reader)
    bob.execute("ALTER TABLE bob.article RENAME COLUMN fingerprint TO hidden")
    bob.execute("ALTER TABLE bob.article ADD COLUMN fingerprint bigint")
    bob.execute(f"GRANT SELECT (fingerprint) ON bob.article TO {reader}")
    assert session.execute("SELECT count(key) FROM simsql.keys_1_0").fetchone() == (0,)
    bob.execute(f"GRANT SELECT (hidden) ON bob.article TO {reader}")
    assert session.execute("SELECT count(key) FROM simsql.keys_1_0").fetchone() == (1,)


def test_a_scope_column_is_followed_too(connection, bob, new_role, connect):
    connection.execute("SELECT simsql.create_index('bob.article', 'fingerprint', scope => '{tenant}')")
    reader = new_role()
    session = connect(reader)
    bob.execute(f"GRANT SELECT (fingerprint) ON bob.article TO {reader}")
    bob.execute("ALTER TABLE bob.article RENAME COLUMN tenant TO hidden")
    bob.execute("ALTER TABLE bob.article ADD COLUMN tenant text")
    bob.execute(f"GRANT SELECT (tenant) ON bob.article TO {reader}")
    assert session.execute("SELECT count(key) FROM simsql.keys_1_0").fetchone() == (0,)


def test_a_table_that_is_restored_beside_another_index_does_not_write_to_it(server, connection, tmp_path):
    """pg_dump of one table holds its triggers; here, the function of that name belongs to another index."""
    connection.execute("CREATE TABLE article (fingerprint bigint)")
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    connection.execute("INSERT INTO article VALUES (77)")
    file = str(tmp_path / "dump")
    server.run("pg_dump", "--table=article", f"--file={file}", connection.info.dbname)
    with server.new_database() as url, server.connect(url.database) as other:
        other.execute("CREATE TABLE note (fingerprint bigint)")
        other.execute("SELECT simsql.create_index('note', 'fingerprint')")
        server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}", url.database)
        for statement in ("INSERT INTO article VALUES (78)", "UPDATE article SET fingerprint = 79"):
            message = error_of(other, statement)
            assert "does not belong to a simhash index of this database" in message, statement
        assert other.execute("SELECT count(key) FROM simsql.keys_1_0").fetchone() == (0,)
        assert near(other, 77, 3, "note") == []
        other.execute("SELECT simsql.create_index('article', 'fingerprint')")
        other.execute("INSERT INTO article VALUES (78)")
        assert near(other, 78, 3) == [(78, 0), (77, 2)]
        assert problems(other, None) == set()
