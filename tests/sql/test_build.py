"""build makes the keys that create_index makes, beside writers, from wherever it was interrupted."""

import random
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import articles
import pytest
from articles import (
    DESIGNS,
    count_keys,
    create_articles,
    create_index,
    create_table,
    missing_keys,
    near,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from internals import begin_build, build_batch, set_batch_size, take_turn
from oracle import EXTREMES, clustered
from program import wait_until
from psycopg import errors
from roles import allow_indexes
from sessions import ALL_LEVELS, begin, blocked
from upkeep import notices, problems, stored_fingerprints

pytestmark = pytest.mark.oldest_version

BUILD = "CALL simsql.build('article', 'fingerprint')"


@pytest.fixture
def table(connection):
    """`article` with a few rows and a B-tree; builds take two fingerprints at a time."""
    create_table(connection, [7, 3, None, 5, 3, 11, 9])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    set_batch_size(connection, 2)
    return connection


def finish(connection):
    """Go on until the index is ready."""
    while not build_batch(connection):
        pass


searches_are_exact = partial(articles.searches_are_exact, queries=(7, *EXTREMES[2:4]), distances=(3, 9, 64))


# The index


@pytest.mark.parametrize(
    ("design", "size"), [(DESIGNS[0], 120), (DESIGNS[3], 119), (DESIGNS[-2], 7), (DESIGNS[-1], 121)]
)
def test_it_makes_the_keys_that_create_index_makes(connection, design, size):
    fingerprints = clustered(120, seed=5)
    create_articles(connection, [*fingerprints, None, *fingerprints[:5]], design)
    expected = stored_fingerprints(connection)
    connection.execute("SELECT simsql.drop_index('article')")
    set_batch_size(connection, size)
    connection.execute("CALL simsql.build('article', 'fingerprint', 5, %s, %s, %s)", design)
    assert stored_fingerprints(connection) == expected
    assert problems(connection) == set()
    found = connection.execute("SELECT distance, blocks, lead, inner_blocks, state FROM simsql.indexes").fetchall()
    assert found == [(5, *design, "ready")]
    searches_are_exact(connection)


def test_few_or_no_fingerprints(connection):
    set_batch_size(connection, 1)
    for fingerprints in ([], [None, None], [2**63 - 1, -(2**63)], [2**63 - 1] * 4, [-(2**63)] * 4):
        connection.execute("DROP TABLE IF EXISTS article")
        create_table(connection, fingerprints)
        connection.execute("CREATE INDEX ON article (fingerprint)")
        connection.execute(BUILD)
        searches_are_exact(connection)


def test_without_a_design_the_best_for_the_number_of_rows_is_taken(table):
    table.execute(BUILD)
    built = table.execute("SELECT blocks, lead, inner_blocks, distance FROM simsql.indexes").fetchone()
    table.execute("SELECT simsql.drop_index('article')")
    table.execute("SELECT simsql.create_index('article', 'fingerprint')")
    assert table.execute("SELECT blocks, lead, inner_blocks, distance FROM simsql.indexes").fetchone() == built


def test_whatever_the_isolation_of_the_database(table):
    for level in ALL_LEVELS:
        table.execute(f"SET default_transaction_isolation = '{level}'")
        table.execute(BUILD)
        searches_are_exact(table)
        table.execute("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT simsql.drop_index('article'); COMMIT")


def test_a_long_one_says_how_far_it_is(connection):
    create_table(connection, [random.Random(n).getrandbits(64) - 2**63 for n in range(300)])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    set_batch_size(connection, 3)
    heard = notices(connection)
    connection.execute(BUILD)
    shares = [int(re.fullmatch(r"simsql\.build: (\d+) % done", notice)[1]) for notice in heard]
    assert shares == sorted(shares)
    assert 10 < len(shares) <= 20


# Batch by batch


def test_it_is_searched_when_it_is_ready_and_not_before(table):
    begin_build(table)
    while True:
        assert table.execute("SELECT state FROM simsql.indexes").fetchone() == ("building",)
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="still being built") as refused:
            near(table, 7, 3)
        if build_batch(table):
            break
    searches_are_exact(table)
    assert "CALL simsql.build('public.article', 'fingerprint', distance => 3" in refused.value.diag.message_hint


@pytest.mark.parametrize(
    ("level", "batches"), [("REPEATABLE READ", 0), ("SERIALIZABLE", 1), ("REPEATABLE READ", 2)]
)
def test_an_older_snapshot_than_ready_is_refused(table, connect, level, batches):
    begin_build(table)
    for _ in range(batches):
        build_batch(table)
    reader = connect()
    begin(reader, level)
    finish(table)
    with pytest.raises(errors.Error, match="still being built"):
        near(reader, 7, 3)
    reader.execute("ROLLBACK")
    searches_are_exact(reader)


WRITES = {
    "insert": "INSERT INTO article (fingerprint) VALUES ({a}), ({b})",
    "update": "UPDATE article SET fingerprint = {a} WHERE fingerprint = {b}",
    "all": "UPDATE article SET fingerprint = {a} WHERE fingerprint > {b}",
    "swap": "UPDATE article SET fingerprint = {a} + {b} - fingerprint WHERE fingerprint IN ({a}, {b})",
    "touch": "UPDATE article SET body = 'x' WHERE fingerprint IN ({a}, {b})",
    "delete": "DELETE FROM article WHERE fingerprint = {a}",
    "move": "WITH moved AS (DELETE FROM article WHERE fingerprint = {a} RETURNING fingerprint)"
    " INSERT INTO article (fingerprint) SELECT fingerprint FROM moved",
}
writes = st.lists(st.tuples(st.sampled_from(sorted(WRITES)), st.integers(1, 12), st.integers(1, 12)), max_size=3)
# What one writer does between batches, and whether its transaction ends there.
steps = st.lists(st.tuples(writes, st.sampled_from(["COMMIT", "ROLLBACK", ""])), max_size=7)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(level=st.sampled_from(ALL_LEVELS), steps=steps, size=st.integers(1, 4))
def test_whatever_is_written_between_batches(connection, connect, level, steps, size):
    connection.execute("DROP TABLE IF EXISTS article")
    create_table(connection, [1, 2, 2, 3, 5, 6, 8, 11, 12, 12])
    connection.execute("CREATE INDEX ON article (fingerprint)")
    set_batch_size(connection, size)
    writer = connect()
    begin(writer, level)  # older than the index
    begin_build(connection)
    for statements, end in steps:
        for name, a, b in statements:
            writer.execute(WRITES[name].format(a=a, b=b))
        if end:
            writer.execute(end)
            begin(writer, level)
        build_batch(connection)
    finish(connection)
    assert missing_keys(connection) == []
    writer.execute("COMMIT")
    writer.close()
    searches_are_exact(connection)


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_a_writer_that_began_before_and_writes_afterwards_adds_its_keys(table, connect, level):
    early, between = connect(), connect()
    begin(early, level)
    begin(between, level)
    begin_build(table)
    between.execute("INSERT INTO article (fingerprint) VALUES (1)")
    build_batch(table)
    between.execute("INSERT INTO article (fingerprint) VALUES (12)")
    finish(table)
    assert missing_keys(table) == []
    early.execute("INSERT INTO article (fingerprint) VALUES (2), (13)")
    between.execute("COMMIT")
    early.execute("COMMIT")
    searches_are_exact(table)


@pytest.mark.parametrize("level", ALL_LEVELS)
def test_it_waits_for_a_writer_that_has_written_and_sees_its_rows(table, connect, level):
    writer = connect()
    begin(writer, level)
    writer.execute("INSERT INTO article (fingerprint) VALUES (1)")
    with blocked(connect, lambda builder: builder.execute(BUILD)) as built:
        writer.execute("INSERT INTO article (fingerprint) VALUES (2)")
        writer.execute("COMMIT")
    built.result()
    searches_are_exact(table)


def test_a_batch_stops_no_writer(table, connect):
    begin_build(table)
    table.execute("BEGIN")
    build_batch(table)
    writer = connect()
    writer.execute("SET lock_timeout = '1s'")
    for write in WRITES.values():
        writer.execute(write.format(a=3, b=7))
    table.execute("COMMIT")
    finish(table)
    searches_are_exact(table)


# Interrupted, and gone on with


def test_called_again_it_goes_on_where_it_stopped(table):
    begin_build(table)
    build_batch(table)
    assert count_keys(table) == [2] * 4
    table.execute(BUILD)
    assert count_keys(table) == [5] * 4
    searches_are_exact(table)


@pytest.mark.fault("sessions ended at random moments of writes, claims, build, vacuum, verify and repair")
def test_a_killed_session_leaves_a_build_to_go_on_with(table, connect):
    table.execute("INSERT INTO article (fingerprint) SELECT n * 1000 FROM generate_series(1, 3000) AS n")
    built_to = "SELECT fp FROM simsql.built_1"

    def build(connection):
        with pytest.raises(errors.OperationalError):
            connection.execute(BUILD)

    begin_build(table)
    builder = connect()
    (process,) = builder.execute("SELECT pg_backend_pid()").fetchone()
    with ThreadPoolExecutor(1) as thread:
        killed = thread.submit(build, builder)
        wait_until(lambda: table.execute(built_to).fetchone(), "the first batch")
        table.execute("SELECT pg_terminate_backend(%s)", [process])
        killed.result()
    (position,) = table.execute(built_to).fetchone()
    assert position is not None
    stored = count_keys(table)
    set_batch_size(table, 1000)
    table.execute(BUILD)
    assert min(count_keys(table)) == max(count_keys(table)) == 3005
    assert stored[0] < 3005
    searches_are_exact(table)


def test_two_calls_at_once_take_turns(table, connect):
    begin_build(table)
    table.execute("BEGIN")
    build_batch(table)
    with blocked(connect, lambda other: other.execute(BUILD)) as second:
        table.execute("COMMIT")
    second.result()
    assert count_keys(table) == [5] * 4
    assert build_batch(table)
    searches_are_exact(table)


def test_two_calls_that_begin_together_make_one_index(table, connect):
    """Both wait at the same place: until a writer has ended that has written to the table before."""
    table.execute("BEGIN")
    table.execute("INSERT INTO article (fingerprint) VALUES (1)")
    with (
        blocked(connect, lambda other: other.execute(BUILD)) as first,
        blocked(connect, lambda other: other.execute(BUILD)) as second,
    ):
        table.execute("COMMIT")
    assert [first.exception(), second.exception()] == [None, None]
    assert table.execute("SELECT id, state FROM simsql.indexes").fetchall() == [(1, "ready")]
    assert count_keys(table) == [6] * 4
    searches_are_exact(table)


def test_a_call_that_has_waited_for_its_turn_is_done_if_the_index_is_ready_by_then(table, connect):
    """Whether the other build has a batch left is chance."""
    other_arguments = BUILD.replace(")", ", 5)")
    turn = connect()
    turn.execute("BEGIN")
    take_turn(turn, "build")
    with (
        blocked(connect, lambda other: other.execute(BUILD)) as same,
        blocked(connect, lambda other: other.execute(other_arguments)) as different,
    ):
        create_index(table)
        turn.execute("COMMIT")
    assert same.exception() is None
    assert "already has a simhash index" in str(different.exception())
    assert count_keys(table) == [5] * 4


def test_other_arguments_do_not_go_on_with_it_and_the_hint_does(table):
    begin_build(table)
    for arguments in ("distance => 4", "blocks => 2", "lead => 2, blocks => 4", "blocks => 4, inner_blocks => 4"):
        with pytest.raises(errors.DuplicateObject, match="has other arguments") as refused:
            table.execute(f"CALL simsql.build('article', 'fingerprint', {arguments})")
    table.execute(refused.value.diag.message_hint.partition(": ")[2].partition(" Or")[0])
    searches_are_exact(table)


def test_create_index_says_that_a_build_is_unfinished_and_the_hint_finishes_it(table):
    begin_build(table)
    with pytest.raises(errors.DuplicateObject, match="already has an unfinished simhash index") as refused:
        create_index(table)
    table.execute(refused.value.diag.message_hint.partition(": ")[2].partition(" Or")[0])
    searches_are_exact(table)


def test_an_unfinished_index_can_be_dropped(table, connect):
    begin_build(table)
    build_batch(table)
    table.execute("BEGIN")
    build_batch(table)
    drop = "SELECT simsql.drop_index('article')"
    with blocked(connect, lambda other: other.execute(drop)) as dropped:
        table.execute("COMMIT")
    dropped.result()
    assert count_keys(table) == []
    with pytest.raises(errors.UndefinedObject, match="was dropped during the build"):
        build_batch(table)
    create_index(table)
    searches_are_exact(table)


def test_a_ready_index_is_not_built_again(table):
    table.execute(BUILD)
    with pytest.raises(errors.DuplicateObject, match="already has a simhash index"):
        table.execute(BUILD)


# What happens to the table meanwhile


STOPPED = {
    "ALTER TABLE article RENAME fingerprint TO print": "renamed or dropped",
    "ALTER TABLE article RENAME TO paper": "was called public.article",
    "ALTER TABLE article DISABLE TRIGGER simsql_1_insert": "have been disabled",
    "DROP INDEX article_fingerprint_idx": "has no B-tree",
    "CREATE TABLE child () INHERITS (article)": "became part of an inheritance tree",
    "DROP TABLE article": "the table no longer exists",
}


def test_a_build_stops_where_it_could_not_be_exact(table):
    begin_build(table)
    build_batch(table)
    (oid,) = table.execute("SELECT 'article'::regclass::oid").fetchone()
    for change, error in STOPPED.items():
        table.execute("BEGIN")
        table.execute(change)
        with pytest.raises(errors.Error, match=error):
            build_batch(table, oid)
        table.execute("ROLLBACK")
    finish(table)
    searches_are_exact(table)


def test_after_a_repair_it_begins_again(table):
    begin_build(table)
    for _ in range(2):
        build_batch(table)
    table.execute("ALTER TABLE article DISABLE TRIGGER ALL")
    table.execute("INSERT INTO article (fingerprint) VALUES (1), (2), (100)")
    table.execute("ALTER TABLE article ENABLE TRIGGER ALL")
    table.execute("ALTER TABLE article RENAME TO paper")
    table.execute("SELECT simsql.repair('paper')")
    table.execute("ALTER TABLE paper RENAME TO article")
    table.execute("SELECT simsql.repair('article')")
    assert problems(table) == {("not ready", "public.article")}
    table.execute(BUILD)
    searches_are_exact(table)


def test_a_repair_needs_neither_the_key_tables_nor_the_b_tree(table):
    begin_build(table)
    build_batch(table)
    ((btree,),) = table.execute(
        "SELECT b.index::text FROM simsql._btrees('article', '{fingerprint}') AS b"
    ).fetchall()
    table.execute(f"DROP INDEX {btree}; DROP TABLE simsql.keys_1_0")
    table.execute("SELECT simsql.repair('article')")
    assert problems(table) == {("not ready", "public.article")}
    table.execute(BUILD)
    searches_are_exact(table)


# What is refused


def test_without_a_b_tree_the_hint_makes_it(connection):
    create_table(connection, [1, 3])
    connection.execute("CREATE INDEX ON article (fingerprint) WHERE id > 5")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has no B-tree") as refused:
        connection.execute(BUILD)
    assert connection.execute("TABLE simsql.indexes").fetchall() == []
    connection.execute(refused.value.diag.message_hint)
    connection.execute(BUILD)
    searches_are_exact(connection)


def test_an_invalid_b_tree_does_not_count_and_the_hint_mends_it(table):
    table.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'article_fingerprint_idx'::regclass")
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has no B-tree") as refused:
        table.execute(BUILD)
    table.execute(refused.value.diag.message_hint.partition(": ")[2])
    table.execute(BUILD)
    searches_are_exact(table)


REFUSED = {
    "('article', NULL)": "must not be null",
    "('article', 'body')": "simsql.build: column body of public.article is text, not bigint",
    "('article', 'fingerprint', blocks => 1)": "simsql.build: blocks must be between 2 and 64, not 1",
    "('article', 'fingerprint', distance => 65)": "between 0 and 64",
    "('simsql.indexes', 'id')": "simsql.build: simsql.indexes is a view",
}


def test_what_create_index_refuses_is_refused(table):
    for call, error in REFUSED.items():
        with pytest.raises(errors.Error, match=error):
            table.execute(f"CALL simsql.build{call}")
    assert table.execute("TABLE simsql.indexes").fetchall() == []


def test_only_the_owner_goes_on_with_a_build(table, new_role, connect):
    name = new_role()
    table.execute(f"GRANT ALL ON article TO {name}")
    allow_indexes(table, name)
    other = connect(name)
    with pytest.raises(errors.InsufficientPrivilege, match="must be owner of table"):
        other.execute(BUILD)
    begin_build(table)
    with pytest.raises(errors.InsufficientPrivilege, match="must be owner of the simhash index"):
        other.execute(BUILD)


def test_only_the_owner_of_an_index_learns_how_far_its_build_is(table, new_role, connect):
    """It is the fingerprint of a row, and the scope of one."""
    owner, member, other = new_role(), new_role(), new_role()
    allow_indexes(table, owner, member)
    table.execute(f"GRANT {owner} TO {member}")
    table.execute("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC")
    secret = 0x5EC2E7
    table.execute(
        f"ALTER TABLE article ADD tenant text DEFAULT 'secret'; UPDATE article SET fingerprint = {secret}"
    )
    table.execute("CREATE INDEX ON article (tenant, fingerprint)")
    table.execute(f"INSERT INTO article (fingerprint) VALUES ({secret} + 1), ({secret} + 2), ({secret} + 3)")
    table.execute(f"ALTER TABLE article OWNER TO {owner}")
    begin_build(connect(owner), scope=["tenant"])
    reader, builder = connect(other), connect(member)
    assert not build_batch(builder)
    assert builder.execute("TABLE simsql.built_1").fetchall() == [(secret + 1, ["secret"])]
    relations = (
        "SELECT relname FROM pg_class WHERE relnamespace = 'simsql'::regnamespace AND relkind IN ('r', 'v', 'm')"
    )
    for (relation,) in reader.execute(relations).fetchall():
        try:
            rows = reader.execute(f"SELECT t::text FROM simsql.{relation} AS t").fetchall()
        except errors.InsufficientPrivilege:
            continue
        assert not any(str(secret + 1) in row or "secret" in row for (row,) in rows), relation
    finish(builder)
    assert problems(table) == set()
    assert stored_fingerprints(table) == [[secret + number for number in range(4)]] * 4
    assert table.execute("SELECT to_regclass('simsql.built_1')").fetchone() == (None,)


def test_a_batch_reads_its_range_of_the_b_tree_and_no_more(table):
    table.execute("INSERT INTO article (fingerprint) SELECT n FROM generate_series(1, 5000) AS n")
    table.execute("ANALYZE article")  # small enough for the planner to rather scan and sort it
    set_batch_size(table, 50)
    begin_build(table)
    read = (
        "SELECT sum(pg_stat_get_xact_tuples_returned(oid)) FROM pg_class"
        " WHERE relname IN ('article', 'article_fingerprint_idx')"
    )
    for _ in range(3):
        table.execute("BEGIN")
        (before,) = table.execute(read).fetchone()
        build_batch(table)
        assert 50 <= table.execute(read).fetchone()[0] - before < 60
        table.execute("COMMIT")
