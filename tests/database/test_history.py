"""Databases of every released version become what is installed today, in place and with their indexes."""

import contextlib
import threading
import time

import pytest
from articles import create_articles, create_table, missing_keys, near
from catalog import contents_of_simsql
from internals import begin_build, build_batch, set_batch_size
from program import run
from psycopg import errors
from roles import allow_indexes
from sessions import blocked
from sqlalchemy import text
from upgrades import RELEASED, bare, check_indexes, difference, fresh_contents, released, upgrade
from upkeep import problems, stored_fingerprints

from simsql import __version__
from simsql.database import install_schema, read_status
from simsql.database.history import History
from simsql.database.install import schema_sql

OLDEST, OLDEST_REVISION = "0.2.0", "0002"


@pytest.mark.every_version
@pytest.mark.parametrize("version", RELEASED)
def test_an_upgrade_leads_to_what_is_installed_afresh(server, version):
    expected = fresh_contents(server)
    with released(server, version) as (connection, engine):
        nodes = relation_files(connection)
        upgrade(engine)
        assert difference(contents_of_simsql(engine), expected) == set()
        assert relation_files(connection) == nodes  # nothing was built anew
        check_indexes(connection)


@pytest.mark.parametrize("signature", ["FUNCTION simsql.create_index", "PROCEDURE simsql.build"])
def test_an_upgrade_keeps_privileges_on_functions_with_a_new_parameter(server, signature):
    kind, name = signature.split()
    with released(server, OLDEST) as (connection, engine):
        connection.execute(f"REVOKE EXECUTE ON {kind} {name} FROM PUBLIC")
        connection.execute(f"GRANT EXECUTE ON {kind} {name} TO pg_monitor")
        upgrade(engine)
        (privileges,) = connection.execute(
            "SELECT array_agg(a.grantee::regrole::text ORDER BY 1) FROM pg_proc AS p, aclexplode(p.proacl) AS a"
            " WHERE p.oid = to_regproc(%s) AND a.grantee <> p.proowner",
            [name],
        ).fetchone()
        assert privileges == ["pg_monitor"]


def relation_files(connection):
    return connection.execute(
        "SELECT relname, relfilenode FROM pg_class"
        " WHERE relname LIKE 'keys\\_%' OR relnamespace = 'public'::regnamespace ORDER BY 1"
    ).fetchall()


@pytest.mark.every_version
def test_the_printed_upgrade_does_the_same(server, tmp_path):
    expected = fresh_contents(server)
    script = tmp_path / "upgrade.sql"
    script.write_text(schema_sql(OLDEST_REVISION), encoding="utf-8")
    with released(server, OLDEST) as (connection, engine):
        server.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", connection.info.dbname, "-f", str(script))
        assert difference(contents_of_simsql(engine), expected) == set()
        assert not install_schema(engine)
        check_indexes(connection)


def test_the_session_is_left_as_it_was(server):
    with released(server, OLDEST) as (_, engine), engine.begin() as transaction:
        transaction.execute(text("SET search_path = app, public"))
        transaction.execute(text("SET lock_timeout = '7s'"))
        History().upgrade(transaction)
        for name, value in (("search_path", "app, public"), ("lock_timeout", "7s")):
            assert transaction.execute(text(f"SHOW {name}")).scalar_one() == value


@pytest.mark.oldest_version
def test_what_was_wrong_with_an_index_is_still_wrong_after_an_upgrade(server):
    """An upgrade that switched triggers on again would hide that rows are missing."""
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        create_articles(connection, [1])
        for name in ("disabled", "altered", "dropped", "renamed", "gone", "no_policy"):
            connection.execute(f"CREATE TABLE {name} (fingerprint bigint)")
            connection.execute(f"SELECT simsql.create_index('{name}', 'fingerprint')")
        connection.execute(
            "CREATE TABLE typed (tenant real, fingerprint bigint); INSERT INTO typed VALUES (0.1, 1)"
        )
        connection.execute("SELECT simsql.create_index('typed', 'fingerprint', blocks => 2, scope => '{tenant}')")
        connection.execute(
            "DROP TRIGGER simsql_8_column ON typed; ALTER TABLE typed ALTER tenant TYPE double precision"
        )
        for name in ("lost", "columnless"):
            connection.execute(f"CREATE TABLE {name} (fingerprint bigint, tenant integer)")
            connection.execute(
                f"SELECT simsql.create_index('{name}', 'fingerprint', blocks => 2, scope => '{{tenant}}')"
            )
        connection.execute("DROP TABLE lost; ALTER TABLE columnless DROP tenant CASCADE")
        connection.execute("DROP TABLE simsql.keys_9_0, simsql.keys_9_1, simsql.keys_10_0, simsql.keys_10_1")
        connection.execute("ALTER TABLE disabled DISABLE TRIGGER simsql_2_update")
        connection.execute(
            "CREATE OR REPLACE TRIGGER simsql_3_insert AFTER INSERT ON altered REFERENCING NEW TABLE AS new_rows"
            " FOR EACH STATEMENT WHEN (pg_trigger_depth() > 5) EXECUTE FUNCTION simsql.add_on_insert_3()"
        )
        connection.execute("ALTER TABLE altered ENABLE ALWAYS TRIGGER simsql_3_insert")
        connection.execute("DROP TRIGGER simsql_4_insert ON dropped")
        connection.execute("ALTER TABLE renamed RENAME TO named_anew")
        connection.execute("DROP TABLE gone")
        connection.execute("DROP POLICY readers ON simsql.keys_7_0")
        install_schema(engine)
        assert near(connection, 1, 0) == [(1, 0)]
        for name in ("disabled", "altered", "dropped"):
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have been disabled or dropped"):
                near(connection, 1, 0, name)
        found = {(row[0], row[1]) for row in connection.execute("SELECT object, problem FROM simsql.verify()")}
        assert found == {
            ("simsql_2_update", "trigger not enabled always"),
            ("simsql_3_insert", "trigger not enabled always"),
            ("simsql_4_insert", "trigger missing"),
            ("public.named_anew", "table renamed"),
            ("public.gone", "table dropped"),
            ("simsql.keys_7_0", "policy altered"),
            ("simsql_8_column", "trigger missing"),
            ("tenant", "column type changed"),
            ("simsql.keys_8_0", "key table altered"),
            ("simsql.keys_8_1", "key table altered"),
            ("public.lost", "table dropped"),
            ("tenant", "column dropped"),
            *((f"simsql.keys_10_{number}", "key table missing") for number in range(2)),
        }
        connection.execute("SELECT simsql.repair('typed')")
        search = "SELECT count(*) FROM simsql.near('typed', 1, scope => '{\"tenant\": %s}')"
        for tenant, matches in (0.1, 0), (0.10000000149011612, 1):
            assert connection.execute(search % tenant).fetchone() == (matches,)
        for name in ("disabled", "altered", "dropped", "named_anew", "no_policy"):
            connection.execute(f"INSERT INTO {name} VALUES (1)")
            connection.execute(f"SELECT * FROM simsql.repair('{name}')")
            assert problems(connection, name) == set()
            assert near(connection, 1, 0, name) == [(1, 0)]


@pytest.mark.every_version
def test_keys_that_were_lost_before_an_upgrade_are_added(server):
    """Version 0.2.0 lost the keys of rows that one statement updated twice, for a foreign key."""
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        connection.execute(
            "CREATE TABLE article (id bigint PRIMARY KEY, fingerprint bigint,"
            " parent bigint REFERENCES article ON UPDATE CASCADE)"
        )
        connection.execute("INSERT INTO article VALUES (1, 1, NULL), (2, 2, 1), (3, 3, 2)")
        connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
        connection.execute("UPDATE article SET id = id + 100, fingerprint = fingerprint + 70000")
        assert missing_keys(connection)
        assert near(connection, 70002, 0) == []
        install_schema(engine)
        assert missing_keys(connection) == []
        connection.execute("UPDATE article SET id = id + 100, fingerprint = fingerprint + 70000")
        assert missing_keys(connection) == []
        assert near(connection, 140002, 0) == [(140002, 0)]
        assert problems(connection) == set()


ALTERATIONS = {
    "nullable": "ALTER TABLE simsql.keys_1_0 ALTER key DROP NOT NULL",
    "another name": "ALTER TABLE simsql.keys_1_0 RENAME key TO print",
    "primary key": "ALTER TABLE simsql.keys_1_0 ADD PRIMARY KEY (key)",
    "check": "ALTER TABLE simsql.keys_1_0 ADD CHECK (key IS NOT NULL)",
    "identity": "ALTER TABLE simsql.keys_1_0 ALTER key SET NOT NULL,"
    " ALTER key ADD GENERATED BY DEFAULT AS IDENTITY",
    "rule": "CREATE RULE nothing AS ON INSERT TO simsql.keys_1_0 DO INSTEAD NOTHING",
    "trigger": "CREATE FUNCTION seize() RETURNS trigger LANGUAGE plpgsql AS"
    " $$ BEGIN RAISE 'this ran as %', current_user; END $$;"
    " CREATE TRIGGER seize BEFORE INSERT ON simsql.keys_1_0 FOR EACH ROW EXECUTE FUNCTION seize()",
    "view": "ALTER TABLE simsql.keys_1_0 RENAME TO hidden;"
    " CREATE VIEW simsql.keys_1_0 AS SELECT * FROM simsql.hidden",
    "of no index": "CREATE TABLE simsql.keys_99_0 (print bigint NOT NULL)",
}


@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_altered_key_tables_stop_no_upgrade_and_none_of_their_code_runs(server, alteration):
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        create_articles(connection, [1, 2])
        connection.execute(ALTERATIONS[alteration])
        install_schema(engine)
        connection.execute("SELECT simsql.repair('article')")
        connection.execute("INSERT INTO article (fingerprint) VALUES (3)")
        assert near(connection, 1, 1) == [(1, 0), (3, 1)]
        assert problems(connection, None) == set()


def test_a_view_on_the_list_of_indexes_survives_an_upgrade(server):
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        create_articles(connection, [1])
        connection.execute("CREATE VIEW watched AS SELECT * FROM simsql.indexes")
        install_schema(engine)
        assert connection.execute("SELECT state, is_default FROM watched").fetchall() == [("ready", True)]


@pytest.mark.parametrize("call", ["near('parts', 1, 3)", "claim('article', 1)"])
def test_a_search_that_an_upgrade_overtakes_says_so(server, call):
    with (
        released(server, OLDEST) as (connection, engine),
        engine.connect() as upgrading,
        contextlib.ExitStack() as sessions,
    ):
        History().upgrade(upgrading)
        with blocked(
            lambda: sessions.enter_context(server.connect(connection.info.dbname)),
            lambda session: session.execute(f"SELECT * FROM simsql.{call}"),
        ) as search:
            upgrading.commit()
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="simsql was upgraded"):
                search.result()


@pytest.mark.oldest_version
def test_an_interrupted_build_starts_over_after_an_upgrade(server):
    """Version 0.2.0 may have lost keys of rows that the build has already passed."""
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        create_table(connection, range(9))
        connection.execute("ALTER TABLE article ADD tenant text DEFAULT 'it''s'")
        connection.execute("CREATE INDEX ON article (tenant, fingerprint)")
        begin_build(connection, scope=["tenant"])
        set_batch_size(connection, 4)
        build_batch(connection)
        install_schema(engine)
        assert connection.execute("TABLE simsql.built_1").fetchall() == []
        connection.execute("CALL simsql.build('article', 'fingerprint', scope => '{tenant}')")
        assert [sorted(set(keys)) for keys in stored_fingerprints(connection)] == [list(range(9))] * 4
        assert problems(connection) == set()


def test_a_recipe_that_nobody_named_was_the_default_one(server):
    """And means nothing from now on: a later default would not be that of these fingerprints."""
    with released(server, OLDEST) as (connection, engine):
        create = "SELECT simsql.create_index('named', 'fingerprint', recipe => 'phash64')"
        connection.execute(f"CREATE TABLE named (fingerprint bigint); {create}")
        upgrade(engine)
        recipes = "SELECT table_name = 'public.named', recipe FROM simsql.indexes GROUP BY 1, 2 ORDER BY 1"
        assert connection.execute(recipes).fetchall() == [(False, "words12-log-1"), (True, "phash64")]


def test_an_index_of_another_role_keeps_its_owner(server, new_role):
    role = new_role()
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        allow_indexes(connection, role)
        with server.connect(connection.info.dbname, role) as owner:
            create_articles(owner, [1])
        install_schema(engine)
        owners = connection.execute(
            "SELECT DISTINCT proowner::regrole::text FROM pg_proc"
            " WHERE proname ~ '_1$' AND pronamespace = 'simsql'::regnamespace"
        )
        assert owners.fetchall() == [(role,)]
        assert problems(connection) == set()
        with server.connect(connection.info.dbname, role) as owner:
            owner.execute("INSERT INTO article (fingerprint) VALUES (2)")
            assert near(owner, 2, 0) == [(2, 0)]


def test_a_role_that_does_not_own_all_indexes_cannot_upgrade(server, new_role):
    installer, owner = new_role(), new_role()
    with bare(server) as (connection, engine):
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {installer}")
        with server.connect(connection.info.dbname, installer) as session:
            session.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
            session.execute(f"GRANT CREATE ON SCHEMA simsql TO {owner}")
            session.execute(f"GRANT INSERT, UPDATE, DELETE ON simsql.registry TO {owner}")
        connection.execute(f"GRANT CREATE ON SCHEMA public TO {owner}")
        with server.connect(connection.info.dbname, owner) as session:
            create_articles(session, [1])
        with server.connect(connection.info.dbname, installer) as session:
            with pytest.raises(errors.InsufficientPrivilege, match="may not upgrade the simhash index") as refused:
                session.execute(schema_sql(OLDEST_REVISION))
            assert "member of the owners" in refused.value.diag.message_hint
        assert read_status(engine).revision == OLDEST_REVISION


@pytest.mark.oldest_version
def test_an_upgrade_beside_writers_and_searchers_loses_nothing(server):
    """Their transactions hold locks most of the time; the upgrade takes its locks between them."""
    with bare(server) as (connection, engine):
        connection.execute(RELEASED[OLDEST].read_text(encoding="utf-8"))
        create_articles(connection, [0])
        done, failures, written = threading.Event(), [], []

        def write(number):
            try:
                with server.connect(connection.info.dbname) as session:
                    while not done.is_set():
                        with session.transaction():
                            value = number * 1_000_000 + len(written)
                            session.execute("INSERT INTO article (fingerprint) VALUES (%s)", [value])
                            assert near(session, value, 0) == [(value, 0)]
                            time.sleep(0.01)
                        written.append(value)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=[number]) for number in range(1, 4)]
        for thread in threads:
            thread.start()
        while len(written) < 20 and not failures:
            time.sleep(0.01)
        install_schema(engine)
        before = len(written)
        while len(written) < before + 20 and not failures:
            time.sleep(0.01)
        done.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert missing_keys(connection) == []
        assert problems(connection) == set()


def test_what_the_command_line_says_of_an_old_schema(server):
    with released(server, OLDEST) as (_, engine):
        url = engine.url.render_as_string(hide_password=False)
        assert "outdated: run simsql install" in run("status", "--format", "table", "--database", url).done().out
        refused = run("near", "article", "--text", "a text", "--database", url)
        refused.failed(1, "Schema simsql is outdated: run simsql install")
        assert run("install", "--database", url).done().out == f"schema simsql {__version__}: upgraded\n"
        assert run("install", "--database", url).done().out == f"schema simsql {__version__}: up to date\n"
