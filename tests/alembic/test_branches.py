"""Branches that each install simsql and create an index: the schema goes with the last that uses it."""

import io
import logging
from pathlib import Path

import pytest
from alembic import command
from alembic_project import Project, Revision, article, models
from catalog import objects_of_database
from sqlalchemy import MetaData

from simsql.database import install_schema, read_status
from simsql.sqlalchemy import SimhashIndex

SCHEMA_EXISTS = "SELECT to_regnamespace('simsql') IS NOT NULL"


def tables(*indexed: str) -> MetaData:
    """Two tables, some of them with an index."""
    metadata = MetaData()
    for name in ("article", "page"):
        items = [SimhashIndex("fingerprint")] if name in indexed else []
        table = next(iter(models(*items, name=name).tables.values()))
        table.to_metadata(metadata)
    return metadata


@pytest.fixture
def branches(bare_project: Project) -> Project:
    """A project in which two revisions on top of one another's table have each created the first index."""
    bare_project.metadata = tables()
    bare_project.migrate()
    bare_project.revisions = []
    for name in ("article", "page"):
        bare_project.metadata = tables(name)
        revision = bare_project.revise()
        assert revision.upgrade[0] == "op.install_simsql()"
        assert revision.downgrade[-1] == "op.uninstall_simsql()"
        path = max(bare_project.folder.glob("versions/*.py"))
        text = path.read_text(encoding="utf-8")
        path.rename(path.with_suffix(".aside"))
        bare_project.revisions.append((path, text))
    for path, text in bare_project.revisions:
        path.write_text(text, encoding="utf-8")
    bare_project.metadata = tables("article", "page")
    bare_project.before = objects_of_database(bare_project.engine)
    bare_project.upgrade("heads")
    bare_project.check()
    return bare_project


def test_a_branch_installs_simsql_unless_its_own_history_does(bare_project):
    """Whatever a developer's database has: that of a test begins at the base, and may have one branch alone."""
    install_schema(bare_project.engine)
    bare_project.options = {"version_table_schema": "app", "include_schemas": True}
    bare_project.execute("CREATE SCHEMA app")
    bare_project.metadata = tables()
    bare_project.migrate()
    bare_project.metadata = tables("article")
    assert bare_project.migrate().upgrade[0] == "op.install_simsql()"
    bare_project.metadata = tables("article", "page")
    assert "install_simsql" not in bare_project.revise().names[0]
    bare_project.upgrade()
    # Another branch, which begins below the first index.
    bare_project.write("pass")
    (path,) = bare_project.folder.glob("versions/0004*")
    path.write_text(path.read_text(encoding="utf-8").replace("'0003'", "'0001'  # a branch"), encoding="utf-8")
    bare_project.upgrade("heads")
    article(bare_project.metadata, SimhashIndex("fingerprint"), name="essay")
    config = bare_project.config(stdout=io.StringIO())
    script = command.revision(config, "essays", autogenerate=True, head="0004", rev_id="0005")
    assert Revision.read(Path(script.path)).upgrade[0] == "op.install_simsql()"


def objects(project: Project) -> object:
    return [row for row in objects_of_database(project.engine) if "alembic_version" not in row[1]]


def test_the_downgrade_below_both_leaves_nothing(branches):
    branches.downgrade("0001")
    assert branches.execute(SCHEMA_EXISTS) == [(False,)]
    assert objects_of_database(branches.engine) == branches.before
    branches.upgrade("heads")
    branches.check()


@pytest.mark.parametrize("first", ["0002", "0003"])
def test_simsql_stays_while_the_other_branch_uses_it(branches, first, caplog):
    second = {"0002": "0003", "0003": "0002"}[first]
    with caplog.at_level(logging.INFO, logger="alembic"):
        branches.downgrade(f"{first}@0001")
    assert "Schema simsql stays: something in the database still uses it" in caplog.text
    assert len(branches.indexes()) == 1
    name = branches.indexes()[0][0]
    branches.execute(f"INSERT INTO {name} (fingerprint) VALUES (5)")
    assert branches.execute(f"SELECT * FROM simsql.near('{name}', 4)") == [(5, 1)]
    branches.upgrade("heads")
    branches.downgrade(f"{first}@0001")
    branches.downgrade(f"{second}@0001")
    assert branches.execute(SCHEMA_EXISTS) == [(False,)]


def test_what_uses_simsql_otherwise_keeps_it_too(bare_project):
    bare_project.write("op.install_simsql()", "op.uninstall_simsql()")
    bare_project.execute("CREATE TABLE article (id int, body text, fingerprint bigint)")
    for use, end in (
        ("SELECT simsql.create_index('article', 'fingerprint')", "SELECT simsql.drop_index('article')"),
        ("CREATE VIEW numbers AS SELECT simsql.fp(1)", "DROP VIEW numbers"),
        (
            "SELECT simsql.clear_on_change('article', 'fingerprint', ARRAY['body'])",
            "SELECT simsql.drop_clear_on_change('article', 'fingerprint')",
        ),
    ):
        bare_project.upgrade()
        bare_project.execute(use)
        before = objects(bare_project)
        bare_project.downgrade()
        assert objects(bare_project) == before, use
        bare_project.upgrade()
        bare_project.execute(end)
        bare_project.downgrade()
        assert bare_project.execute(SCHEMA_EXISTS) == [(False,)], use
    bare_project.upgrade()
    bare_project.execute("SELECT simsql.uninstall()")
    bare_project.downgrade()
    assert read_status(bare_project.engine).revision is None


def test_both_branches_as_plain_sql(branches, server, tmp_path):
    scripts = branches.sql(command.upgrade, "heads"), branches.sql(command.downgrade, "0002:0001")
    with server.new_database(template="template0") as url:
        for number, script in enumerate(scripts):
            file = tmp_path / f"{number}.sql"
            file.write_text(script, encoding="utf-8")
            server.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", url.database, "-f", str(file))
            with server.connect(url.database) as connection:
                found = connection.execute("SELECT count(*) FROM simsql.indexes").fetchone()
                assert found == (2 - number,)
