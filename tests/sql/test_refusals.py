"""What cannot be indexed exactly is refused, with a message that says what and where, and what to do."""

import psycopg
import pytest
from articles import create_articles, create_index, create_table
from psycopg import errors

TABLE = "CREATE TABLE article (id int, fingerprint bigint)"
# set-up, SQLSTATE class, message about the table `article` and the column `fingerprint`
REFUSED = {
    "partitioned": (
        ["CREATE TABLE article (id int, fingerprint bigint) PARTITION BY LIST (id)"],
        "public.article is partitioned",
    ),
    "partition": (
        [
            "CREATE TABLE whole (id int, fingerprint bigint) PARTITION BY LIST (id)",
            "CREATE TABLE article PARTITION OF whole DEFAULT",
        ],
        "public.article is a partition",
    ),
    "inheritance parent": (
        [TABLE, "CREATE TABLE child () INHERITS (article)"],
        "public.article takes part in inheritance",
    ),
    "inheritance child": (
        ["CREATE TABLE parent (id int)", "CREATE TABLE article (fingerprint bigint) INHERITS (parent)"],
        "public.article takes part in inheritance",
    ),
    "temporary": (["CREATE TEMPORARY TABLE article (id int, fingerprint bigint)"], "article is temporary"),
    "foreign": (
        [
            "CREATE FOREIGN DATA WRAPPER elsewhere",
            "CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere",
            "CREATE FOREIGN TABLE article (id int, fingerprint bigint) SERVER elsewhere",
        ],
        "public.article is a foreign table",
    ),
    "view": (["CREATE VIEW article AS SELECT 1::bigint AS fingerprint"], "public.article is a view"),
    "materialised view": (
        ["CREATE MATERIALIZED VIEW article AS SELECT 1::bigint AS fingerprint"],
        "public.article is a view",
    ),
    "sequence": (["CREATE SEQUENCE article"], "public.article is not a table"),
    "composite type": (["CREATE TYPE article AS (fingerprint bigint)"], "public.article is not a table"),
}


@pytest.mark.parametrize(("statements", "message"), REFUSED.values(), ids=REFUSED)
def test_a_relation_that_is_no_ordinary_table_is_refused(connection, statements, message):
    for statement in statements:
        connection.execute(statement)
    create = "SELECT simsql.create_index('article', 'fingerprint', storage => '{}')"
    with pytest.raises(errors.FeatureNotSupported, match=f"simsql.create_index: {message}") as caught:
        connection.execute(create.format("tables"))
    if "would be missed" in caught.value.diag.message_primary and "foreign" not in message:
        assert "Use storage => 'expression'" in caught.value.diag.message_hint
        connection.execute(create.format("expression"))
    else:
        assert caught.value.diag.message_hint == "Only ordinary and partitioned tables can be indexed."
        with pytest.raises(errors.FeatureNotSupported, match=message):
            connection.execute(create.format("expression"))


@pytest.mark.parametrize("table", ["simsql.registry", "simsql.keys_1_0", "pg_catalog.pg_sequence"])
def test_tables_of_simsql_and_of_the_catalog_are_refused(connection, table):
    create_articles(connection)
    with pytest.raises(psycopg.Error) as caught:
        create_index(connection, table, "key" if "keys" in table else "seqstart" if "seq" in table else "distance")
    assert table.rpartition(".")[2] in caught.value.diag.message_primary


@pytest.mark.parametrize("type_", ["integer", "numeric", "text", "bit(64)", "bigint[]", "oid"])
def test_a_column_that_is_not_bigint_is_refused(connection, type_):
    connection.execute(f"CREATE TABLE article (fingerprint {type_})")
    with pytest.raises(errors.DatatypeMismatch) as caught:
        create_index(connection)
    assert caught.value.diag.message_primary.startswith(
        f"simsql.create_index: column fingerprint of public.article is {type_}, not bigint"
    )
    assert "simsql.fp" in caught.value.diag.message_hint


@pytest.mark.parametrize("column", ["print", "ctid", "xmin", "Fingerprint", "gone"])
def test_a_missing_column_is_refused(connection, column):
    create_table(connection)
    connection.execute("ALTER TABLE article ADD COLUMN gone bigint")
    connection.execute("ALTER TABLE article DROP COLUMN gone")
    with pytest.raises(errors.UndefinedColumn, match=f'article has no column "?{column}') as caught:
        create_index(connection, column=column)
    if column == "print":
        connection.execute(caught.value.diag.message_hint.removeprefix("Add it: "))
        create_index(connection, column=column)


def test_a_missing_table_is_refused(connection):
    with pytest.raises(errors.UndefinedTable, match='"article"'):
        create_index(connection)


@pytest.mark.parametrize("arguments", ["NULL, 'fingerprint'", "'article', NULL", "'article', 'fingerprint', NULL"])
def test_a_table_column_and_distance_have_to_be_named(connection, arguments):
    create_table(connection)
    with pytest.raises(errors.NullValueNotAllowed, match=r"^simsql.create_index: the table") as caught:
        connection.execute(f"SELECT simsql.create_index({arguments})")
    connection.execute(caught.value.diag.message_hint.removeprefix("For example: "))


def test_a_virtual_generated_column_is_refused(connection, server):
    if server.major < 18:
        pytest.skip("virtual generated columns came with PostgreSQL 18")
    connection.execute("CREATE TABLE article (id int, fingerprint bigint GENERATED ALWAYS AS (id) VIRTUAL)")
    with pytest.raises(
        errors.FeatureNotSupported, match=r"fingerprint of public\.article is a virtual generated column"
    ):
        create_index(connection)


def test_a_second_index_on_a_column_is_refused(connection):
    create_articles(connection)
    with pytest.raises(
        errors.DuplicateObject, match=r"fingerprint of public\.article already has a simhash index"
    ) as caught:
        create_index(connection, design=(2, 1, 0))
    hint = caught.value.diag.message_hint
    connection.execute(hint[hint.index("SELECT") :])
    create_index(connection, design=(2, 1, 0))


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_older_snapshot_than_the_lock_is_refused(connection, level):
    create_table(connection, [1])
    connection.execute(f"BEGIN ISOLATION LEVEL {level}")
    with pytest.raises(errors.ActiveSqlTransaction, match=level.lower()) as caught:
        create_index(connection)
    connection.execute("ROLLBACK")
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    assert "BEGIN ISOLATION LEVEL READ COMMITTED" in caught.value.diag.message_hint
    create_index(connection)
    connection.execute("COMMIT")


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ((0, 0, 0), "blocks must be between 2 and 64, not 0"),
        ((1, 1, 0), "blocks must be between 2 and 64, not 1"),
        ((65, 1, 0), "blocks must be between 2 and 64, not 65"),
        ((4, 0, 0), "lead must be between 1 and 3, not 0"),
        ((4, 4, 0), "lead must be between 1 and 3, not 4"),
        ((4, -1, 0), "lead must be between 1 and 3, not -1"),
    ],
)
def test_blocks_or_a_lead_out_of_range_are_refused(connection, design, message):
    create_table(connection)
    with pytest.raises(errors.InvalidParameterValue, match=message):
        create_index(connection, design=design)


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ((4, 1, 1), "inner_blocks cannot be 1 with 1 of 4 blocks in the lead"),
        ((4, 1, -2), "inner_blocks cannot be -2"),
        ((5, 2, 39), "inner_blocks cannot be 39 with 2 of 5 blocks in the lead"),
        ((10, 5, 0), "10 blocks with 5 in the lead and 0 inner blocks need 252 tables"),
        ((4, 1, 33), "need 132 tables"),
        ((64, 32, 0), "need 1832624140942590534 tables"),
        ((None, 1, None), "need blocks"),
        ((None, None, 4), "need blocks"),
    ],
)
def test_a_layout_that_is_none_or_too_large_is_refused(connection, design, message):
    create_table(connection)
    with pytest.raises(errors.InvalidParameterValue, match=message) as caught:
        create_index(connection, design=design)
    assert caught.value.diag.message_hint.startswith(("Use ", "Set blocks"))


@pytest.mark.parametrize("distance", [-1, 65])
def test_a_distance_out_of_range_is_refused(connection, distance):
    create_table(connection)
    with pytest.raises(errors.InvalidParameterValue, match=f"between 0 and 64, not {distance}"):
        connection.execute("SELECT simsql.create_index('article', 'fingerprint', distance => %s)", [distance])


def test_an_index_that_is_not_there_cannot_be_dropped(connection):
    create_table(connection)
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index"):
        connection.execute("SELECT simsql.drop_index('article')")
    with pytest.raises(errors.UndefinedObject, match="article has no simhash index on column fingerprint"):
        connection.execute("SELECT simsql.drop_index('article', 'fingerprint')")
