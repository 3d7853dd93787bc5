"""The operations: run, undone, printed as SQL, through other drivers, and beside the history of an application."""

import asyncio

import pytest
from alembic import command
from alembic.operations import Operations
from alembic.util import CommandError
from alembic_project import Project, models
from catalog import contents_of_simsql, objects_of_database
from oracle import clustered
from oracle import near as expected_near
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

import simsql.alembic
from simsql import Design
from simsql.alembic import CreateSimhashIndexOp, DropSimhashIndexOp
from simsql.alembic.operations import InstallSimsqlOp, UninstallSimsqlOp
from simsql.database import IndexSpec, open_engine, read_status
from simsql.sqlalchemy import SimhashIndex

TABLE = (
    "op.create_table('article', sa.Column('id', sa.BigInteger(), primary_key=True),"
    " sa.Column('fingerprint', sa.BigInteger()))"
)
HARD = "Hard \"name' %s :x \\"


def test_register_may_be_called_twice():
    simsql.alembic.register()
    simsql.alembic.register()
    assert callable(Operations.create_simhash_index)


def test_the_histories_do_not_touch_each_other(bare_project):
    """simsql's own revisions run inside the application's, whose `op` and `context` go on as before."""
    bare_project.write(
        "from alembic import context\n"
        "before = op.get_context(), context.get_context(), op.get_bind()\n"
        "op.install_simsql()\n"
        "assert before == (op.get_context(), context.get_context(), op.get_bind())\n"
        "op.install_simsql()\n"
        f"{TABLE}\n"
        'op.execute("INSERT INTO article VALUES (1, 1)")',
        "op.drop_table('article')\nop.uninstall_simsql()\nop.execute('SELECT 1')",
    )
    bare_project.write(
        "op.create_simhash_index('article', 'fingerprint')", "op.drop_simhash_index('article', 'fingerprint')"
    )
    before = objects_of_database(bare_project.engine)
    bare_project.upgrade()
    assert bare_project.execute("TABLE alembic_version") == [("0002",)]
    status = read_status(bare_project.engine)
    assert status.revision == status.newest_revision
    assert bare_project.indexes() == [("public.article", "fingerprint", 3, (4, 1, 0), "words12-log-1", [])]
    bare_project.downgrade("0001")
    assert bare_project.execute("TABLE alembic_version") == [("0001",)]
    bare_project.downgrade()
    after = [row for row in objects_of_database(bare_project.engine) if "alembic_version" not in row[1]]
    assert [row for row in after if not row[0].startswith("rows of")] == [
        row for row in before if not row[0].startswith("rows of")
    ]


def test_what_fails_leaves_nothing(bare_project):
    bare_project.write("op.install_simsql()\nop.execute('SELECT 1 / 0')")
    with pytest.raises(DBAPIError, match="division by zero"):
        bare_project.upgrade()
    assert read_status(bare_project.engine).revision is None
    bare_project.write("op.install_simsql()", "op.uninstall_simsql()")
    next(bare_project.folder.glob("versions/0001*")).unlink()
    script = next(bare_project.folder.glob("versions/0002*"))
    script.write_text(script.read_text().replace("= '0001'", "= None"))
    bare_project.upgrade()
    bare_project.execute("CREATE TABLE article (fingerprint bigint)")
    bare_project.execute("SELECT simsql.create_index('article', 'fingerprint')")
    bare_project.downgrade()
    assert len(bare_project.indexes()) == 1
    assert bare_project.execute("TABLE alembic_version") == []


def test_a_role_without_the_right_is_told_in_one_line(new_role, bare_project):
    role = new_role()
    bare_project.execute(f"GRANT CREATE ON SCHEMA public TO {role}")
    bare_project.write("op.install_simsql()")
    bare_project.engine = open_engine(bare_project.engine.url.set(username=role))
    with pytest.raises(CommandError, match=f"role {role} may not create the schema simsql"):
        bare_project.upgrade()
    bare_project.engine.dispose()


def test_what_is_installed_already_stays(project):
    before = contents_of_simsql(project.engine)
    project.metadata = models(SimhashIndex("fingerprint"))
    assert project.revise().names[0][0] == "create_table"
    project.write("op.install_simsql()")
    project.upgrade("0002")
    assert [row for row in contents_of_simsql(project.engine) if "_1" not in row[1]] == [
        row for row in before if "_1" not in row[1]
    ]


def test_each_operation_is_the_other_ones_reverse():
    assert isinstance(InstallSimsqlOp().reverse(), UninstallSimsqlOp)
    assert isinstance(UninstallSimsqlOp().reverse(), InstallSimsqlOp)
    for concurrently in (False, True):
        spec = IndexSpec("c", 5, Design(6, 2, 3), "r", ("a",))
        create = CreateSimhashIndexOp("t", spec, schema="s", concurrently=concurrently)
        drop = create.reverse()
        assert (drop.table_name, drop.column_name, drop.schema) == ("t", "c", "s")
        assert drop.reverse() is create
        assert UninstallSimsqlOp().to_diff_tuple() == ("uninstall_simsql",)
    with pytest.raises(ValueError, match=r"the simhash index on t\.c cannot be undone: pass dropped="):
        DropSimhashIndexOp("t", "c").reverse()


@pytest.mark.parametrize("options", ["lead=2", "inner_blocks=3"])
def test_a_part_of_a_design_is_refused(bare_project, options):
    bare_project.write(f"op.install_simsql()\nop.create_simhash_index('article', 'fingerprint', {options})")
    with pytest.raises(ValueError, match="lead and inner_blocks need blocks"):
        bare_project.upgrade()


def test_upgrade_and_downgrade_as_plain_sql(bare_project, server, tmp_path):
    bare_project.options = {"include_schemas": True}
    bare_project.execute("""CREATE SCHEMA "Hard ""name' %s :x \\" """)
    bare_project.metadata = models(SimhashIndex("fingerprint"), schema=HARD)
    bare_project.revise()
    bare_project.upgrade()
    online = contents_of_simsql(bare_project.engine)
    up, down = bare_project.sql(command.upgrade, "head"), bare_project.sql(command.downgrade, "0001:base")
    name = '"Hard ""name\' %s :x \\".article'
    assert f"SELECT simsql.create_index($simsql_table${name}$simsql_table$::regclass, 'fingerprint', dist" in up
    assert "SELECT simsql.uninstall();" in down
    with server.new_database(template="template0") as url:
        engine = open_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                """CREATE SCHEMA "Hard ""name' %s :x \\" """, execution_options={"no_parameters": True}
            )
        before = objects_of_database(engine)
        for number, script in enumerate((up, down)):
            file = tmp_path / f"{number}.sql"
            file.write_text(script, encoding="utf-8")
            server.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", url.database, "-f", str(file))
            if script is up:
                assert contents_of_simsql(engine) == online
                assert read_status(engine).indexes[0].state == "ready"
        left = {row for row in objects_of_database(engine) if "alembic_version" not in row[1]} ^ set(before)
        assert {kind for kind, _ in left} <= {"rows of pg_depend", "rows of pg_shdepend"}
        engine.dispose()


BUILD = (
    "op.create_simhash_index('article', 'fingerprint', distance=5, blocks=5, lead=2, inner_blocks=3, recipe='r',"
    " concurrently=True)"
)


@pytest.mark.unpooled("PgBouncer refuses the parameter options")
def test_an_online_build(project, server, tmp_path):
    fingerprints = clustered(300, seed=41)
    project.write(f"{TABLE}\nop.create_index('by_print', 'article', ['fingerprint'])")
    project.upgrade()
    project.execute(
        f"INSERT INTO article SELECT n, f FROM unnest(ARRAY{fingerprints}::bigint[]) WITH ORDINALITY AS f (f, n)"
    )
    project.write(f"{BUILD}\nop.execute('ANALYZE article')", "op.drop_simhash_index('article', 'fingerprint')")
    script = project.sql(command.upgrade, "0001:0002")
    call = (
        "COMMIT;\n\nCALL simsql.build('article'::regclass, 'fingerprint', distance => 5, blocks => 5, lead => 2,"
        " inner_blocks => 3, recipe => 'r');\n\nBEGIN;"
    )
    assert call in script
    expected = [("public.article", "fingerprint", 5, (5, 2, 3), "r", [])]
    # It waits for those who were writing when it came; a migration that gave up is run again.
    with project.engine.connect() as writer:
        writer.execute(text("INSERT INTO article VALUES (1000, 1)"))
        engine = open_engine(project.engine.url.update_query_dict({"options": "-c lock_timeout=200ms"}))
        waiting, project.engine = project.engine, engine
        with pytest.raises(DBAPIError, match="could not be locked within 200ms"):
            project.upgrade()
        project.engine = waiting
        engine.dispose()
        writer.commit()
    assert project.execute("TABLE alembic_version") == [("0001",)]
    project.upgrade()
    assert project.indexes() == expected
    found = project.execute(f"SELECT fingerprint, distance FROM simsql.near('article', {fingerprints[0]}, 9)")
    assert found == expected_near([*fingerprints, 1], fingerprints[0], 9)
    project.downgrade("0001")
    assert project.indexes() == []
    file = tmp_path / "build.sql"
    file.write_text(script, encoding="utf-8")
    server.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", project.engine.url.database, "-f", str(file))
    assert project.indexes() == expected


def test_lock_timeout_limits_the_wait_for_a_reader(project):
    project.write(f"{TABLE}\nop.create_simhash_index('article', 'fingerprint')")
    project.write(
        "op.execute(\"SET LOCAL lock_timeout = '300ms'\")\nop.drop_simhash_index('article', 'fingerprint')"
    )
    project.upgrade("0001")
    with project.engine.connect() as reader:
        reader.execute(text("SELECT FROM article"))
        with pytest.raises(DBAPIError, match=r"public\.article could not be locked within 300ms"):
            project.upgrade()
    assert project.indexes()
    project.upgrade()
    assert project.indexes() == []


def test_the_default_index_of_a_table(project):
    switch = "op.set_default_simhash_index('article', '{}', missing=1)"
    second = "op.add_column('article', sa.Column('second', sa.BigInteger()))"
    project.write(f"{TABLE}\nop.create_simhash_index('article', 'fingerprint')")
    project.write(f"{switch.format('fingerprint')}\n{second}\nop.create_simhash_index('article', 'second')")
    project.write(switch.format("second"), switch.format("fingerprint"))
    project.upgrade("0002")
    default = "SELECT column_name FROM simsql.indexes WHERE is_default"
    assert project.execute(default) == [("fingerprint",)]
    project.execute("INSERT INTO article VALUES (1, 1), (2, 2)")
    with pytest.raises(DBAPIError, match=r"2 rows of public.article with .* have none in second"):
        project.upgrade("0003")
    project.execute("DELETE FROM article WHERE id = 1")
    project.upgrade("0003")
    assert project.execute(default) == [("second",)]
    project.downgrade("0002")
    assert project.execute(default) == [("fingerprint",)]
    script = project.sql(command.upgrade, "0002:0003")
    assert "SELECT simsql.set_default_index('article'::regclass, 'second', 1);" in script


def test_schema_translate_map(database, tmp_path):
    project = Project(tmp_path / "project", database.execution_options(schema_translate_map={None: "tenant"}))
    project.execute("CREATE SCHEMA tenant")
    project.write(f"{TABLE}\nop.create_simhash_index('article', 'fingerprint')")
    project.upgrade()
    assert project.indexes()[0][0] == "tenant.article"


@pytest.mark.pooled
def test_an_async_environment(bare_project):
    """With asyncpg, as the template `async` of Alembic does it: it takes one statement at a time."""
    bare_project.metadata = models(SimhashIndex("fingerprint"))
    bare_project.revise()
    environment = bare_project.folder / "env.py"
    environment.write_text(
        environment.read_text(encoding="utf-8").replace(
            "    with bare_project.engine.connect() as connection:\n",
            "    for connection in bare_project.connections:\n",
        ),
        encoding="utf-8",
    )

    def upgrade(connection):
        bare_project.connections = [connection]
        bare_project.upgrade()
        bare_project.check()

    async def main():
        where = bare_project.engine.url
        query = {key: where.query[key] for key in ("host", "port")}
        engine = create_async_engine(where.set(drivername="postgresql+asyncpg", query=query))
        async with engine.connect() as connection:
            await connection.run_sync(upgrade)
            await connection.commit()
        await engine.dispose()

    asyncio.run(main())
    assert bare_project.indexes()[0][:3] == ("public.article", "fingerprint", 3)
