"""Searches that wait for a lock while something changes, each change once. `make waiting` combines them."""

import itertools

import pytest
from articles import create_articles
from attempts import DifferenceError, template_with
from program import wait_until
from psycopg import errors
from sessions import blocked
from waiting_searches import (
    CHANGES,
    FAULTS,
    LEVELS,
    SEARCHES,
    Case,
    Counts,
    Stage,
    changes_of,
    prepare,
)

KINDS = [
    ("ordinary", "tables"),
    ("generated", "tables"),
    ("partitioned", "expression"),
    ("ordinary", "expression"),
]


@pytest.fixture(scope="module")
def prepared(server):
    prepare(server)
    return server


@pytest.mark.parametrize("part", range(4))
def test_a_search_that_waited_equals_plain_sql_or_says_why(prepared, part):
    searches, levels = itertools.cycle(SEARCHES), itertools.cycle(LEVELS)
    counts = Counts()
    with prepared.new_database() as url, Stage(prepared, str(url.database)) as stage:
        for number, change in enumerate(CHANGES):
            kind, storage = next(k for k in KINDS if change in changes_of(*k))
            search, level = next(searches), next(levels)
            if "column" in change:
                level = LEVELS[1]  # plain SQL sees the columns of now, and the rows of its snapshot
            if number % 4 == part:
                reader, before = number % 3 == 0, number % 5 < 2
                stage.try_case(
                    Case(kind, storage, number % 2 == 0, search, level, (change,), reader, before), counts
                )
    assert counts.waited > 5


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_past_are_found_again(prepared, fault):
    case = Case("ordinary", "tables", False, "near", LEVELS[1], ("lock and insert",))
    template = template_with(prepared, FAULTS[fault])
    with (
        prepared.new_database(template=template) as url,
        Stage(prepared, str(url.database)) as stage,
        pytest.raises(DifferenceError, match="missed"),
    ):
        stage.try_case(case, Counts())


@pytest.mark.oldest_version
def test_near_rows_tells_that_its_table_was_dropped_while_its_row_type_was_to_be_read_again(connection, connect):
    create_articles(connection, [1, 3])
    # PostgreSQL looks at the row type, calls this, which waits, and then calls near_rows.
    connection.execute(
        "CREATE FUNCTION one() RETURNS bigint LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN 1; END'"
    )
    connection.execute("SELECT pg_advisory_lock(7)")
    holder = connect()

    def search(session):
        query = "SELECT id FROM simsql.near_rows(NULL::article, {}, 3)"
        assert session.execute(query.format(1)).fetchall() == [(1,), (2,)]
        session.execute(query.format("one()"))

    with blocked(connect, search) as future:
        connection.execute("ANALYZE article")  # whoever uses the row type opens the table again
        with holder.transaction():
            holder.execute("DROP TABLE article")
            connection.execute("SELECT pg_advisory_unlock(7)")
            waiting = "SELECT FROM pg_locks WHERE locktype = 'relation' AND NOT granted"
            wait_until(lambda: connection.execute(waiting).fetchone() is not None, "the table to be waited for")
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match=r"table .*article was dropped"):
            future.result()
