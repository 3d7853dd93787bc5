"""With the storage `expression`, an index is kept in B-trees on the table itself, and searches find the same."""

import contextlib
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import articles
import pytest
from articles import count_keys, create_table, near
from articles import create_articles as create_any_articles
from articles import create_index as create_any_index
from internals import begin_build, build_batch
from oracle import clustered, flip
from program import wait_until
from psycopg import errors
from upkeep import notices, problems

import simsql.database
from simsql.database import SearchIndex, drop_index
from simsql.database import index as index_module

create_articles = partial(create_any_articles, storage="expression")
create_index = partial(create_any_index, storage="expression")
FINGERPRINTS = clustered(3_000, seed=14)
QUERIES = [0, -1, FINGERPRINTS[17], flip(FINGERPRINTS[5], [63, 31, 0])]


def create_online(database, column="fingerprint", **options):
    described = {"storage": "expression", **options}
    return simsql.database.create_index(database, "article", column, concurrently=True, **described)


searches_are_exact = partial(articles.searches_are_exact, queries=QUERIES)


def btrees(connection, table="article"):
    """The names of the indexes of a table that belong to simsql."""
    rows = connection.execute(
        "SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
        " WHERE i.indrelid = %s::regclass AND c.relname LIKE 'simsql%%' ORDER BY 1",
        [table],
    )
    return [name for (name,) in rows]


def plan_of(connection, within, scope=None, query=0):
    rows = connection.execute(
        "SELECT simsql.explain_near('article', %s, %s, scope => %s::jsonb)",
        [query, within, scope and json.dumps(scope)],
    )
    return "\n".join(line for (line,) in rows)


# What there is


def test_there_are_b_trees_on_the_table_and_neither_key_tables_nor_triggers(connection):
    create_articles(connection, FINGERPRINTS[:50])
    assert btrees(connection) == ["simsql_1_0", "simsql_1_1", "simsql_1_2", "simsql_1_3"]
    assert count_keys(connection) == []
    assert connection.execute("SELECT FROM pg_trigger WHERE tgrelid = 'article'::regclass").fetchall() == []
    assert connection.execute("SELECT storage, state FROM simsql.indexes").fetchone() == ("expression", "ready")
    assert problems(connection) == set()


def test_an_ordinary_table_has_key_tables_by_default(connection):
    create_table(connection)
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert connection.execute("SELECT storage FROM simsql.indexes").fetchone() == ("tables",)


@pytest.mark.parametrize("call", ["SELECT simsql.create_index", "CALL simsql.build"])
def test_there_is_no_other_storage(connection, call):
    create_table(connection)
    with pytest.raises(errors.InvalidParameterValue, match="storage must be tables or expression, not 'rows'"):
        connection.execute(f"{call}('article', 'fingerprint', storage => 'rows')")


def test_each_range_is_read_from_a_b_tree_alone(connection):
    create_articles(connection, FINGERPRINTS)
    connection.execute("VACUUM ANALYZE article")
    for within, strategy, condition in ((3, "exact", r"= \$\d+\)"), (7, "probes", r"= ANY \(\(InitPlan")):
        connection.execute("UPDATE simsql.registry SET candidate_shares = NULL")
        connection.execute("SELECT simsql._create_functions(r) FROM simsql.registry AS r")
        plan = plan_of(connection, within)
        assert plan.startswith(f"strategy: {strategy},")
        for number in range(4):
            scan = rf"Index Only Scan using simsql_1_{number} .*\n +Index Cond: .*fingerprint & .*{condition}"
            assert re.search(scan, plan), plan
    assert plan_of(connection, 40).startswith("strategy: scan,")


# Whoever writes


def test_rows_are_found_however_they_were_written(connection):
    create_articles(connection, FINGERPRINTS[:50])
    connection.execute("ALTER TABLE article DISABLE TRIGGER ALL")
    connection.execute("SET session_replication_role = replica")
    connection.execute("INSERT INTO article (fingerprint) VALUES (1), (2)")
    connection.execute("RESET session_replication_role")
    connection.execute("CREATE TABLE child () INHERITS (article)")
    connection.execute("INSERT INTO child (id, fingerprint) VALUES (-1, 4), (-2, NULL)")
    searches_are_exact(connection)
    assert problems(connection) == set()
    found = connection.execute("SELECT * FROM simsql.near_rows(NULL::article, 4, 0)").fetchall()
    assert found == [(-1, None, 4)]


# Faults


def test_without_its_b_trees_an_index_is_slow_but_exact(connection):
    create_articles(connection, FINGERPRINTS)
    connection.execute("DROP INDEX simsql_1_0, simsql_1_2; CREATE INDEX simsql_1_2 ON article (fingerprint, id)")
    connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'simsql_1_3'::regclass")
    searches_are_exact(connection)
    assert problems(connection) == {
        ("search B-tree missing", "simsql_1_0"),
        ("search B-tree altered", "public.simsql_1_2"),
        ("search B-tree invalid", "public.simsql_1_3"),
    }
    assert len(connection.execute("SELECT * FROM simsql.repair('article')").fetchall()) == 3
    assert problems(connection) == set()
    searches_are_exact(connection)


@pytest.mark.parametrize(
    "definition",
    [
        "(fingerprint, (fingerprint & -281474976710656))",
        "((fingerprint & -281474976710656), fingerprint) WHERE id > 1",
        "((fingerprint & -281474976710655), fingerprint)",
        "((fingerprint & -281474976710656))",
    ],
)
def test_a_b_tree_on_something_else_is_reported(connection, definition):
    create_articles(connection, FINGERPRINTS[:5])
    connection.execute(f"DROP INDEX simsql_1_0; CREATE INDEX simsql_1_0 ON article {definition}")
    assert ("search B-tree altered", "public.simsql_1_0") in problems(connection)


def test_a_b_tree_made_by_hand_is_as_good(connection):
    create_articles(connection, FINGERPRINTS[:5])
    connection.execute(
        "DROP INDEX simsql_1_0;"
        " CREATE INDEX simsql_1_0 ON article ((fingerprint & -281474976710656), fingerprint) INCLUDE (body)"
    )
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_a_renamed_column_is_not_searched_until_the_index_follows_it(connection):
    create_articles(connection, FINGERPRINTS[:50])
    connection.execute("ALTER TABLE article RENAME fingerprint TO print")
    connection.execute("ALTER TABLE article ADD fingerprint bigint")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"column fingerprint .* was renamed or dropped"):
        near(connection, 0, 3)
    assert connection.execute("SELECT state FROM simsql.indexes").fetchone() == ("column renamed",)
    connection.execute("SELECT * FROM simsql.repair('article')")
    searches_are_exact(connection, FINGERPRINTS[:50])


@pytest.mark.parametrize("instead", ["(other)", "((other & 7), body)", None])
def test_swapped_columns_are_told_apart_by_any_b_tree(connection, instead):
    create_articles(connection, FINGERPRINTS[:50])
    connection.execute("ALTER TABLE article ADD other bigint; UPDATE article SET other = fingerprint # 1")
    connection.execute("DROP INDEX simsql_1_0, simsql_1_1")
    if instead:
        connection.execute(f"CREATE INDEX simsql_1_0 ON article {instead}")
    searches_are_exact(connection, FINGERPRINTS[:50])
    connection.execute("ALTER TABLE article RENAME fingerprint TO before")
    connection.execute("ALTER TABLE article RENAME other TO fingerprint")
    connection.execute("ALTER TABLE article RENAME before TO other")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"column fingerprint .* was renamed or dropped"):
        near(connection, 0, 3)
    connection.execute("SELECT * FROM simsql.repair('article')")
    assert connection.execute("SELECT column_name FROM simsql.indexes").fetchone() == ("other",)
    assert problems(connection) == set()
    searches_are_exact(connection, FINGERPRINTS[:50])


def test_a_table_that_takes_the_name_is_not_searched(connection):
    create_articles(connection, [1])
    connection.execute("ALTER TABLE article RENAME TO old")
    create_table(connection, [2])
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"was called public\.article"):
        near(connection, 0, 3, "old")
    connection.execute("SELECT * FROM simsql.repair('old')")
    assert near(connection, 0, 3, "old") == [(1, 1)]


# Upkeep


def test_a_vacuum_only_measures(connection, database):
    create_articles(connection)
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    assert connection.execute("SELECT simsql.superfluous_keys('article')").fetchone() == (0,)
    heard = notices(connection)
    connection.execute("CALL simsql.vacuum('article')")
    assert heard == ["simsql.vacuum: the index on public.article(fingerprint) has no keys to remove"]
    shares = connection.execute("SELECT candidate_shares[4] FROM simsql.registry").fetchone()[0]
    assert 0.01 < shares < 4
    assert SearchIndex(database, "article").vacuum() == 0
    searches_are_exact(connection)


def test_a_build_creates_the_same_index(connection, database):
    create_articles(connection, FINGERPRINTS[:50])
    wanted = connection.execute("SELECT simsql._expected_btrees(r) FROM simsql.registry AS r").fetchall()
    heard = notices(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    assert heard == []
    assert btrees(connection) == []
    connection.execute("DROP INDEX article_fingerprint_idx")
    connection.execute("CALL simsql.build('article', 'fingerprint', blocks => 4, storage => 'expression')")
    made = connection.execute("SELECT simsql._expected_btrees(r) FROM simsql.registry AS r").fetchall()
    assert [str(row).replace("simsql_2", "simsql_1") for row in made] == [str(row) for row in wanted]
    assert problems(connection) == set()
    with database.begin() as transaction:
        drop_index(transaction, "article")
    shares = []
    create_online(database, report=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_an_interrupted_build_is_resumed(connection, database):
    create_table(connection, FINGERPRINTS[:50])
    begin_build(connection, storage="expression")
    for _ in range(3):
        build_batch(connection)
    connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'simsql_1_1'::regclass")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="is still being built") as caught:
        near(connection, 0, 3)
    resume = re.search("CALL .*;", caught.value.diag.message_hint)[0]
    with pytest.raises(errors.DuplicateObject, match="other arguments"):
        connection.execute("CALL simsql.build('article', 'fingerprint', blocks => 4, storage => 'tables')")
    connection.execute(resume)
    assert problems(connection) == set()
    searches_are_exact(connection)


@contextlib.contextmanager
def held_up(connection, connect, work):
    """Run work() on a thread; in the block, its CREATE INDEX CONCURRENTLY waits for a writer. Yield its future."""
    writer = connect()
    writer.execute("BEGIN; INSERT INTO article (fingerprint) VALUES (1)")
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND query ~ 'CREATE (UNIQUE )?INDEX CONCURRENTLY'"
        " AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        try:
            wait_until(lambda: connection.execute(waiting).fetchone() == (1,), "the build to wait for the writer")
            connection.execute("SET lock_timeout = '2s'")
            yield future
        finally:
            writer.execute("COMMIT")
            future.exception()


@pytest.fixture
def polled(monkeypatch):
    """An event: a build has found that it has to wait."""
    event = threading.Event()

    def sleep(seconds):
        event.set()
        time.sleep(seconds)

    monkeypatch.setattr(index_module, "time", SimpleNamespace(sleep=sleep))
    return event


def test_an_online_build_blocks_no_writer(connection, database, connect):
    create_table(connection, FINGERPRINTS[:50])
    build = lambda: create_online(database)  # noqa: E731
    with held_up(connection, connect, build) as built:
        connection.execute("INSERT INTO article (fingerprint) VALUES (2)")
    built.result()
    searches_are_exact(connection)


def test_beside_an_online_build_vacuum_works_and_call_build_is_refused(connection, database, connect):
    create_table(connection, FINGERPRINTS[:50])
    connection.execute("ALTER TABLE article ADD a bigint, ADD b bigint")
    connection.execute("SELECT simsql.create_index('article', 'a', storage => 'tables')")
    build = lambda: create_online(database, recipe=None)  # noqa: E731
    with held_up(connection, connect, build) as built:
        connection.execute("CALL simsql.vacuum('article', 'a')")
        for column in ("fingerprint", "b"):
            with pytest.raises(errors.ObjectInUse, match=r"another build is creating indexes on public.article"):
                connection.execute(f"CALL simsql.build('article', '{column}', storage => 'expression')")
    built.result()
    assert problems(connection) == set()


@pytest.mark.parametrize("column", ["fingerprint", "b"])
def test_a_second_online_build_waits_for_the_first(connection, database, connect, polled, column):
    create_table(connection, FINGERPRINTS[:50])
    connection.execute("ALTER TABLE article ADD b bigint")
    build = lambda column: create_online(database, column)  # noqa: E731
    with ThreadPoolExecutor(1) as thread:
        with held_up(connection, connect, lambda: build("fingerprint")) as first:
            second = thread.submit(build, column)
            wait_until(polled.is_set, "the second build to wait")
        assert (second.result() == first.result()) == (column == "fingerprint")
    assert problems(connection) == set()


@pytest.mark.parametrize("online", [False, True], ids=["call", "client"])
def test_a_build_keeps_the_invalid_indexes_of_users(connection, database, storage, online):
    create_table(connection, [5, 5])
    with pytest.raises(errors.UniqueViolation):
        connection.execute("CREATE UNIQUE INDEX CONCURRENTLY mine ON article (fingerprint)")
    if online:
        create_online(database, storage=storage)
    else:
        if storage == "tables":
            connection.execute("CREATE INDEX ON article (fingerprint)")
        connection.execute("CALL simsql.build('article', 'fingerprint', storage => %s)", [storage])
    assert connection.execute("SELECT to_regclass('mine')::text").fetchone() == ("mine",)
    assert problems(connection) == set()


def test_an_online_build_waits_for_an_index_that_a_user_creates(connection, database, connect, polled):
    create_table(connection, FINGERPRINTS[:50])
    user = connect()
    create = lambda: user.execute("CREATE INDEX CONCURRENTLY mine ON article (fingerprint)")  # noqa: E731
    with ThreadPoolExecutor(1) as thread:
        with held_up(connection, connect, create) as created:
            built = thread.submit(create_online, database)
            wait_until(polled.is_set, "the build to wait")
        created.result()
        built.result()
    # The build has used it.
    names = connection.execute(
        "SELECT indexname FROM pg_indexes WHERE indexname !~ '^simsql' AND tablename = 'article'"
    )
    assert sorted(names) == [("article_pkey",), ("mine",)]
    searches_are_exact(connection)


def test_a_constraint_with_the_name_of_a_b_tree_is_kept(connection):
    create_articles(connection, [1])
    connection.execute("DROP INDEX simsql_1_0; ALTER TABLE article ADD CONSTRAINT simsql_1_0 UNIQUE (body)")
    connection.execute("SELECT simsql.drop_index('article')")
    assert btrees(connection) == ["simsql_1_0"]


def test_dropping_the_index_or_the_schema_leaves_nothing_of_it(connection):
    create_articles(connection, [1])
    connection.execute("SELECT simsql.drop_index('article')")
    assert btrees(connection) == []
    create_index(connection)
    connection.execute("SELECT simsql.uninstall(drop_indexes => true)")
    assert btrees(connection) == []
    names = connection.execute(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'article' ORDER BY 1"
    ).fetchall()
    assert names == [("article_fingerprint_idx",), ("article_pkey",)]


def test_the_remains_of_a_dropped_table_are_dropped(connection):
    create_articles(connection, [1])
    connection.execute("DROP TABLE article")
    create_articles(connection, [2])
    assert connection.execute("SELECT id FROM simsql.registry").fetchall() == [(2,)]
    assert connection.execute("SELECT to_regproc('simsql.search_1')").fetchone() == (None,)


def test_b_trees_that_are_left_from_before_are_used_or_replaced(connection):
    create_articles(connection, FINGERPRINTS[:50])
    connection.execute("DELETE FROM simsql.registry; ALTER SEQUENCE simsql.registry_id_seq RESTART")
    connection.execute("DROP INDEX simsql_1_1; CREATE INDEX simsql_1_1 ON article (body)")
    files = "SELECT relname, relfilenode FROM pg_class WHERE relname ~ '^simsql_1_[023]' ORDER BY 1"
    before = connection.execute(files).fetchall()
    create_index(connection)
    assert connection.execute(files).fetchall() == before
    assert problems(connection) == set()
    searches_are_exact(connection)


def test_a_name_that_is_taken_is_an_error(connection):
    connection.execute("CREATE TABLE simsql_1_2 ()")
    create_table(connection, [1])
    with pytest.raises(errors.DuplicateTable, match='"simsql_1_2" already exists'):
        create_index(connection)


# Roles


def test_a_role_finds_what_it_may_read(connection, new_role, connect):
    create_articles(connection, [1, 2, 3])
    role = new_role()
    reader = connect(role)
    with pytest.raises(errors.InsufficientPrivilege):
        near(reader, 0, 3)
    connection.execute(f"GRANT SELECT (id, fingerprint) ON article TO {role}")
    assert near(reader, 0, 3) == [(1, 1), (2, 1), (3, 2)]
    connection.execute("ALTER TABLE article ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY visible ON article USING (id <> 2)")
    for within in (3, 10, 40):
        assert near(reader, 0, within) == [(1, 1), (3, 2)]
    assert reader.execute("SELECT * FROM simsql.pairs('article', 3)").fetchall() == [(1, 3, 1)]
    claimed = reader.execute("SELECT fingerprint FROM simsql.claim('article', 2, 0)").fetchall()
    assert claimed == []


def test_only_the_owner_maintains_it(connection, new_role, connect):
    create_articles(connection, [1])
    role = new_role()
    connection.execute(f"GRANT SELECT ON article TO {role}")
    for call in (
        "CALL simsql.vacuum('article')",
        "SELECT * FROM simsql.repair('article')",
        "SELECT simsql.drop_index('article')",
    ):
        with pytest.raises(errors.InsufficientPrivilege):
            connect(role).execute(call)
