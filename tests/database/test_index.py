"""Creating and dropping indexes from Python: what is said is registered, and lives in the transaction."""

import pytest
from articles import create_table, near
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError

from simsql import Design, Recipe
from simsql.database import SearchIndex, create_index, drop_index, read_status


@pytest.fixture
def articles(connection):
    """Two rows without an index."""
    create_table(connection, [1, -1])
    return connection


def test_the_defaults(articles, database):
    with database.begin() as transaction:
        number = create_index(transaction, "article", "fingerprint")
    (index,) = read_status(database).indexes
    assert (index.id, index.table_name, index.column_name) == (number, "public.article", "fingerprint")
    assert (index.distance, index.blocks, index.lead, index.state) == (3, 4, 1, "ready")
    assert near(articles, -1) == [(-1, 0)]


def test_distance_design_and_recipe_are_kept(articles, database):
    recipe = Recipe(shingles=(3,))
    with database.begin() as transaction:
        create_index(transaction, "article", "fingerprint", distance=64, design=Design(5, 2), recipe=recipe)
        assert SearchIndex(transaction, "article").recipe() == recipe
    (index,) = read_status(database).indexes
    assert (index.distance, index.blocks, index.lead) == (64, 5, 2)
    assert index.recipe == recipe.id
    assert near(articles, -1) == [(-1, 0), (1, 63)]


def test_an_index_lives_and_dies_in_the_transaction(articles, database):
    with database.connect() as transaction:
        create_index(transaction, "article", "fingerprint")
        transaction.rollback()
        assert read_status(database).indexes == ()
        create_index(transaction, "article", "fingerprint")
        transaction.commit()
        drop_index(transaction, "article")
        transaction.rollback()
        assert len(read_status(database).indexes) == 1
        drop_index(transaction, "article", "fingerprint")
        transaction.commit()
    assert read_status(database).indexes == ()


@pytest.mark.parametrize("name", ["article", "public.article", '"article"', "  ARTICLE "])
def test_a_table_is_named_as_sql_writes_it(articles, database, name):
    with database.begin() as transaction:
        create_index(transaction, name, "fingerprint")
        drop_index(transaction, name)


def test_odd_names_are_taken_and_nothing_is_executed_in_them(articles, database):
    table, column = 'Odd "name"; DROP TABLE article', "fp'; DROP TABLE article; --"
    quoted = '"' + table.replace('"', '""') + '"'
    articles.execute(f'CREATE TABLE {quoted} ("{column}" bigint)')
    articles.execute(f"INSERT INTO {quoted} VALUES (7)")
    with database.begin() as transaction:
        create_index(transaction, quoted, column)
    assert near(articles, 7, 0, table=quoted) == [(7, 0)]
    with database.begin() as transaction:
        drop_index(transaction, quoted, column)
    assert articles.execute("SELECT count(*) FROM article").fetchone() == (2,)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing", "fingerprint"), 'relation "missing" does not exist'),
        (("article", "missing"), "has no column missing"),
        (("article", "Fingerprint"), 'has no column "Fingerprint"'),
        (("article", "body"), "is text, not bigint"),
    ],
)
def test_what_cannot_be_indexed_is_an_error_with_postgresqls_message(articles, database, arguments, said):
    with database.connect() as transaction, pytest.raises(DBAPIError, match=said):
        create_index(transaction, *arguments)


@pytest.mark.parametrize("distance", [-1, 65])
def test_a_distance_out_of_range_is_refused(articles, database, distance):
    with database.connect() as transaction, pytest.raises(ValueError, match="distance must be between 0 and 64"):
        create_index(transaction, "article", "fingerprint", distance=distance)


def test_dropping_what_is_not_there_is_an_error(articles, database):
    with database.connect() as transaction, pytest.raises(DBAPIError, match="has no simhash index"):
        drop_index(transaction, "article")


# Concurrently


@pytest.fixture
def two_connections(database):
    """An engine that opens two connections, which find an operator of their user before that of PostgreSQL."""
    engine = create_engine(
        database.url,
        pool_size=2,
        max_overflow=0,
        pool_timeout=1,
        connect_args={"options": "-c search_path=evil,public,pg_catalog"},
    )
    yield engine
    engine.dispose()


@pytest.mark.unpooled("PgBouncer refuses the parameter options")
@pytest.mark.parametrize("storage", ["tables", "expression"])
def test_a_build_needs_two_connections_and_leaves_their_sessions_as_they_were(articles, two_connections, storage):
    articles.execute("CREATE SCHEMA evil")
    articles.execute(
        "CREATE FUNCTION evil.zero(bigint, bigint) RETURNS bigint IMMUTABLE LANGUAGE sql RETURN 0::bigint"
    )
    articles.execute("CREATE OPERATOR evil.& (leftarg = bigint, rightarg = bigint, function = evil.zero)")
    shares = []

    def report(share):
        shares.append(share)
        assert len(shares) < 10

    create_index(two_connections, "article", "fingerprint", storage=storage, report=report, concurrently=True)
    assert near(articles, -1) == [(-1, 0)]
    with two_connections.begin() as one, two_connections.begin() as other:
        for session in (one, other):
            assert session.execute(text("SHOW search_path")).scalar_one() == "evil,public,pg_catalog"
            held = "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
            assert session.execute(text(held)).scalars().all() == []


@pytest.mark.unpooled("PgBouncer answers for a session that was ended")
def test_a_build_reports_that_its_connection_broke(articles, database):
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = %s"
    with pytest.raises(OperationalError, match="terminating connection"):
        create_index(
            database,
            "article",
            "fingerprint",
            storage="expression",
            report=lambda share: articles.execute(end, [database.url.database]),
            concurrently=True,
        )
    # Nothing is left that keeps the next one from it.
    create_index(database, "article", "fingerprint", storage="expression", concurrently=True)
    assert near(articles, -1) == [(-1, 0)]
