"""The history of simsql's own schema: its files and revisions, what a newer one is, and Alembic's own commands."""

import io
import shutil
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from catalog import contents_of_simsql
from program import run

from simsql.database import read_status
from simsql.database.history import History
from simsql.database.install import schema_sql
from simsql.errors import SimsqlError, UsageError

LATER = '''"""A revision that no release has."""

revision = "0009"
down_revision = "{newest}"
'''


@pytest.fixture(scope="module")
def longer(tmp_path_factory) -> History:
    """The history after another release, which has added a column and a function."""
    own, folder = History(), tmp_path_factory.mktemp("longer")
    migrations = shutil.copytree(
        own.migrations, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__")
    )
    sql = shutil.copytree(own.sql, folder / "sql")
    (migrations / "versions" / "0009_later.py").write_text(LATER.format(newest=own.newest), encoding="utf-8")
    (migrations / "versions" / "0009_later.sql").write_text(
        "ALTER TABLE simsql.registry ADD COLUMN remark text NOT NULL DEFAULT 'none';\n", encoding="utf-8"
    )
    with (sql / "version.sql").open("a", encoding="utf-8") as script:
        script.write(
            "CREATE OR REPLACE FUNCTION simsql.remark() RETURNS text LANGUAGE sql AS $$ SELECT 'new' $$;\n"
        )
    return History(migrations, sql)


def test_every_file_is_installed(longer):
    history = History()
    apart = ("install.sql", "requirements.sql", "before_upgrade.sql", "after_upgrade.sql")
    assert set(history.files()) == set(history.sql.rglob("*.sql")) - {history.sql / name for name in apart}
    names = [path.name for path in longer.files("0002")]
    assert names.count("schema.sql") == 0
    first = ["search_path.sql", "locks.sql", "before_upgrade.sql", "0003_version_0_3_0.sql", "0009_later.sql"]
    assert names[:5] == first
    assert names[-2:] == ["after_upgrade.sql", "pin_search_path.sql"]
    assert [path.name for path in longer.files(history.newest)].count("0003_version_0_3_0.sql") == 0


def test_a_later_revision_is_reached_from_this_one(empty_database, longer):
    with empty_database.begin() as connection:
        History().upgrade(connection)
        connection.exec_driver_sql("CREATE TABLE article (fingerprint bigint)")
        connection.exec_driver_sql("SELECT simsql.create_index('article', 'fingerprint')")
    with empty_database.begin() as connection:
        longer.upgrade(connection)
        assert longer.current(connection) == "0009"
        row = connection.exec_driver_sql("SELECT remark, simsql.remark() FROM simsql.registry").one()
        assert row == ("none", "new")
        assert connection.exec_driver_sql("SELECT count(*) FROM simsql.verify()").scalar_one() == 0


def test_a_schema_that_is_up_to_date_is_not_touched(empty_database):
    with empty_database.begin() as connection:
        History().upgrade(connection)
        before = connection.exec_driver_sql("SELECT oid, xmin::text FROM pg_proc ORDER BY 1").all()
        History().upgrade(connection)
        assert connection.exec_driver_sql("SELECT oid, xmin::text FROM pg_proc ORDER BY 1").all() == before


def test_there_is_no_script_for_what_there_is_not(longer):
    newest = History().newest
    assert longer.script("0009") == schema_sql(newest) == ""
    with pytest.raises(UsageError, match=r"there is no revision 0010: choose one of 0002, 0003, 0009$"):
        longer.script("0010")
    assert run("install", "--sql", "--from", newest).done().out == ""
    run("install", "--sql", "--from", "nine").failed(2, "there is no revision nine: choose one of 0002")


def test_a_schema_of_a_newer_simsql_is_left_alone(empty_database, longer):
    with empty_database.begin() as connection:
        longer.upgrade(connection)
    before = contents_of_simsql(empty_database)
    url = empty_database.url.render_as_string(hide_password=False)
    with pytest.raises(SimsqlError, match="has revision 0009, but this simsql knows only 0002 to 0003"):
        read_status(empty_database)
    for name in ("install", "uninstall", "status"):
        run(name, "--database", url).failed(1, "has revision 0009", "upgrade the package")
    assert contents_of_simsql(empty_database) == before


def test_alembics_own_commands_show_the_history_and_leave_upgrades_to_simsql(monkeypatch, database):
    ini = Path(History().migrations) / "alembic.ini"
    monkeypatch.setenv("SIMSQL_DATABASE", database.url.render_as_string(hide_password=False))
    printed = io.StringIO()
    command.current(Config(ini, stdout=printed))
    assert printed.getvalue() == f"{History().newest} (head)\n"
    with database.begin() as connection:
        connection.exec_driver_sql("UPDATE simsql.schema_version SET version_num = '0002'")
    with pytest.raises(CommandError, match="upgrade simsql's schema with `simsql install`"):
        command.upgrade(Config(ini), "head")
