"""The history of simsql's own schema when it has grown: scripts, later revisions, Alembic's own commands."""

import shutil
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from catalog import contents_of_simsql
from program import run
from upgrades import create_indexes, difference, fresh_contents, upgraded_contents

from simsql.database import open_engine, read_status
from simsql.database.history import History, own_history
from simsql.database.install import schema_sql
from simsql.errors import SimsqlError, UsageError

SECOND = Path(__file__).parents[1] / "second_revision"


@pytest.fixture(scope="module")
def longer(tmp_path_factory) -> History:
    """The history after another release: sql/ has moved on, and the first revision has files of its own."""
    own, folder = own_history(), tmp_path_factory.mktemp("longer")
    ignore = shutil.ignore_patterns("__pycache__")
    migrations = shutil.copytree(own.migrations, folder / "migrations", ignore=ignore)
    shutil.copytree(own.sql, migrations / "versions" / "0001")
    shutil.copy(SECOND / "0002_second.py", migrations / "versions")
    shutil.copytree(own.sql, folder / "sql")
    shutil.copy(SECOND / "second.sql", folder / "sql")
    return History(migrations, folder / "sql")


def test_a_later_revision_leads_there_too(server, longer):
    """tests/database/test_history.py has one revision to go by: it would see what a second one forgets."""
    assert longer.revisions == (*own_history().revisions, "0002")
    expected = fresh_contents(server, longer)
    for start in (None, "0001"):
        assert difference(upgraded_contents(server, longer, start, expected), expected) == set()
    script = next((longer.migrations / "versions").glob("0002_*.py"))
    whole = script.read_text(encoding="utf-8")
    for forgotten, seen in (
        ('"SELECT simsql._create_functions(r) FROM simsql.registry AS r;"', "made by the second revision"),
        ('(sql / "safety.sql").read_text(encoding="utf-8")', "FUNCTION simsql.remark("),
    ):
        assert forgotten in whole
        script.write_text(whole.replace(forgotten, '""'), encoding="utf-8")
        careless = History(longer.migrations, longer.sql)
        found = difference(upgraded_contents(server, careless, longer.revisions[0], expected), expected)
        assert any(seen in text for _, text, *_ in found)
    script.write_text(whole, encoding="utf-8")


def test_a_script_leads_from_one_revision_to_another(server, longer, tmp_path):
    contents = []
    for steps in ([(None, None)], [(None, "0001"), ("0001", "0002")]):
        with server.new_database(template="template0") as url, server.connect(url.database) as connection:
            for number, (start, target) in enumerate(steps):
                file = tmp_path / f"{number}.sql"
                file.write_text(longer.script(start, target), encoding="utf-8")
                server.run("psql", "-qX", "-v", "ON_ERROR_STOP=1", "-d", url.database, "-f", str(file))
                if number == 0:
                    create_indexes(connection)
            engine = open_engine(url)
            contents.append(contents_of_simsql(engine))
            with engine.connect() as transaction:
                assert longer.current(transaction) == "0002"
            engine.dispose()
    assert contents[0] == contents[1]


def test_there_is_no_script_for_what_there_is_not(longer):
    assert longer.script("0002") == longer.script("0001", "0001") == schema_sql("0001") == ""
    with pytest.raises(UsageError, match=r"there is no revision 0009: they are 0001, 0002$"):
        longer.script("0009")
    with pytest.raises(UsageError, match="there is no revision 0009"):
        longer.script(target="0009")
    with pytest.raises(UsageError, match="0002 is newer than 0001: there is no way back"):
        longer.script("0002", "0001")
    assert run("sql", "--from", "0001").done().out == ""
    run("sql", "--to", "nine").failed(2, "there is no revision nine: they are 0001")


def test_a_schema_of_a_newer_simsql_is_left_alone(empty_database, longer):
    with empty_database.begin() as connection:
        longer.upgrade(connection)
    before = contents_of_simsql(empty_database)
    url = empty_database.url.render_as_string(hide_password=False)
    with pytest.raises(SimsqlError, match="is of revision 0002, and this simsql knows 0001 to 0001"):
        read_status(empty_database)
    for name in ("install", "upgrade", "uninstall", "status"):
        run(name, "--database", url).failed(1, "of revision 0002", "upgrade the package")
    assert contents_of_simsql(empty_database) == before


def test_alembics_own_commands_run_the_history(monkeypatch, empty_database, database):
    """Whoever writes a revision has the environment of migrations/ for it."""
    ini = own_history().migrations / "alembic.ini"
    monkeypatch.setenv("SIMSQL_DATABASE", empty_database.url.render_as_string(hide_password=False))
    command.upgrade(Config(ini), "head")
    assert contents_of_simsql(empty_database) == contents_of_simsql(database)
    assert read_status(empty_database).revision == own_history().newest
