"""Old snapshots, an upgrade under load, and clients of another version: right answers or a clear error."""

import contextlib
import io
import itertools
import random
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import psycopg
import pytest
from articles import create_articles, create_index, near
from oracle import clustered
from oracle import near as expected_near
from sessions import ALL_LEVELS, begin
from upgrades import RELEASED, bare

from simsql.database import install_schema

FINGERPRINTS = clustered(80, seed=26)
NO_INDEX = "SELECT simsql.drop_index('article')"
# What another session does after a snapshot was taken.
CHANGES = {
    "created": [NO_INDEX, "SELECT simsql.create_index('article', 'fingerprint', 3, 3)"],
    "built": [NO_INDEX, "CALL simsql.build('article', 'fingerprint')"],
    "other storage": ["SELECT simsql.change_storage('article', 'expression')"],
    "other storage and back": [
        "SELECT simsql.change_storage('article', 'expression')",
        "SELECT simsql.change_storage('article', 'tables')",
    ],
    "repaired": [
        "ALTER TABLE article DISABLE TRIGGER ALL; INSERT INTO article (fingerprint) VALUES (3)",
        "SELECT FROM simsql.repair('article')",
    ],
    "swapped": [
        "CREATE TABLE other (LIKE article); INSERT INTO other TABLE article",
        "SELECT simsql.create_index('other', 'fingerprint')",
        "BEGIN; ALTER TABLE article RENAME TO old; ALTER TABLE other RENAME TO article;"
        "SELECT FROM simsql.repair('article'); COMMIT",
    ],
    "truncated and vacuumed": ["DELETE FROM article WHERE id % 2 = 0", "CALL simsql.vacuum('article')"],
}


@pytest.mark.oldest_version
@pytest.mark.fault("snapshots older than a new index, a build, a change of storage, a repair or a swap")
@pytest.mark.parametrize("change", CHANGES)
def test_a_snapshot_that_is_older_than_a_change(connection, connect, examine, tally, change):
    create_articles(connection, FINGERPRINTS)
    sessions = []
    for level, searched in itertools.product(ALL_LEVELS, (False, True)):
        session = connect()
        for _ in range(6 if searched else 0):  # from the sixth execution on, a plan is used again
            near(session, 0, 3)
        begin(session, level)
        sessions.append(session)
    for statement in CHANGES[change]:
        connection.execute(statement)
    for session in sessions:
        lost = wrong = 0
        rows = [row[0] for row in session.execute("SELECT fingerprint FROM article").fetchall()]
        with contextlib.suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState):
            for query, within in itertools.product(FINGERPRINTS[::20], (0, 3, 7, 40)):
                found, expected = set(near(session, query, within)), set(expected_near(rows, query, within))
                lost, wrong = lost + len(expected - found), wrong + len(found - expected)
        session.execute("ROLLBACK")
        tally(lost=lost, wrong=wrong)
    examine(connection, dict(connection.execute("SELECT id, fingerprint FROM article").fetchall()), tried=0)


# What locks another view of simsql than a search, or in another order.
BESIDE = [
    "SELECT FROM simsql.claim('article', 5)",
    "SELECT FROM simsql.near_many('article', '{1,2}', 0)",
]


@pytest.mark.oldest_version
@pytest.mark.fault("an upgrade of simsql from 0.2.0 beside writers and searches")
def test_an_upgrade_under_load(server, examine, tally):
    with bare(server) as (connection, engine), contextlib.ExitStack() as stack:
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        create_articles(connection, FINGERPRINTS)
        end, counted = threading.Event(), []
        name = connection.info.dbname

        def work(level: str, writes: bool) -> None:
            chosen = random.Random(level)
            with server.connect(name) as session:
                while not end.is_set():
                    with contextlib.suppress(
                        psycopg.errors.SerializationFailure,
                        psycopg.errors.UndefinedObject,  # a snapshot that is older than the upgrade
                        psycopg.errors.UndefinedFunction,  # a function that began before the upgrade
                        psycopg.errors.DeadlockDetected,
                    ):
                        try:
                            begin(session, level)
                            for _ in range(3):
                                counted.append((write if writes else search)(session, level, chosen))
                            session.execute("COMMIT")
                        except psycopg.Error as error:
                            session.execute("ROLLBACK")
                            # A search whose snapshot is older than the upgrade sees no stamp.
                            if "simsql was upgraded" not in str(error):
                                raise

        def write(session, level, chosen):
            value, row = chosen.getrandbits(12), chosen.randrange(1, 80)
            session.execute("INSERT INTO article (fingerprint) VALUES (%s)", [value])
            session.execute("UPDATE article SET fingerprint = %s WHERE id = %s", [value + 1, row])
            return 0, 0

        def search(session, level, chosen):
            query, within = chosen.getrandbits(12), chosen.choice([0, 2, 5])
            session.execute(chosen.choice(BESIDE if level == "READ COMMITTED" else BESIDE[1:]))
            found, rows = session.execute(  # in one statement, so with one snapshot at every level
                "SELECT ARRAY(SELECT fingerprint FROM simsql.near('article', %s, %s)),"
                " ARRAY(SELECT fingerprint FROM article)",
                [query, within],
            ).fetchone()
            expected = {match[0] for match in expected_near(rows, query, within)}
            return len(expected - set(found)), len(set(found) - expected)

        def stop(threads):
            end.set()
            for thread in threads:
                thread.join()

        threads = [
            threading.Thread(target=work, args=(level, writes)) for level in ALL_LEVELS for writes in (True, False)
        ]
        stack.callback(stop, threads)
        for thread in threads:
            thread.start()
        _wait(lambda: len(counted) > 60)
        install_schema(engine)
        before = len(counted)
        _wait(lambda: len(counted) > before + 60)
        stack.close()
        tally(tried=0, lost=sum(each[0] for each in counted), wrong=sum(each[1] for each in counted))
        examine(connection, dict(connection.execute("SELECT id, fingerprint FROM article").fetchall()))
        assert connection.execute("SELECT FROM simsql.verify()").fetchall() == []


def _wait(condition):
    from program import wait_until

    wait_until(condition, "the sessions to work")


CLIENT = """
import sys
from simsql import database
engine = database.open_engine(sys.argv[1])
rows = [(number, (number * 0x9E3779B97F4A7C15 + 2**63) % 2**64 - 2**63) for number in range(12_000)]
with engine.begin() as connection:
    database.load_rows(connection, 'article', ['id', 'fingerprint'], rows)
index, query = database.SearchIndex(engine, 'article'), rows[7][1] % 2**64
print(len(list(index.near(query, 20))), len(list(index.near_rows(query, 20))), index.verify())
try:
    print(database.read_status(engine))
except Exception as error:
    print(error)
"""


@pytest.fixture(scope="module")
def released_package(tmp_path_factory):
    """The folder of the package 0.2.0, from the history of this repository."""
    folder = tmp_path_factory.mktemp("released")
    command = ["git", "-C", str(Path(__file__).parents[2]), "archive", "3bc13ec", "simsql", "migrations", "sql"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip("this copy of the repository has no history: version 0.2.0 is not in it")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.mark.fault("a client of 0.2.0 with the schema of this version")
def test_an_old_client(connection, database_url, released_package, storage, examine):
    create_plain_table(connection)
    create_index(connection, storage=storage)
    output = subprocess.run(
        [sys.executable, "-c", CLIENT, database_url],
        cwd=released_package,  # where Python looks first
        capture_output=True,
        text=True,
        check=False,
    )
    assert output.returncode == 0, output.stderr
    output = output.stdout.splitlines()
    rows = dict(connection.execute("SELECT id, fingerprint FROM article").fetchall())
    assert len(rows) == 12_000  # from 10,000 rows on, the client writes the keys itself
    expected = len(expected_near(rows.values(), rows[7], 20))
    assert output[0] == f"{expected} {expected} []"
    assert "upgrade the package" in output[1]
    examine(connection, rows, distances=(0,))


@pytest.mark.fault("a client of this version with the schema of 0.2.0")
def test_a_new_client(server, examine):
    from simsql.database import SearchIndex, load_rows

    with bare(server) as (connection, engine):
        connection.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        create_plain_table(connection)
        create_index(connection)
        rows = dict(enumerate(FINGERPRINTS))
        with engine.begin() as transaction:
            load_rows(transaction, "article", ["id", "fingerprint"], rows.items())
        index = SearchIndex(engine, "article")
        for search in index.near, index.near_rows:
            matches = search(FINGERPRINTS[5] % 2**64, 7)
            assert len(list(matches)) == len(expected_near(FINGERPRINTS, FINGERPRINTS[5], 7))
        examine(connection, rows)


def create_plain_table(connection):
    connection.execute("CREATE TABLE article (id bigint PRIMARY KEY, fingerprint bigint)")
