"""Installing the schema: once, twice, at once, without the rights, and beside what others have."""

import contextlib
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from articles import create_articles, create_table
from catalog import contents_of_simsql
from program import run
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

import simsql
from simsql.database import install as module
from simsql.database import install_schema, open_engine, read_status
from simsql.database.history import History
from simsql.database.install import schema_sql
from simsql.errors import SimsqlError


@pytest.fixture
def stranger(new_role, empty_database):
    """An engine for a database without simsql, as a role that has been granted nothing."""
    engine = open_engine(empty_database.url.set(username=new_role()))
    yield engine
    engine.dispose()


def test_a_fresh_installation_says_what_it_is(empty_database, server):
    before = read_status(empty_database)
    assert (before.revision, before.version, before.indexes) == (None, None, ())
    assert install_schema(empty_database)
    after = read_status(empty_database)
    assert after.revision == after.newest_revision == before.newest_revision
    assert after.version == simsql.__version__
    assert after.server.split()[0] == server.version
    assert after.indexes == ()


def test_the_version_in_the_database_is_that_of_the_package(database):
    with database.connect() as connection:
        version = connection.execute(text("SELECT simsql.version()")).scalar_one()
    assert version == simsql.__version__


def test_a_second_installation_changes_nothing(empty_database):
    install_schema(empty_database)
    before = contents_of_simsql(empty_database)
    assert not install_schema(empty_database)
    assert contents_of_simsql(empty_database) == before


@pytest.mark.parametrize("setting", ["standard_conforming_strings = off", "plpgsql.extra_errors = 'all'"])
def test_a_setting_of_the_database_changes_nothing(empty_database, server, setting):
    with server.connect("postgres") as connection:
        connection.execute(f"ALTER DATABASE {empty_database.url.database} SET {setting}")
    assert install_schema(empty_database)


def test_of_installations_at_once_one_installs_and_all_succeed(server):
    for _ in range(3):
        with server.new_database(template="template0") as url, contextlib.ExitStack() as stack:
            engines = [open_engine(url) for _ in range(4)]
            for engine in engines:
                stack.callback(engine.dispose)
                engine.connect().close()  # so that all begin at once, not when they have connected
            start = threading.Barrier(len(engines))

            def install(engine, start=start):
                start.wait()
                return install_schema(engine)

            with ThreadPoolExecutor(len(engines)) as threads:
                assert sorted(threads.map(install, engines)) == [False, False, False, True]


def test_the_printed_script_installs_the_same_schema(empty_database, server, tmp_path):
    install_schema(empty_database)
    installed = contents_of_simsql(empty_database)
    kinds = {"function", "relation", "column", "constraint", "trigger", "type", "schema"}
    assert {kind for kind, *_ in installed} == kinds
    script = tmp_path / "simsql.sql"
    script.write_text(schema_sql(), encoding="utf-8")
    with server.new_database(template="template0") as url:
        server.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", url.database, "-f", str(script))
        engine = open_engine(url)
        assert contents_of_simsql(engine) == installed
        assert not install_schema(engine)
        engine.dispose()


def test_the_printed_script_runs_in_a_transaction(empty_database):
    with empty_database.connect() as connection:
        connection.exec_driver_sql(schema_sql(), execution_options={"no_parameters": True})
        assert connection.execute(text("SELECT simsql.version()")).scalar() == simsql.__version__
        connection.rollback()
    assert read_status(empty_database).revision is None


def test_a_role_that_may_not_create_a_schema_is_told_who_can_help(stranger):
    role, database = stranger.url.username, stranger.url.database
    with pytest.raises(SimsqlError, match=f"role {role} may not create the schema") as refused:
        install_schema(stranger)
    message = str(refused.value)
    assert "\n" not in message
    assert message.endswith(f"GRANT CREATE ON DATABASE {database} TO {role}")


def test_a_role_that_may_create_a_schema_can_install(stranger, server):
    server.execute(f"GRANT CREATE ON DATABASE {stranger.url.database} TO {stranger.url.username}")
    assert install_schema(stranger)
    assert read_status(stranger).version == simsql.__version__


def test_an_ordinary_role_can_ask_what_is_installed(database_url, new_role, connection):
    create_articles(connection, [1])
    engine = open_engine(make_url(database_url).set(username=new_role()))
    status = read_status(engine)
    assert not install_schema(engine)  # up to date: there is nothing that it would need a right for
    engine.dispose()
    (index,) = status.indexes
    assert (index.table_name, index.column_name, index.distance) == ("public.article", "fingerprint", 3)
    assert (index.blocks, index.lead, index.recipe, index.state) == (4, 1, "words12-log-1", "ready")


def test_a_foreign_schema_of_this_name_is_refused_and_kept(empty_database):
    with empty_database.begin() as connection:
        connection.execute(text("CREATE SCHEMA simsql"))
        connection.execute(text("CREATE TABLE simsql.article (id integer)"))
    with pytest.raises(
        SimsqlError, match=r"has a schema simsql \(of postgres\) that simsql did not install"
    ) as refused:
        install_schema(empty_database)
    assert "\n" not in str(refused.value)
    with empty_database.connect() as connection:
        found = connection.execute(
            text("SELECT count(*) FROM pg_class WHERE relnamespace = 'simsql'::regnamespace")
        ).scalar_one()
    assert found == 1
    assert read_status(empty_database).revision is None


def test_a_schema_that_an_administrator_has_created(server, new_role, empty_database):
    """The role that installs simsql into it need not own it: the refusal says what it needs."""
    role, guest = new_role(), new_role()
    url = empty_database.url.set(username=role)
    with server.connect(empty_database.url.database) as administrator:
        administrator.execute("CREATE SCHEMA simsql")
        refused = run("install", "--database", url.render_as_string(hide_password=False))
        refused.failed(1, f"role {role} may not install simsql in the schema simsql of postgres")
        administrator.execute(refused.err.partition("as its owner, ")[2])
        administrator.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
        run("install", "--database", url.render_as_string(hide_password=False)).done()
        with server.connect(url.database, role) as owner:
            create_articles(owner, [1])
            owner.execute(f"GRANT SELECT ON article TO {guest}")
            assert owner.execute("TABLE simsql.problems").fetchall() == []
        with server.connect(url.database, guest) as session:
            assert session.execute("SELECT distance FROM simsql.near('article', 1)").fetchall() == [(0,)]
        uninstall = run("uninstall", "--drop-indexes", "--database", url.render_as_string(hide_password=False))
        uninstall.failed(1, "must be owner of schema simsql. Uninstall it as postgres or a superuser")
        administrator.execute("SELECT simsql.uninstall(drop_indexes => true)")


def test_an_event_trigger_that_forces_row_security(server, new_role, empty_database):
    """Where every new table has to be closed, those of simsql are opened again."""
    role, guest = new_role(), new_role()
    with server.connect(empty_database.url.database) as administrator:
        administrator.execute(
            """
            CREATE FUNCTION close() RETURNS event_trigger LANGUAGE plpgsql AS $$
            DECLARE
                made record;
            BEGIN
                FOR made IN SELECT * FROM pg_event_trigger_ddl_commands() WHERE object_type = 'table' LOOP
                    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', made.object_identity);
                    EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', made.object_identity);
                END LOOP;
            END $$;
            CREATE EVENT TRIGGER close ON ddl_command_end WHEN tag IN ('CREATE TABLE', 'CREATE TABLE AS')
                EXECUTE FUNCTION close();
            """
        )
        name = empty_database.url.database
        administrator.execute(
            f"GRANT CREATE ON DATABASE {name} TO {role}; GRANT CREATE ON SCHEMA public TO {role}"
        )
        url = empty_database.url.set(username=role).render_as_string(hide_password=False)
        run("install", "--database", url).done()
        with server.connect(name, role) as owner:
            create_table(owner)
            owner.execute(f"ALTER TABLE article DISABLE ROW LEVEL SECURITY; GRANT SELECT ON article TO {guest}")
            owner.execute("ALTER TABLE article NO FORCE ROW LEVEL SECURITY; CREATE INDEX ON article (fingerprint)")
            owner.execute("INSERT INTO article (fingerprint) VALUES (1)")
            owner.execute("CALL simsql.build('article', 'fingerprint')")
            owner.execute("INSERT INTO article (fingerprint) VALUES (3)")
            assert owner.execute("TABLE simsql.problems").fetchall() == []
            assert owner.execute("SELECT * FROM simsql.verify()").fetchall() == []
        with server.connect(name, guest) as session:
            assert session.execute("SELECT distance FROM simsql.near('article', 1)").fetchall() == [(0,), (1,)]
        administrator.execute("DROP EVENT TRIGGER close")


def test_an_installation_that_fails_leaves_nothing(empty_database, tmp_path, monkeypatch):
    own = History()
    broken = shutil.copytree(own.sql, tmp_path / "sql")
    with (broken / "clusters.sql").open("a", encoding="utf-8") as script:
        script.write("SELECT 1 / 0;\n")
    with monkeypatch.context() as patched:
        patched.setattr(module, "History", lambda: History(own.migrations, broken))
        with pytest.raises(DBAPIError, match="division by zero"):
            install_schema(empty_database)
    assert read_status(empty_database).revision is None
    assert install_schema(empty_database)


def test_the_history_of_an_application_stays_as_it_is(empty_database):
    with empty_database.begin() as connection:
        connection.execute(text("CREATE TABLE public.alembic_version (version_num varchar(32) PRIMARY KEY)"))
        connection.execute(text("INSERT INTO public.alembic_version VALUES ('of the application')"))
        connection.execute(text("CREATE TABLE public.schema_version (version_num varchar(32))"))
        connection.execute(text("INSERT INTO public.schema_version VALUES ('of another tool')"))
    assert install_schema(empty_database)
    with empty_database.connect() as connection:
        rows = connection.execute(text("TABLE public.alembic_version UNION ALL TABLE public.schema_version"))
        assert rows.scalars().all() == ["of the application", "of another tool"]
        tables = connection.execute(
            text("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        ).scalar_one()
    assert tables == 2
    assert read_status(empty_database).revision == read_status(empty_database).newest_revision


@pytest.mark.parametrize("start", [None, "0002"])
def test_no_framework_takes_the_script_for_one_with_parameters(start):
    """As op.execute and text() would for a colon before a name."""
    assert text(schema_sql(start)).compile().params == {}


def test_the_script_runs_as_text(empty_database):
    with empty_database.begin() as connection:
        connection.execute(text(schema_sql()))
    assert read_status(empty_database).revision == read_status(empty_database).newest_revision


def test_the_script_refuses_a_postgresql_without_bit_count(server, empty_database):
    script = schema_sql()
    check = "current_setting('server_version_num')::integer < 140000"
    assert check in script
    with server.connect(empty_database.url.database) as connection:
        with pytest.raises(psycopg.errors.RaiseException, match="is too old for simsql") as refused:
            connection.execute(script.replace(check, check.replace("140000", "10000000")))
        assert "14 or newer" in refused.value.diag.message_hint
        connection.execute("ROLLBACK")
    assert read_status(empty_database).revision is None
