"""What pg_dump writes, pg_restore brings back: an index that searches, and triggers that keep it."""

import json
import re
import shlex

import pytest
from articles import create_articles, create_index, missing_keys, near
from documentation import REPOSITORY
from oracle import clustered
from oracle import near as expected_near
from program import run
from psycopg import errors
from skew import skewed
from upkeep import problems

pytestmark = [
    pytest.mark.oldest_version,
    pytest.mark.fault("dump and restore: the formats and options of pg_dump, pg_restore and CREATE DATABASE"),
]

FINGERPRINTS = clustered(200, seed=10)


@pytest.fixture
def dumped(connection):
    """Two tables whose OIDs and column numbers will not be the same again, one of them with a hard name."""
    connection.execute("CREATE TABLE gone (id int)")
    create_articles(connection, FINGERPRINTS, (5, 2, 0))
    connection.execute("ALTER TABLE article DROP COLUMN body")
    connection.execute('CREATE SCHEMA "my app"')
    connection.execute('CREATE TABLE "my app"."An ""article" (print bigint)')
    create_index(connection, '"my app"."An ""article"', "print")
    connection.execute('INSERT INTO "my app"."An ""article" VALUES (1), (2)')
    connection.execute("DROP TABLE gone")
    return connection


def check(connection):
    """The index answers, its registry means the tables of this database, and writers still add."""
    tables = connection.execute("SELECT table_name, state FROM simsql.indexes ORDER BY id").fetchall()
    assert tables == [("public.article", "ready"), ('"my app"."An ""article"', "ready")]
    oids = connection.execute("SELECT table_id::oid, to_regclass(table_name)::oid FROM simsql.registry").fetchall()
    assert all(by_id == by_name for by_id, by_name in oids)
    for table in ("article", '"my app"."An ""article"'):
        assert missing_keys(connection, table) == []
    assert connection.execute("SELECT count(*) FROM simsql.verify() WHERE fault").fetchone() == (0,)
    for within in (0, 3, 7, 40):
        assert near(connection, 0, within) == expected_near(FINGERPRINTS, 0, within)
    connection.execute("SET session_replication_role = replica")
    connection.execute("INSERT INTO article (fingerprint) VALUES (123456789)")
    connection.execute("UPDATE article SET fingerprint = 987654321 WHERE fingerprint = 123456789")
    connection.execute("RESET session_replication_role")
    assert near(connection, 987654321, 0) == [(987654321, 0)]
    assert missing_keys(connection) == []
    connection.execute("CREATE TABLE later (fingerprint bigint)")
    assert create_index(connection, "later") == 3


@pytest.fixture
def dump(server, dumped, tmp_path):
    """Dump the database with these options, in the custom format; return the file."""

    def dump_to_file(*options):
        file = str(tmp_path / f"dump{len(list(tmp_path.iterdir()))}")
        server.run("pg_dump", "--format=custom", *options, f"--file={file}", dumped.info.dbname)
        return file

    return dump_to_file


@pytest.fixture
def load(server, restored):
    """Restore a file into the other database, with these options."""

    def restore_file(file, *options):
        server.run("pg_restore", "--exit-on-error", *options, f"--dbname={restored.info.dbname}", file)

    return restore_file


@pytest.mark.parametrize("kind", ["plain", "custom"])
def test_a_dump_restores_a_working_index(dumped, dump, load, restore, restored, kind):
    if kind == "plain":
        restore()
    else:
        load(dump(), "--jobs=2")
    check(restored)


def test_what_an_index_has_learned_is_restored(connection, restore):
    create_articles(connection, skewed(2_000))
    learned = "SELECT candidate_shares FROM simsql.registry"
    before = connection.execute(learned).fetchone()
    assert len(before[0]) == 65
    restored = restore()
    assert restored.execute(learned).fetchone() == before
    assert problems(restored) == set()


def test_a_restore_without_privileges_is_found_and_mended(server, restored, dump, load, new_role):
    load(dump(), "--no-acl")
    found = {(problem, name) for problem, name in problems(restored) if "keys" not in name}
    events = ("insert", "replica", "update")
    assert found == {("privilege granted to others", f"simsql.add_on_{event}_1()") for event in events}
    database = "--database", server.url(restored.info.dbname).render_as_string(hide_password=False)
    problems_shown = run("status", "--check", "--format", "jsonl", *database).lines
    for remedy in {json.loads(line)["remedy"] for line in problems_shown}:
        if command := re.search("simsql (index verify .* --repair)$", remedy):
            run(*shlex.split(command[1]), *database).done()
        else:
            assert "simsql.repair" not in remedy
            restored.execute(remedy)
    assert run("status", "--check", *database).done().out == ""
    assert problems(restored, None) == set()
    role = new_role()
    restored.execute(f"GRANT SELECT ON article TO {role}")
    with server.connect(restored.info.dbname, role) as guest:
        assert near(guest, 0, 7) == expected_near(FINGERPRINTS, 0, 7)
        claimed = guest.execute("SELECT fingerprint, distance FROM simsql.claim('article', 0, 7)").fetchall()
        assert claimed == expected_near(FINGERPRINTS, 0, 7)[:1]
    check(restored)


def test_a_dump_restored_by_sections_is_a_working_index(restored, dump, load):
    file = dump()
    for section in ("pre-data", "data", "post-data"):
        load(file, f"--section={section}")
    check(restored)


def test_data_restored_into_an_existing_schema_keeps_its_index(restored, dump, load):
    """With --disable-triggers the keys come from the dump; the triggers are no longer ALWAYS afterwards."""
    load(dump("--schema-only"))
    load(dump("--data-only"), "--disable-triggers")
    with pytest.raises(errors.ObjectNotInPrerequisiteState) as refused:
        near(restored, 0, 0)
    assert refused.value.diag.message_hint.endswith("SELECT * FROM simsql.repair('public.article');")
    restored.execute("SELECT simsql.repair(r.table_id) FROM simsql.registry AS r")
    hints = restored.execute("SELECT object, hint FROM simsql.verify()").fetchall()
    assert {name for name, _ in hints} == {"simsql.registry", "simsql.schema_version"}
    for _, hint in hints:
        restored.execute(hint)
    check(restored)


def test_data_restored_with_its_triggers_has_every_key(restored, dump, load):
    load(dump("--schema-only"))
    load(dump("--data-only"))
    assert missing_keys(restored) == []
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have not been compared") as refused:
        near(restored, 0, 0)
    assert refused.value.diag.message_hint.endswith("SELECT * FROM simsql.repair('public.article');")
    restored.execute("SELECT simsql.repair(r.table_id) FROM simsql.registry AS r")
    check(restored)


@pytest.mark.parametrize(("table", "column"), [("article", "fingerprint"), ('"my app"."An ""article"', "print")])
def test_an_index_is_created_on_a_schema_restored_without_its_data(restored, dump, load, table, column):
    """The table has triggers, and the schema of simsql has keys, of indexes that are not in the registry."""
    load(dump("--schema-only"))
    create_index(restored, table, column)
    restored.execute(f"INSERT INTO {table} ({column}) SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    assert missing_keys(restored, table) == []
    assert problems(restored, table) == set()
    assert near(restored, 0, 7, table) == expected_near(FINGERPRINTS, 0, 7)


def test_an_index_on_a_restored_table_leaves_what_clears_its_fingerprints(server, dumped, restored, dump, load):
    dumped.execute("ALTER TABLE article ADD body text")
    dumped.execute("SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])")
    load(dump("--schema-only"))
    check_that_an_edit_clears(restored)
    with server.new_database() as url, server.connect(url.database) as other:
        other.execute("DROP SCHEMA public")
        # The functions of the index are in another schema, unlike that of clear_on_change, which is here.
        with pytest.raises(AssertionError, match="add_on_insert_1"):
            server.run("pg_restore", f"--dbname={url.database}", dump("--schema=public"))
        check_that_an_edit_clears(other)


def check_that_an_edit_clears(connection):
    create_index(connection)
    connection.execute("TRUNCATE article")
    connection.execute("INSERT INTO article (body, fingerprint) VALUES ('old', 5)")
    connection.execute("UPDATE article SET body = 'new'")
    assert connection.execute("SELECT fingerprint FROM article").fetchone() == (None,)


def test_a_single_table_is_restored_over_its_own_truncated_self(server, dumped, dump):
    dumped.execute("SELECT simsql.drop_index('article')")
    file = dump("--data-only", "--table=article")
    create_index(dumped)
    dumped.execute("TRUNCATE article")
    dumped.execute("DELETE FROM simsql.keys_3_0")
    server.run("pg_restore", "--exit-on-error", f"--dbname={dumped.info.dbname}", file)
    assert {key for key, _ in missing_keys(dumped)} == set()
    assert near(dumped, 0, 64) == expected_near(FINGERPRINTS, 0, 64)


def test_an_ordinary_owner_can_dump_their_database(server, dumped, new_role, connect, tmp_path):
    """Row-level security must not hide keys from the one who dumps, nor the secret of claims be in the way."""
    role = new_role()
    dumped.execute(f'GRANT SELECT ON article TO {role}; GRANT USAGE ON SCHEMA "my app" TO {role}')
    dumped.execute(f'GRANT SELECT ON "my app"."An ""article" TO {role}')
    dumped.execute(f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA public, simsql TO {role}")
    for (table,) in dumped.execute("SELECT oid::regclass::text FROM pg_class WHERE relname ~ '^keys_'").fetchall():
        dumped.execute(f"ALTER TABLE {table} OWNER TO {role}")
    out = server.run("pg_dump", dumped.info.dbname, user=role)
    keys = re.search(r"COPY simsql\.keys_1_0 [^\n]*FROM stdin;\n(.*?)\n\\\.", out, re.DOTALL)[1]
    assert len(keys.splitlines()) == len(set(FINGERPRINTS)) + 1  # the row without a key


def test_a_restore_without_the_schema(server, dumped, dump, restored, tmp_path):
    """The page says how: without the triggers, whose functions are in the schema."""
    page = (REPOSITORY / "docs/guides/operations.md").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"--exclude-schema=simsql dump \| grep -vE '(.*)' > list", page)
    file = dump()
    entries = server.run("pg_restore", "--list", "--exclude-schema=simsql", file).splitlines()
    listed = tmp_path / "list"
    listed.write_text("\n".join(e for e in entries if not re.search(pattern, e)), encoding="utf-8")
    server.run("pg_restore", "--exit-on-error", f"--use-list={listed}", f"--dbname={restored.info.dbname}", file)
    url = server.url(restored.info.dbname).render_as_string(hide_password=False)
    run("install", "--database", url).done()
    create_index(restored, design=(5, 2, 0))
    create_index(restored, '"my app"."An ""article"', "print")
    check(restored)
