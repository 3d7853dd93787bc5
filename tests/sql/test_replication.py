"""Rows that logical replication applies have keys, and so have those that a restore writes as a replica."""

import pytest
from articles import count_keys, create_articles, create_index, create_table, missing_keys, near
from internals import begin_build, build_batch, set_batch_size
from oracle import clustered
from program import wait_until
from psycopg import errors
from replication import rows_of, subscription, wait_for, wait_until_applied
from upkeep import problems

pytestmark = [
    pytest.mark.oldest_version,
    pytest.mark.fault("logical replication of tables and of all tables, in one direction and both"),
]

FINGERPRINTS = clustered(120, seed=50)


def streamed_transactions(connection, name):
    """How many a slot has streamed. PostgreSQL 14 has a process that collects this, which takes a while."""
    statement = "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s"
    return connection.execute(statement, [name]).fetchone()[0]


def check(connection):
    """Every row is found, and nothing is wrong."""
    assert missing_keys(connection) == []
    for _, fingerprint in rows_of(connection)[::7]:
        assert (fingerprint, 0) in near(connection, fingerprint, 0)
    assert connection.execute("SELECT state FROM simsql.indexes").fetchall() == [("ready",)]
    assert problems(connection) == set()


def test_applied_rows_are_found(connection, subscriber):
    """From the initial copy on, through inserts, updates, deletes and TRUNCATE."""
    create_table(connection, FINGERPRINTS[:40])
    create_articles(subscriber)
    with subscription(connection, subscriber):
        assert rows_of(subscriber) == rows_of(connection)  # the initial copy
        check(subscriber)
        connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS[40:]])
        connection.execute("UPDATE article SET fingerprint = fingerprint # 65536 WHERE id % 3 = 0")
        connection.execute("UPDATE article SET body = 'other' WHERE id % 5 = 0")
        connection.execute("DELETE FROM article WHERE id % 7 = 0")
        connection.execute("INSERT INTO article (fingerprint) VALUES (NULL), (77)")
        connection.execute("UPDATE article SET fingerprint = 78 WHERE fingerprint IS NULL")
        wait_for(subscriber, rows_of(connection))
        check(subscriber)
        assert near(subscriber, 77, 2) == [(77, 0), (78, 2)]
        connection.execute("TRUNCATE article")
        connection.execute("INSERT INTO article (fingerprint) VALUES (5)")
        wait_for(subscriber, rows_of(connection))
        check(subscriber)


def test_an_update_of_other_columns_adds_no_key_on_apply(connection, subscriber):
    create_table(connection, [1, 2])
    create_articles(subscriber)
    with subscription(connection, subscriber):
        wait_for(subscriber, rows_of(connection))
        assert count_keys(subscriber) == [2, 2, 2, 2]
        connection.execute("UPDATE article SET body = 'other'")
        connection.execute("INSERT INTO article (fingerprint) VALUES (3)")
        wait_for(subscriber, rows_of(connection))
        assert count_keys(subscriber) == [3, 3, 3, 3]


def test_a_scoped_index_and_a_row_filter(connection, subscriber):
    for side in (connection, subscriber):
        side.execute("CREATE TABLE article (id int PRIMARY KEY, tenant text, fingerprint bigint)")
    subscriber.execute("SELECT simsql.create_index('article', 'fingerprint', scope => '{tenant}')")
    filtered = subscriber.info.server_version >= 150000
    condition = "WHERE (id < 100)" if filtered else ""
    with subscription(connection, subscriber, condition=condition):
        connection.execute(
            "INSERT INTO article SELECT n, chr(97 + n % 3), n * 1000 FROM generate_series(1, 120) AS n"
        )
        connection.execute("UPDATE article SET tenant = 'moved' WHERE id % 4 = 0")
        # A row that comes to meet the filter is inserted on the other side.
        connection.execute("UPDATE article SET id = 0, tenant = 'a' WHERE id = 119")
        wanted = [row for row in rows_of(connection) if row[0] < 100 or not filtered]
        wait_for(subscriber, wanted)
        assert missing_keys(subscriber) == []
        found = subscriber.execute(
            "SELECT count(*) FROM simsql.near('article', 4000, 64, scope => %s)", ['{"tenant": "moved"}']
        )
        assert found.fetchone() == (len([row for row in wanted if row[0] % 4 == 0 and row[0] > 0]),)
        assert problems(subscriber) == set()


def test_both_directions(connection, subscriber):
    """Each side writes its own rows, and applies those of the other."""
    if connection.info.server_version < 160000:
        with pytest.raises(Exception, match="unrecognized subscription parameter"):
            subscriber.execute(
                "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p WITH (connect = false, origin = none)"
            )
        return
    for side in (connection, subscriber):
        side.execute("CREATE TABLE article (id int PRIMARY KEY, fingerprint bigint)")
        create_index(side)
    options = ", copy_data = false, origin = none"
    with (
        subscription(connection, subscriber, options=options),
        subscription(subscriber, connection, options=options),
    ):
        for number, fingerprint in enumerate(FINGERPRINTS):
            side = (connection, subscriber)[number % 2]
            side.execute("INSERT INTO article VALUES (%s, %s)", [number, fingerprint])
        connection.execute("UPDATE article SET fingerprint = fingerprint # 1 WHERE id % 10 = 0")
        wait_until(lambda: rows_of(connection) == rows_of(subscriber), "both sides to be equal")
        assert len(rows_of(connection)) == len(FINGERPRINTS)
        check(connection)
        check(subscriber)


@pytest.mark.parametrize("how", ["insert", "copy"])
def test_a_restore_as_a_replica_adds_keys(connection, how):
    create_articles(connection)
    connection.execute("SET session_replication_role = replica")
    if how == "insert":
        connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    else:
        with connection.cursor().copy("COPY article (fingerprint) FROM STDIN") as copy:
            for fingerprint in FINGERPRINTS:
                copy.write_row([fingerprint])
    connection.execute("RESET session_replication_role")
    assert count_keys(connection) == [len(FINGERPRINTS)] * 4
    check(connection)


@pytest.mark.fault("a trigger that changes `session_replication_role` within a statement")
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
def test_another_trigger_makes_the_session_a_replica(connection, examine, when):
    create_articles(connection, range(10, 20))
    connection.execute(
        "CREATE FUNCTION be_replica() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.fingerprint % 3 = 1 THEN"
        " SET LOCAL session_replication_role = replica; END IF; RETURN NEW; END $$;"
        f"CREATE TRIGGER a {when} INSERT OR UPDATE ON article FOR EACH ROW EXECUTE FUNCTION be_replica()"
    )
    connection.execute("INSERT INTO article (fingerprint) VALUES (30), (31), (32)")
    connection.execute("UPDATE article SET fingerprint = fingerprint + 100 WHERE id IN (3, 4, 5)")
    examine(connection, dict(rows_of(connection)))


def test_a_session_that_becomes_a_replica_loses_no_keys(connection):
    """Within a statement, after its rows were written and before its statement triggers fire."""
    create_articles(connection)
    connection.execute(
        "CREATE FUNCTION switch() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM set_config('session_replication_role', 'replica', true); RETURN NULL; END $$;"
        " CREATE TRIGGER switch AFTER INSERT OR UPDATE ON article FOR EACH ROW EXECUTE FUNCTION switch()"
    )
    connection.execute("INSERT INTO article (fingerprint) SELECT unnest(%s::bigint[])", [FINGERPRINTS])
    check(connection)
    connection.execute("UPDATE article SET fingerprint = fingerprint # 5")
    check(connection)
    connection.execute("SET session_replication_role = replica; DROP TRIGGER switch ON article")
    (before, *_) = count_keys(connection)
    connection.execute("UPDATE article SET fingerprint = fingerprint # 6")
    assert count_keys(connection) == [before + len(FINGERPRINTS)] * 4
    check(connection)


def test_without_its_trigger_for_replication_an_index_is_refused(connection):
    create_articles(connection, [1])
    connection.execute("ALTER TABLE article DISABLE TRIGGER simsql_1_replica")
    assert connection.execute("SELECT state FROM simsql.indexes").fetchall() == [("triggers disabled",)]
    with pytest.raises(Exception, match="have been disabled or dropped"):
        near(connection, 1, 0)
    assert problems(connection) == {("trigger not enabled for replication", "simsql_1_replica")}
    connection.execute("SELECT * FROM simsql.repair('article')")
    assert near(connection, 1, 0) == [(1, 0)]


def test_a_subscriber_is_upgraded_while_it_is_subscribed(server, connection):
    from upgrades import RELEASED, bare

    from simsql.database import install_schema

    create_table(connection, FINGERPRINTS[:40])
    with bare(server) as (subscriber, engine):
        subscriber.execute(RELEASED["0.2.0"].read_text(encoding="utf-8"))
        create_articles(subscriber)
        with subscription(connection, subscriber):
            wait_for(subscriber, rows_of(connection))
            install_schema(engine)
            check(subscriber)
            connection.execute("INSERT INTO article (fingerprint) VALUES (78)")
            wait_for(subscriber, rows_of(connection))
            check(subscriber)


@pytest.mark.parametrize("streaming", ["off", "on", "parallel"])
def test_a_vacuum_of_the_publisher_leaves_the_keys_of_the_subscriber(connection, subscriber, examine, streaming):
    """A publication of all tables has the key tables, too, and the keys are counted differently on both sides."""
    if streaming == "parallel" and connection.info.server_version < 160000:
        pytest.skip("it came with PostgreSQL 16")
    for side in (connection, subscriber):
        create_articles(side, FINGERPRINTS)
    options, settings = f", copy_data = false, streaming = {streaming}", "-c logical_decoding_work_mem=64kB"
    with subscription(connection, subscriber, options=options, tables="ALL TABLES", settings=settings) as name:
        connection.execute("INSERT INTO article (fingerprint) SELECT n FROM generate_series(1000, 1200) AS n")
        connection.execute("DELETE FROM article WHERE fingerprint BETWEEN 1000 AND 1200")
        connection.execute("UPDATE article SET fingerprint = fingerprint # 1")
        connection.execute("UPDATE article SET fingerprint = fingerprint # 1")
        wait_until_applied(connection, name)
        subscriber.execute("CALL simsql.vacuum('article')")
        connection.execute("CALL simsql.vacuum('article')")
        wait_until_applied(connection, name)
        check(subscriber)
        if streaming == "off":
            assert streamed_transactions(connection, name) == 0
        else:
            wait_until(lambda: streamed_transactions(connection, name) > 0, "a streamed transaction")
        examine(subscriber, dict(rows_of(connection)))


@pytest.mark.parametrize("scope", [[], ["body"]], ids=["whole", "scope"])
def test_a_repair_of_a_table_created_again_leaves_the_keys_of_the_subscriber(
    connection, subscriber, examine, scope
):
    """Neither does it take the keys of its rows, nor does it stop replication."""
    for side in (connection, subscriber):
        create_table(side)
        side.execute("SELECT simsql.create_index('article', 'fingerprint', blocks => 4, scope => %s)", [scope])
    definition = "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'article'::regclass"
    triggers = connection.execute(f"{definition} AND tgname LIKE 'simsql%'").fetchall()
    with subscription(connection, subscriber, options=", copy_data = false", tables="ALL TABLES") as name:
        insert = (
            "INSERT INTO article (id, body, fingerprint) OVERRIDING SYSTEM VALUE"
            " SELECT * FROM unnest(%s::int[], %s::text[], %s::bigint[])"
        )
        ids = list(range(len(FINGERPRINTS)))
        connection.execute(insert, [ids, [f"of {n % 3}" for n in ids], FINGERPRINTS])
        connection.execute("DROP TABLE article")
        create_table(connection)
        for (trigger,) in triggers:
            connection.execute(trigger)
        connection.execute(insert, [[1000], ["of 1"], [78]])
        connection.execute("SELECT * FROM simsql.repair('article')")
        connection.execute(insert, [[1001], ["of 1"], [79]])
        wait_until_applied(connection, name)
        expected = [*zip(ids, FINGERPRINTS, strict=True), (1000, 78), (1001, 79)]
        assert rows_of(subscriber) == expected
        assert missing_keys(subscriber) == missing_keys(connection) == []
        assert problems(subscriber) == problems(connection) == set()
        (found,) = connection.execute(
            "SELECT array_agg(fingerprint ORDER BY fingerprint) FROM simsql.near('article', 78, 3, scope => %s)",
            ['{"body": "of 1"}' if scope else None],
        ).fetchone()
        assert found == [78, 79]
    if not scope:
        examine(subscriber, dict(expected))


def test_each_side_of_a_publication_of_all_tables_keeps_its_own_indexes(connection, subscriber):
    """The publisher builds, vacuums and drops an index, whose id the subscriber has given to another one."""
    for side in (connection, subscriber):
        set_batch_size(side, 20)
        create_table(side, FINGERPRINTS)
        side.execute("CREATE INDEX ON article (fingerprint)")
    with subscription(connection, subscriber, options=", copy_data = false", tables="ALL TABLES") as name:
        begin_build(subscriber, blocks=5, storage="tables")
        build_batch(subscriber)
        registered = subscriber.execute("SELECT * FROM simsql.registry").fetchall()
        connection.execute("CALL simsql.build('article', 'fingerprint', storage => 'tables')")
        connection.execute("CALL simsql.vacuum('article')")
        connection.execute("SELECT simsql.drop_index('article', 'fingerprint')")
        connection.execute("UPDATE article SET body = 'the last one' WHERE id = 1")
        wait_until_applied(connection, name)
        assert subscriber.execute("SELECT body FROM article WHERE id = 1").fetchone() == ("the last one",)
        assert subscriber.execute("SELECT * FROM simsql.registry").fetchall() == registered
        with pytest.raises(Exception, match="is still being built"):
            near(subscriber, 0, 0, column="fingerprint")


def test_a_schema_restored_without_its_data_gets_its_indexes_by_the_initial_copy(
    server, connection, restored, tmp_path, examine
):
    create_articles(connection, FINGERPRINTS)
    file = str(tmp_path / "schema")
    server.run("pg_dump", "--schema-only", f"--file={file}", connection.info.dbname)
    server.run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={file}", restored.info.dbname)
    with subscription(connection, restored, tables="ALL TABLES"):
        with pytest.raises(errors.ObjectNotInPrerequisiteState, match="have not been compared"):
            near(restored, 0, 0)
        restored.execute("SELECT FROM simsql.repair('article')")
        check(restored)
        connection.execute("UPDATE article SET fingerprint = fingerprint # 2 WHERE id % 2 = 0")
        wait_for(restored, rows_of(connection))
        check(restored)
    examine(restored, dict(rows_of(connection)))


@pytest.mark.parametrize("change", ["create_index('other', 'fingerprint')", "change_storage('third', 'tables')"])
def test_a_sequence_that_replication_has_left_behind_is_no_obstacle(articles, change):
    articles.execute(
        "CREATE TABLE third (fingerprint bigint); CREATE TABLE other (fingerprint bigint);"
        " SELECT simsql.create_index('third', 'fingerprint', storage => 'expression');"
        " SELECT setval('simsql.registry_id_seq', 1, false)"
    )
    assert articles.execute(f"SELECT simsql.{change}").fetchone() == (3,)
    assert problems(articles, None) == set()


def test_a_large_transaction_is_applied_while_it_runs(connection, subscriber, examine):
    """In parts, by several workers from PostgreSQL 16 on, and without what a savepoint takes back."""
    for side in (connection, subscriber):
        create_articles(side, FINGERPRINTS)
    streaming = "parallel" if connection.info.server_version >= 160000 else "on"
    options = f", copy_data = false, streaming = {streaming}"
    settings = "-c logical_decoding_work_mem=64kB"
    insert = "INSERT INTO article (fingerprint) SELECT n * 1000 + %s FROM generate_series(1, 400) AS n"
    with subscription(connection, subscriber, options=options, settings=settings) as name:
        with connection.transaction():
            connection.execute(insert, [1])
            with connection.transaction(force_rollback=True):
                connection.execute(insert, [2])
            connection.execute(insert, [3])
            connection.execute("UPDATE article SET fingerprint = fingerprint # 4 WHERE id % 9 = 0")
        wait_for(subscriber, rows_of(connection))
        wait_until(lambda: streamed_transactions(connection, name) > 0, "a streamed transaction")
        check(subscriber)
        examine(subscriber, dict(rows_of(connection)))
