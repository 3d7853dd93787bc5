"""Whatever somebody changes in an object of simsql, verify names it. repair mends it, or a hint says what does."""

import pytest
from articles import fingerprints_of
from internals import begin_build
from oracle import clustered
from psycopg import errors
from servers import find_programs

pytestmark = pytest.mark.oldest_version

INVENTORY = "SELECT i.* FROM simsql.registry AS r, simsql._inventory(r, simsql._as_named(r)) AS i"
WRITE = "INSERT INTO article (tenant, fingerprint) VALUES (1, 12345), (1, -5)"
# No write loses keys any more: see simsql._refuse_lost_keys.
LOSE = "DELETE FROM {object} WHERE key IS NOT NULL"
# By kind and property: statements that change it.
CHANGES = {
    ("key table", "existence"): ["DROP TABLE {object}"],
    ("key table", "columns"): [
        "ALTER TABLE {object} ADD extra integer",
        "ALTER TABLE {object} ALTER key TYPE numeric",
        "ALTER TABLE {object} ALTER key SET DEFAULT 5",
    ],
    ("key table", "inheritance"): ["CREATE TABLE child () INHERITS ({object})"],
    ("key table", "persistence"): ["ALTER TABLE {object} SET UNLOGGED"],
    ("key table", "row-level security"): [
        "ALTER TABLE {object} DISABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {{object}} FORCE ROW LEVEL SECURITY; {WRITE}",
    ],
    ("key table", "policies"): [
        "ALTER POLICY readers ON {object} USING (false)",
        "ALTER POLICY readers ON {object} USING (true)",
        "ALTER POLICY readers ON {object} TO stranger",
        "ALTER POLICY readers ON {object} RENAME TO others",
        "DROP POLICY readers ON {object}; CREATE POLICY readers ON {object} USING (false) WITH CHECK (true)",
        "CREATE POLICY more ON {object} AS RESTRICTIVE USING (key > 0)",
    ],
    ("key table", "own trigger"): [
        "DROP TRIGGER simsql_keep_own ON {object}",
        "ALTER TABLE {object} DISABLE TRIGGER simsql_keep_own",
        f"{LOSE}; DROP TRIGGER simsql_keep_own ON {{object}};"
        " CREATE TRIGGER simsql_keep_own BEFORE INSERT ON {object} FOR EACH ROW EXECUTE FUNCTION ignore()",
    ],
    ("key table", "replica identity"): ["ALTER TABLE {object} REPLICA IDENTITY NOTHING"],
    ("key table", "comment"): ["COMMENT ON TABLE {object} IS NULL"],
    ("key table", "foreign trigger"): [
        f"{LOSE}; CREATE TRIGGER hide BEFORE INSERT ON {{object}} FOR EACH ROW EXECUTE FUNCTION ignore()",
        "CREATE TRIGGER note AFTER INSERT ON {object} EXECUTE FUNCTION ignore()",
    ],
    ("key table", "foreign rule"): [f"{LOSE}; CREATE RULE hide AS ON INSERT TO {{object}} DO INSTEAD NOTHING"],
    ("key table", "foreign constraint"): ["ALTER TABLE {object} ADD CHECK (key > 0) NOT VALID"],
    ("key table", "foreign B-tree"): [
        "CREATE UNIQUE INDEX ON {object} (key) WHERE key > 0",
        "CREATE INDEX ON {object} ((key & 1))",
    ],
    ("table", "owner"): ["ALTER TABLE {object} OWNER TO stranger"],
    ("table", "privileges"): [
        "GRANT TRIGGER, TRUNCATE ON {object} TO stranger",
        "GRANT ALL ON {object} TO PUBLIC",
        "GRANT UPDATE (key) ON {object} TO stranger",
        "REVOKE ALL ON {object} FROM PUBLIC",
        "REVOKE INSERT ON {object} FROM postgres",
    ],
    ("routine", "owner"): ["ALTER FUNCTION {object} OWNER TO stranger"],
    ("routine", "privileges"): [
        "REVOKE ALL ON FUNCTION {object} FROM PUBLIC, postgres",
        "GRANT ALL ON FUNCTION {object} TO stranger",
    ],
    ("function", "existence"): ["DROP FUNCTION {object} CASCADE"],
    ("function", "attributes"): [
        "ALTER FUNCTION {object} IMMUTABLE",
        "ALTER FUNCTION {object} STRICT",
        "ALTER FUNCTION {object} LEAKPROOF",
        "ALTER FUNCTION {object} PARALLEL SAFE",
        "SELECT turn('{object}')",
    ],
    ("function", "settings"): [
        "ALTER FUNCTION {object} RESET ALL",
        "ALTER FUNCTION {object} SET work_mem = '64kB'",
        "ALTER FUNCTION {object} SET search_path = public",
    ],
    ("function", "body"): ["SELECT empty('{object}')"],
    ("trigger", "existence"): ["DROP TRIGGER {object} ON article"],
    ("trigger", "definition"): ["SELECT alter('{object}')"],
    ("trigger", "firing"): ["ALTER TABLE article DISABLE TRIGGER {object}"],
    ("B-tree", "validity"): [
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{object}'::regclass",
        "DROP INDEX {object}",
    ],
    ("progress", "row-level security"): [
        "ALTER TABLE {object} DISABLE ROW LEVEL SECURITY",
        "CREATE POLICY everybody ON {object} USING (true)",
    ],
}
# What changes nothing: PUBLIC has it or not anyway, and a trigger that never runs does not fire.
WITHOUT_EFFECT = [
    ("REVOKE ALL ON {object} FROM PUBLIC", "built_"),
    ("GRANT UPDATE (key)", "built_"),
    ("GRANT ALL ON FUNCTION", "search_"),
    ("GRANT ALL ON FUNCTION", "scan_"),
    ("GRANT ALL ON FUNCTION", "similar_"),
    ("DISABLE TRIGGER", "_column"),
    ("DISABLE TRIGGER", "_no_parent"),
]


@pytest.fixture(params=["tables", "expression", "unfinished"])
def kind(request):
    return request.param


@pytest.fixture
def index(connection, kind):
    connection.execute(
        "CREATE TABLE article (id serial PRIMARY KEY, tenant integer DEFAULT 1, fingerprint bigint)"
    )
    fingerprints = clustered(40, seed=3)
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [fingerprints])
    if kind == "unfinished":
        connection.execute("CREATE INDEX ON article (tenant, fingerprint)")
        begin_build(connection, blocks=2, scope=["tenant"])
    else:
        connection.execute(
            "SELECT simsql.create_index('article', 'fingerprint', blocks => 2, scope => '{tenant}',"
            " storage => %s)",
            [kind],
        )
    connection.execute(
        """
        CREATE FUNCTION ignore() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE FUNCTION turn(f regproc) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            EXECUTE format('ALTER FUNCTION %s SECURITY %s', f::regprocedure,
                           (SELECT CASE WHEN prosecdef THEN 'INVOKER' ELSE 'DEFINER' END
                              FROM pg_proc WHERE oid = f));
        END $$;
        CREATE FUNCTION empty(f regproc) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            head text := regexp_replace(pg_get_functiondef(f), 'AS \\$function\\$.*', '');
        BEGIN
            EXECUTE head || 'AS ''BEGIN RETURN; END''';
        EXCEPTION WHEN syntax_error OR datatype_mismatch THEN
            EXECUTE head || 'AS ''BEGIN RETURN NULL; END''';
        END $$;
        CREATE FUNCTION alter(t text) RETURNS void LANGUAGE plpgsql AS $$
        DECLARE
            before text := (SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = t);
        BEGIN
            EXECUTE replace(replace(regexp_replace(before, 'EXECUTE FUNCTION .*', 'EXECUTE FUNCTION ignore()'),
                                    'CREATE', 'CREATE OR REPLACE'),
                            'WHEN (false)', 'WHEN (pg_trigger_depth() > 5)');
            EXECUTE format('ALTER TABLE article ENABLE ALWAYS TRIGGER %I', t);
        END $$"""
    )
    return connection


@pytest.fixture
def stranger(new_role):
    return new_role()


def differing(connection):
    rows = connection.execute(f"{INVENTORY} WHERE i.expected IS DISTINCT FROM i.found")
    return {tuple(row[:4]) for row in rows}


def test_every_property_of_every_object_is_compared_and_mended(index, kind, stranger, server):
    is_thorough = kind == "tables" and server.major == find_programs()[0].major
    rows = index.execute(INVENTORY).fetchall()
    assert differing(index) == set()
    properties = {(row[0], row[2]) for row in rows}
    assert properties <= set(CHANGES)
    live = fingerprints_of(index)
    tried = set()
    for object_kind, name, property_name, *_ in rows:
        for change in CHANGES[object_kind, property_name]:
            if any(part in change and suffix in name for part, suffix in WITHOUT_EFFECT):
                continue
            # Each change is named and mended once, and one of each property of each object is seen.
            # Elsewhere, one of each property.
            if (object_kind, property_name) in tried and (
                not is_thorough or {(name, property_name), (object_kind, change)} <= tried
            ):
                continue
            is_mended = (object_kind, change) not in tried
            tried |= {(object_kind, property_name), (name, property_name), (object_kind, change)}
            statement = change.replace("{object}", name).replace("stranger", stranger)
            with index.transaction(force_rollback=True):
                index.execute(statement)
                expected = differing(index)
                named = {(row[1], row[3]) for row in expected if (row[0], row[2]) == (object_kind, property_name)}
                assert named, statement
                if not is_mended:  # as that of another object was
                    continue
                found = set(index.execute("SELECT object, problem FROM simsql.verify('article')").fetchall())
                assert named <= found, statement
                if change.startswith("CREATE TABLE child"):
                    with pytest.raises(errors.DependentObjectsStillExist), index.transaction():
                        index.execute("SELECT * FROM simsql.repair('article')")
                    continue
                index.execute("SELECT * FROM simsql.repair('article')")
                # Now verify would name what still differs, and keys that are missing.
                left = index.execute("SELECT problem FROM simsql.verify('article')").fetchall()
                assert left == ([("not ready",)] if kind == "unfinished" else []), statement
    assert len(tried) > 20
    assert fingerprints_of(index) == live


def test_every_change_belongs_to_a_property(connection, new_role):
    """Nothing is in CHANGES that no index has."""
    connection.execute("CREATE TABLE article (id int, fingerprint bigint); CREATE INDEX ON article (fingerprint)")
    begin_build(connection)
    assert {(row[0], row[2]) for row in connection.execute(INVENTORY)} == set(CHANGES)


# Changes of what the installation made, by problem.
INSTALLED = {
    "privilege granted to others": [
        "GRANT CREATE ON SCHEMA simsql TO stranger",
        "GRANT UPDATE ON simsql.registry_id_seq TO stranger",
        "GRANT SELECT ON simsql._claim_secret TO stranger",
        "GRANT INSERT ON simsql.schema_version TO stranger",
        "GRANT UPDATE (distance) ON simsql.registry TO stranger",
    ],
    "privilege missing": [
        "REVOKE SELECT ON simsql.registry FROM PUBLIC",
        "REVOKE USAGE ON TYPE simsql.match FROM PUBLIC",
        "REVOKE DELETE ON simsql.registry FROM postgres",
    ],
    "owner altered": [
        "ALTER SCHEMA simsql OWNER TO stranger",
        "ALTER VIEW simsql.indexes OWNER TO stranger",
        "ALTER TYPE simsql.match OWNER TO stranger",
        "ALTER FUNCTION simsql.near OWNER TO stranger",
        "ALTER PROCEDURE simsql.build OWNER TO stranger",
    ],
    "foreign object": [
        "CREATE FUNCTION simsql.near(regclass, integer) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "CREATE TABLE simsql.pg_class (oid oid)",
        "CREATE TYPE simsql.text AS (a integer)",
    ],
    "object altered": [
        "ALTER FUNCTION simsql.near SECURITY DEFINER",
        "ALTER FUNCTION simsql._render RESET search_path",
        "CREATE OR REPLACE FUNCTION simsql.version() RETURNS text LANGUAGE sql AS $$ SELECT '9' $$",
        "COMMENT ON FUNCTION simsql.version() IS NULL",
        "ALTER TABLE simsql.registry ADD extra integer",
        "ALTER TABLE simsql.registry DROP CONSTRAINT registry_pkey",
        "CREATE RULE hide AS ON DELETE TO simsql.registry DO INSTEAD NOTHING",
        "CREATE TRIGGER hide BEFORE UPDATE ON simsql.registry FOR EACH ROW"
        " EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
    ],
    "trigger not enabled for replication": [
        "ALTER TABLE simsql.registry DISABLE TRIGGER simsql_keep_own",
        "ALTER TABLE simsql.schema_version ENABLE TRIGGER ALL",
    ],
    "object missing": ["DROP FUNCTION simsql.hamming_distance", "DROP TABLE simsql.schema_version"],
}


def test_every_change_of_the_installation_is_found(connection, stranger):
    verify = "SELECT object, problem, hint FROM simsql.verify()"
    assert connection.execute(verify).fetchall() == []
    for problem, statements in INSTALLED.items():
        for statement in statements:
            with connection.transaction(force_rollback=True):
                connection.execute(statement.replace("stranger", stranger))
                found = connection.execute(verify).fetchall()
                assert {row[1] for row in found} == {problem}, (statement, found)
                for _, _, hint in found:
                    if problem in ("object altered", "object missing"):
                        assert hint == "Create it again as simsql install --sql prints it."
                    else:
                        connection.execute(hint)
                        assert connection.execute(verify).fetchall() == [], hint
