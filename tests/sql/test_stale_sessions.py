"""A transaction that has searched learns of changes by other sessions, though it may have no reason to look.

It holds the locks that its next search needs, so PostgreSQL need not tell it what others have changed meanwhile.
"""

import pytest
from articles import create_articles, create_index, near
from psycopg import errors
from replication import rows_of
from similar import like_near

pytestmark = [
    pytest.mark.every_version,
    pytest.mark.fault("changes by others in the middle of a transaction that searches: renames, swaps, triggers"),
]

OLD, NEW = 5, 7
INSERT = f"INSERT INTO article (fingerprint) VALUES ({NEW})"


def fill_articles(connection):
    """Two indexed tables: `article`, with a spare column for fingerprints, and `other`."""
    create_articles(connection, [OLD])
    connection.execute("ALTER TABLE article ADD spare bigint")
    connection.execute("CREATE TABLE other (fingerprint bigint)")
    create_index(connection, "other")


def searching(connect, table, level="READ COMMITTED"):
    """A session in a transaction that has searched this table, and `article` in earlier transactions."""
    session = connect()
    for _ in range(7):  # from the sixth execution on, a plan is used again
        assert near(session, OLD, 3) == [(OLD, 0)]
        near(session, OLD, 3, "other")
    session.execute(f"BEGIN ISOLATION LEVEL {level}")
    near(session, OLD, 3, table)
    return session


# What another session can do while a search has locked the table, and whether it can be searched afterwards.
BESIDE_A_SEARCH = {
    "insert": ([INSERT], True),
    "disabled trigger": (["ALTER TABLE article DISABLE TRIGGER simsql_1_insert", INSERT], False),
    "triggers disabled and enabled": (
        ["ALTER TABLE article DISABLE TRIGGER ALL", INSERT, "ALTER TABLE article ENABLE TRIGGER ALL"],
        False,
    ),
    "repaired": (
        ["ALTER TABLE article DISABLE TRIGGER ALL", INSERT, "SELECT FROM simsql.repair('article')"],
        True,
    ),
    "new B-tree": (["CREATE INDEX ON article (fingerprint, id)", INSERT], True),
    "new B-tree of keys": (["CREATE INDEX ON simsql.keys_1_0 (key)", INSERT], True),
    "dropped and created": (["DROP FUNCTION simsql.scan_1", "SELECT FROM simsql.repair('article')", INSERT], True),
    "child": (["CREATE TABLE child () INHERITS (article)", INSERT], False),
}


@pytest.mark.parametrize(("changes", "searchable"), BESIDE_A_SEARCH.values(), ids=BESIDE_A_SEARCH)
def test_a_change_beside_a_search(articles, connect, examine, changes, searchable):
    session = searching(connect, "article")
    for change in changes:
        articles.execute(change)
    if searchable:
        examine(session, dict(rows_of(articles)), distances=(3,))
    else:
        with pytest.raises(errors.ObjectNotInPrerequisiteState):
            near(session, OLD, 3)


# What another session can do while a search has locked only another table. Both rows have to be found.
BEFORE_A_SEARCH = {
    "index created again": [
        "SELECT simsql.drop_index('article')",
        "SELECT simsql.create_index('article', 'fingerprint', 3, 4)",
        INSERT,
    ],
    "columns swapped": [
        INSERT,
        "ALTER TABLE article RENAME fingerprint TO before",
        "ALTER TABLE article RENAME spare TO fingerprint",
        "SELECT FROM simsql.repair('article')",
    ],
    "tables swapped": [
        INSERT,
        "ALTER TABLE article RENAME TO before",
        "CREATE TABLE article (LIKE before)",
        "SELECT FROM simsql.repair('before')",
    ],
    "B-tree created again": [
        "DROP INDEX article_fingerprint_idx",
        "CREATE INDEX ON article (fingerprint)",
        INSERT,
    ],
    "column added": ["ALTER TABLE article ADD stamp timestamptz DEFAULT clock_timestamp()", INSERT],
    "keys rewritten": [
        "VACUUM FULL simsql.keys_1_0",
        "VACUUM FULL simsql.keys_1_1",
        "VACUUM FULL article",
        INSERT,
    ],
}


@pytest.mark.parametrize("changes", BEFORE_A_SEARCH.values(), ids=BEFORE_A_SEARCH)
def test_a_change_before_a_search(articles, connect, changes):
    session = searching(connect, "other")
    oid = articles.execute("SELECT 'article'::regclass::oid").fetchone()[0]
    for change in changes:
        articles.execute(change)
    assert near(session, OLD, 3, str(oid)) == [(OLD, 0), (NEW, 1)]


# The same where the index no longer fits its table.
UNFIT = {
    "columns swapped": [
        "ALTER TABLE article RENAME fingerprint TO before",
        "ALTER TABLE article RENAME spare TO fingerprint",
    ],
    "tables swapped": ["ALTER TABLE article RENAME TO before", "CREATE TABLE article (LIKE before)"],
    "schemas swapped": [
        "CREATE SCHEMA before",
        "ALTER TABLE article SET SCHEMA before",
        "CREATE TABLE article (LIKE before.article)",
    ],
    "child": ["CREATE TABLE child () INHERITS (article)"],
    "disabled trigger": ["ALTER TABLE article DISABLE TRIGGER simsql_1_insert"],
}


SEARCHES = {
    "near": "SELECT * FROM simsql.near(%s::regclass, 5)",
    "similar_candidates": "WITH given AS (SELECT %s::regclass AS t) SELECT s.* FROM given,"
    f" simsql.similar_candidates(t, {like_near(5, 3, 't')}) AS s",
    "near_many": "SELECT * FROM simsql.near_many(%s::regclass, '{5}')",
    "near_many of many": "SELECT * FROM simsql.near_many(%s::regclass, ARRAY(SELECT generate_series(1, 20)))",
    "near_wide": "SELECT * FROM simsql.near_wide(%s::regclass, '{5}', 3, '{fingerprint}')",
    "documents": "SELECT * FROM simsql._near_documents(%s::regclass, 5, 3, NULL, NULL)",
    "claim": "SELECT * FROM simsql.claim(%s::regclass, 5)",
    "pairs": "SELECT * FROM simsql.pairs(%s::regclass)",
}


@pytest.mark.parametrize("changes", UNFIT.values(), ids=UNFIT)
def test_a_change_that_makes_the_index_unfit_before_a_search(articles, connect, changes):
    oid = str(articles.execute("SELECT 'article'::regclass::oid").fetchone()[0])
    sessions = {search: connect() for search in SEARCHES.values()}
    for search, session in sessions.items():
        for _ in range(7):
            for table in (oid, "other"):
                session.execute(search, [table])
        session.execute("BEGIN")
        session.execute(search, ["other"])
    for change in changes:
        articles.execute(change)
    for search, session in sessions.items():
        with pytest.raises(errors.ObjectNotInPrerequisiteState):
            session.execute(search, [oid])


@pytest.mark.parametrize("search", ["near('article', 5, 3{})", "pairs('article', 3{})"])
def test_a_snapshot_that_is_older_than_a_child_is_an_error(articles, connect, search):
    """PostgreSQL shows it the rows of the child, which have no keys."""
    articles.execute("CREATE TABLE child (LIKE article); INSERT INTO child (id, fingerprint) VALUES (9, 7)")
    session = searching(connect, "article", "REPEATABLE READ")
    session.execute(f"SELECT * FROM simsql.{search.format('')}")
    articles.execute("ALTER TABLE child INHERIT article")
    assert len(session.execute("SELECT FROM article").fetchall()) == 2
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="changed since this transaction") as caught:
        session.execute(f"SELECT * FROM simsql.{search.format('')}")
    assert caught.value.diag.message_hint == "Start a new transaction."


def test_a_snapshot_that_is_older_than_the_type_of_a_scope_is_an_error(articles, connect):
    """PostgreSQL takes a timestamp for one with a time zone as it is, without writing rows again."""
    session = connect()
    for each in (articles, session):
        each.execute("SET timezone = 'UTC'")
    articles.execute(
        "CREATE TABLE event (day timestamp, fingerprint bigint); INSERT INTO event VALUES ('2026-01-01', 5)"
    )
    articles.execute(
        "SELECT simsql.create_index('event', 'fingerprint', scope => '{day}', storage => 'expression')"
    )
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    search = """SELECT FROM simsql.near('event', 5, 3, scope => '{"day": "2026-01-01 01:00+01"}')"""
    session.execute("SELECT FROM simsql.registry")
    articles.execute("ALTER TABLE event ALTER day TYPE timestamptz")
    assert session.execute("SELECT FROM event WHERE day = '2026-01-01 01:00+01'").rowcount == 1
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="changed since this transaction"):
        session.execute(search)
