"""Commands through PgBouncer in transaction mode, where consecutive transactions run in different sessions."""

import psycopg
import pytest
from articles import create_table
from pooler import find_pgbouncer, run_pooler
from program import run, wait_until, write_lines

pytestmark = pytest.mark.skipif(not find_pgbouncer(), reason="PgBouncer is not installed (package pgbouncer)")


@pytest.fixture
def pooled(server, database_url):
    """Run a command through the pooler, after which no session has anything left of it."""
    with run_pooler(server.cluster.data_folder) as pooler:
        url = pooler.url(database_url)

        def read_sessions(query):
            """The results of a query in two sessions at once, which are idle ones if there are."""
            where = {"dbname": url.database, "user": "postgres", **url.query}
            with psycopg.connect(**where) as first, psycopg.connect(**where) as second:
                return {row for session in (first, second) for row in session.execute(query).fetchall()}

        def run_pooled(*arguments):
            # At least two sessions are idle, so each transaction changes the session.
            assert len(read_sessions("SELECT pg_backend_pid()")) > 1
            # psycopg would prepare every statement.
            found = run(
                *arguments, "--database", url.update_query_dict({"prepare_threshold": "0"}).render_as_string()
            ).done()

            def is_clean():
                # A session that the pooler has closed takes a moment to end.
                return read_sessions(
                    "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),"
                    " (SELECT count(*) FROM pg_class WHERE relpersistence = 't'),"
                    " (SELECT count(*) FROM pg_prepared_statements), current_setting('search_path')"
                ) == {(0, 0, 0, '"$user", public')}

            wait_until(is_clean, "all sessions are as they were")
            return found

        yield run_pooled


@pytest.fixture
def post(connection):
    connection.execute("CREATE TABLE post (id text PRIMARY KEY, body text, fp bigint)")
    connection.execute(
        "INSERT INTO post SELECT 'p' || g, 'some text of the number ' || g % 90 FROM generate_series(1, 180) AS g"
    )


@pytest.mark.usefixtures("post")
def test_indexes_and_searches(pooled, connection):
    assert "up to date" in pooled("install").out
    filled = pooled("backfill", "post", "--column", "fp", "--text-column", "body", "--batch", 10)
    assert filled.lines == ["Fingerprinted 180 rows"]
    pooled("index", "create", "post", "fp")
    assert pooled("index", "drop", "post").err == ""
    pooled("index", "create", "post", "fp", "--storage", "expression", "--concurrently")
    for storage in ("tables", "expression"):
        assert pooled("index", "change-storage", "post", storage).lines == [f"simhash index on post: {storage}"]
        assert "no faults" in pooled("index", "verify").err
    connection.execute("UPDATE post SET fp = NULL WHERE id = 'p7'")
    assert "no faults" in pooled("index", "verify", "post", "--repair").err
    assert len(pooled("near", "post", "--text", "some text of the number 3", "--distance", 0).lines) == 2
    assert pooled("clusters", "post", "--distance", 0, "--into", "cluster").lines == ["cluster: 89 rows"]
    assert pooled("pairs", "post", "--distance", 64, "--keys").out.count("\n") == 90 * 89 // 2
    pooled("plan", "--like", "post")
    assert pooled("status").lines[0].endswith('"indexes": 1}')


@pytest.mark.usefixtures("post")
def test_documents(pooled, tmp_path, connection):
    connection.execute("SELECT simsql.create_index('post', 'fp', recipe => 'words12-log-1')")
    texts = {f"d{number}": f"a text with the number {number // 2} and more words" for number in range(40)}
    documents = write_lines(tmp_path / "documents.jsonl", texts)
    loaded = pooled("load", "post", documents, "--id-column", "id", "--text-column", "body")
    assert loaded.table["documents"] == "40"
    assert pooled("maintain").err == "indexes verified: 1, vacuumed: 0, skipped: 0\n"
    decided = pooled("dedup-table", "post", "--text-column", "body", "--into", "decision")
    assert decided.lines == ["decision: 220 rows"]
    explained = pooled("dedup-table", "post", "--text-column", "body", "--explain", "d0", "d1")
    assert "together" in explained.out
    pooled("uninstall", "--drop-indexes")


def test_hints_are_commands_and_those_of_other_clients_sql(server, connection, database_url):
    """The clients share sessions."""
    create_table(connection, [1])
    with run_pooler(server.cluster.data_folder) as pooler:
        url = pooler.url(database_url)
        found = run("near", "article", "--fingerprint", "1", "--database", url.render_as_string())
        found.failed(2, "Create it: simsql index create public.article fingerprint\n")
        where = {"dbname": url.database, "user": "postgres", **url.query}
        with psycopg.connect(**where) as other, pytest.raises(psycopg.errors.UndefinedObject) as refused:
            other.execute("SELECT * FROM simsql.near('article', 1, 3)")
        assert refused.value.diag.message_hint.startswith("Create it: SELECT simsql.create_index(")
