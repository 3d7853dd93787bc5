"""A search that waits for a table that is filled or rewritten: it starts again."""

import psycopg
import pytest
from articles import create_articles, near
from claims import CENTRE, claim
from psycopg import errors
from sessions import ONE_SNAPSHOT, blocked
from similar import like_near

SEARCHES = {
    "near": lambda connection: near(connection, CENTRE, 3),
    "near_rows": lambda connection: connection.execute(
        "SELECT fingerprint FROM simsql.near_rows(NULL::article, %s, 3)", [CENTRE]
    ).fetchall(),
    "similar_candidates": lambda connection: connection.execute(
        f"SELECT * FROM simsql.similar_candidates('article', {like_near(CENTRE, 3)})"
    ).fetchall(),
    "claim": lambda connection: claim(connection, CENTRE),
    "near_many": lambda connection: connection.execute(
        "SELECT * FROM simsql.near_many('article', ARRAY(SELECT %s::bigint # generate_series(0, 40)), 3)",
        [CENTRE],
    ).fetchall(),
    "queries of a table": lambda connection: connection.execute(
        "SELECT * FROM simsql.near_many('article', 'article', 'fingerprint', 3) ORDER BY 1, 2"
    ).fetchall(),
    "near_wide": lambda connection: connection.execute(
        "SELECT * FROM simsql.near_wide('article', ARRAY[%s], 3, ARRAY['fingerprint'])", [CENTRE]
    ).fetchall(),
    "documents": lambda connection: connection.execute(
        "SELECT * FROM simsql._near_documents('article', %s, 3, NULL, NULL)", [CENTRE]
    ).fetchall(),
    "documents of similar texts": lambda connection: connection.execute(
        f"SELECT * FROM simsql._similar_documents('article', {like_near(CENTRE, 3)}, NULL, NULL)"
    ).fetchall(),
    "pairs": lambda connection: connection.execute("SELECT * FROM simsql.pairs('article', 3)").fetchall(),
    "clusters": lambda connection: connection.execute("SELECT * FROM simsql.clusters('article', 3)").fetchall(),
}
CHANGES = {
    "truncate": "CREATE TEMPORARY TABLE saved ON COMMIT DROP AS SELECT * FROM article; TRUNCATE article;"
    " INSERT INTO article OVERRIDING SYSTEM VALUE SELECT * FROM saved",
    "rewrite": "ALTER TABLE article ALTER body TYPE integer USING length(body)",
    "delete and insert": "CREATE TEMPORARY TABLE saved ON COMMIT DROP AS SELECT * FROM article;"
    " DELETE FROM article; INSERT INTO article OVERRIDING SYSTEM VALUE SELECT * FROM saved",
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_does_not_pass_for_empty(connection, connect, storage, search):
    create_articles(connection, [CENTRE, CENTRE ^ 1, 5], storage=storage)
    expected = SEARCHES[search](connection)
    assert expected
    for change in CHANGES.values():
        connection.execute("BEGIN")
        connection.execute("LOCK TABLE article")
        connection.execute(change)
        with blocked(connect, SEARCHES[search]) as waiting:
            connection.execute("COMMIT")
            assert waiting.result() == expected
        assert SEARCHES[search](connection) == expected


class Late:
    """A session whose statements begin before another one's change, and search after it."""

    def __init__(self, connection, change):
        self.cursor = psycopg.ClientCursor(connection)
        self.change = change

    def execute(self, statement, parameters=None):
        self.cursor.execute("BEGIN")
        self.cursor.execute(f"DECLARE late CURSOR FOR {statement}", parameters)
        self.change()
        return self.cursor.execute("FETCH ALL late")


@pytest.mark.parametrize("search", SEARCHES)
def test_a_statement_that_began_before_does_not_pass_for_empty(connection, connect, storage, search):
    create_articles(connection, [CENTRE, CENTRE ^ 1, 5], storage=storage)
    expected = SEARCHES[search](connection)
    for change, statements in CHANGES.items():

        def commit(statements=statements):
            with connection.transaction():
                connection.execute(statements)

        session = connect()
        if (search, change) == ("near_rows", "rewrite"):
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="does not match function result type"):
                SEARCHES[search](Late(session, commit))
        else:
            assert SEARCHES[search](Late(session, commit)) == expected
        session.rollback()


def test_a_column_that_took_the_name_after_the_statement_began(connection, connect):
    create_articles(connection, [5], storage="expression")
    connection.execute("ALTER TABLE article ADD other bigint DEFAULT 9")

    def rename():
        with connection.transaction():
            connection.execute("INSERT INTO article (fingerprint, other) VALUES (1, %s)", [CENTRE])
            connection.execute("ALTER TABLE article DROP fingerprint CASCADE")
            connection.execute("ALTER TABLE article RENAME other TO fingerprint")

    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="its columns were renamed"):
        near(Late(connect(), rename), 9, 3)
    assert near(connect(), CENTRE, 3) == [(CENTRE, 0)]


@pytest.mark.parametrize("level", ONE_SNAPSHOT)
def test_rows_that_are_frozen_as_they_are_copied(connection, connect, level):
    """Every snapshot sees them, but not their keys."""
    create_articles(connection, [5])
    session = connect()
    session.execute(f"BEGIN ISOLATION LEVEL {level}")
    session.execute("SELECT FROM pg_class LIMIT 1")
    with connection.transaction():
        connection.execute("TRUNCATE article")
        with connection.cursor().copy("COPY article (fingerprint) FROM STDIN (FREEZE)") as copy:
            copy.write(f"{CENTRE}\n")
    assert session.execute("SELECT fingerprint FROM article").fetchall() == [(CENTRE,)]
    with pytest.raises(errors.ObjectNotInPrerequisiteState, match="has changed since this transaction"):
        near(session, CENTRE, 3)


def test_a_part_that_was_rewritten(connection, connect):
    connection.execute("CREATE TABLE article (id bigint, body text, fingerprint bigint) PARTITION BY LIST (id)")
    for part in (1, 2):
        connection.execute(f"CREATE TABLE part_{part} PARTITION OF article FOR VALUES IN ({part})")
    connection.execute("INSERT INTO article VALUES (1, 'a', %s), (2, 'b', %s)", [CENTRE, CENTRE ^ 1])
    connection.execute("SELECT simsql.create_index('article', 'fingerprint')")
    connection.execute("BEGIN")
    connection.execute("LOCK TABLE part_2")
    connection.execute("TRUNCATE part_2")
    connection.execute("INSERT INTO article VALUES (2, 'b', %s)", [CENTRE ^ 1])
    with blocked(connect, SEARCHES["near"]) as waiting:
        connection.execute("COMMIT")
        assert waiting.result() == [(CENTRE, 0), (CENTRE ^ 1, 1)]


@pytest.mark.parametrize("children", ["PARTITION BY LIST (id)", "INHERITS"])
def test_a_part_that_was_rewritten_before(connection, connect, children):
    is_partitioned = children != "INHERITS"
    columns = "id bigint, body text, fingerprint bigint"
    connection.execute(f"CREATE TABLE article ({columns}) {children if is_partitioned else ''}")
    if is_partitioned:
        connection.execute("CREATE TABLE part PARTITION OF article DEFAULT")
    else:
        connection.execute("CREATE TABLE part () INHERITS (article)")
    connection.execute("INSERT INTO part VALUES (1, 'a', %s)", [CENTRE])
    connection.execute("SELECT simsql.create_index('article', 'fingerprint', storage => 'expression')")

    def truncate():
        with connection.transaction():
            connection.execute("TRUNCATE part")
            connection.execute("INSERT INTO part VALUES (1, 'a', %s)", [CENTRE])

    assert SEARCHES["near"](Late(connect(), truncate)) == [(CENTRE, 0)]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_child_that_joined_after_the_index_was_created_and_was_rewritten(connection, connect, search):
    """The file that the index knows is that of a table without children."""
    create_articles(connection, [5], storage="expression")
    connection.execute("CREATE TABLE child () INHERITS (article)")
    connection.execute("INSERT INTO child VALUES (2, 'a', %s), (3, 'b', %s)", [CENTRE, CENTRE ^ 1])
    expected = SEARCHES[search](connection)

    def truncate():
        with connection.transaction():
            connection.execute("TRUNCATE child")
            connection.execute("INSERT INTO child VALUES (2, 'a', %s), (3, 'b', %s)", [CENTRE, CENTRE ^ 1])

    session = connect()
    if search in ("near", "similar_candidates"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="a child of its table was emptied"):
            SEARCHES[search](Late(session, truncate))
    else:
        assert SEARCHES[search](Late(session, truncate)) == expected
    session.rollback()
    assert SEARCHES[search](connection) == expected


def test_a_table_that_vacuum_rewrites_is_searched(connection, connect, storage):
    """Its rows stay visible to a snapshot that is older than the rewrite."""
    create_articles(connection, [CENTRE, 5], storage=storage)
    connection.execute("BEGIN")
    connection.execute("CLUSTER article USING article_pkey")
    with blocked(connect, SEARCHES["near"]) as waiting:
        connection.execute("COMMIT")
        assert waiting.result() == [(CENTRE, 0)]


def test_who_may_read_columns_alone_waits_too(connection, connect, new_role, storage):
    """Such a role cannot call LOCK."""
    create_articles(connection, [CENTRE], storage=storage)
    role = new_role()
    connection.execute(f"GRANT SELECT (fingerprint) ON article TO {role}")

    def search(session):
        session.execute(f"SET ROLE {role}")
        return near(session, CENTRE, 3)

    connection.execute("BEGIN")
    connection.execute("LOCK TABLE article")
    connection.execute(CHANGES["delete and insert"])
    with blocked(connect, search) as waiting:
        connection.execute("COMMIT")
        assert waiting.result() == [(CENTRE, 0)]
