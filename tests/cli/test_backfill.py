"""`simsql backfill`: what it prints, and what is left when it is broken off."""

import json
import signal

import pytest
from articles import create_index, missing_keys
from oracle import to_bigint
from program import finish, run, spawn, temporary_folder, wait_until

from simsql import Recipe, simhash, sketch
from simsql.fingerprint import simhash_parts


@pytest.fixture
def posts(connection):
    connection.execute("CREATE TABLE post (slug text PRIMARY KEY, title text, body text, fp bigint)")
    create_index(connection, "post", "fp")
    connection.execute(
        "INSERT INTO post SELECT 'p' || g, 'Title ' || g, 'text ' || g FROM generate_series(1, 400) AS g"
    )
    connection.execute("INSERT INTO post VALUES ('none', '-', '?!'), ('null', NULL, NULL)")
    return connection


def fingerprints(connection):
    return dict(connection.execute("SELECT slug, fp FROM post").fetchall())


def test_backfill(posts, database_url):
    options = ["--text-column", "body", "--batch", 100, "--database", database_url]
    found = run("backfill", "post", *options).done()
    assert found.lines == [
        "Fingerprinted 400 rows",
        "Left 1 row without a fingerprint: no words in the text",
    ]
    assert found.err == ""
    expected = {f"p{number}": to_bigint(simhash(f"text {number}")) for number in range(1, 401)}
    assert fingerprints(posts) == expected | {"none": None, "null": None}
    assert missing_keys(posts, "post") == []
    posts.execute("INSERT INTO post VALUES ('other', 'by another', 'program')")
    assert run("backfill", "post", *options).done().lines[0] == "Fingerprinted 1 row"
    posts.execute("UPDATE post SET fp = 5 WHERE slug = 'p7'")
    assert run("backfill", "public.post", *options).done().lines[0] == "Fingerprinted 0 rows"
    assert run("backfill", "public.post", *options, "--all-rows").done().lines == [
        "Fingerprinted 1 row",
        "Left 400 rows unchanged: the fingerprints are up to date",
        "Left 1 row without a fingerprint: no words in the text",
    ]
    posts.execute("SELECT simsql.drop_index('post')")
    recipe = Recipe(tokens="characters", shingles=(3,))
    options = [
        "--text-column",
        "title=3",
        "--text-column",
        "body",
        "--column",
        "fp",
        "--all-rows",
        "--database",
        database_url,
    ]
    run("backfill", "post", *options, "--recipe", recipe.id, "--workers", 2).done()
    assert fingerprints(posts)["p9"] == to_bigint(simhash_parts([("Title 9", 3), ("text 9", 1)], recipe))


def test_sketches_are_filled_with_the_fingerprints(posts, database_url):
    posts.execute("ALTER TABLE post ADD sketch bigint")
    posts.execute("UPDATE post SET fp = 5 WHERE slug = 'p7'")
    options = ["--text-column", "body", "--sketch-column", "sketch", "--database", database_url]
    posts.execute("UPDATE post SET fp = 6 WHERE slug = 'p8'")
    assert run("backfill", "post", *options).done().lines[0] == "Fingerprinted 398 rows, sketched 400 rows"
    expected = {f"p{number}": to_bigint(sketch(f"text {number}")) for number in range(1, 401)}
    found = dict(posts.execute("SELECT slug, sketch FROM post").fetchall())
    assert found == expected | {"none": None, "null": None}
    assert fingerprints(posts)["p7"] == 5
    found = run("backfill", "post", "--text-column", "title", *options)
    found.failed(2, "a sketch is of one text, not of title, body: name the column of that text")


def test_an_index_that_knows_its_sources_needs_no_options(posts, database_url):
    posts.execute("ALTER TABLE post ADD sketch bigint; UPDATE post SET title = 'title ' || slug, fp = NULL")
    options = ["--database", database_url]
    run("backfill", "post", *options).failed(2, "nobody has named the columns of the texts")
    said = run("index", "alter", "post", "--source", "title=3", "--source", "body", *options).done()
    assert said.lines == ["simhash index on post: altered"]
    for wrong in (["--text-column", "body"], ["--text-column", "title", "--text-column", "body"]):
        refused = run("backfill", "post", *wrong, *options)
        refused.failed(2, "the fingerprints in post(fp) come from body=1 and title=3, as its simhash index says")
    run("backfill", "post", "--sketch-column", "sketch", *options).failed(2, "a sketch is of one text, not of")
    run("backfill", "post", "--sketch-column", "sketch=body", *options).done()
    for title, body, made, sketched in posts.execute("SELECT title, body, fp, sketch FROM post").fetchall():
        parts = [(part, weight) for part, weight in ((title, 3), (body, 1)) if part is not None]
        expected = (simhash_parts(parts), None if body is None else sketch(body))
        assert (made, sketched) == tuple(value if value is None else to_bigint(value) for value in expected)
    right = ["--texts", "--sample", "0", "--sketch-column", "sketch=body", *options]
    run("index", "verify", "post", *right).done()
    posts.execute("UPDATE post SET body = 'changed' WHERE slug = 'p7'")
    found = run("index", "verify", "post", "--texts", "--sample", "0", "--format", "csv", *options)
    assert found.code == 1
    assert "simsql backfill post --column fp" in found.lines[1]
    assert run("backfill", "post", *options).done().lines[0] == "Fingerprinted 1 row"
    run("load", "post", "-", "--text-column", "body", *options, stdin=b"{}").failed(
        2, "come from body=1 and title=3"
    )


def test_rows_that_others_write_are_counted(posts, database_url):
    with posts.transaction():
        posts.execute("UPDATE post SET body = 'new' WHERE slug IN ('p7', 'p8')")
        found = run("backfill", "post", "--text-column", "body", "--database", database_url).done()
    assert found.lines[0] == "Fingerprinted 398 rows"
    assert found.lines[2] == "Skipped 2 rows that others were writing: run it again"


@pytest.mark.unpooled("PgBouncer keeps sessions open")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_what_was_broken_off_goes_on_where_it_stopped(posts, database_url, end):
    command = ["backfill", "post", "--text-column", "body", "--batch", "5", "--database", database_url]
    posts.execute(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$"
    )
    posts.execute("CREATE TRIGGER slow BEFORE UPDATE ON post FOR EACH ROW EXECUTE FUNCTION slow()")

    def count():
        return posts.execute("SELECT count(fp) FROM post").fetchone()[0]

    with temporary_folder() as folder:
        process = spawn(*command, home=folder)
        wait_until(lambda: count() >= 10, "some batches to be committed", process)
        process.send_signal(end)
        ended = finish(process)
    if end == signal.SIGINT:
        assert (ended.code, ended.err) == (130, "simsql: interrupted\n")
    # The server may still be at work for a client that was killed.
    wait_until(
        lambda: not posts.execute("SELECT FROM pg_stat_activity WHERE application_name LIKE 'simsql%'").fetchall(),
        "the sessions to end",
    )
    done = count()
    assert 10 <= done < 400
    assert done % 5 == 4  # one row of the first batch has no words
    posts.execute("DROP TRIGGER slow ON post")
    assert run(*command).done().lines[0] == f"Fingerprinted {400 - done} rows"
    assert fingerprints(posts)["p400"] == to_bigint(simhash("text 400"))
    assert missing_keys(posts, "post") == []


@pytest.mark.parametrize("recipe", ["words12-log-1", "words12-log-1 of simsql.visible_text"])
def test_texts_that_are_not_utf8_are_named(ascii_database, recipe):
    """They are left alone, and the run goes on, in a database that does not know the encoding of its texts."""
    with ascii_database.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE post (id int, part text, title text, body text, fp bigint)")
        connection.exec_driver_sql("ALTER TABLE post ADD PRIMARY KEY (part, id)")
        connection.exec_driver_sql(
            r"INSERT INTO post SELECT n, 'é', 'r', CASE n %% 5 WHEN 2 THEN E'rivi\350re ' ELSE 'rivière ' END || n"
            r" FROM generate_series(1, 14) AS n"
        )
    given = ["--database", ascii_database.url.render_as_string(hide_password=False)]
    run("index", "create", "post", "fp", "--recipe", recipe, *given).done()
    for columns in (["body"], ["title", "body"]):
        sources = [word for column in columns for word in ("--text-column", column)]
        filled = run("backfill", "post", *sources, "--batch", 4, "--all-rows", *given).done()
        assert filled.lines == ["Fingerprinted 11 rows"]
        assert filled.err == "3 rows are left as before, because the text is not UTF-8: é, 2; é, 7; é, 12\n"
        found = run("index", "verify", "post", "--texts", *sources, *given)
        assert (found.code, found.err) == (1, "0 of 11 rows differ from their texts\n")
        assert [json.loads(line)["problem"] for line in found.lines] == ["text not in UTF-8"] * 3
        assert {json.loads(line)["object"] for line in found.lines} == {"é, 2", "é, 7", "é, 12"}
    # A search prints such a row with a replacement character.
    with ascii_database.begin() as connection:
        connection.exec_driver_sql("UPDATE post SET fp = 5 WHERE id = 7")
    (row,) = run("near", "post", "--fingerprint", 5, "--distance", 0, *given).done().lines
    assert json.loads(row)["row"]["body"] == "rivi\ufffdre 7"
    near = ["near", "post", "--text", "rivi re 7", "--distance", 64, "--similarity", 1, "--text-column", "body"]
    explained = run(*near, "--explain", "(é,7)", *given).done().lines[-1]
    assert explained == "found: the search finds it: distance 33 is at most 64, and similarity 1.00 is at least 1"
    (row,) = run(*near, *given).done().lines
    assert json.loads(row)["row"]["id"] == 7
    with ascii_database.begin() as connection:
        connection.exec_driver_sql(r"UPDATE post SET part = E'\351' WHERE id = 8")
    said = "A key or text in the database is not UTF-8, which the encoding SQL_ASCII allows: convert it"
    run("backfill", "post", "--text-column", "body", "--all-rows", *given).failed(1, said)


def test_what_cannot_be_filled(posts, database_url):
    options = ["--database", database_url]
    run("backfill", "post", "--text-column", "title", "--column", "body", *options).failed(
        2, "is text, not bigint"
    )
    run("backfill", "missing", "--text-column", "body", *options).failed(2, 'relation "missing" does not exist')
    run("backfill", "post", "--text-column", "body", "--recipe", "no such", *options).failed(
        2, "is not the id of a recipe"
    )
    run("backfill", "post", "--text-column", "body", "--recipe", "words1-set-1", *options).failed(
        2, "drop the index"
    )
    run("backfill", "post", "--text-column", "body=0", *options).failed(
        2, "must be between 1 and 1,000,000, not 0"
    )
