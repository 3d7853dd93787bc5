"""The job lines of docs/guides/monitoring.md, as pg_cron and cron run them."""

import re
import tempfile
from pathlib import Path

import psycopg
import pytest
from articles import create_articles
from documentation import REPOSITORY
from internals import set_batch_size
from program import run, wait_until
from servers import SETTINGS, find_programs

from simsql.database.connect import open_engine
from simsql.database.install import install_schema
from simsql.server.postgres_server import PostgresServer

PAGE = (REPOSITORY / "docs/guides/monitoring.md").read_text(encoding="utf-8")


@pytest.fixture
def cluster():
    """A server with simsql and pg_cron, which Debian has as postgresql-15-cron."""
    programs = [program for program in find_programs() if program.major == 15]
    if not programs or not (programs[0].bin_folder.parent / "lib/pg_cron.so").exists():
        pytest.skip("there is no pg_cron: apt-get install postgresql-15-cron")
    settings = {"shared_preload_libraries": "pg_cron", "cron.use_background_workers": "on"}
    with tempfile.TemporaryDirectory(prefix="simsql-cron-") as folder:
        Path(folder).chmod(0o711)  # as root, the server runs as another user
        cluster = PostgresServer(programs[0].bin_folder, Path(folder) / "data", SETTINGS | settings)
        cluster.init()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()


def test_pg_cron_runs_the_maintenance_and_records_its_failure(cluster):
    engine = open_engine(cluster.url("postgres"))
    install_schema(engine)
    engine.dispose()
    (line,) = re.findall(r"^    (SELECT cron\.schedule\(.*\);)$", PAGE, re.MULTILINE)
    with _connect(cluster) as connection:
        connection.execute("CREATE EXTENSION pg_cron")
        # Otherwise a notice about slow work may come instead.
        connection.execute("ALTER DATABASE postgres SET client_min_messages = warning")
        create_articles(connection, range(100))
        set_batch_size(connection, 10)
        connection.execute("DELETE FROM article WHERE id % 2 = 0")
        connection.execute("DELETE FROM simsql.keys_1_2")
        # A minute is the shortest time between two runs.
        connection.execute(line.replace("0 3 * * *", "@reboot"))
    for status, message in (
        ("failed", "simsql.maintain: failed for 1 index: public.article(fingerprint): keys missing"),
        ("succeeded", "CALL"),
    ):
        cluster.stop()
        cluster.start()
        with _connect(cluster) as connection:
            runs = "SELECT return_message FROM cron.job_run_details WHERE status = %s"
            wait_until(lambda: connection.execute(runs, [status]).fetchall(), status)  # noqa: B023
            assert message in connection.execute(runs, [status]).fetchone()[0]
            connection.execute("SELECT simsql.repair('article')")


def _connect(cluster):
    return psycopg.connect(
        cluster.url("postgres").set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
    )


def test_cron_runs_the_lines_and_is_silent(connection, database_url):
    """cron sends mail if a command prints something."""
    create_articles(connection, range(100))
    connection.execute("UPDATE article SET fingerprint = NULL")
    lines = re.findall(r"^    (?:\S+ ){5} *simsql (.*)$", PAGE, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        silent = run(*line.split(), SIMSQL_DATABASE=database_url)
        assert (silent.code, silent.out, silent.err) == (0, "", ""), line
    connection.execute(
        "INSERT INTO article (body, fingerprint) VALUES ('three plain words', 7); TRUNCATE simsql.keys_1_0"
    )
    spoken = [run(*line.split(), SIMSQL_DATABASE=database_url) for line in lines]
    assert [found.code for found in spoken] == [1, 1, 1, 1]
