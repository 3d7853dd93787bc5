"""`simsql index ...`: what it prints, and its exit codes."""

import json
import re
import shlex
import signal
from datetime import datetime

import pytest
from articles import create_articles, create_table, missing_keys
from internals import set_batch_size
from program import finish, run, spawn, wait_until
from upkeep import flush_statistics

from simsql import Recipe


@pytest.fixture
def table(connection):
    """The table `article` without an index."""
    create_table(connection, [1, 3, None, -1])
    return connection


@pytest.fixture
def index(database_url):
    """Run `simsql index` on the test's database."""
    return lambda *arguments, **options: run("index", *arguments, "--database", database_url, **options)


def listed(index):
    """The cells of each index, apart from how it is, in the order of the columns."""
    names = [
        *("table", "column", "scope", "distance", "blocks"),
        *("lead", "inner_blocks", "recipe", "storage", "state"),
    ]
    rows = [json.loads(line) for line in index("list").done().lines]
    assert all(list(row)[: len(names)] == names for row in rows)
    return [list(row.values())[: len(names)] for row in rows]


def rows_of(found):
    return [list(json.loads(line).values()) for line in found.lines]


WORD = Recipe(word=1).id


def at(url):
    return "--database", url


either_way = pytest.mark.parametrize("options", [[], ["--concurrently"]], ids=["at once", "concurrently"])


@either_way
def test_an_index_is_made_and_dropped(table, index, options):
    assert listed(index) == []
    made = index("create", "article", "fingerprint", *options).done()
    assert made.out == "simhash index on article(fingerprint): ready\n"
    assert listed(index) == [["public.article", "fingerprint", [], 3, 4, 1, 0, "words12-log-1", "tables", "ready"]]
    assert missing_keys(table) == []
    index("create", "article", "fingerprint", *options).failed(
        1, "PostgreSQL: ", "already has a simhash index", "drop it first"
    )
    index("drop", "article").done()
    assert listed(index) == []
    index("drop", "article").failed(2, "PostgreSQL: ", "has no simhash index")


@either_way
def test_distance_design_and_recipe(table, index, options):
    recipe = Recipe(shingles=(3,)).id
    options = [*options, "--distance", 7, "--blocks", 5, "--lead", 2, "--inner-blocks", 3, "--recipe", recipe]
    index("create", "public.article", "fingerprint", *options).done()
    assert listed(index) == [["public.article", "fingerprint", [], 7, 5, 2, 3, recipe, "tables", "ready"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--blocks", 1], "blocks"),
        (["--lead", 2], "need --blocks"),
        (["--blocks", 12, "--lead", 6], "924 tables"),
        (["--recipe", "unknown"], "is not the id of a recipe"),
        (["--distance", "far"], "--distance"),
    ],
)
def test_wrong_usage(options, said):
    run("index", "create", "article", "fingerprint", *options).failed(2, said)


def test_nothing_to_verify_is_not_a_success_of_something(table, index):
    empty = index("verify").done()
    assert (empty.out, empty.err) == ("", "there are no simhash indexes\n")


def test_a_command_says_for_whom_it_waits_and_keeps_its_work(table, index, connect):
    index("create", "article", "fingerprint", "--storage", "expression").done()
    reader = connect()
    reader.execute("BEGIN; SELECT FROM article")
    tried = index("change-storage", "article", "tables", "--lock-timeout", "3s")
    assert tried.code == 1
    waits, fails = tried.err.splitlines()
    assert waits.startswith(
        "simsql.change_storage: waiting for other transactions to release public.article. In use by"
    )
    assert f"process {reader.info.backend_pid} " in waits
    assert fails.endswith("keeps what it has created, and goes on if you run it again.")
    found = "SELECT relfilenode FROM pg_class WHERE relname ~ '^keys_._.$' ORDER BY 1"
    kept = table.execute(found).fetchall()
    assert len(kept) == 4
    quiet = index("change-storage", "article", "tables", "--lock-timeout", "3s", "--quiet")
    assert (quiet.code, len(quiet.err.splitlines())) == (1, 1)
    reader.execute("COMMIT")
    assert index("change-storage", "article", "tables").done().out == "simhash index on article: tables\n"
    assert table.execute(found).fetchall() == kept
    assert index("verify").done().err == "no faults\n"


def test_faults_are_printed_and_mended(table, index):
    index("create", "article", "fingerprint", "--blocks", 2).done()
    sound = index("verify").done()
    assert (sound.out, sound.err) == ("", "no faults\n")
    table.execute('DELETE FROM simsql.keys_1_1; ALTER TABLE article RENAME TO "odd\tname"')
    found = index("verify")
    repair = "simsql index verify 'public.\"odd\tname\"' --repair"
    renamed = ["public.article", "fingerprint", "table renamed", 'public."odd\tname"', None]
    missing = ["public.article", "fingerprint", "keys missing", "simsql.keys_1_1", 3]
    assert (found.code, found.err) == (1, "")
    assert rows_of(found) == [[*renamed, repair], [*missing, repair]]
    mended = index("verify", '"odd\tname"', "--repair").done()
    missing[0] = 'public."odd\tname"'
    assert rows_of(mended) == [[*renamed, None], [*missing, None]]
    for again in (index("verify", '"odd\tname"').done(), index("verify", '"odd\tname"', "--repair").done()):
        assert again.out == ""
        assert again.err.startswith("no faults")


def test_a_repair_is_of_one_table():
    for arguments in ([], ["article", "--column", "fingerprint"]):
        run("index", "verify", *arguments, "--repair").failed(2, "--repair repairs all indexes of one table")


def test_superfluous_keys_are_no_fault_and_removed(connection, database_url, index):
    create_articles(connection, [1, 3, 5])
    set_batch_size(connection, 2)
    connection.execute("DELETE FROM article WHERE id < 3")
    flush_statistics(connection)
    assert index("verify", "article", "--column", "fingerprint").done().out == ""
    maintain = ("maintain", "--time-limit", "2h", "--database", database_url)
    maintained = run(*maintain).done()
    assert maintained.out == ""
    assert "simsql.vacuum: removed 8 keys of public.article(fingerprint)\n" in maintained.err
    assert maintained.err.endswith("\nindexes verified: 1, vacuumed: 1, skipped: 0\n")
    assert run(*maintain, "--quiet").done().err == ""
    assert index("verify").done().out == ""
    connection.execute("DELETE FROM simsql.keys_1_1")
    repair = "error: PostgreSQL: simsql.maintain: failed for 1 index: public.article(fingerprint): keys missing"
    # It commits as it goes, and a pooler could hand its session on: its hints are SQL.
    run(*maintain, "--quiet").failed(1, repair, "SELECT * FROM simsql.repair('public.article');")
    for wrong in ("5", "0s", "1 day"):
        run("maintain", "--time-limit", wrong).failed(2, f"'{wrong}' is not a time such as 90s, 10min or 2h")


def test_the_list_and_the_check_say_how_an_index_is(connection, database_url, index):
    set_batch_size(connection, 10)
    create_articles(connection, range(100))
    check = ("status", "--check", "--database", database_url)
    sound = run(*check).done()
    assert (sound.out, sound.err) == ("", "")
    connection.execute("UPDATE article SET fingerprint = -1 - fingerprint WHERE id % 2 = 0")
    flush_statistics(connection)
    (line,) = index("list").done().lines
    names = ("bytes", "unvacuumed", "last_vacuum", "hint")
    size, unvacuumed, vacuumed, hint = map(json.loads(line).get, names)
    assert size > 100 * 4 * 36
    assert unvacuumed == pytest.approx(1 / 3)
    assert datetime.fromisoformat(vacuumed).tzinfo
    assert hint == "33% of the keys are superfluous: simsql maintain"
    assert (run(*check).code, rows_of(run(*check))) == (
        1,
        [["public.article(fingerprint): vacuum due", "simsql maintain"]],
    )
    connection.execute("ALTER TABLE article RENAME fingerprint TO print")
    remedy = "Rename it back, or let the index follow the column: simsql index verify public.article --repair"
    assert rows_of(run(*check)) == [["public.article(fingerprint): column renamed", remedy]]
    assert f"{size:,}  33%" in re.sub(" {3,}", "  ", index("list", "--format", "table").done().out)


def test_what_postgresql_refuses(table, index):
    index("verify", "article").failed(2, "PostgreSQL: public.article has no simhash index")
    index("verify", "missing", "--repair").failed(2, 'PostgreSQL: relation "missing" does not exist')
    index("create", "article", "body", "--concurrently").failed(
        2, "simsql.build: column body of public.article is text, not bigint"
    )


def test_a_database_without_simsql(empty_database):
    url = empty_database.url.render_as_string(hide_password=False)
    run("index", "list", "--database", url).failed(1, "schema simsql is not installed: run simsql install")
    run("index", "verify", "--database", url).failed(1, "run simsql install with the same --database")
    run("index", "verify", SIMSQL_DATABASE=url).failed(1, "is not installed in the database: run simsql install")


def test_an_interrupted_build_goes_on(table, database_url, index):
    table.execute("INSERT INTO article (fingerprint) SELECT n FROM generate_series(1, 3000) AS n")
    set_batch_size(table, 1)
    process = spawn("index", "create", "article", "fingerprint", "--concurrently", "--database", database_url)
    for progress in ("registry", "built_1"):
        wait_until(
            lambda name=progress: table.execute(f"TABLE simsql.{name}").fetchall(), "the first batch", process
        )
    process.send_signal(signal.SIGINT)
    interrupted = finish(process)
    assert (interrupted.code, interrupted.err) == (130, "simsql: interrupted\n")
    (row,) = listed(index)
    assert row[-1] == "building"
    (line,) = index("verify").lines
    assert json.loads(line)["problem"] == "not ready"
    set_batch_size(table, 1000)
    index("create", "article", "fingerprint", "--concurrently").done()
    assert missing_keys(table) == []
    index("verify").done()


def test_help():
    found = run("index", "--help").done()
    for command in ("create", "list", "verify", "change-storage", "set-default", "drop"):
        assert f" {command} " in found.out
        assert f"Usage: simsql index {command}" in run("index", command, "--help").done().out


@either_way
def test_an_index_on_a_partitioned_table(connection, database_url, index, options):
    connection.execute(
        "CREATE TABLE article (id integer, fingerprint bigint) PARTITION BY RANGE (id);"
        "CREATE TABLE few PARTITION OF article FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE others PARTITION OF article DEFAULT;"
        "INSERT INTO article VALUES (1, 0), (2, 3), (20, 1), (21, -1)"
    )
    refused = index("create", "article", "fingerprint", "--storage", "tables", *options)
    refused.failed(1, "is partitioned", "Use --storage expression")
    index("create", "article", "fingerprint", *options).done()
    assert listed(index)[0][-2:] == ["expression", "ready"]
    assert index("verify").done().out == ""
    found = run("near", "article", "--fingerprint", 0, "--distance", 1, "--database", database_url).done()
    assert [json.loads(line)["row"]["id"] for line in found.lines] == [1, 20]
    found = run("pairs", "article", "--distance", 1, "--database", database_url).done()
    assert [tuple(json.loads(line).values())[:2] for line in found.lines] == [(0, 1), (1, 3)]
    connection.execute("DROP INDEX simsql_1_2")
    assert [row[2:4] for row in rows_of(index("verify", "article", "--repair").done())] == [
        ["search B-tree missing", "simsql_1_2"]
    ]
    connection.execute("UPDATE simsql.registry SET ready = false")
    assert "--storage expression" in index("create", "article", "fingerprint").err
    index("drop", "article").done()
    assert listed(index) == []


def test_fingerprints_and_sketches_of_other_texts_are_named(connection, database_url, index):
    create_table(connection)
    connection.execute("ALTER TABLE article ADD sketch bigint, ADD word_1 bigint")
    connection.execute("INSERT INTO article (body) SELECT 'a text, number ' || n FROM generate_series(1, 60) AS n")
    fill = ("backfill", "article", "--text-column", "body", "--column")
    run(*fill, "word_1", "--recipe", WORD, *at(database_url)).done()
    index("create", "article", "fingerprint").done()
    index("create", "article", "word_1", "--recipe", WORD).done()
    run(*fill, "fingerprint", "--sketch-column", "sketch", *at(database_url)).done()
    verify = ("verify", "article", "--texts", "--text-column", "body", "--sketch-column", "sketch")
    sound = index(*verify).done()
    assert (sound.out, sound.err) == ("", "0 of 120 rows differ from their texts\nno faults\n")
    connection.execute("ANALYZE article")
    assert index(*verify, "--sample", 7).done().err.startswith("0 of 14 rows differ from their texts\n")
    connection.execute("UPDATE article SET body = 'other words' WHERE id = 7; DELETE FROM article WHERE id > 50")
    connection.execute("UPDATE article SET fingerprint = NULL WHERE id = 9")
    connection.execute("UPDATE article SET sketch = 0 WHERE id = 8")
    for sample in ((), ("--sample", 0)):
        found = index(*verify, *sample)
        assert (found.code, found.err) == (1, "4 of 100 rows differ from their texts\n")
        rows = sorted([row[1], row[2], row[3]] for row in rows_of(found))
        assert rows == [
            ["fingerprint", "missing fingerprint", "9"],
            ["fingerprint", "stale fingerprint", "7"],
            ["fingerprint", "stale sketch", "7"],
            ["fingerprint", "stale sketch", "8"],
            ["word_1", "stale fingerprint", "7"],
        ]
    for command in sorted({row[-1] for row in rows_of(found)}, reverse=True):
        run(*shlex.split(command)[1:], *at(database_url)).done()
    assert index(*verify).done().out == ""
    connection.execute("UPDATE article SET body = id || ' times'")
    many = index(*verify, "--column", "word_1")
    assert (many.err, len(many.lines)) == ("50 of 50 rows differ from their texts\n", 40)


def test_what_texts_need():
    for arguments in (["--texts"], ["article", "--texts", "--repair"]):
        run("index", "verify", *arguments).failed(2, "--texts compares the rows of one table")
    for option in ("--sketch-column", "--text-column"):
        run("index", "verify", "article", option, "body").failed(
            2, "--text-column, --sketch-column and --recipe need --texts"
        )
