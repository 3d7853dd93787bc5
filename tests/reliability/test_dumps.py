"""Dumped and restored in every way: searches of the copy are exact, or say what to do first."""

import tempfile

import pytest
from articles import create_articles, create_index, near
from psycopg import errors
from upkeep import problems

pytestmark = [
    pytest.mark.slow,
    pytest.mark.fault("dump and restore: the formats and options of pg_dump, pg_restore and CREATE DATABASE"),
]
WAYS = {
    "plain": ([], []),
    "inserts": (["--inserts", "--rows-per-insert=50"], []),
    "clean": (["--clean", "--if-exists"], []),
    "no owner": (["--no-owner"], []),
    "no comments": (["--no-comments", "--load-via-partition-root"], []),
    "two schemas": (["--schema=public", "--schema=simsql", "--clean", "--if-exists"], []),
    "custom": (["--format=custom"], []),
    "custom, jobs": (["--format=custom"], ["--jobs=2"]),
    "custom, one transaction": (["--format=custom"], ["--single-transaction"]),
    "custom, sections": (["--format=custom"], ["pre-data", "data", "post-data"]),
    "tar": (["--format=tar"], []),
    "directory, jobs": (["--format=directory", "--jobs=2"], ["--jobs=2"]),
}


@pytest.fixture
def restored(server, _roles):
    with server.new_database(template="template0") as url, server.connect(url.database) as connection:
        yield connection


@pytest.fixture
def copy(server, restored, tmp_path):
    """Call it to dump a database and restore that into another one, with these options."""

    def dump_and_restore(source, dump, restore):
        name, file = restored.info.dbname, str(tmp_path / "dump")
        server.run("pg_dump", *dump, f"--file={file}", source.info.dbname)
        if any(option.startswith("--format") for option in dump):
            sections = [option for option in restore if option.endswith("data")]
            options = [option for option in restore if option not in sections]
            for section in [[f"--section={section}"] for section in sections] or [[]]:
                server.run("pg_restore", "--exit-on-error", *options, *section, f"--dbname={name}", file)
        else:
            server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null", f"--file={file}", name)
        return restored

    return dump_and_restore


def run_script(server, database, script, stop=1):
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(script)
        file.flush()
        output = ("--quiet", "--output=/dev/null", f"--file={file.name}")
        server.run("psql", f"--set=ON_ERROR_STOP={stop}", *output, database)


def write_more(connection, ledger):
    """Writers go on in the copy, and keep the index."""
    ledger.insert(connection)
    ledger.update(connection)
    ledger.delete(connection)


@pytest.mark.parametrize("way", WAYS)
def test_a_dump(connection, ledger, copy, examine, way):
    dump, restore = WAYS[way]
    restored = copy(connection, dump, restore)
    examine(restored, ledger.committed)
    write_more(restored, ledger)
    examine(restored, ledger.committed, tried=0)
    if "--no-comments" in dump:
        assert {problem for problem, _ in problems(restored)} <= {"comment altered"}
        restored.execute("SELECT simsql.repair('article')")
    assert problems(restored) == set()


def test_a_dump_over_the_database_itself(server, connection, ledger, tmp_path, examine):
    file = str(tmp_path / "dump")
    server.run("pg_dump", "--clean", "--if-exists", f"--file={file}", connection.info.dbname)
    committed = dict(ledger.committed)
    write_more(connection, ledger)
    server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}", connection.info.dbname)
    ledger.committed = committed
    examine(connection, ledger.committed)


def test_a_copy_by_create_database(server, connection, ledger, examine):
    name = connection.info.dbname
    connection.close()
    with server.new_database(template=name) as url, server.connect(url.database) as copied:
        examine(copied, ledger.committed)
        write_more(copied, ledger)
        examine(copied, ledger.committed, tried=0)


@pytest.mark.parametrize("options", [[], ["--disable-triggers"]], ids=["with triggers", "without triggers"])
@pytest.mark.parametrize("selected", [["--table=article"], ["--schema=public"]], ids=["table", "schema"])
def test_data_into_an_installed_database(server, connection, ledger, copy, examine, selected, options):
    """The other database has an index of its own, under another id, with other blocks."""
    with server.new_database() as url, server.connect(url.database) as target:
        target.execute("CREATE TABLE post (fingerprint bigint)")
        create_index(target, "post")
        create_articles(target, [], (5, 1, 0), ledger.storage)
        out = server.run("pg_dump", "--data-only", *selected, *options, connection.info.dbname)
        run_script(server, url.database, out)
        refused = ledger.mend(target)
        assert refused == (1 if options and ledger.storage == "tables" else 0)
        examine(target, ledger.committed)
        assert problems(target) == set()


@pytest.mark.parametrize("selected", [["--table=article"], ["--schema=public"], ["--exclude-schema=simsql"]])
def test_a_table_without_the_schema_of_simsql(server, connection, ledger, examine, selected):
    """It comes without an index; create one."""
    with server.new_database() as url, server.connect(url.database) as target:
        out = server.run("pg_dump", *selected, connection.info.dbname)
        # The triggers lack their functions, and the schema public is there.
        run_script(server, url.database, out, stop=0)
        with pytest.raises(errors.UndefinedObject, match="has no simhash index"):
            near(target, 0)
        assert ledger.mend(target) == 1
        examine(target, ledger.committed)
