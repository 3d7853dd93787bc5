"""Default privileges grant nothing on what simsql creates, and take nothing away that searches need."""

import json
import re

import pytest
from articles import create_table, near
from internals import begin_build
from program import run
from psycopg import errors
from roles import allow_indexes
from upgrades import RELEASED, bare

from simsql.database import install_schema
from simsql.database.install import schema_sql

pytestmark = pytest.mark.every_version

KINDS = ("TABLES", "SEQUENCES", "FUNCTIONS", "TYPES", "SCHEMAS")
# Privileges that a role other than the owner has, except those that show or change nothing.
TOO_MUCH = """
    SELECT o.name, a.grantee::regrole::text, string_agg(a.privilege_type, ' ' ORDER BY a.privilege_type)
      FROM (SELECT relname::text, relowner, relacl, relname = '_claim_secret' FROM pg_class
             WHERE relnamespace = 'simsql'::regnamespace
             UNION ALL SELECT proname, proowner, proacl, proname ~ '^add_on_' FROM pg_proc
                        WHERE pronamespace = 'simsql'::regnamespace
             UNION ALL SELECT typname, typowner, typacl, false FROM pg_type
                        WHERE typnamespace = 'simsql'::regnamespace
             UNION ALL SELECT nspname, nspowner, nspacl, false FROM pg_namespace WHERE nspname = 'simsql'
           ) AS o (name, owner, acl, is_secret)
     CROSS JOIN aclexplode(o.acl) AS a
     WHERE a.grantee NOT IN (o.owner, (SELECT relowner FROM pg_class WHERE relname = 'registry'))
       AND (o.is_secret OR a.privilege_type NOT IN ('SELECT', 'USAGE', 'EXECUTE'))
     GROUP BY 1, 2
"""


def grant_by_default(connection, owner, role, where=""):
    for kind in KINDS:
        if kind != "SCHEMAS" or not where:
            connection.execute(f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} {where} GRANT ALL ON {kind} TO {role}")
    if not where:
        connection.execute(f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        connection.execute(f"ALTER DEFAULT PRIVILEGES FOR ROLE {owner} REVOKE USAGE ON TYPES FROM PUBLIC")


def create_indexes(connection):
    """An index of each kind, and each way to make its objects anew."""
    create_table(connection, [1, 3])
    connection.execute("CREATE TABLE half (tenant int, fingerprint bigint); CREATE TABLE plain (LIKE article)")
    connection.execute(
        "CREATE INDEX ON half (tenant, fingerprint); INSERT INTO plain (id, fingerprint) VALUES (1, 7)"
    )
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    connection.execute("SELECT simsql.create_index('plain', 'fingerprint', storage => 'expression')")
    begin_build(connection, "half", scope=["tenant"])


def make_objects_anew(connection):
    connection.execute("SELECT simsql.change_storage('plain', 'tables')")
    connection.execute("DROP TABLE simsql.keys_1_0; SELECT simsql.repair('article')")
    connection.execute("SELECT simsql.change_storage('article', 'expression')")
    connection.execute("SELECT simsql.change_storage('article', 'tables')")


def check_searches(connection, guest, role):
    connection.execute(f"GRANT SELECT, INSERT ON article TO {role}")
    guest.execute("INSERT INTO article (fingerprint) VALUES (2)")
    assert near(guest, 1, 3) == [(1, 0), (3, 1), (2, 2)]
    assert guest.execute("SELECT count(*) FROM simsql.claim('article', 1)").fetchone() == (1,)
    assert guest.execute("SELECT count(*) FROM simsql.verify('article')").fetchone() == (0,)


@pytest.mark.parametrize("where", ["", "IN SCHEMA simsql"])
def test_nobody_gains_a_privilege(server, new_role, where):
    migrator, app, other = new_role(), new_role(), new_role()
    with bare(server) as (superuser, engine), server.connect(engine.url.database, migrator) as connection:
        superuser.execute(f"GRANT CREATE ON DATABASE {engine.url.database} TO {migrator}")
        superuser.execute(f"GRANT CREATE ON SCHEMA public TO {migrator}")
        if where:
            superuser.execute("CREATE SCHEMA simsql; GRANT USAGE ON SCHEMA simsql TO PUBLIC")
            superuser.execute(f"GRANT CREATE ON SCHEMA simsql TO {migrator}")
        grant_by_default(superuser, migrator, app, where)
        connection.execute(schema_sql())
        assert superuser.execute(TOO_MUCH).fetchall() == []
        create_indexes(connection)
        assert superuser.execute(TOO_MUCH).fetchall() == []
        make_objects_anew(connection)
        assert superuser.execute(TOO_MUCH).fetchall() == []
        assert connection.execute("SELECT object FROM simsql._other_privileges()").fetchall() == []
        with server.connect(engine.url.database, other) as guest:
            check_searches(connection, guest, other)


ATTACKS = [
    "CREATE TRIGGER steal BEFORE INSERT ON simsql.keys_1_0 FOR EACH ROW EXECUTE FUNCTION steal()",
    "TRUNCATE simsql.keys_1_0",
    "DELETE FROM simsql.keys_1_0",
    "UPDATE simsql.keys_1_0 SET key = 0",
    "INSERT INTO simsql.keys_1_0 VALUES (0)",
    "UPDATE simsql.registry SET distance = 0",
    "DELETE FROM simsql.registry",
    "DELETE FROM simsql.schema_version",
    "SELECT secret FROM simsql._claim_secret",
    "SELECT nextval('simsql.registry_id_seq')",
    "CREATE FUNCTION simsql.near(regclass, integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "CREATE TABLE simsql.pg_class (oid oid)",
    "CREATE TRIGGER mine AFTER INSERT ON theirs EXECUTE FUNCTION simsql.add_on_insert_1()",
]


def attack(server, database, role):
    """Return the attacks that succeed."""
    succeeded = []
    with server.connect(database, role) as thief:
        thief.execute("CREATE TABLE theirs (fingerprint bigint)")
        thief.execute(
            "CREATE FUNCTION steal() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN EXECUTE 'ALTER ROLE {role} SUPERUSER'; RETURN NEW; END $$"
        )
        for statement in ATTACKS:
            try:
                with thief.transaction(force_rollback=True):
                    thief.execute(statement)
                    succeeded.append(statement)
            except errors.InsufficientPrivilege:
                pass
        thief.execute("DROP TABLE theirs; DROP FUNCTION steal()")
    return succeeded


def test_an_upgrade_takes_back_what_default_privileges_granted(server, new_role):
    """With the released version, most attacks succeed, and the first makes `app` a superuser."""
    app, other = new_role(), new_role()
    with bare(server) as (connection, engine):
        name = engine.url.database
        grant_by_default(connection, "postgres", app)
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {app}")
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        create_indexes(connection)
        # Row-level security prevents an INSERT, and the secret and the trigger functions were guarded.
        assert {statement for statement in ATTACKS if statement not in attack(server, name, app)} == {
            statement for statement in ATTACKS if re.search("INSERT INTO|_claim_secret|add_on_insert_1", statement)
        }
        install_schema(engine)
        assert attack(server, name, app) == []
        assert connection.execute(TOO_MUCH).fetchall() == []
        # Without the upgrade's last step, or after a grant, everybody who looks is told.
        connection.execute(f"GRANT TRIGGER, UPDATE ON simsql.registry, simsql.keys_1_0 TO {app}")
        connection.execute(f"GRANT CREATE ON SCHEMA simsql TO {app}")
        found = connection.execute("SELECT object, problem, hint FROM simsql.verify()").fetchall()
        assert set(found) == {
            ("simsql", "privilege granted to others", f"REVOKE CREATE ON SCHEMA simsql FROM {app} CASCADE;"),
            (
                "simsql.registry",
                "privilege granted to others",
                f"REVOKE TRIGGER, UPDATE ON TABLE simsql.registry FROM {app} CASCADE;",
            ),
            ("simsql.keys_1_0", "privilege granted to others", "SELECT * FROM simsql.repair('public.article');"),
            (
                "public.half",
                "not ready",
                "CALL simsql.build('public.half', 'fingerprint', distance => 3, blocks => 4, lead => 1,"
                " inner_blocks => 0, recipe => 'words12-log-1', scope => '{tenant}');",
            ),
        }
        url = engine.url.render_as_string(hide_password=False)
        checked = run("status", "--check", "--format", "jsonl", "--database", url)
        assert checked.code == 1
        assert {"problem": "simsql.registry: privilege granted to others", "remedy": found[1][2]} in map(
            json.loads, checked.lines
        )
        connection.execute("SELECT * FROM simsql.repair('article')")
        assert connection.execute(TOO_MUCH).fetchall() == []
        assert [row[0] for row in connection.execute("SELECT problem FROM simsql.verify()")] == ["not ready"]
        with server.connect(name, other) as guest:
            check_searches(connection, guest, other)


@pytest.mark.parametrize("version", ["0.2.0", None])
def test_deliberate_grants_survive_an_upgrade(server, new_role, version):
    indexer, reader, app, dropper = (new_role() for _ in range(4))
    with bare(server) as (connection, engine):
        # Only one of the two is granted by default.
        connection.execute(f"ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO {app}, {indexer}")
        connection.execute(RELEASED[version].read_text(encoding="utf-8") if version else schema_sql())
        connection.execute("SELECT 1")
        connection.execute(f"GRANT DELETE ON simsql.registry TO {dropper}")
        allow_indexes(connection, indexer)
        connection.execute(f"REVOKE USAGE ON SCHEMA simsql FROM PUBLIC; GRANT USAGE ON SCHEMA simsql TO {reader}")
        connection.execute(f"GRANT USAGE ON SCHEMA simsql TO {indexer}")
        connection.execute("REVOKE EXECUTE ON FUNCTION simsql.drop_index FROM PUBLIC")
        connection.execute(f"GRANT EXECUTE ON FUNCTION simsql.drop_index TO {indexer}")
        if version:
            install_schema(engine)
        else:
            connection.execute("SELECT simsql._set_privileges()")
        may = "SELECT has_table_privilege(%s, 'simsql.registry', %s)"
        found = {
            role: [
                right
                for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE", "TRIGGER")
                if connection.execute(may, [role, right]).fetchone()[0]
            ]
            for role in (indexer, reader, app, dropper)
        }
        changes = ["INSERT", "UPDATE", "DELETE"]
        assert found == {indexer: changes, reader: [], app: [], dropper: ["DELETE"]}
        called = "SELECT has_function_privilege(%s, 'simsql.drop_index(regclass, text)', 'EXECUTE')"
        assert [connection.execute(called, [role]).fetchone()[0] for role in (indexer, reader)] == [True, False]
        used = "SELECT has_schema_privilege(%s, 'simsql', 'USAGE')"
        assert [connection.execute(used, [role]).fetchone()[0] for role in (reader, app)] == [True, False]
        assert connection.execute("SELECT object FROM simsql._other_privileges()").fetchall() == []
        connection.execute("CREATE TABLE article (id int, fingerprint bigint)")
        connection.execute(f"ALTER TABLE article OWNER TO {indexer}")
        with server.connect(engine.url.database, indexer) as owner:
            owner.execute("SELECT simsql.create_index('article', 'fingerprint')")
            owner.execute("SELECT simsql.drop_index('article')")
