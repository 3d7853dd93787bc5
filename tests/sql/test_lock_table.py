"""The table of locks in docs/guides/operations.md, compared with pg_locks and with what others can do."""

import re
from pathlib import Path

import pytest
from articles import create_articles, create_index
from psycopg import errors
from sqlalchemy import event
from upgrades import RELEASED, bare

from simsql.database import SearchIndex, install_schema, load_rows

PAGE = Path(__file__).parents[2] / "docs/guides/operations.md"
MODES = [
    "ACCESS SHARE",
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
]
OTHERS = [
    "SELECT FROM article",
    "SELECT FROM simsql.near('article', 1)",
    "INSERT INTO article (body, fingerprint) VALUES ('other', 9)",
]
# What comes before a semicolon is committed before.
STATEMENTS = {
    "`create_index`": "SELECT simsql.create_index('article', 'second')",
    "`create_index`, storage `expression`": "SELECT simsql.create_index('article', 'second',"
    " storage => 'expression')",
    "`build`: its start": "SELECT simsql._begin_build('article', 'second', 3, NULL, NULL, NULL, NULL)",
    "`build`: a batch": "SELECT simsql._begin_build('article', 'second', 3, NULL, NULL, NULL, NULL);"
    " SELECT simsql._build_batch('article', 'second')",
    "`drop_index`": "SELECT simsql.drop_index('article', 'other')",
    "`change_storage` to `expression`": "SELECT simsql.change_storage('article', 'expression', 'other')",
    "`change_storage` to `tables`": "SELECT simsql.change_storage('article', 'expression', 'other');"
    " SELECT simsql.change_storage('article', 'tables', 'other')",
    "`set_default_index`": "SELECT simsql.set_default_index('article', 'fingerprint')",
    "`alter_index`: the recipe": "SELECT simsql.alter_index('article', 'other', recipe => 'phash64')",
    "`alter_index`: the sources": "SELECT simsql.alter_index('article', 'other', sources => '{\"body\": 1}')",
    "`alter_index`: no sources": "SELECT simsql.alter_index('article', 'other', sources => '{\"body\": 1}');"
    " SELECT simsql.alter_index('article', 'other', sources => '{}')",
    "`clear_on_change`": "SELECT simsql.clear_on_change('article', 'second', '{body}')",
    "`drop_clear_on_change`": "SELECT simsql.clear_on_change('article', 'second', '{body}');"
    " SELECT simsql.drop_clear_on_change('article', 'second')",
    "`verify`": "SELECT simsql.verify('article')",
    "`repair`: no fault, or one of triggers": "SELECT simsql.repair('article')",
    "`repair`: a fault of key tables or B-trees": "DROP POLICY readers ON simsql.keys_2_1;"
    " SELECT simsql.repair('article')",
    "`vacuum`, `maintain`: a batch": "SELECT simsql._vacuum_batch('article', 'other', NULL)",
    "`claim`": "SELECT simsql.claim('article', 5)",
    "`uninstall`": "SELECT simsql.uninstall(drop_indexes => true)",
}


@pytest.fixture
def table(connection):
    create_articles(connection, [1, 3])
    connection.execute("ALTER TABLE article ADD other bigint, ADD second bigint; CREATE INDEX ON article (second)")
    create_index(connection, column="other")
    connection.execute("SELECT simsql.set_default_index('article', 'fingerprint')")
    return connection


def look(holder, observer):
    """The cells of a row: what the session holds, and which of the others wait for it."""
    held = observer.execute(
        "SELECT upper(regexp_replace(mode, '(?<=[a-z])(?=[A-Z])|Lock$', ' ', 'g')) FROM pg_locks"
        " WHERE pid = %s AND granted AND relation = 'article'::regclass",
        [holder],
    )
    modes = [mode.strip() for (mode,) in held]
    observer.execute("SET lock_timeout = '100ms'")
    waits = []
    for statement in OTHERS:
        try:
            observer.execute(f"BEGIN; {statement}; ROLLBACK")
            waits.append("goes on")
        except errors.LockNotAvailable:
            observer.execute("ROLLBACK")
            waits.append("waits")
    return " | ".join([f"`{max(modes, key=MODES.index)}`" if modes else "none", *waits])


def look_at_commits(engine, observer, work):
    """The worst row of all transactions of a function of Python."""
    rows = []

    def at_commit(connection):
        rows.append(look(connection.connection.dbapi_connection.info.backend_pid, observer))

    event.listen(engine, "commit", at_commit)
    work(engine)
    event.remove(engine, "commit", at_commit)
    return max(rows, key=lambda row: MODES.index(row.split("`")[1]) if "`" in row else -1)


def written():
    section = PAGE.read_text(encoding="utf-8").partition("## Locks")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| (`.+?) \| ((?:`|none).+) \|$", section, re.MULTILINE))


@pytest.mark.oldest_version
@pytest.mark.parametrize("operation", STATEMENTS)
def test_what_a_statement_locks(table, connect, operation):
    *before, statement = STATEMENTS[operation].split("; ")
    for each in before:
        table.execute(each)
    holder = connect()
    holder.execute(f"BEGIN; {statement}")
    assert look(holder.info.backend_pid, table) == written().get(operation)


def load(engine):
    with engine.begin() as connection:
        load_rows(connection, "article", ["fingerprint"], ((n,) for n in range(10_000)))


PROGRAMS = {
    "`backfill`: a batch": lambda engine: SearchIndex(engine, "article", "fingerprint").backfill(
        "body", all_rows=True
    ),
    "`load`": load,
    "`install`: an upgrade": install_schema,
}


@pytest.mark.parametrize("operation", [name for name in PROGRAMS if "install" not in name])
def test_what_a_program_locks(table, connect, database, operation):
    table.execute("UPDATE article SET body = 'some words of a text'")
    assert look_at_commits(database, connect(), PROGRAMS[operation]) == written().get(operation)


def test_what_an_upgrade_locks(server):
    with bare(server) as (connection, engine):
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        create_articles(connection, [1])
        found = look_at_commits(engine, connection, install_schema)
    assert found == written().get("`install`: an upgrade")


def test_the_page_has_no_other_rows():
    assert written().keys() == {*STATEMENTS, *PROGRAMS}
