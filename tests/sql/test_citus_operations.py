"""Searches are exact while nodes of a Citus cluster come, go and exchange shards."""

import contextlib
import fcntl
import re
import threading
from collections.abc import Callable, Iterator

import articles
import psycopg
import pytest
from articles import near
from oracle import clustered
from oracle import near as expected_near
from psycopg import errors
from upkeep import problems

FINGERPRINTS = clustered(1200, seed=18)
QUERIES = [0, -1, FINGERPRINTS[17], FINGERPRINTS[150]]
DISTANCES = (0, 3, 7, 10)


@pytest.fixture
def server(citus):
    return citus


def create_articles(connection: psycopg.Connection, count: int) -> None:
    connection.execute("CREATE TABLE article (id bigint PRIMARY KEY, fingerprint bigint)")
    connection.execute("SELECT create_distributed_table('article', 'id')")
    connection.execute(
        "INSERT INTO article SELECT n, f FROM unnest(%s::bigint[]) WITH ORDINALITY AS u (f, n)",
        [FINGERPRINTS[:count]],
    )
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', blocks => 4)")


def searches_are_exact(connection: psycopg.Connection) -> None:
    articles.searches_are_exact(connection, queries=QUERIES)
    assert problems(connection) == set()


def placements(connection: psycopg.Connection) -> set[int]:
    """The ports of the nodes that have shards of the table."""
    found = connection.execute("SELECT nodeport FROM citus_shards WHERE table_name = 'article'::regclass")
    return {port for (port,) in found}


@contextlib.contextmanager
def repeatedly(action: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread again and again, and raise its error at the end."""
    failures: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            while not ended.is_set():
                action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    for failure in failures:
        raise failure


@pytest.fixture
def third_node(tmp_path_factory):
    """Two workers of the tests must not add the same node at once."""
    with (tmp_path_factory.getbasetemp().parent / "third-node").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("third_node")
@pytest.mark.parametrize("mode", ["block_writes", "force_logical"])
def test_searches_are_exact_while_shards_move_to_a_new_node(citus, connection, mode):
    database = connection.info.dbname
    connection.execute("SELECT citus_remove_node('127.0.0.1', %s)", [citus.ports[2]])
    connection.execute("SET citus.shard_count = 2")  # a move takes seconds
    create_articles(connection, 300)
    assert placements(connection) == {citus.ports[1]}
    written, searches = 300, 0
    with citus.connect(database) as writer, citus.connect(database) as reader:

        def write() -> None:
            nonlocal written
            if written < len(FINGERPRINTS):
                writer.execute("INSERT INTO article VALUES (%s, %s)", [written + 1, FINGERPRINTS[written]])
                written += 1

        def search() -> None:
            nonlocal searches
            query, within = QUERIES[searches % 4], DISTANCES[searches // 4 % 4]
            before = written
            found = set(near(reader, query, within))
            assert found >= set(expected_near(FINGERPRINTS[:before], query, within))
            # The row that is being written may be visible already.
            assert found <= set(expected_near(FINGERPRINTS[: written + 1], query, within))
            searches += 1

        with repeatedly(write), repeatedly(search):
            connection.execute("SELECT citus_add_node('127.0.0.1', %s)", [citus.ports[2]])
            connection.execute("SELECT rebalance_table_shards('article', shard_transfer_mode => %s)", [mode])
    assert placements(connection) == {citus.ports[1], citus.ports[2]}
    assert searches > 0
    assert written > 300
    searches_are_exact(connection)


def test_searches_fail_without_a_worker_and_are_exact_afterwards(citus, connection):
    create_articles(connection, 300)
    database = connection.info.dbname
    with citus.connect("postgres", node=2) as worker:
        worker.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        worker.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [database]
        )
    with citus.connect(database) as other:
        for search in (
            *("near('article', 0, 7)", "pairs('article', 3)", "near_many('article', ARRAY[1, 2], 3)"),
            "verify('article')",
        ):
            with pytest.raises(errors.OperationalError, match=f"{citus.ports[2]}"):
                other.execute(f"SELECT * FROM simsql.{search}")
    with citus.connect("postgres", node=2) as worker:
        worker.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
    with citus.connect(database) as other:
        searches_are_exact(other)


def test_a_query_that_reads_one_shard_is_refused_if_it_contains_a_search_outside_of_a_local_subquery(connection):
    create_articles(connection, 300)
    query = "SELECT id FROM article JOIN {} AS m USING (fingerprint) WHERE id = 18"
    for function, searched in (("near", "%s::bigint"), ("near_many", "ARRAY[%s::bigint]")):
        search = f"simsql.{function}('article', {searched}, 3)"
        with pytest.raises(errors.FeatureNotSupported, match=f"simsql.{function}: .* worker node") as caught:
            connection.execute(query.format(search), [FINGERPRINTS[17]])
        # The hint shows the subquery, apart from the arguments.
        (subquery,) = re.findall(r"\(SELECT .*\)", caught.value.diag.message_hint)
        subquery = subquery.replace(f"simsql.{function}(...)", search)
        assert connection.execute(query.format(subquery), [FINGERPRINTS[17]]).fetchall() == [(18,)]


def test_a_worker_that_is_down_is_a_problem(connection, citus):
    create_articles(connection, 10)
    found = "SELECT problem, object FROM simsql.problems"
    assert connection.execute(found).fetchall() == []
    name, port = connection.info.dbname, citus.ports[1]
    with citus.connect("postgres", node=1) as worker:
        worker.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        worker.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        assert connection.execute(found).fetchall() == [("node unreachable", f"127.0.0.1:{port}")]
        worker.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert connection.execute(found).fetchall() == []
