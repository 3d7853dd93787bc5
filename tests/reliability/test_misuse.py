"""Misuse of the tables and roles around an index: a search finds what plain SQL finds, or says what to do."""

import contextlib
from collections.abc import Sequence

import psycopg
import pytest
from articles import create_index, create_table, near
from oracle import clustered
from oracle import near as expected_near
from psycopg import errors
from roles import allow_indexes

FINGERPRINTS = clustered(36, seed=25)
EVERY_TABLE = (
    "DO $$ DECLARE name text; BEGIN FOR name IN SELECT c.oid::regclass FROM pg_class AS c WHERE relkind = 'r'"
    " AND relnamespace = 'simsql'::regnamespace LOOP EXECUTE format('{}', name); END LOOP; END $$"
)


@pytest.fixture
def reader(new_role):
    return new_role()


@pytest.fixture
def article(connection, storage, reader):
    """The table `article` with an index, which `reader` may read."""
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage=storage)
    connection.execute(f"GRANT SELECT ON article TO {reader}")
    return connection


def differences(connection: psycopg.Connection, role: str = "postgres") -> tuple[int, int] | None:
    """(missed, invented) matches of searches as this role, compared with its rows; None if it is told why not."""
    connection.execute(f"SET ROLE {role}")
    try:
        with connection.transaction():
            live = [row[0] for row in connection.execute("SELECT fingerprint FROM article")]
        with connection.transaction():
            found = {
                (query, within): near(connection, query, within) for query in (0, -1) for within in (0, 3, 7, 40)
            }
            found |= {(query, 3): near(connection, query, 3) for query in FINGERPRINTS[::12]}
    except psycopg.Error as error:
        if error.diag.message_hint or isinstance(error, errors.InsufficientPrivilege):
            return None
        raise
    finally:
        connection.execute("RESET ROLE")
    missed = invented = 0
    for (query, within), matches in found.items():
        expected = set(expected_near(live, query, within))
        missed += len(expected - set(matches))
        invented += len(set(matches) - expected)
    return missed, invented


def attempt(connection, examine, tally, misuses: Sequence[str], *roles: str) -> list[bool]:
    """Try each misuse on its own, write, and search as each role; return whether each let all of them search."""
    searched = []
    for misuse in misuses:
        with connection.transaction(force_rollback=True):
            connection.execute(misuse)
            with contextlib.suppress(psycopg.Error), connection.transaction():
                connection.execute("INSERT INTO article (fingerprint) VALUES (-2), (4)")
            owner, *others = (differences(connection, role) for role in ("postgres", *roles))
            missed, invented = (sum(pair[place] for pair in (owner, *others) if pair) for place in (0, 1))
            tally(tried=owner is None, lost=missed, wrong=invented)
            if owner:
                rows = connection.execute("SELECT id, fingerprint FROM article").fetchall()
                examine(connection, dict(rows), distances=(0,))
            searched.append(None not in (owner, *others))
    return searched


@pytest.mark.fault("scripts that change the row-level security of all tables, those of simsql too")
def test_row_level_security_of_all_tables(article, storage, reader, examine, tally):
    scripts = {
        "ALTER TABLE %s ENABLE ROW LEVEL SECURITY": False,
        "DROP POLICY IF EXISTS readers ON %s": storage == "expression",
        "CREATE POLICY more ON %s AS RESTRICTIVE USING (false)": storage == "expression",
        "ALTER TABLE %s FORCE ROW LEVEL SECURITY": True,
    }
    searched = attempt(article, examine, tally, [EVERY_TABLE.format(script) for script in scripts], reader)
    assert searched == list(scripts.values())
    article.execute(EVERY_TABLE.format("ALTER TABLE %s ENABLE ROW LEVEL SECURITY"))
    (hint,) = article.execute("SELECT hint FROM simsql.verify()").fetchone()
    article.execute("SELECT FROM simsql.repair('article')")  # it leaves this to who turned it on
    article.execute(hint)
    assert article.execute("SELECT FROM simsql.verify()").fetchall() == []
    assert differences(article, reader) == (0, 0)


@pytest.mark.fault("row-level security: policies, FORCE, BYPASSRLS, `row_security = off`")
def test_row_level_security_of_the_table(article, reader, examine, tally):
    policy = (
        "ALTER TABLE article ENABLE ROW LEVEL SECURITY;"
        " CREATE POLICY part ON article USING (id % 2 = 0 OR current_setting('app.whole', true) = 'yes');"
    )
    searched = attempt(
        article,
        examine,
        tally,
        [
            policy,
            policy + "SET app.whole = 'yes'",
            policy + "ALTER TABLE article FORCE ROW LEVEL SECURITY",
            policy + "CREATE POLICY others ON article AS RESTRICTIVE USING (fingerprint > 0)",
            policy + f"ALTER ROLE {reader} BYPASSRLS",
            policy + "SET row_security = off",
            f"REVOKE SELECT ON article FROM {reader}; GRANT SELECT (fingerprint) ON article TO {reader}",
            f"REVOKE SELECT ON article FROM {reader}; GRANT SELECT (id) ON article TO {reader}",
        ],
        reader,
    )
    assert searched == [True, True, True, True, True, False, True, False]


@pytest.mark.fault("owners that change: ALTER OWNER, REASSIGN OWNED, DROP OWNED, renamed and demoted roles")
def test_other_owners(connection, storage, new_role, reader, examine, tally):
    one, other = new_role(), new_role()
    allow_indexes(connection, one, other)
    connection.execute(f"SET ROLE {one}")
    create_table(connection, FINGERPRINTS)
    create_index(connection, storage=storage)
    connection.execute(f"GRANT SELECT ON article TO {reader}; RESET ROLE")
    given = f"ALTER TABLE article OWNER TO {other};"
    searched = attempt(
        connection,
        examine,
        tally,
        [
            given,
            given + f"REVOKE ALL ON SCHEMA simsql FROM {one}",
            f"REASSIGN OWNED BY {one} TO {other}; DROP OWNED BY {one}",
            given + f"DROP OWNED BY {one} CASCADE",
            f"ALTER ROLE {one} RENAME TO somebody",
        ],
        reader,
    )
    # REASSIGN OWNED changes the functions of triggers, which a stamp cannot tell from replacing them.
    assert searched == [True, True, storage == "expression", False, True]


@pytest.mark.fault("event triggers that fail, alter, drop or give away what an index is made of")
def test_event_triggers(connection, storage, new_role, reader, examine, tally):
    heir = new_role()
    connection.execute(f"GRANT ALL ON SCHEMA simsql TO {heir}")
    of_tables = (
        "IF kind = 'table' AND tag LIKE 'CREATE TABLE%' THEN EXECUTE format('ALTER TABLE %s {}', name); END IF"
    )
    for action in (
        "RAISE EXCEPTION 'not today'",
        of_tables.format("ENABLE ROW LEVEL SECURITY"),
        of_tables.format(f"OWNER TO {heir}"),
        of_tables.format("SET UNLOGGED"),
        of_tables.format("ADD made timestamptz DEFAULT now()"),
        "IF kind = 'trigger' THEN DROP TRIGGER IF EXISTS simsql_1_update ON article; END IF",
        "IF kind = 'policy' THEN DROP POLICY IF EXISTS readers ON simsql.keys_1_0; END IF",
    ):
        with connection.transaction(force_rollback=True):
            create_table(connection, FINGERPRINTS)
            connection.execute(f"GRANT SELECT ON article TO {reader}")
            connection.execute(
                "CREATE FUNCTION act() RETURNS event_trigger LANGUAGE plpgsql AS $$ DECLARE name text; kind text;"
                " tag text; BEGIN FOR name, kind, tag IN SELECT object_identity, object_type, command_tag"
                f" FROM pg_event_trigger_ddl_commands() LOOP {action}; END LOOP; END $$;"
                "CREATE EVENT TRIGGER act ON ddl_command_end EXECUTE FUNCTION act()"
            )
            with contextlib.suppress(psycopg.Error), connection.transaction():
                create_index(connection, storage=storage)
            attempt(connection, examine, tally, ["SELECT"], reader)


@pytest.mark.fault("partitions and children that belong to another role")
def test_partitions_of_another_role(connection, new_role, reader, examine, tally):
    owner, other = new_role(), new_role()
    allow_indexes(connection, owner, other)
    connection.execute(
        f"GRANT {other} TO {owner}; SET ROLE {owner};"
        "CREATE TABLE article (id serial, fingerprint bigint) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF article FOR VALUES FROM (MINVALUE) TO (18);"
        f"CREATE TABLE high (spare int, fingerprint bigint, id int NOT NULL); ALTER TABLE high DROP spare;"
        f"ALTER TABLE high OWNER TO {other};"
        "ALTER TABLE article ATTACH PARTITION high FOR VALUES FROM (18) TO (MAXVALUE)"
    )
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    create_index(connection)
    connection.execute(f"GRANT SELECT ON article TO {reader}; RESET ROLE")
    searched = attempt(
        connection,
        examine,
        tally,
        [
            "ALTER TABLE high ENABLE ROW LEVEL SECURITY; ALTER TABLE high FORCE ROW LEVEL SECURITY",
            f"SET ROLE {other}; INSERT INTO high (id, fingerprint) VALUES (99, 5); RESET ROLE",
            f"REVOKE ALL ON high FROM {other}",
            "ALTER TABLE article DETACH PARTITION high",
            "ALTER TABLE article DETACH PARTITION high; CREATE TABLE next (id int NOT NULL, fingerprint bigint);"
            " INSERT INTO next VALUES (18, 3); ALTER TABLE next OWNER TO " + other + ";"
            " ALTER TABLE article ATTACH PARTITION next FOR VALUES FROM (18) TO (MAXVALUE)",
        ],
        owner,
        reader,
    )
    assert all(searched)


@pytest.mark.fault("partitions and children that belong to another role")
def test_children_of_another_role(connection, new_role, reader, examine, tally):
    owner, other = new_role(), new_role()
    allow_indexes(connection, owner, other)
    connection.execute(f"GRANT {other} TO {owner}; SET ROLE {owner}")
    create_table(connection, FINGERPRINTS[:18])
    connection.execute(f"CREATE TABLE child () INHERITS (article); ALTER TABLE child OWNER TO {other}")
    connection.execute(
        "INSERT INTO child (id, fingerprint)"
        " SELECT 100 + n, f FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
        [FINGERPRINTS[18:]],
    )
    create_index(connection, storage="expression")
    connection.execute(f"GRANT SELECT ON article TO {reader}; RESET ROLE")
    searched = attempt(
        connection,
        examine,
        tally,
        [
            "ALTER TABLE child ENABLE ROW LEVEL SECURITY; ALTER TABLE child FORCE ROW LEVEL SECURITY",
            f"SET ROLE {other}; INSERT INTO child (id, fingerprint) VALUES (99, 5); RESET ROLE",
            f"REVOKE ALL ON child FROM {other}",
            "ALTER TABLE child NO INHERIT article",
            "CREATE TABLE next (LIKE article); INSERT INTO next (id, fingerprint) VALUES (98, 3);"
            f" ALTER TABLE next OWNER TO {other}; ALTER TABLE next INHERIT article",
        ],
        owner,
        reader,
    )
    assert all(searched)
