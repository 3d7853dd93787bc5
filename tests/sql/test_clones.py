"""A schema that was restored without its data, such as a structure.sql: one command completes or removes it."""

import json

import pytest
from articles import create_articles, create_index, near
from program import run
from psycopg import errors
from roles import allow_indexes
from upgrades import RELEASED, bare
from upkeep import problems

pytestmark = pytest.mark.oldest_version
INDEXES = (
    "SELECT table_name, column_name, scope, distance, blocks, lead, inner_blocks, recipe, storage, sources, state,"
    " is_default"
    " FROM simsql.indexes ORDER BY table_name, column_name"
)


@pytest.fixture
def original(connection, new_role):
    """Indexes of every kind, one of them of another role."""
    role = new_role()
    create_articles(connection, [1, 3], (5, 2, 0))
    connection.execute("SELECT simsql.alter_index('article', sources => '{\"body\": 2}')")
    connection.execute('CREATE TABLE "An ""article" (print bigint, other bigint, tenant integer, body text)')
    connection.execute(
        """
        SELECT simsql.create_index('"An ""article"', 'print', 7, scope => '{tenant}', recipe => 'it''s'),
               simsql.create_index('"An ""article"', 'other', storage => 'expression')
        """
    )
    connection.execute("SELECT simsql.set_default_index('\"An \"\"article\"', 'other')")
    connection.execute("SELECT simsql.clear_on_change('\"An \"\"article\"', 'print', '{body}')")
    allow_indexes(connection, role)
    connection.execute(f"SET ROLE {role}; CREATE TABLE theirs (fingerprint bigint)")
    create_index(connection, "theirs")
    connection.execute("RESET ROLE")
    return connection


@pytest.fixture
def command(server, restored):
    url = server.url(restored.info.dbname).render_as_string(hide_password=False)
    return lambda *words: run(*words, "--database", url)


@pytest.mark.parametrize("option", ["--schema-only", "--exclude-table-data=simsql.*"])
def test_one_command_completes_it(original, restore, command, option):
    clone = restore(option)
    checked = command("status", "--check", "--format", "jsonl")
    assert (checked.code, [json.loads(line) for line in checked.lines]) == (
        1,
        [{"problem": "schema simsql: restored without its data", "remedy": "simsql install"}],
    )
    assert "restored without its data" in command("status", "--format", "table").done().out
    with pytest.raises(errors.UndefinedObject):
        near(clone, 1, 0)
    assert ": completed\n" in command("install").done().out
    assert command("status", "--check").done().out == ""
    assert clone.execute(INDEXES).fetchall() == original.execute(INDEXES).fetchall()
    assert problems(clone, None) == set()
    clone.execute("INSERT INTO article (fingerprint) VALUES (5)")
    assert (5, 0) in near(clone, 5, 0)
    owner = "SELECT DISTINCT relowner::regrole FROM pg_class WHERE relname ~ '^keys_' ORDER BY 1"
    assert clone.execute(owner).fetchall() == original.execute(owner).fetchall()
    assert command("install").done().out.endswith(": up to date\n")


@pytest.mark.parametrize("option", ["--schema-only", "--schema-only --no-comments"])
def test_one_command_removes_it(original, restore, command, server, option):
    clone = restore(*option.split())
    assert command("uninstall").done().out == "schema simsql: uninstalled\n"
    assert clone.execute("SELECT to_regnamespace('simsql')").fetchone() == (None,)
    assert clone.execute("SELECT count(*) FROM pg_trigger WHERE tgname ~ 'simsql'").fetchone() == (0,)
    if "comments" not in option:
        assert clone.execute("SELECT count(*) FROM pg_class WHERE relname ~ '^simsql_'").fetchone() == (0,)


def test_without_comments_the_remains_are_dropped(original, restore, command):
    clone = restore("--schema-only", "--no-comments")
    assert (
        "simhash index on public.article: its remains are dropped, create it again"
        in command("install").done().out
    )
    assert clone.execute("TABLE simsql.indexes").fetchall() == []
    clone.execute("INSERT INTO article (fingerprint) VALUES (5)")
    create_index(clone)
    assert (5, 0) in near(clone, 5, 0)
    assert problems(clone) == set()


def test_a_clone_of_an_older_version_is_upgraded(server, restored, command, tmp_path):
    file = str(tmp_path / "schema")
    with bare(server) as (connection, _):
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        create_articles(connection, [1])
        server.run("pg_dump", "--schema-only", f"--file={file}", connection.info.dbname)
    server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}", restored.info.dbname)
    assert "create it again" in command("install").done().out
    create_index(restored)
    assert problems(restored, None) == set()
    assert command("status", "--check").done().out == ""


def test_a_comment_that_somebody_has_changed_stops_nothing(original, restore, command):
    clone = restore("--schema-only")
    for index, comment in (1, "mine"), (4, '{"lead": []}'):
        clone.execute(f"COMMENT ON FUNCTION simsql.search_{index} IS '{comment}'")
    assert command("install").done().out.count("create it again") == 2
    assert problems(clone, None) == set()


def test_a_comment_gives_nobody_the_keys_of_another_table(original, restore, command):
    clone = restore("--schema-only")
    article, theirs = clone.execute(
        "SELECT obj_description(oid)::jsonb FROM pg_proc WHERE proname ~ '^search_[14]$' ORDER BY proname"
    )
    assert (article[0]["table_name"], theirs[0]["table_name"]) == ("public.article", "public.theirs")
    owner = clone.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'theirs'").fetchone()[0]
    comment = json.dumps(theirs[0] | {"table_name": "public.article", "column_name": "other"})
    clone.execute("ALTER TABLE article ADD other bigint")
    clone.execute(
        f"SET ROLE {owner}; COMMENT ON FUNCTION simsql.search_4 IS '{comment}'; DROP TABLE theirs; RESET ROLE"
    )
    assert "simhash index on public.article: its remains are dropped" in command("install").done().out
    owners = "SELECT count(*) FROM pg_class WHERE relowner = %s::regrole AND relname ~ '^keys_'"
    assert clone.execute(owners, [owner]).fetchone() == (0,)
